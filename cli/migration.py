"""``peloton migration``: move services and pools to another cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import click

from cli.command import Group, verb_commands
from cli.errors import Failed
from cli.names import JobType, job_id_of
from cli.output import Table, print_for_programs, print_list, rows_wanted, say_more
from cli.params import COUNT_FROM_1, limit_option
from cli.settings import Settings, pass_settings
from cli.terminal import echo
from cli.wire import v0

LIMIT_MAX = 1_000
TABLE: Table[v0.migration.Migration] = Table(
    ("Name", lambda one: one.name),
    ("Target", lambda one: one.target),
    ("State", lambda one: one.state),
    ("Moved", lambda one: one.moved_count),
    ("Left", lambda one: one.left_count),
    ("Services done", lambda one: f"{one.done_count}/{one.service_count}"),
    ("Waiting for", lambda one: one.waiting_for),
    ("Created", lambda one: one.created_time[:19]),
    ("Id", lambda one: one.id),
    whole=["Name", "Target", "State"],
    spare=["Id", "Created", "Left", "Moved", "Services done"],
    nothing="No migrations",
    name=lambda one: one.id,
)


class Which(NamedTuple):
    """The job or pool that an argument names."""

    text: str  # as the user typed it
    fields: Mapping[str, str]  # of a request; empty: none was named


class JobOrPoolType(JobType):
    """The type of an argument that names a job or pool.

    A word that begins with a slash is the path of a pool, or the path of a pool and the name of a job in it.
    """

    name = "JOB|POOL"

    def resolve(self, settings: Settings, value: Any) -> Which:
        if not value:
            return Which("", {})
        if value.startswith("/"):
            path = value.rstrip("/") or "/"
            lookup = v0.respool.LookupRequest(path=v0.respool.ResourcePoolPath(value=path))
            if settings.client.respools.LookupResourcePoolID(lookup).id.value:
                return Which(value, {"pool_path": path})
        return Which(value, {"job_id": job_id_of(settings, value)})


OBJECT = click.argument("which", metavar="JOB|POOL", type=JobOrPoolType())


@click.group(cls=Group)
def migration() -> None:
    """Move jobs and pools to other clusters.

    JOB is a job's name or id, POOL the path of a pool.
    """


@migration.command()
@OBJECT
@click.option("--to", "target", metavar="CLUSTER", required=True, help="The cluster, as `peloton host list` names it.")
@click.option(
    "--batch",
    type=COUNT_FROM_1,
    help="The number of instances of a service that may be down at a time; a tenth of them if absent.",
)
@click.option(
    "--services", type=click.IntRange(1, 100), help="The number of services of a pool that move at a time; 2 if absent."
)
@click.option("--now", is_flag=True, help="Stop running batch pods, too, and run them again in the target.")
@click.option("--force", is_flag=True, help="Begin although the target has too few free resources for what moves.")
@click.option("--dry-run", is_flag=True, help="Print the plan and change nothing.")
@pass_settings
def start(
    settings: Settings,
    which: Which,
    target: str,
    batch: int | None,
    services: int | None,
    now: bool,
    force: bool,
    dry_run: bool,
) -> None:
    """Move a job, or all jobs of a pool and of the pools below it, to another cluster.

    Services move batch by batch, as their SLA allows. Queued batch pods go to the target at once, running ones end
    where they are. New pods go to the target from now on, until `peloton migration release`.

    \b
    Examples:
      peloton migration start web --to kube-east --dry-run
      peloton migration start /eng/maps --to kube-east --batch 5
    """
    request = v0.migration.StartRequest(
        target=target,
        batch_size=batch or 0,
        services_at_once=services or 0,
        now=now,
        force=force,
        dry_run=dry_run,
        **which.fields,
    )
    answer = settings.client.migrations.Start(request)
    if print_for_programs(settings, answer, [answer.migration.id] if answer.HasField("migration") else ()):
        return
    echo(answer.plan.text)
    if answer.HasField("migration"):
        echo(f"Migration {answer.migration.id} is under way: peloton migration status {which.text}")


@migration.command()
@click.argument("which", metavar="[JOB|POOL]", type=JobOrPoolType(), required=False, default="")
@limit_option
@pass_settings
def status(settings: Settings, which: Which, limit: int | None) -> None:
    """Show migrations and their progress, the newest first, and what they wait for. Also `migration list`.

    \b
    Examples:
      peloton migration status
      peloton migration status /eng/maps
    """
    wanted = rows_wanted(settings, limit)
    request = v0.migration.QueryRequest(limit=min(wanted or LIMIT_MAX, LIMIT_MAX), **which.fields)
    answer = settings.client.migrations.Query(request)
    print_list(settings, answer, TABLE, answer.migrations)
    if answer.has_more:
        say_more(len(answer.migrations), None)


migration.add_command(status, "list")


STEERING = {
    "pause": "Take no further instance down until an operator resumes the migration.",
    "resume": "Continue a migration that is paused.",
    "rollback": "Move back what was moved, batch by batch. Then new pods go where they went before.",
}


@verb_commands(STEERING, "migration {verb} web", migration)
@OBJECT
@pass_settings
def steer(settings: Settings, verb: str, which: Which) -> None:
    request = getattr(v0.migration, f"{verb.capitalize()}Request")(id=id_of(settings, which))
    answer = getattr(settings.client.migrations, verb.capitalize())(request)
    one: v0.migration.Migration = answer.migration
    if not print_for_programs(settings, answer, [one.id]):
        echo(f"The migration of {one.name} to {one.target} is {one.state}")


@migration.command()
@OBJECT
@pass_settings
def release(settings: Settings, which: Which) -> None:
    """Let new pods go to any cluster again. Running pods stay where they are.

    \b
    Example:
      peloton migration release web
    """
    request = v0.migration.ReleaseRequest(**which.fields)
    answer = settings.client.migrations.Release(request)
    if not print_for_programs(settings, answer):
        echo(f"{which.text} was bound to {answer.cluster or 'no cluster'}")


def id_of(settings: Settings, which: Which) -> str:
    """Return the id of the newest migration of the object. Raises Failed."""
    request = v0.migration.QueryRequest(limit=1, **which.fields)
    found = settings.client.migrations.Query(request).migrations
    if not found:
        raise Failed(f"{which.text} has never been migrated")
    return found[0].id
