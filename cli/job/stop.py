"""``peloton job stop``: one job by its id, or all active jobs of an owner."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import click

from cli.command import Command
from cli.errors import Failed, rpc_failure
from cli.job.query import QUERY_TEXTS, TABLE, query_request
from cli.job.read import read_job
from cli.names import JOB
from cli.output import id_list, print_list
from cli.params import COUNT_FROM_1, LABELS, Label
from cli.queries import set_v0_page
from cli.refusals import raise_if_refused
from cli.settings import Settings, pass_settings
from cli.terminal import echo
from cli.wire import v0
from peloton.model.job import JOB_TERMINAL, JobState
from peloton.model.pod import TERMINAL

ACTIVE_STATES = ("INITIALIZED", "PENDING", "RUNNING")
PROGRESS_INTERVAL_S = 1.0
PROGRESS_S_MAX = 600.0


@click.command(cls=Command)
@click.argument("job_id", metavar="[JOB]", default="", type=JOB)
@click.option("--progress", is_flag=True, help="Wait until the tasks have ended, 10 minutes at most.")
@click.option("--owner", default="", metavar="TEAM", help="Only, or without JOB all, jobs of this owning team.")
@click.option("--labels", "-l", type=LABELS, default="", help="Only jobs with these labels.")
@click.option("--force", "-f", is_flag=True, help="Do not ask before stopping the jobs of an owner.")
@click.option("--limit", "-n", type=COUNT_FROM_1, default=100, show_default=True, help="Jobs to stop.")
@click.option("--total", "-q", type=COUNT_FROM_1, default=100, show_default=True, help="Jobs to consider.")
@pass_settings
def stop(
    settings: Settings,
    job_id: str,
    progress: bool,
    owner: str,
    labels: tuple[Label, ...],
    force: bool,
    limit: int,
    total: int,
) -> None:
    """Stop one job, or all active jobs of an owner.

    \b
    Examples:
      peloton job stop JOB --progress
      peloton job stop --owner maps -l stage=test
    """
    if job_id:
        job_ids = [stoppable_job(settings, job_id, owner, labels)]
    elif owner:
        job_ids = active_jobs_of(settings, owner, labels, limit, total)
        if not job_ids:
            return
        if not force and not click.confirm(f"Stop these {len(job_ids)} jobs of {owner}?", prompt_suffix=" [y/n]: "):
            raise Failed("nothing stopped")
    else:
        raise click.UsageError("Either jobID or owner needs to be provided.")
    echo(f"Stopping jobs: {id_list(job_ids)}", err=settings.is_for_programs)
    if settings.json:
        echo(json.dumps({"jobIds": list(job_ids)}))
    problems = {one: problem for one in job_ids if (problem := stop_one(settings, one))}
    if progress:
        for one in job_ids:
            if one not in problems:
                wait_until_stopped(settings, one)
    if problems:
        reasons = "; ".join(f"{one}: {problem}" for one, problem in problems.items())
        raise Failed(f"Error stopping jobs: {id_list(problems)}: {reasons}")


def stoppable_job(settings: Settings, job_id: str, owner: str, labels: Sequence[Label]) -> str:
    """Return the job's id, unless it is another owner's, lacks a label or has ended."""
    job = read_job(settings, job_id)
    config = job.config
    own_labels = {(label.key, label.value) for label in config.labels}
    if (owner and config.owningTeam != owner) or not own_labels.issuperset(labels):
        raise Failed("No matching job found")
    state = v0.job.JobState.Name(job.runtime.state)
    if JobState(state) in JOB_TERMINAL:
        raise Failed(f"Job is in terminal state: {state}")
    return job_id


def active_jobs_of(settings: Settings, owner: str, labels: Sequence[Label], limit: int, total: int) -> list[str]:
    request = query_request(settings, states=ACTIVE_STATES, owner=owner)
    request.spec.labels.extend(v0.peloton.Label(key=key, value=value) for key, value in labels)
    set_v0_page(request.spec.pagination, 0, limit, total, ("creation_time",), "DESC")
    response = settings.client.jobs.Query(request)
    raise_if_refused(settings, response, QUERY_TEXTS)
    # The server matches the values of labels only.
    chosen = [job for job in response.results if {(each.key, each.value) for each in job.labels}.issuperset(labels)]
    print_list(settings, response, TABLE, chosen)
    return [job.id.value for job in chosen]


def stop_one(settings: Settings, job_id: str) -> str:
    """Stop all tasks, and repeat for tasks that refused; return the error text, empty if there is none."""
    import grpc

    request = v0.task.StopRequest(jobId=v0.peloton.JobID(value=job_id))
    for _ in range(2):
        try:
            response = settings.client.tasks.Stop(request)
            raise_if_refused(settings, response, {}, id=job_id)
        except Failed as refusal:
            return refusal.message
        except grpc.RpcError as error:
            return rpc_failure(error, settings)
        if not response.invalidInstanceIds:
            return ""
    return f"Some tasks failed to stop, failed_instance_ids:{id_list(response.invalidInstanceIds)}"


def wait_until_stopped(settings: Settings, job_id: str) -> None:
    text = shown = ""
    for _ in range(int(PROGRESS_S_MAX / PROGRESS_INTERVAL_S)):
        total_count, terminal_count, state = task_counts(settings, job_id)
        text = f"total_tasks:{total_count} terminated_tasks:{terminal_count}"
        if JobState(state) in JOB_TERMINAL:
            echo(f"Job {job_id} stopped, {text}", err=settings.is_for_programs)
            return
        if (line := f"Job {job_id} {state}, {text}") != shown:
            echo(line, err=True)
            shown = line
        time.sleep(PROGRESS_INTERVAL_S)
    raise Failed(f"Job {job_id} has not stopped within {PROGRESS_S_MAX:g} s, {text}")


def task_counts(settings: Settings, job_id: str) -> tuple[int, int, str]:
    """Return the number of all tasks, of ended tasks, and the job's state."""
    job = read_job(settings, job_id)
    runtime = job.runtime
    terminal_count = sum(count for state, count in runtime.taskStats.items() if state in TERMINAL)
    return job.config.instanceCount, terminal_count, v0.job.JobState.Name(runtime.state)
