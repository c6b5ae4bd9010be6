"""``peloton job stateless replace``, ``replace-diff`` and ``rollback``: another spec for a service, rolled out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

import click

from cli.command import Command
from cli.config_file import load_config
from cli.errors import Failed
from cli.names import job_argument
from cli.new_job import FileSecret, secret_options, secrets_of
from cli.output import print_for_programs, print_outcome
from cli.params import together
from cli.pools import pool_id_at
from cli.settings import Settings, pass_settings
from cli.stateless.options import (
    PlaceWords,
    RollbackWords,
    batch_size_argument,
    diff_option,
    failure_options,
    key_option,
    opaque_option,
    place_words,
    placement_options,
    rollback_words,
    spec_argument,
    watch_option,
    words_argument,
    yes_option,
)
from cli.stateless.rollout_watch import exit_after_update
from cli.stateless.service import Service, config_version, opaque_data
from cli.stateless.spec_diff import print_difference
from cli.terminal import echo
from cli.wire import v1
from peloton.model.update import UPDATE_TERMINAL, UpdateState

STATE_PREFIX = "WORKFLOW_STATE_"
BACKWARD = ("ROLLING_BACKWARD", "ROLLED_BACK")
rollback_option = click.option("--rollbackOnFailure", "rollback_on_failure", is_flag=True,
                               help="Roll back to the previous version when the update fails.")  # fmt: skip
override_option = click.option("--override", "-o", is_flag=True,
                               help="Replace an update under way without asking.")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Questions:
    """Options on what is shown and asked before a replacement, and shown after it."""

    override: bool
    diff: bool
    yes: bool
    watch: bool


def asking_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of Questions, which the command receives as ``questions``."""

    @wraps(function)
    def command(*args: Any, override: bool, diff: bool, yes: bool, watch: bool, **given: Any) -> None:
        function(*args, questions=Questions(override=override, diff=diff, yes=yes, watch=watch), **given)

    return together(override_option, diff_option, yes_option, watch_option)(command)


@dataclass
class Replacement:
    """A new spec for a service, and the options of its rollout."""

    service: Service
    spec: v1.job.JobSpec
    name: str  # shown name of the new spec
    version: str = ""  # entity version; empty: the present one, read once
    update_spec: dict[str, Any] = field(default_factory=dict)
    opaque: str | None = None
    key: str = ""
    secrets: Sequence[v1.peloton.Secret] = ()

    def show(self, err: bool = False) -> None:
        answer = self.difference()  # refuses a wrong version
        names = (f"job {self.service.job_id} at {self.seen.value}", self.name)
        print_difference(answer, self.service.job.job_info.spec, self.spec, names, err=err)

    def difference(self) -> v1.job_svc.GetReplaceJobDiffResponse:
        request = v1.job_svc.GetReplaceJobDiffRequest(job_id=self.service.id, version=self.seen, spec=self.spec)
        return self.service.settings.client.services.GetReplaceJobDiff(request)

    @property
    def seen(self) -> v1.peloton.EntityVersion:
        return v1.peloton.EntityVersion(value=self.version or self.service.version)

    def send(self) -> v1.job_svc.ReplaceJobResponse:
        """Send the spec with the version that was read: a later change is refused, not overwritten."""
        request = v1.job_svc.ReplaceJobRequest(
            job_id=self.service.id,
            version=self.seen,
            spec=self.spec,
            secrets=self.secrets,
            update_spec=v1.job.UpdateSpec(**self.update_spec),
            opaque_data=opaque_data(self.opaque),
            update_key=self.key,
        )
        return self.service.settings.client.services.ReplaceJob(request)


@click.command(cls=Command)
@job_argument
@spec_argument
@batch_size_argument
@words_argument("[RESPOOL] [ENTITY-VERSION]", place_words)
@secret_options
@failure_options
@rollback_option
@placement_options
@key_option
@opaque_option
@asking_options
@pass_settings
def replace(
    settings: Settings, /, job_id: str, spec: Path, batch_size: int, words: PlaceWords,
    secrets: Sequence[FileSecret], update_key: str, opaque: str | None, questions: Questions, **update_spec: Any,
) -> None:  # fmt: skip
    """Give a service another spec, the YAML file SPEC, BATCH-SIZE instances at a time (0: all at once).

    Without an ENTITY-VERSION the current version is read first; if the service changes in between, the command is
    refused. Without a RESPOOL the `respoolid` of the file applies; without either, the service stays in its pool.

    The secrets of the service stay, unless a new secret has the same path.

    \b
    Examples:
      peloton job stateless replace JOB examples/services/web.yaml 1 --diff --watch
      peloton job stateless replace JOB examples/services/web.yaml 10 /tutorial 1-1-1 --rollbackOnFailure
    """
    service = Service(settings, job_id)
    replacement = Replacement(
        service,
        spec_at(service, spec, words.pool),
        name=str(spec),
        version=words.version,
        update_spec={"batch_size": batch_size, **update_spec},
        opaque=opaque,
        key=update_key,
        secrets=secrets_of(secrets, v1.peloton.Secret),
    )
    carry_out(replacement, questions, knows_job=questions.diff or not words.version)


