"""``peloton job query``, ``list`` and ``active-list``: many jobs at once."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

import click

from cli.command import Command
from cli.output import Table, print_for_programs, print_list, rows_wanted, say_more
from cli.params import LABELS, POOL_PATH, WORDS, Label, StatesType, limit_option
from cli.pools import pool_id_at
from cli.refusals import raise_if_refused
from cli.settings import Settings, pass_settings
from cli.wire import v0
from peloton.model.job import JobState

JOB_STATES = StatesType(JobState)
SECONDS_PER_DAY = 86_400
PAGE_SIZE = 1_000
CONSIDERED_MAX = 1_000_000  # the server considers 100 jobs unless it is told otherwise
LOOKED_AT_MAX = 10_000  # by the server, whatever it is told

TABLE = Table(
    ("ID", "Name", "Owner", "State", "Creation Time", "Completion Time", "Total", "Running", "Succeeded", "Failed",
     "Killed"),
    whole=("ID",),
    spare=("Completion Time", "Owner", "Creation Time", "Killed", "Succeeded", "Failed", "Running", "Total"),
    nothing="No jobs found.",
)  # fmt: skip
QUERY_TEXTS = {"err": "{message}", "invalidRespool": "Invalid resource pool {id}: {message}"}


@click.command(cls=Command)
@click.option("--labels", "-l", type=LABELS, default="", help="All of these labels.")
@click.option("--respool", "-r", type=POOL_PATH, help="Jobs of this pool.")
@click.option("--keywords", "-k", type=WORDS, default="", help="All of these words somewhere in the configuration.")
@click.option("--states", "-s", type=JOB_STATES, default="", help="Any of these states.")
@click.option("--owner", default="", metavar="TEAM", help="Jobs of this owning team.")
@click.option("--name", default="", metavar="TEXT", help="Jobs with this in their name.")
@click.option("--timerange", "-d", type=click.IntRange(0), default=0, metavar="DAYS", help="Created in the last days.")
@click.option("--limit", "-n", type=click.IntRange(1), default=100, show_default=True, help="Jobs to print.")
@click.option("--total", "-q", type=click.IntRange(1), help="Jobs to consider; if absent as many as it takes.")
@click.option("--offset", "-o", type=click.IntRange(0), default=0, show_default=True, help="Jobs to skip.")
@click.option("--sort", "-p", type=WORDS, default="creation_time", show_default=True, help="Fields to sort by.")
@click.option("--sortorder", "-a", type=click.Choice(["ASC", "DESC"], case_sensitive=False), default="DESC",
              show_default=True, help="Ascending or descending.")  # fmt: skip
@pass_settings
def query(
    settings: Settings,
    labels: tuple[Label, ...],
    respool: str | None,
    keywords: tuple[str, ...],
    states: tuple[str, ...],
    owner: str,
    name: str,
    timerange: int,
    limit: int,
    total: int | None,
    offset: int,
    sort: tuple[str, ...],
    sortorder: str,
) -> None:
    """Find jobs; all conditions must hold.

    Sort fields: creation_time, completion_time, start_time, update_time, name, owner, state, job_type,
    instance_count. Asking for a state that is an end looks at the last 7 days unless -d says otherwise.

    \b
    Examples:
      peloton job query -s RUNNING,PENDING --owner maps
      peloton job query -r /dev -d 30 -n 20 -p name -a ASC
    """
    request = v0.job.QueryRequest(summaryOnly=True)
    if respool:
        request.respoolID.value = pool_id_at(settings.client, respool)
        request.spec.respool.value = respool
    request.spec.labels.extend(v0.peloton.Label(key=key, value=value) for key, value in labels)
    request.spec.keywords.extend(keywords)
    request.spec.jobStates.extend(v0.job.JobState.Value(state) for state in states)
    request.spec.owner = owner
    request.spec.name = name
    if timerange:
        now_s = int(time.time())
        request.spec.creationTimeRange.min.seconds = now_s - timerange * SECONDS_PER_DAY
        request.spec.creationTimeRange.max.seconds = now_s
    set_page(request.spec.pagination, offset, limit, total or offset + limit + 1, sort, sortorder)
    response = settings.client.jobs.Query(request)
    raise_if_refused(settings, response, QUERY_TEXTS)
    print_jobs(settings, response, response.results)
    say_if_more(offset + len(response.results), response.pagination.total, "see --offset and --limit")


@click.command("list", cls=Command)
@click.option("--states", "-s", type=JOB_STATES, default="", help="Any of these states.")
@click.option("--respool", "-r", type=POOL_PATH, help="Jobs of this pool.")
@limit_option
@pass_settings
def list_jobs(settings: Settings, states: tuple[str, ...], respool: str | None, limit: int | None) -> None:
    """List all jobs, newest first; also `job ls`. The api tells of the newest 10,000 that match.

    \b
    Examples:
      peloton job list
      peloton job list -s RUNNING -r /dev
    """
    request = v0.job.QueryRequest(summaryOnly=True)
    if respool:
        request.respoolID.value = pool_id_at(settings.client, respool)
    request.spec.jobStates.extend(v0.job.JobState.Value(state) for state in states)
    if states:  # with a state the server looks at the last 7 days only, unless it is given a time
        request.spec.creationTimeRange.min.seconds = 1
        request.spec.creationTimeRange.max.seconds = int(time.time()) + SECONDS_PER_DAY
    wanted = rows_wanted(settings, limit)
    response = v0.job.QueryResponse()
    for page in pages(settings, request, min(PAGE_SIZE, wanted or PAGE_SIZE)):
        response.pagination.CopyFrom(page.pagination)
        response.results.extend(page.results)
        if wanted is not None and len(response.results) >= wanted:
            break
    if wanted is not None:
        del response.results[wanted:]
    print_jobs(settings, response, response.results)
    say_if_more(len(response.results), response.pagination.total, "--limit 0 shows all")


def pages(settings: Settings, request: v0.job.QueryRequest, size: int) -> Iterator[v0.job.QueryResponse]:
    """Every job once, although new ones move the others from page to page."""
    seen: set[str] = set()
    offset = 0
    while True:
        set_page(request.spec.pagination, offset, size, CONSIDERED_MAX, ("creation_time",), "DESC")
        response = settings.client.jobs.Query(request)
        raise_if_refused(settings, response, QUERY_TEXTS)
        offset += len(response.results)
        is_last = not response.results or offset >= response.pagination.total
        fresh = [summary for summary in response.results if summary.id.value not in seen]
        seen.update(summary.id.value for summary in fresh)
        del response.results[:]
        response.results.extend(fresh)
        yield response
        if is_last:
            return


def say_if_more(end: int, total: int, how: str) -> None:
    """``end``: of the part that is shown. The api counts no further than it looks."""
    if end < total:
        say_more(end, total if total < LOOKED_AT_MAX else None, how)
    elif total >= LOOKED_AT_MAX:
        say_more(end, None, "older ones are found with conditions, see `peloton job query --help`")


@click.command("active-list", cls=Command)
@limit_option
@pass_settings
def active_list(settings: Settings, limit: int | None) -> None:
    """Print the ids of all jobs that have not ended."""
    response = settings.client.jobs.GetActiveJobs(v0.job.GetActiveJobsRequest())
    total = len(response.ids)
    del response.ids[limit or total :]
    names = [job_id.value for job_id in response.ids]
    if not print_for_programs(settings, response, names):
        for name in names:
            click.echo(name)
    if len(names) < total:
        say_more(len(names), total)


def set_page(
    page: v0.query.PaginationSpec, offset: int, limit: int, considered: int, sort: Iterable[str], order: str
) -> None:
    page.Clear()
    page.offset, page.limit, page.maxLimit = offset, limit, considered
    for field in sort:
        ordering = v0.query.OrderBy.Order.Value(order.upper())
        page.orderBy.add(order=ordering, property=v0.query.PropertyPath(value=field))


def print_jobs(settings: Settings, response: v0.job.QueryResponse, summaries: Iterable[v0.job.JobSummary]) -> None:
    found = list(summaries)
    print_list(settings, response, TABLE, map(job_row, found), (summary.id.value for summary in found))


def job_row(summary: v0.job.JobSummary) -> tuple[object, ...]:
    runtime = summary.runtime
    counts = (runtime.taskStats.get(state, 0) for state in ("RUNNING", "SUCCEEDED", "FAILED", "KILLED"))
    return (
        summary.id.value,
        summary.name,
        summary.owningTeam,
        v0.job.JobState.Name(runtime.state),
        seconds_of(runtime.creationTime),
        seconds_of(runtime.completionTime),
        summary.instanceCount,
        *counts,
    )


def seconds_of(time_text: str) -> str:
    """An RFC 3339 time without fractions of a second; ``--`` when there is none."""
    return f"{time_text.partition('.')[0].removesuffix('Z')}Z" if time_text else "--"
