"""``peloton update``: updates of services by their ids, with the terms of v0."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.command import Group, verb_commands
from cli.config_file import load_config
from cli.errors import Failed
from cli.job.read import with_current_version
from cli.names import job_argument
from cli.output import Table, print_list, print_outcome
from cli.params import CONFIG_FILE, COUNT, POOL_PATH, together
from cli.pools import pool_id_at
from cli.settings import Settings, pass_settings
from cli.stateless.options import batch_size_argument, done_word, opaque_option
from cli.terminal import echo
from cli.wire import v0
from peloton.model.aurora_update import aurora_update
from peloton.model.update import UPDATE_TERMINAL

if TYPE_CHECKING:
    from google.protobuf.message import Message

_COLUMNS: list[tuple[str, Callable[[v0.update.UpdateInfo], object]]] = [
    ("Update-ID", lambda info: info.updateId.value),
    ("State", lambda info: v0.update.State.Name(info.status.state)),
    ("NumberTasksCompleted", lambda info: info.status.numTasksDone),
    ("NumberTasksFailed", lambda info: info.status.numTasksFailed),
    ("NumberTasksRemaining", lambda info: info.status.numTasksRemaining),
]


def _make_table(*columns: tuple[str, Callable[[v0.update.UpdateInfo], object]]) -> Table[v0.update.UpdateInfo]:
    return Table(
        *columns,
        whole=["Update-ID", "State"],
        spare=["NumberTasksRemaining", "NumberTasksFailed"],
        nothing="No updates found",
        name=lambda info: info.updateId.value,
    )


TABLE = _make_table(*_COLUMNS)
AURORA_TABLE = _make_table(*_COLUMNS, ("Aurora-ID", lambda info: aurora_id(info)))
"""Table of updates that Aurora's clients know by ids of their own."""


def aurora_id(info: v0.update.UpdateInfo) -> str:
    found = aurora_update(info.opaque_data.data)
    return found.update_id if found else ""


def print_updates(settings: Settings, message: Message, infos: Sequence[v0.update.UpdateInfo]) -> None:
    print_list(settings, message, AURORA_TABLE if any(map(aurora_id, infos)) else TABLE, infos)


id_argument = click.argument("update_id", metavar="UPDATE-ID")
failure_options = together(
    click.option(
        "--maxattempts",
        "maxInstanceAttempts",
        type=COUNT,
        default="0",
        show_default=True,
        help="Failures after which an instance counts as failed; 0: never.",
    ),
    click.option(
        "--maxfailureInstances",
        "maxFailureInstances",
        type=COUNT,
        default="0",
        show_default=True,
        help="Failed instances at which the whole update fails; 0: never.",
    ),
    click.option(
        "--rollbackOnFailure",
        "rollbackOnFailure",
        is_flag=True,
        help="Roll back to the previous version when the update fails.",
    ),
)


@click.group(cls=Group)
def update() -> None:
    """Update services by API v0, where an update has an id.

    `peloton job stateless` does the same by API v1alpha, and more.
    """


@update.command()
@job_argument
@click.argument("config", type=CONFIG_FILE)
@batch_size_argument
@click.argument("respool", metavar="[RESPOOL]", type=POOL_PATH, required=False)
@click.option(
    "--configuration-version",
    "-c",
    "wanted",
    type=COUNT,
    default="0",
    show_default=True,
    help="Refuse it unless this is the current configuration version; 0: accept any version.",
)
@click.option("--override", "-o", is_flag=True, help="Replace an update that is under way.")
@failure_options
@click.option("--start-paused", "startPaused", is_flag=True, help="Start the update paused, until it is resumed.")
@click.option("--in-place", "inPlace", is_flag=True, help="Start each instance on its previous host again.")
@opaque_option
@pass_settings
def create(
    settings: Settings, /, job_id: str, config: Path, batch_size: int, respool: str | None, wanted: int,
    override: bool, opaque: str | None, **update_config: Any,
) -> None:  # fmt: skip
    """Give a service the configuration of the YAML file CONFIG, BATCH-SIZE instances at a time (0: all at once).

    An update that is under way is not replaced without --override. The job stays in its pool if RESPOOL is absent.

    \b
    Example:
      peloton update create JOB examples/services/web-v0.yaml 5 /tutorial --rollbackOnFailure
    """
    create_update(
        settings, job_id, load_config(config, v0.job.JobConfig), batch_size, respool=respool, wanted=wanted,
        override=override, opaque=opaque, **update_config,
    )  # fmt: skip


