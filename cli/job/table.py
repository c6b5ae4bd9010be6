"""``peloton job table``: a page of all jobs that match, however many there are."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import click

from cli.command import Command
from cli.job.query import JOB_STATES
from cli.output import Table, print_list, say_more
from cli.params import COUNT_FROM_1, LABELS, POOL_PATH, SINCE, Label, StatesType
from cli.settings import Settings, pass_settings
from cli.terminal import echo
from cli.times import seconds_text
from cli.wire import v0
from peloton.model.job import JobType

PAGE_SIZE_MAX = 500
CALLS_MAX = 1_000
"""Limit of the calls of one command; each examines 20,000 jobs at most."""
TYPES = StatesType(JobType)
TABLE: Table[v0.table.JobRow] = Table(
    ("ID", lambda job: job.id.value),
    ("Name", lambda job: job.name),
    ("Pool", lambda job: job.poolPath),
    ("Owner", lambda job: job.owner),
    ("Type", lambda job: v0.job.JobType.Name(job.type)),
    ("State", lambda job: v0.job.JobState.Name(job.state)),
    ("Creation Time", lambda job: seconds_text(job.creationTime)),
    ("Total", lambda job: job.instanceCount),
    ("Running", lambda job: job.taskStats.get("RUNNING", 0)),
    ("Failed", lambda job: job.taskStats.get("FAILED", 0)),
    whole=["ID"],
    spare=["Type", "Owner", "Creation Time", "Failed", "Running", "Total"],
    nothing="No jobs found.",
    name=lambda job: job.id.value,
)


@click.command("table", cls=Command)
@click.option("--respool", "-r", type=POOL_PATH, help="Only jobs of this pool and the pools below it.")
@click.option("--states", "-s", type=JOB_STATES, default="", help="Only these states.")
@click.option("--types", "-t", type=TYPES, default="", help="Only these types.")
@click.option("--owner", default="", metavar="TEAM", help="Only jobs of this owning team.")
@click.option("--creator", default="", metavar="USER", help="Only jobs that USER created.")
@click.option("--labels", "-l", type=LABELS, default="", help="Only with all of these labels.")
@click.option("--name", default="", metavar="TEXT", help="Only jobs whose name contains TEXT.")
@click.option("--prefix", default="", metavar="TEXT", help="Only jobs whose name starts with TEXT.")
@click.option("--since", type=SINCE, help="Only jobs created since TIME: a duration before now, or a time.")
@click.option("--until", type=SINCE, help="Only jobs created until TIME.")
@click.option("--oldest-first", is_flag=True, help="List the oldest jobs first, not the newest.")
@click.option("--limit", "-n", type=COUNT_FROM_1, default=50, show_default=True, help="Jobs to print.")
@click.option("--token", default="", help="Start at this token of an earlier page with the same filters.")
@click.option("--count", is_flag=True, help="Count the jobs that match, up to 10,000.")
@pass_settings
def table(settings: Settings, /, oldest_first: bool, limit: int, token: str, count: bool, **conditions: Any) -> None:
    """Page through all jobs; all conditions must hold.

    A page costs the same anywhere in the table, and new jobs do not shift it. A filter that few of a million jobs match
    may take long; the API examines 20,000 at a time.

    \b
    Examples:
      peloton job table -r /dev -s RUNNING,PENDING --count
      peloton job table --prefix train- --since 24h -n 20
      peloton job table -t SERVICE -l tier=gold
    """
    request = v0.table.ListJobsRequest(
        filter=job_filter(**conditions), oldestFirst=oldest_first, pageToken=token, count=count
    )
    response = v0.table.ListJobsResponse()
    for _ in range(CALLS_MAX):
        request.pageSize = min(limit - len(response.jobs), PAGE_SIZE_MAX)
        page = settings.client.job_table.ListJobs(request)
        response.jobs.extend(page.jobs)
        response.nextPageToken = request.pageToken = page.nextPageToken
        response.cut = page.cut
        if request.count:
            response.count.CopyFrom(page.count)
            response.previousPageToken = page.previousPageToken
            request.count = False
        if not page.nextPageToken or len(response.jobs) >= limit:
            break
    print_list(settings, response, TABLE, response.jobs)
    if count:
        echo(f"{'At least ' if response.count.more else ''}{response.count.count:,} match.", err=True)
    if response.nextPageToken:
        say_more(len(response.jobs), None, f"--token {response.nextPageToken} continues")


def job_filter(
    *,
    respool: str | None = None,
    states: Iterable[str] = (),
    types: Iterable[str] = (),
    owner: str = "",
    creator: str = "",
    labels: Iterable[Label] = (),
    name: str = "",
    prefix: str = "",
    since: datetime | None = None,
    until: datetime | None = None,
) -> v0.table.JobFilter:
    """Return the filter; the parameters are the options of the command."""
    wanted = v0.table.JobFilter(
        pool=respool or "",
        owner=owner,
        creator=creator,
        states=map(v0.job.JobState.Value, states),
        types=map(v0.job.JobType.Value, types),
        labels=[v0.peloton.Label(key=key, value=value) for key, value in labels],
        namePart=name,
        namePrefix=prefix,
    )
    if since is not None:
        wanted.creationTimeRange.min.FromDatetime(since)
    if until is not None:
        wanted.creationTimeRange.max.FromDatetime(until)
    return wanted
