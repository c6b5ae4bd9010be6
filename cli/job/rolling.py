"""``peloton job rolling-restart``, ``rolling-start``, ``rolling-stop``: service jobs, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from cli.command import Command
from cli.errors import Failed
from cli.names import job_argument
from cli.output import as_json
from cli.params import RANGE, InstanceRange
from cli.settings import Settings, pass_settings
from cli.wire import v0

if TYPE_CHECKING:
    from google.protobuf.message import Message

VERSION_ATTEMPTS_MAX = 5
STALE_VERSION = "invalid job configuration version"


def rolling_command(name: str, verb: str) -> click.Command:
    """The command ``name``, which calls the method ``verb`` (Restart, Start or Stop)."""

    @click.command(name, cls=Command, help=help_of(name, verb.lower()))
    @job_argument
    @click.argument("batch_size", metavar="BATCH-SIZE", type=click.IntRange(0))
    @click.option("--resourceVersion", "resource_version", type=click.IntRange(0), default=0, show_default=True,
                  help="The configuration version that must be the current one; 0 takes whichever is.")  # fmt: skip
    @click.option("--range", "-r", "ranges", type=RANGE, multiple=True, help="Instances; all if absent. Repeatable.")
    @pass_settings
    def command(
        settings: Settings, job_id: str, batch_size: int, resource_version: int, ranges: Sequence[InstanceRange]
    ) -> None:
        click.echo(as_json(call(settings, verb, job_id, batch_size, resource_version, ranges)))

    return command


def help_of(name: str, verb: str) -> str:
    return f"""{verb.capitalize()} instances of a service job, BATCH-SIZE at a time (0: all at once).

    \b
    Examples:
      peloton job {name} JOB 10
      peloton job {name} JOB 1 -r 0:5 -r 20:
    """


def call(
    settings: Settings,
    verb: str,
    job_id: str,
    batch_size: int,
    resource_version: int,
    ranges: Sequence[InstanceRange],
) -> Message:
    """Without a version the current one is read, again when somebody else was faster."""
    import grpc

    method: Callable[[Any], Message] = getattr(settings.client.jobs, verb)
    request = getattr(v0.job, f"{verb}Request")(id=v0.peloton.JobID(value=job_id))
    request.ranges.extend(v0.task.InstanceRange(**{"from": start}, to=stop) for start, stop in ranges)
    getattr(request, f"{verb.lower()}Config").batchSize = batch_size
    for attempt in range(1, VERSION_ATTEMPTS_MAX + 1):
        current = current_version(settings, job_id)
        if resource_version and resource_version != current:
            raise Failed(f"invalid input resource version current {current} provided {resource_version}")
        request.resourceVersion = current
        try:
            return method(request)
        except grpc.RpcError as error:
            details = error.details() or ""
            if resource_version or STALE_VERSION not in details or attempt == VERSION_ATTEMPTS_MAX:
                raise
    raise AssertionError("the last attempt returns or raises")


def current_version(settings: Settings, job_id: str) -> int:
    from cli.job.group import refuse_unknown_job

    response = settings.client.jobs.Get(v0.job.GetRequest(id=v0.peloton.JobID(value=job_id)))
    refuse_unknown_job(settings, response, "Unable to get job", job_id)
    return response.jobInfo.runtime.configurationVersion


rolling_restart = rolling_command("rolling-restart", "Restart")
rolling_start = rolling_command("rolling-start", "Start")
rolling_stop = rolling_command("rolling-stop", "Stop")
