"""``peloton job rolling-restart``, ``rolling-start``, ``rolling-stop``: service jobs, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from cli.command import verb_commands
from cli.job.read import with_current_version
from cli.names import job_argument
from cli.output import as_json
from cli.params import COUNT, InstanceRange, ranges_option, together
from cli.settings import Settings, pass_settings
from cli.task.control import range_message
from cli.terminal import echo
from cli.wire import v0

if TYPE_CHECKING:
    from google.protobuf.message import Message


def roll(
    settings: Settings, verb: str, job_id: str, batch_size: int, resource_version: int, ranges: Sequence[InstanceRange]
) -> None:
    name = verb.rpartition("-")[2].capitalize()
    request = getattr(v0.job, f"{name}Request")(id=v0.peloton.JobID(value=job_id), ranges=map(range_message, ranges))
    getattr(request, f"{name.lower()}Config").batchSize = batch_size

    def send(job: v0.job.JobInfo) -> Message:
        request.resourceVersion = job.runtime.configurationVersion
        method: Callable[[Any], Message] = getattr(settings.client.jobs, name)
        return method(request)

    echo(as_json(with_current_version(settings, job_id, resource_version, "resource", send)))


def rolling_commands(group: click.Group, path: str, noun: str, verbs: Sequence[str]) -> None:
    """Add the commands, each named for the method that it calls: Restart, Start or Stop."""
    texts = {
        verb: f"{verb.rpartition('-')[2].capitalize()} instances of a {noun}, BATCH-SIZE at a time (0: all at once)."
        for verb in verbs
    }
    options = together(
        job_argument,
        click.argument("batch_size", metavar="BATCH-SIZE", type=COUNT),
        click.option("--resourceVersion", "resource_version", type=COUNT, default=0, show_default=True,
                     help="Refuse it unless this is the current configuration version; 0: any."),
        ranges_option,
    )  # fmt: skip
    examples = f"{path} {{verb}} JOB 10\n  peloton {path} {{verb}} JOB 1 -r 0:5 -r 20:"
    verb_commands(texts, examples, group)(options(pass_settings(roll)))