def create_update(
    settings: Settings, job_id: str, config: v0.job.JobConfig, batch_size: int, *, respool: str | None = None,
    wanted: int = 0, override: bool = False, opaque: str | None = None, **update_config: Any,
) -> None:  # fmt: skip
    """Create an update. ``wanted``: the version of the configuration that must be the current one; 0: any.

    The job stays in its pool without ``respool``.
    """
    request = v0.update_svc.CreateUpdateRequest(
        jobId=v0.peloton.JobID(value=job_id),
        jobConfig=config,
        updateConfig=v0.update.UpdateConfig(batchSize=batch_size, **update_config),
    )
    if opaque is not None:
        request.opaque_data.data = opaque
    if respool:
        request.jobConfig.respoolID.value = pool_id_at(settings.client, respool)
    refuse_update_under_way(settings, job_id, override)

    def send(job: v0.job.JobInfo) -> v0.update_svc.CreateUpdateResponse:
        request.jobConfig.changeLog.version = job.runtime.configurationVersion
        if not request.jobConfig.respoolID.value:
            request.jobConfig.respoolID.CopyFrom(job.config.respoolID)
        return settings.client.updates.CreateUpdate(request)

    response = with_current_version(settings, job_id, wanted, "configuration", send)
    print_outcome(settings, response, f"Job update {response.updateID.value} created", [response.updateID.value])


def refuse_update_under_way(settings: Settings, job_id: str, override: bool) -> None:
    request = v0.update_svc.ListUpdatesRequest(jobID=v0.peloton.JobID(value=job_id))
    for info in settings.client.updates.ListUpdates(request).updateInfo:
        if v0.update.State.Name(info.status.state) in {"INVALID", *UPDATE_TERMINAL}:
            continue
        if not override:
            raise Failed(
                f"cannot create a new update as another update is already running: {info.updateId.value} "
                f"(--override takes its place)"
            )
        echo(f"going to override existing update: {info.updateId.value}", err=True)


@update.command()
@id_argument
@pass_settings
def get(settings: Settings, update_id: str) -> None:
    """Show the progress of an update. With --json all of it."""
    response = settings.client.updates.GetUpdate(
        v0.update_svc.GetUpdateRequest(updateId=v0.peloton.UpdateID(value=update_id))
    )
    print_updates(settings, response, [response.updateInfo])


@update.command("list")
@job_argument
@pass_settings
def list_updates(settings: Settings, job_id: str) -> None:
    """List the updates of a service, newest first."""
    response = settings.client.updates.ListUpdates(
        v0.update_svc.ListUpdatesRequest(jobID=v0.peloton.JobID(value=job_id))
    )
    print_updates(settings, response, response.updateInfo)


@update.command()
@id_argument
@pass_settings
def cache(settings: Settings, update_id: str) -> None:
    """Show the progress of an update from the cache. With --json the instances by number."""
    request = v0.update_svc.GetUpdateCacheRequest(updateId=v0.peloton.UpdateID(value=update_id))
    response = settings.client.updates.GetUpdateCache(request)
    done, failed = len(response.instancesDone), len(response.instancesFailed)
    status = v0.update.UpdateStatus(
        state=response.state,
        numTasksDone=done,
        numTasksFailed=failed,
        numTasksRemaining=len(response.instancesTotal) - done - failed,
    )
    info = v0.update.UpdateInfo(updateId=v0.peloton.UpdateID(value=update_id), status=status)
    print_updates(settings, response, [info])


STEERING = {
    "abort": "Abort an update: instances stay at the versions that they have.",
    "pause": "Pause an update: instances in flight finish, no others begin.",
    "resume": "Resume a paused update.",
}


@verb_commands(STEERING, group=update)
@id_argument
@opaque_option
@pass_settings
def steer(settings: Settings, verb: str, update_id: str, opaque: str | None) -> None:
    name = f"{verb.capitalize()}Update"
    request = getattr(v0.update_svc, f"{name}Request")(updateId=v0.peloton.UpdateID(value=update_id))
    if opaque is not None:
        request.opaque_data.data = opaque
    response = getattr(settings.client.updates, name)(request)
    print_outcome(settings, response, f"Update {update_id} {done_word(verb)}")
