"""``peloton job stateless query`` and ``list``: many services at once."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from cli.command import Command
from cli.job.query import SECONDS_PER_DAY, say_if_more, seconds_of
from cli.output import Table, print_list, rows_wanted, say_more
from cli.params import LABELS, POOL_PATH, WORDS, Label, StatesType, limit_option
from cli.pools import pool_id_at
from cli.settings import Settings, pass_settings
from cli.stateless.rollout import job_state_name
from cli.wire import v1
from peloton.model.job import JobState

if TYPE_CHECKING:
    from google.protobuf.message import Message

STATE_PREFIX = "JOB_STATE_"
STATES = StatesType([state for state in JobState if state is not JobState.UNKNOWN], prefix=STATE_PREFIX)
TABLE = Table(
    ("ID", "Name", "Owner", "State", "Creation Time", "Total", "Running", "Succeeded", "Failed", "Killed",
     "Workflow Status", "Completed", "Failed", "Current"),
    whole=("ID",),
    spare=("Creation Time", "Owner", "Killed", "Succeeded", "Current", "Completed", "Failed", "Workflow Status",
           "Running", "Total"),
    nothing="No results found",
)  # fmt: skip


@click.command(cls=Command)
@click.option("--labels", "-l", type=LABELS, default="", help="All of these labels.")
@click.option("--respool", "-r", type=POOL_PATH, help="Services of this pool.")
@click.option("--keywords", "-k", type=WORDS, default="", help="All of these words somewhere in the spec.")
@click.option("--states", "-s", type=STATES, default="", help="Any of these states.")
@click.option("--owner", default="", metavar="TEAM", help="Services of this owning team.")
@click.option("--name", default="", metavar="TEXT", help="Services with this in their name.")
@click.option("--timerange", "-d", type=click.IntRange(0), default=0, metavar="DAYS", help="Created in the last days.")
@click.option("--limit", "-n", type=click.IntRange(1), default=100, show_default=True, help="Services to print.")
@click.option("--total", "-q", type=click.IntRange(1), help="Services to consider; if absent as many as it takes.")
@click.option("--offset", "-o", type=click.IntRange(0), default=0, show_default=True, help="Services to skip.")
@click.option("--sort", "-p", type=WORDS, default="creation_time", show_default=True, help="Fields to sort by.")
@click.option("--sortorder", "-a", type=click.Choice(["ASC", "DESC"], case_sensitive=False), default="DESC",
              show_default=True, help="Ascending or descending.")  # fmt: skip
@pass_settings
def query(
    settings: Settings, labels: tuple[Label, ...], respool: str | None, keywords: tuple[str, ...],
    states: tuple[str, ...], owner: str, name: str, timerange: int, limit: int, total: int | None, offset: int,
    sort: tuple[str, ...], sortorder: str,
) -> None:  # fmt: skip
    """Find services; all conditions must hold. The last columns are about the latest update.

    \b
    Examples:
      peloton job stateless query -s RUNNING --owner maps
      peloton job stateless query -r /tutorial -p name -a ASC
    """
    request = v1.job_svc.QueryJobsRequest()
    spec = request.spec
    if respool:
        pool_id_at(settings.client, respool)  # a path that leads nowhere would not be a condition
        spec.respool.value = respool
    spec.labels.extend(v1.peloton.Label(key=key, value=value) for key, value in labels)
    spec.keywords.extend(keywords)
    spec.job_states.extend(v1.job.JobState.Value(f"{STATE_PREFIX}{state}") for state in states)
    spec.owner, spec.name = owner, name
    if timerange:
        now_s = int(time.time())
        spec.creation_time_range.min.seconds = now_s - timerange * SECONDS_PER_DAY
        spec.creation_time_range.max.seconds = now_s
    set_page(spec.pagination, offset, limit, total or offset + limit + 1, sort, sortorder)
    response = settings.client.services.QueryJobs(request)
    print_services(settings, response, response.records)
    say_if_more(offset + len(response.records), response.pagination.total, "see --offset and --limit")


@click.command("list", cls=Command)
@limit_option
@pass_settings
def list_jobs(settings: Settings, limit: int | None) -> None:
    """List all jobs, newest first, with the latest update of each service.

    \b
    Example:
      peloton job stateless list
    """
    jobs = [
        job for response in settings.client.services.ListJobs(v1.job_svc.ListJobsRequest()) for job in response.jobs
    ]
    jobs.sort(key=lambda job: job.status.creation_time, reverse=True)
    shown = jobs[: rows_wanted(settings, limit)]
    print_services(settings, v1.job_svc.ListJobsResponse(jobs=shown), shown)
    if len(shown) < len(jobs):
        say_more(len(shown), len(jobs))


def set_page(
    page: v1.query.PaginationSpec, offset: int, limit: int, considered: int, sort: Iterable[str], order: str
) -> None:
    page.offset, page.limit, page.max_limit = offset, limit, considered
    for field in sort:
        ordering = v1.query.OrderBy.Order.Value(f"ORDER_BY_{order.upper()}")
        page.order_by.add(order=ordering, property=v1.query.PropertyPath(value=field))


def print_services(settings: Settings, response: Message, jobs: Iterable[v1.job.JobSummary]) -> None:
    found = list(jobs)
    print_list(settings, response, TABLE, map(service_row, found), (job.job_id.value for job in found))


def service_row(job: v1.job.JobSummary) -> tuple[object, ...]:
    status, update = job.status, job.status.workflow_status
    counts = (status.pod_stats.get(f"POD_STATE_{state}", 0) for state in ("RUNNING", "SUCCEEDED", "FAILED", "KILLED"))
    state = v1.job.WorkflowState.Name(update.state).removeprefix("WORKFLOW_STATE_") if update.state else "--"
    return (
        job.job_id.value,
        job.name,
        job.owning_team,
        job_state_name(status.state),
        seconds_of(status.creation_time),
        job.instance_count,
        *counts,
        state,
        update.num_instances_completed,
        update.num_instances_failed,
        len(update.instances_current),
    )
