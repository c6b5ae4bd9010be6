"""``peloton job stateless query`` and ``list``: many services at once."""

from __future__ import annotations

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

STATE_PREFIX = "JOB_STATE_"
STATES = StatesType([state for state in JobState if state is not JobState.UNKNOWN], prefix=STATE_PREFIX)
TABLE: Table[v1.job.JobSummary] = Table(
    ("ID", lambda job: job.job_id.value),
    ("Name", lambda job: job.name),
    ("Owner", lambda job: job.owning_team),
    ("State", lambda job: job_state_name(job.status.state)),
    ("Creation Time", lambda job: seconds_text(job.status.creation_time)),
    ("Total", lambda job: job.instance_count),
    ("Running", lambda job: job.status.pod_stats.get("POD_STATE_RUNNING", 0)),
    ("Succeeded", lambda job: job.status.pod_stats.get("POD_STATE_SUCCEEDED", 0)),
    ("Failed", lambda job: job.status.pod_stats.get("POD_STATE_FAILED", 0)),
    ("Killed", lambda job: job.status.pod_stats.get("POD_STATE_KILLED", 0)),
    ("Workflow Status", lambda job: update_text(job.status.workflow_status)),
    ("Completed", lambda job: job.status.workflow_status.num_instances_completed),
    ("Failed", lambda job: job.status.workflow_status.num_instances_failed),
    ("Current", lambda job: len(job.status.workflow_status.instances_current)),
    whole=["ID"],
    spare=["Creation Time", "Owner", "Killed", "Succeeded", "Current", "Completed", "Failed", "Workflow Status",
           "Running", "Total"],
    nothing="No results found",
    name=lambda job: job.job_id.value,
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
    print_list(settings, response, TABLE, response.records)
    say_if_more(wanted.offset + len(response.records), response.pagination, "see --offset and --limit")


@click.command("list", cls=Command)
@limit_option
@pass_settings
def list_jobs(settings: Settings, limit: int | None) -> None:
    """List all services, newest first, with the latest update of each.

    \b
    Example:
      peloton job stateless list
    """
    request = v1.job_svc.ListJobsRequest(services_only=True)
    jobs = [job for response in settings.client.services.ListJobs(request) for job in response.jobs]
    jobs.sort(key=lambda job: job.status.creation_time, reverse=True)
    shown = jobs[: rows_wanted(settings, limit)]
    print_list(settings, v1.job_svc.ListJobsResponse(jobs=shown), TABLE, shown)
    if len(shown) < len(jobs):
        say_more(len(shown), len(jobs))


def update_text(update: v1.job.WorkflowStatus) -> str:
    state = v1.job.WorkflowState.Name(update.state).removeprefix("WORKFLOW_STATE_") if update.state else "--"
    return f"{state} (stalled)" if update.stalled_time else state