@click.command("replace-diff", cls=Command)
@job_argument
@spec_argument
@words_argument("[RESPOOL] [ENTITY-VERSION]", place_words)
@pass_settings
def replace_diff(settings: Settings, job_id: str, spec: Path, words: PlaceWords) -> None:
    """Show what replacing a service's spec with the YAML file SPEC would change, without doing it.

    Instances that would be added, removed, updated and left alone (both ends of a range are included), and the lines of
    the spec that differ. With --json the instances only.

    \b
    Example:
      peloton job stateless replace-diff JOB examples/services/web.yaml
    """
    service = Service(settings, job_id)
    replacement = Replacement(service, spec_at(service, spec, words.pool), str(spec), words.version)
    if not settings.is_for_programs:
        replacement.show()
    else:
        print_for_programs(settings, replacement.difference())


@click.command(cls=Command)
@job_argument
@words_argument("[BATCH-SIZE] [ENTITY-VERSION]", rollback_words)
@failure_options
@placement_options
@key_option
@opaque_option
@asking_options
@pass_settings
def rollback(
    settings: Settings, /, job_id: str, words: RollbackWords, update_key: str, opaque: str | None,
    questions: Questions, **update_spec: Any,
) -> None:  # fmt: skip
    """Give a service the spec of an earlier version again: that of ENTITY-VERSION, or of the one before the current.

    Restarts and updates that were rolled back are not counted. Without a BATCH-SIZE, that of the latest update applies.
    Secrets that were sent since then stay.

    \b
    Examples:
      peloton job stateless rollback JOB --diff
      peloton job stateless rollback JOB 10 1-1-1 --in-place --watch
    """
    service = Service(settings, job_id)
    version = words.version or version_before(service)
    spec = service.read(version).job_info.spec
    batch_size = batch_size_of(service) if words.batch_size is None else words.batch_size
    replacement = Replacement(
        service,
        spec,
        name=f"job {job_id} at {version}",
        update_spec={"batch_size": batch_size, **update_spec},
        opaque=opaque,
        key=update_key,
    )
    carry_out(replacement, questions, knows_job=True)


def spec_at(service: Service, path: Path, pool: str) -> v1.job.JobSpec:
    spec = load_config(path, v1.job.JobSpec)
    if pool:
        spec.respool_id.value = pool_id_at(service.settings.client, pool)
    elif not spec.respool_id.value:
        spec.respool_id.CopyFrom(service.job.job_info.spec.respool_id)
    return spec


def carry_out(replacement: Replacement, questions: Questions, knows_job: bool) -> None:
    """Show the difference, ask for confirmation, replace the spec and watch the update, as far as requested.

    On a terminal it asks after the difference was shown, or when an update is under way.
    """
    service, settings = replacement.service, replacement.service.settings
    if questions.diff:
        replacement.show(err=settings.is_for_programs)
    if not questions.yes and is_terminal():
        is_under_way = not questions.override and knows_job and says_update_under_way(service)
        if (questions.diff or is_under_way) and not click.confirm(
            f"Replace the spec of job {service.job_id}?", err=True
        ):
            raise Failed("nothing changed")
    response = replacement.send()
    print_outcome(settings, response, f"New EntityVersion: {response.version.value}", lines=questions.watch)
    if questions.watch:
        exit_after_update(settings, service.job_id, response.version.value)


def says_update_under_way(service: Service) -> bool:
    status = service.job.job_info.status.workflow_status
    state = state_name(status)
    if not status.state or UpdateState(state) in UPDATE_TERMINAL:
        return False
    done = status.num_instances_completed
    total = done + status.num_instances_remaining + status.num_instances_failed
    echo(f"An update is under way ({state}, {done}/{total} done); this one would take its place.", err=True)
    return True


def is_terminal() -> bool:
    return sys.stdin.isatty()


def state_name(status: v1.job.WorkflowStatus) -> str:
    return v1.job.WorkflowState.Name(status.state).removeprefix(STATE_PREFIX)


def version_before(service: Service) -> str:
    """Return the version before the latest update that changed the spec and was not rolled back."""
    if is_going_back(service.job.job_info.status.workflow_status):
        raise Failed(f"job {service.job_id} is being rolled back already")
    response = service.settings.client.services.ListJobWorkflows(v1.job_svc.ListJobWorkflowsRequest(job_id=service.id))
    for info in response.workflow_infos:
        status = info.status
        if status.type != v1.job.WORKFLOW_TYPE_UPDATE or state_name(status) in BACKWARD:
            continue  # its version is a copy of an older one
        if config_version(status.prev_version.value) > 0:
            return status.prev_version.value
    raise Failed(f"job {service.job_id} has no older version to roll back to")


def is_going_back(status: v1.job.WorkflowStatus) -> bool:
    backward = v1.job.WORKFLOW_STATE_ROLLING_BACKWARD
    return status.state == backward or (status.state == v1.job.WORKFLOW_STATE_PAUSED and status.prev_state == backward)


def batch_size_of(service: Service) -> int:
    info = service.job.workflow_info
    return info.restart_spec.batch_size if info.HasField("restart_spec") else info.update_spec.batch_size
