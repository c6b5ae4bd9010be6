"""``peloton job rolling-restart``, ``rolling-start``, ``rolling-stop``: service jobs, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from cli.command import Command
from cli.job.read import with_current_version
from cli.names import job_argument
from cli.output import as_json
from cli.params import COUNT, InstanceRange, ranges_option
from cli.settings import Settings, pass_settings
from cli.task.control import range_message
from cli.terminal import echo
from cli.wire import v0

if TYPE_CHECKING:
    from google.protobuf.message import Message


def rolling_command(name: str, verb: str, group: str = "job", noun: str = "service job") -> click.Command:
    """Return the command ``name``, which calls the method ``verb`` (Restart, Start or Stop)."""

    @click.command(name, cls=Command, help=help_of(f"{group} {name}", verb.lower(), noun))
    @job_argument
    @click.argument("batch_size", metavar="BATCH-SIZE", type=COUNT)
    @click.option("--resourceVersion", "resource_version", type=COUNT, default=0, show_default=True,
                  help="Refuse it unless this is the current configuration version; 0: any.")  # fmt: skip
    @ranges_option
    @pass_settings
    def command(
        settings: Settings, job_id: str, batch_size: int, resource_version: int, ranges: Sequence[InstanceRange]
    ) -> None:
        echo(as_json(call(settings, verb, job_id, batch_size, resource_version, ranges)))

    return command


def help_of(path: str, verb: str, noun: str) -> str:
    return f"""{verb.capitalize()} instances of a {noun}, BATCH-SIZE at a time (0: all at once).

    \b
    Examples:
      peloton {path} JOB 10
      peloton {path} JOB 1 -r 0:5 -r 20:
    """


def call(
    settings: Settings,
    verb: str,
    job_id: str,
    batch_size: int,
    resource_version: int,
    ranges: Sequence[InstanceRange],
) -> Message:
    method: Callable[[Any], Message] = getattr(settings.client.jobs, verb)
    request = getattr(v0.job, f"{verb}Request")(id=v0.peloton.JobID(value=job_id), ranges=map(range_message, ranges))
    getattr(request, f"{verb.lower()}Config").batchSize = batch_size

    def send(job: v0.job.JobInfo) -> Message:
        request.resourceVersion = job.runtime.configurationVersion
        return method(request)

    return with_current_version(settings, job_id, resource_version, "resource", send)


rolling_restart = rolling_command("rolling-restart", "Restart")
rolling_start = rolling_command("rolling-start", "Start")
rolling_stop = rolling_command("rolling-stop", "Stop")
