"""``peloton archive``: reads the archive of records that retention has deleted."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

import click

from cli.command import Group
from cli.errors import Failed
from cli.output import Table, print_rows_for_programs, print_table
from cli.serve import config_option
from cli.settings import Settings, pass_settings
from cli.terminal import echo
from cli.times import seconds_text

if TYPE_CHECKING:
    from services.retention.archive import Archive

CLASSES = click.Choice(["jobs", "pods", "pod-events", "runs", "host-events"])
LIMIT_MAX = 100_000
JOBS: Table[dict[str, Any]] = Table(
    ("Job", lambda row: row["job_id"]),
    ("Name", lambda row: row["job_name"]),
    ("Pool", lambda row: row["pool"]),
    ("Owner", lambda row: row["owner"]),
    ("State", lambda row: row["state"]),
    ("Instances", lambda row: row["instance_count"]),
    ("Created", lambda row: seconds_text(row["created_time"] or "")),
    ("Completed", lambda row: seconds_text(row["completed_time"] or "")),
    whole=["Job", "State"],
    spare=["Created", "Owner", "Instances", "Pool"],
    nothing="The archive has no such job",
    name=lambda row: row["job_id"],
)
PODS: Table[dict[str, Any]] = Table(
    ("Job", lambda row: row["job_id"]),
    ("Name", lambda row: row.get("job_name", "")),
    ("Instance", lambda row: row.get("instance_id", "")),
    ("Run", lambda row: row.get("run_id", "")),
    ("State", lambda row: row.get("state", "")),
    ("Host", lambda row: row.get("host", "")),
    ("Time", lambda row: seconds_text(row.get("time") or row.get("completed_time") or "")),
    ("Reason", lambda row: row.get("reason", "")),
    ("Message", lambda row: row.get("message", "")),
    whole=["Job", "Instance", "Run", "State"],
    spare=["Name", "Reason", "Message", "Time", "Host"],
    nothing="The archive has no such record",
    name=lambda row: f"{row['job_id']}-{row.get('instance_id', '')}-{row.get('run_id', '')}",
)
HOSTS: Table[dict[str, Any]] = Table(
    ("Time", lambda row: seconds_text(row.get("time") or "")),
    ("Host", lambda row: row["hostname"]),
    ("Cluster", lambda row: row["cluster"]),
    ("Event", lambda row: row["event"]),
    ("Text", lambda row: row["text"]),
    whole=["Time", "Host", "Event"],
    nothing="The archive has no such event",
    name=lambda row: str(row["seq"]),
)
OBJECTS: Table[str] = Table(("Object", lambda name: name), nothing="The archive is empty", name=str)


@click.group(cls=Group)
def archive() -> None:
    """Read the archive of jobs, pods and events that were deleted by age.

    PELOTON_ARCHIVE names it, or --archive. It is read as it is, also while Peloton is down.
    """


def archive_options(command: Callable[..., None]) -> Callable[..., None]:
    location = click.option("--archive", "location", default="", metavar="LOCATION", help="A folder, or s3://...")
    since = click.option("--since", type=click.DateTime(["%Y-%m-%d"]), help="The first day of the ends of jobs.")
    until = click.option("--until", type=click.DateTime(["%Y-%m-%d"]), help="The last day, included.")
    return config_option(location(since(until(command))))


def open_archive(location: str, config: str) -> Archive:
    from services.retention import archive as archives
    from services.settings import load

    found = archives.open_archive(load(config=config), location)
    if found is None:
        raise Failed("no archive is named: set PELOTON_ARCHIVE, or give --archive")
    return found


def day(moment: datetime | None) -> date | None:
    return moment.date() if moment is not None else None


@archive.command("list")
@click.argument("group", metavar="[CLASS]", type=CLASSES, required=False)
@archive_options
@pass_settings
def list_objects(
    settings: Settings, group: str | None, config: str, location: str, since: datetime | None, until: datetime | None
) -> None:
    """List the objects of the archive.

    \b
    Example:
      peloton archive list jobs --since 2026-11-01 --archive /srv/peloton-archive
    """
    names = list(open_archive(location, config).list_objects(group or "", day(since), day(until)))
    if not print_rows_for_programs(settings, [{"object": name} for name in names], names):
        print_table(OBJECTS, names, settings.output == "wide")


@archive.command()
@click.argument("group", metavar="[CLASS]", type=CLASSES, required=False)
@archive_options
@pass_settings
def verify(
    settings: Settings, group: str | None, config: str, location: str, since: datetime | None, until: datetime | None
) -> None:
    """Read objects and compare them with their manifests. The exit code is 1 if one differs.

    An object without a manifest is reported and is no fault: its records are in the database, or in another object.

    \b
    Example:
      peloton archive verify --archive s3://backup/peloton
    """
    from peloton.errors import NotFound, PelotonError

    found, kept = open_archive(location, config), 0
    faults: list[dict[str, str]] = []
    for name in found.list_objects(group or "", day(since), day(until)):
        try:
            fault = found.find_fault(name)
            kept += 1
        except NotFound:
            echo(f"{name} has no manifest: its records are in the database, or in another object", err=True)
            continue
        except PelotonError as error:
            fault = str(error)
        if fault:
            faults.append({"object": name, "fault": fault})
    if not print_rows_for_programs(settings, faults, [one["object"] for one in faults]):
        for one in faults:
            echo(f"{one['object']} {one['fault']}")
        if not faults:
            echo(f"{kept} objects are as their manifests say")
    if faults:
        raise Failed(f"{len(faults)} of {kept} objects are damaged")


@archive.command()
@click.argument("group", metavar="[CLASS]", type=CLASSES, required=False, default="jobs")
@click.option("--job", default="", metavar="JOB", help="The id of a job, its beginning, or its name.")
@click.option("--pool", default="", metavar="PATH", help="A pool, with all below it.")
@click.option("--owner", default="", help="The owning team.")
@click.option("--state", "states", multiple=True, help="The state of the job or pod; repeatable.")
@click.option("--host", default="", help="The host of pods and of their events.")
@click.option("--limit", type=click.IntRange(1, LIMIT_MAX), default=100, show_default=True)
@archive_options
@pass_settings
def query(
    settings: Settings,
    group: str,
    job: str,
    pool: str,
    owner: str,
    states: tuple[str, ...],
    host: str,
    limit: int,
    config: str,
    location: str,
    since: datetime | None,
    until: datetime | None,
) -> None:
    """Find archived records of a CLASS: jobs, pods, pod-events, runs or host-events. The newest days come first.

    --since and --until bound the days that are read, by the end of the job. With --json each record is whole; of a job
    these are also its configurations.

    \b
    Examples:
      peloton archive query --pool /eng --state FAILED --since 2026-11-01
      peloton archive query pod-events --job train --json
    """
    from services.retention.query import Filter, find_lines

    wanted = Filter(
        group,
        job=job,
        pool=pool.rstrip("/"),
        owner=owner,
        states=tuple(state.upper() for state in states),
        host=host,
        since=day(since),
        until=day(until),
        is_whole=settings.is_for_programs,
    )
    rows = [json.loads(line) for line in find_lines(open_archive(location, config), wanted, limit)]
    table = {"jobs": JOBS, "host-events": HOSTS}.get(group, PODS)
    if not print_rows_for_programs(settings, rows, dict.fromkeys(map(name_of(table), rows))):
        print_table(table, rows, settings.output == "wide")
        if len(rows) == limit:
            echo(f"The first {limit} are shown: --limit shows more, or name fewer days")


def name_of(table: Table[dict[str, Any]]) -> Callable[[dict[str, Any]], str]:
    return lambda row: table.name(row) if "job_id" in row or "seq" in row else ""
