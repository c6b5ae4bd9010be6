"""``peloton job query``, ``list`` and ``active-list``: many jobs at once."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from cli.command import Command
from cli.output import as_json, print_message, print_table
from cli.params import LABELS, POOL_PATH, WORDS, Label, StatesType
from cli.refusals import raise_if_refused
from cli.settings import Settings, pass_settings
from peloton.model.job import JobState

if TYPE_CHECKING:
    from peloton.api.v0.job import job_pb2
    from peloton.api.v0.query import query_pb2

JOB_STATES = StatesType(JobState)
SECONDS_PER_DAY = 86_400
PAGE_SIZE = 1_000
CONSIDERED_MAX = 1_000_000  # the server considers 100 jobs unless it is told otherwise

HEADER = (
    "ID", "Name", "Owner", "State", "Creation Time", "Completion Time",
    "Total", "Running", "Succeeded", "Failed", "Killed",
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
@click.option("--total", "-q", type=click.IntRange(1), default=100, show_default=True, help="Jobs to consider.")
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
    total: int,
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
    from cli.pools import pool_id_at
    from peloton.api.v0 import peloton_pb2
    from peloton.api.v0.job import job_pb2

    request = job_pb2.QueryRequest(summaryOnly=True)
    if respool:
        request.respoolID.value = pool_id_at(settings.client, respool)
        request.spec.respool.value = respool
    request.spec.labels.extend(peloton_pb2.Label(key=key, value=value) for key, value in labels)
    request.spec.keywords.extend(keywords)
    request.spec.jobStates.extend(job_pb2.JobState.Value(state) for state in states)
    request.spec.owner = owner
    request.spec.name = name
    if timerange:
        now_s = int(time.time())
        request.spec.creationTimeRange.min.seconds = now_s - timerange * SECONDS_PER_DAY
        request.spec.creationTimeRange.max.seconds = now_s
    set_page(request.spec.pagination, offset, limit, total, sort, sortorder)
    response = settings.client.jobs.Query(request)
    raise_if_refused(settings, response, QUERY_TEXTS)
    print_jobs(settings, response, response.results)


@click.command("list", cls=Command)
@click.option("--states", "-s", type=JOB_STATES, default="", help="Any of these states.")
@click.option("--respool", "-r", type=POOL_PATH, help="Jobs of this pool.")
@pass_settings
def list_jobs(settings: Settings, states: tuple[str, ...], respool: str | None) -> None:
    """List all jobs, newest first.

    \b
    Examples:
      peloton job list
      peloton job list -s RUNNING -r /dev
    """
    from cli.pools import pool_id_at
    from peloton.api.v0.job import job_pb2

    request = job_pb2.QueryRequest(summaryOnly=True)
    if respool:
        request.respoolID.value = pool_id_at(settings.client, respool)
    request.spec.jobStates.extend(job_pb2.JobState.Value(state) for state in states)
    if states:  # with a state the server looks at the last 7 days only, unless it is given a time
        request.spec.creationTimeRange.min.seconds = 1
        request.spec.creationTimeRange.max.seconds = int(time.time()) + SECONDS_PER_DAY
    response = job_pb2.QueryResponse(results=all_pages(settings, request))
    print_jobs(settings, response, response.results)


def all_pages(settings: Settings, request: job_pb2.QueryRequest) -> Iterator[job_pb2.JobSummary]:
    """Every job once, although new ones move the others from page to page."""
    seen: set[str] = set()
    offset = 0
    while True:
        set_page(request.spec.pagination, offset, PAGE_SIZE, CONSIDERED_MAX, ("creation_time",), "DESC")
        response = settings.client.jobs.Query(request)
        raise_if_refused(settings, response, QUERY_TEXTS)
        for summary in response.results:
            if summary.id.value not in seen:
                seen.add(summary.id.value)
                yield summary
        offset += len(response.results)
        if not response.results or offset >= response.pagination.total:
            return


@click.command("active-list", cls=Command)
@pass_settings
def active_list(settings: Settings) -> None:
    """Print the ids of all jobs that have not ended."""
    from peloton.api.v0.job import job_pb2

    response = settings.client.jobs.GetActiveJobs(job_pb2.GetActiveJobsRequest())
    if settings.json:
        print_message(settings, response)
        return
    for job_id in response.ids:
        click.echo(job_id.value)


def set_page(
    page: query_pb2.PaginationSpec, offset: int, limit: int, considered: int, sort: Iterable[str], order: str
) -> None:
    from peloton.api.v0.query import query_pb2

    page.Clear()
    page.offset, page.limit, page.maxLimit = offset, limit, considered
    for field in sort:
        ordering = query_pb2.OrderBy.Order.Value(order.upper())
        page.orderBy.add(order=ordering, property=query_pb2.PropertyPath(value=field))


def print_jobs(settings: Settings, response: job_pb2.QueryResponse, summaries: Iterable[job_pb2.JobSummary]) -> None:
    if settings.json:
        click.echo(as_json(response))
        return
    rows = [job_row(summary) for summary in summaries]
    if rows:
        print_table(HEADER, rows)
    else:
        click.echo("No jobs found.")


def job_row(summary: job_pb2.JobSummary) -> tuple[object, ...]:
    from peloton.api.v0.job import job_pb2

    runtime = summary.runtime
    counts = (runtime.taskStats.get(state, 0) for state in ("RUNNING", "SUCCEEDED", "FAILED", "KILLED"))
    return (
        summary.id.value,
        summary.name,
        summary.owningTeam,
        job_pb2.JobState.Name(runtime.state),
        seconds_of(runtime.creationTime),
        seconds_of(runtime.completionTime),
        summary.instanceCount,
        *counts,
    )


def seconds_of(time_text: str) -> str:
    """An RFC 3339 time without fractions of a second; ``--`` when there is none."""
    return f"{time_text.partition('.')[0].removesuffix('Z')}Z" if time_text else "--"
