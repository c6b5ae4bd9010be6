"""``peloton job stateless start``, ``stop``, ``restart`` and ``delete``."""

from __future__ import annotations

from collections.abc import Sequence

import click

from cli.command import Command, verb_commands
from cli.names import job_argument
from cli.output import print_outcome
from cli.params import COUNT, InstanceRange, ranges_option
from cli.pod.table import range_message
from cli.settings import Settings, pass_settings
from cli.stateless.options import (
    key_option,
    opaque_option,
    version_argument,
    watch_option,
)
from cli.stateless.rollout_watch import exit_after_goal, exit_after_update
from cli.stateless.service import Service, opaque_data
from cli.wire import v1
from peloton.model.job import JobState

TEXTS = {
    "start": "Start a service that was stopped: all of its instances.",
    "stop": "Stop a service: all of its instances. Its spec and history stay.",
}


@verb_commands(TEXTS, "job stateless {verb} JOB --watch")
@job_argument
@version_argument
@watch_option
@pass_settings
def goals(settings: Settings, verb: str, job_id: str, version: str, watch: bool) -> None:
    service = Service(settings, job_id)
    call = getattr(settings.client.services, f"{verb.capitalize()}Job")
    response = service.write(version, call, getattr(v1.job_svc, f"{verb.capitalize()}JobRequest")(job_id=service.id))
    done, goal = ("started", JobState.RUNNING) if verb == "start" else ("stopped", JobState.KILLED)
    print_outcome(settings, response, f"Job {done}. New EntityVersion: {response.version.value}", lines=watch)
    if watch:
        exit_after_goal(settings, job_id, goal)


@click.command(cls=Command)
@job_argument
@version_argument
@ranges_option
@click.option("--batch-size", type=COUNT, default=0, show_default=True,
              help="Instances at a time; 0: all at once.")  # fmt: skip
@click.option("--in-place", is_flag=True, help="Start each instance on its previous host again.")
@key_option
@opaque_option
@watch_option
@pass_settings
def restart(
    settings: Settings, job_id: str, version: str, ranges: Sequence[InstanceRange],
    batch_size: int, in_place: bool, update_key: str, opaque: str | None, watch: bool,
) -> None:  # fmt: skip
    """Restart instances of a service; those that were stopped are started.

    \b
    Examples:
      peloton job stateless restart JOB --batch-size 1 --watch
      peloton job stateless restart JOB 1-1-1 -r 0:5 -r 20: --in-place
    """
    service = Service(settings, job_id)
    request = v1.job_svc.RestartJobRequest(
        job_id=service.id,
        restart_spec=v1.job.RestartSpec(batch_size=batch_size, ranges=map(range_message, ranges), in_place=in_place),
        opaque_data=opaque_data(opaque),
        update_key=update_key,
    )
    response = service.write(version, settings.client.services.RestartJob, request)
    print_outcome(settings, response, f"Job restarted. New EntityVersion: {response.version.value}", lines=watch)
    if watch:
        exit_after_update(settings, job_id, response.version.value)


@click.command(cls=Command)
@job_argument
@version_argument
@click.option("--force", "-f", is_flag=True, help="Delete it although it has not been stopped.")
@pass_settings
def delete(settings: Settings, job_id: str, version: str, force: bool) -> None:
    """Delete a service that was stopped, with its pods and history.

    \b
    Example:
      peloton job stateless delete JOB
    """
    service = Service(settings, job_id)
    request = v1.job_svc.DeleteJobRequest(job_id=service.id, force=force)
    response = service.write(version, settings.client.services.DeleteJob, request)
    print_outcome(settings, response, "Job deleted")
