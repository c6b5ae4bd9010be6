"""``peloton job stateless query`` and ``list``: many services at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from cli.command import Command
from cli.output import Table, print_list, rows_wanted, say_more
from cli.params import StatesType, limit_option
from cli.pools import pool_id_at
from cli.queries import JobConditions, job_conditions, say_if_more, set_v1_page
from cli.settings import Settings, pass_settings
from cli.stateless.rollout import job_state_name
from cli.times import seconds_text
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
@job_conditions("Services", "spec", STATES)
@pass_settings
def query(settings: Settings, wanted: JobConditions) -> None:
    """Find services; all conditions must hold. The last columns are about the latest update.

    \b
    Examples:
      peloton job stateless query -s RUNNING --owner maps
      peloton job stateless query -r /tutorial -p name -a ASC
    """
    request = v1.job_svc.QueryJobsRequest()
    spec = request.spec
    if wanted.respool:
        pool_id_at(settings.client, wanted.respool)  # the API ignores an unknown path
        spec.respool.value = wanted.respool
    wanted.fill(spec)
    spec.job_states.extend(v1.job.JobState.Value(f"{STATE_PREFIX}{state}") for state in wanted.states)
    if wanted.timerange:
        wanted.fill_created(spec.creation_time_range)
    set_v1_page(spec.pagination, wanted.offset, wanted.limit, wanted.considered, wanted.sort, wanted.sortorder)
    response = settings.client.services.QueryJobs(request)
    print_services(settings, response, response.records)
    say_if_more(wanted.offset + len(response.records), response.pagination.total, "see --offset and --limit")


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
        seconds_text(status.creation_time),
        job.instance_count,
        *counts,
        f"{state} (stalled)" if update.stalled_time else state,
        update.num_instances_completed,
        update.num_instances_failed,
        len(update.instances_current),
    )
