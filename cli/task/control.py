"""``peloton task start``, ``stop`` and ``restart``: ranges of a job's instances."""

from __future__ import annotations

from collections.abc import Sequence

import click

from cli.command import Command
from cli.errors import Failed
from cli.names import job_argument
from cli.output import id_list, print_for_programs, print_outcome
from cli.params import INSTANCE_MAX, InstanceRange, ranges_option
from cli.refusals import NO_INSTANCE, raise_if_refused
from cli.settings import Settings, pass_settings
from cli.terminal import echo
from cli.wire import v0

NOT_FOUND = "Job {id} was not found: {message}"


def range_message(instances: InstanceRange) -> v0.task.InstanceRange:
    message = v0.task.InstanceRange(to=instances[1])
    setattr(message, "from", instances[0])  # a keyword of Python
    return message


@click.command(cls=Command)
@job_argument
@ranges_option
@pass_settings
def start(settings: Settings, job_id: str, ranges: Sequence[InstanceRange]) -> None:
    """Start tasks that were stopped. A gang starts whole, whichever of its members are named.

    \b
    Example:
      peloton task start JOB -r 0:5 -r 8:9
    """
    request = v0.task.StartRequest(jobId=v0.peloton.JobID(value=job_id), ranges=map(range_message, ranges))
    response = settings.client.tasks.Start(request)
    texts = {"notFound": NOT_FOUND, "outOfRange": NO_INSTANCE, "failure": "Tasks could not be started: {message}"}
    raise_if_refused(settings, response, texts, id=job_id)
    started, failed = id_list(response.startedInstanceIds), id_list(response.invalidInstanceIds)
    text = f"Tasks started successfully for instances: {started} and failed instances are: {failed}"
    print_outcome(settings, response, text)
    if response.invalidInstanceIds:
        raise Failed(f"Some tasks failed to start, failed_instance_ids:{failed}")


@click.command(cls=Command)
@job_argument
@ranges_option
@pass_settings
def stop(settings: Settings, job_id: str, ranges: Sequence[InstanceRange]) -> None:
    """Stop tasks; without a range all of them, and with them the job. A gang stops whole.

    \b
    Examples:
      peloton task stop JOB -r 3:4
      peloton task stop JOB
    """
    request = v0.task.StopRequest(jobId=v0.peloton.JobID(value=job_id), ranges=map(range_message, ranges))
    response = settings.client.tasks.Stop(request)
    texts = {"notFound": NOT_FOUND, "outOfRange": NO_INSTANCE, "updateError": "Tasks could not be stopped: {message}"}
    raise_if_refused(settings, response, texts, id=job_id)
    if not print_for_programs(settings, response):
        echo(f"Successfully signalled {len(response.stoppedInstanceIds)} tasks for stopping")
        asked = [range(*each) for each in ranges]
        unasked = [i for i in response.stoppedInstanceIds if asked and not any(i in each for each in asked)]
        if unasked:
            echo(f"Among them the rest of a gang, which ends whole: {id_list(unasked)}")
    if response.invalidInstanceIds:
        raise Failed(f"Some tasks failed to stop, failed_instance_ids:{id_list(response.invalidInstanceIds)}")


@click.command(cls=Command)
@job_argument
@ranges_option
@pass_settings
def restart(settings: Settings, job_id: str, ranges: Sequence[InstanceRange]) -> None:
    """Restart tasks: each gets a new run. A gang restarts whole.

    \b
    Example:
      peloton task restart JOB -r 0:1
    """
    request = v0.task.RestartRequest(jobId=v0.peloton.JobID(value=job_id), ranges=map(range_message, ranges))
    response = settings.client.tasks.Restart(request)
    raise_if_refused(settings, response, {"notFound": NOT_FOUND, "outOfRange": NO_INSTANCE}, id=job_id)
    which = " ".join(map(range_text, ranges)) or "all"
    print_outcome(settings, response, f"Tasks of job {job_id} restarted: {which}")


def range_text(instances: InstanceRange) -> str:
    begin, end = instances
    return f"{begin}:{end if end < INSTANCE_MAX else ''}"
