"""``peloton job query``, ``list`` and ``active-list``: many jobs at once."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

import click

from cli.command import Command
from cli.output import Table, print_for_programs, print_list, rows_wanted, say_more
from cli.params import POOL_PATH, StatesType, limit_option
from cli.pools import pool_id_at
from cli.queries import SECONDS_PER_DAY, JobConditions, job_conditions, say_if_more, set_v0_page
from cli.refusals import raise_if_refused
from cli.settings import Settings, pass_settings
from cli.terminal import echo
from cli.times import seconds_text
from cli.wire import v0
from peloton.model.job import JobState

JOB_STATES = StatesType(JobState)
PAGE_SIZE = 1_000
CONSIDERED_MAX = 1_000_000  # without a number the server considers 100 jobs

TABLE: Table[v0.job.JobSummary] = Table(
    ("ID", lambda job: job.id.value),
    ("Name", lambda job: job.name),
    ("Owner", lambda job: job.owningTeam),
    ("State", lambda job: v0.job.JobState.Name(job.runtime.state)),
    ("Creation Time", lambda job: seconds_text(job.runtime.creationTime)),
    ("Completion Time", lambda job: seconds_text(job.runtime.completionTime)),
    ("Total", lambda job: job.instanceCount),
    ("Running", lambda job: job.runtime.taskStats.get("RUNNING", 0)),
    ("Succeeded", lambda job: job.runtime.taskStats.get("SUCCEEDED", 0)),
    ("Failed", lambda job: job.runtime.taskStats.get("FAILED", 0)),
    ("Killed", lambda job: job.runtime.taskStats.get("KILLED", 0)),
    whole=["ID"],
    spare=["Completion Time", "Owner", "Creation Time", "Killed", "Succeeded", "Failed", "Running", "Total"],
    nothing="No jobs found.",
    name=lambda job: job.id.value,
)
QUERY_TEXTS = {"err": "{message}", "invalidRespool": "Invalid resource pool {id}: {message}"}


def query_request(
    settings: Settings, respool: str | None = None, states: Iterable[str] = (), name: str = "", owner: str = ""
) -> v0.job.QueryRequest:
    request = v0.job.QueryRequest(summaryOnly=True)
    if respool:
        request.respoolID.value = pool_id_at(settings.client, respool)
    request.spec.jobStates.extend(map(v0.job.JobState.Value, states))
    request.spec.name, request.spec.owner = name, owner
    return request


@click.command(cls=Command)
@job_conditions("Jobs", "configuration", JOB_STATES)
@pass_settings
def query(settings: Settings, wanted: JobConditions) -> None:
    """Find jobs; all conditions must hold.

    Sort fields: creation_time, completion_time, start_time, update_time, name, owner, state, job_type,
    instance_count. A query for a terminal state covers the last 7 days unless -d sets more.

    \b
    Examples:
      peloton job query -s RUNNING,PENDING --owner maps
      peloton job query -r /dev -d 30 -n 20 -p name -a ASC
    """
    request = query_request(settings, wanted.respool, wanted.states)
    spec = request.spec
    if wanted.respool:
        spec.respool.value = wanted.respool
    wanted.fill(spec)
    if wanted.timerange:
        wanted.fill_created(spec.creationTimeRange)
    set_v0_page(spec.pagination, wanted.offset, wanted.limit, wanted.considered, wanted.sort, wanted.sortorder)
    response = settings.client.jobs.Query(request)
    raise_if_refused(settings, response, QUERY_TEXTS)
    print_list(settings, response, TABLE, response.results)
    say_if_more(wanted.offset + len(response.results), response.pagination, "see --offset and --limit")


@click.command("list", cls=Command)
@click.option("--states", "-s", type=JOB_STATES, default="", help="Only these states.")
@click.option("--respool", "-r", type=POOL_PATH, help="Only jobs of this pool.")
@click.option("--name", default="", metavar="TEXT", help="Only jobs whose name contains TEXT.")
@limit_option
@pass_settings
def list_jobs(settings: Settings, states: tuple[str, ...], respool: str | None, name: str, limit: int | None) -> None:
    """List all jobs, newest first; also `job ls`. The API lists the newest 10,000 that match.

    \b
    Examples:
      peloton job list
      peloton job list -s RUNNING -r /dev
      peloton job list --name etl
    """
    request = query_request(settings, respool, states, name)
    if states:  # with a state the server considers the last 7 days only, unless it is given a time
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
    print_list(settings, response, TABLE, response.results)
    say_if_more(len(response.results), response.pagination, "--limit 0 shows all")


def pages(settings: Settings, request: v0.job.QueryRequest, size: int) -> Iterator[v0.job.QueryResponse]:
    """Yield every job once, although new ones move the others from page to page."""
    seen: set[str] = set()
    offset = 0
    while True:
        set_v0_page(request.spec.pagination, offset, size, CONSIDERED_MAX, ("creation_time",), "DESC")
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
            echo(name)
    if len(names) < total:
        say_more(len(names), total)
