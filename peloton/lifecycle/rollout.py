"""The rolling update, step by step: which instances are done, which have failed, which come next.

    INITIALIZED --> ROLLING_FORWARD --+--> SUCCEEDED
                        |  ^          +--> FAILED
                        v  |          +--> ROLLING_BACKWARD --+--> ROLLED_BACK
                       PAUSED                                 +--> FAILED

A step looks at the pods of the update, sorts those in flight into done, failed and still current, and fills the batch
up: added instances first, then updated ones (unavailable before killed before invalid before available), then removed
ones. Nobody else decides; storage applies what the step says in the transaction that looked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from peloton.lifecycle import sla
from peloton.lifecycle.sla import Availability
from peloton.model.job import JobRecord
from peloton.model.pod import ON_HOST, TERMINAL, PodRecord, PodState
from peloton.model.update import (
    NONE,
    UPDATE_TERMINAL,
    Instances,
    UpdateProgress,
    UpdateRecord,
    UpdateState,
    UpdateType,
)

_ENDS = (PodState.KILLED, PodState.DELETED)
_ORDER = {
    Availability.UNAVAILABLE: 0,
    Availability.KILLED: 1,
    Availability.DELETED: 1,
    Availability.INVALID: 2,
    Availability.AVAILABLE: 3,
}

Pods = Mapping[int, PodRecord]


class Stage(StrEnum):
    COMPLETE = "complete"
    FAILED = "failed"
    IN_PROGRESS = "in progress"


@dataclass(frozen=True, slots=True)
class Step:
    """The update after the step, and the instances that it is to put in flight now."""

    update: UpdateRecord
    add: tuple[int, ...] = ()
    change: tuple[int, ...] = ()
    remove: tuple[int, ...] = ()
    rolls_back: bool = False  # the older configuration becomes a new version: see ``reversed_update``
    waiting_for: str = ""


def stage(update: UpdateRecord, instance: int, pod: PodRecord | None) -> Stage:
    """Of an instance in flight; the first rule that holds decides."""
    if instance in update.removed:
        return Stage.COMPLETE if pod is None else Stage.IN_PROGRESS
    if pod is None:
        return Stage.IN_PROGRESS
    if pod.desired_config_version == update.config_version and _is_there(update, pod):
        return Stage.COMPLETE
    attempts = update.spec.max_instance_attempts
    if update.type is not UpdateType.STOP and attempts and pod.failure_count >= attempts:
        return Stage.FAILED
    return Stage.IN_PROGRESS


def _is_there(update: UpdateRecord, pod: PodRecord) -> bool:
    rests = pod.state in TERMINAL and pod.goal in _ENDS
    if update.type is UpdateType.STOP:
        return rests or pod.goal not in _ENDS  # somebody started it again: not ours to stop twice
    runs = (
        pod.state is PodState.RUNNING
        and pod.config_version == update.config_version
        and pod.desired_run_id <= pod.run_id
        and pod.health in sla.HEALTHY_ENOUGH
    )
    return runs or rests


def next_step(update: UpdateRecord, pods: Pods, sla_maximum: int = 0) -> Step:
    """``pods``: those of the job that exist. ``sla_maximum``: of instances that may be unavailable at a time, for a
    job whose updates keep to it; 0 = the batch alone decides.
    """
    if not update.is_active:
        return Step(update)
    update = _sorted_out(update, pods)
    if update.state is UpdateState.PAUSED:
        return Step(update, waiting_for="somebody to resume it")
    failures = update.spec.max_failure_instances
    if failures and len(update.failed) >= failures:
        if update.spec.rollback_on_failure and update.state is not UpdateState.ROLLING_BACKWARD:
            return Step(update, rolls_back=True)
        return Step(replace(update, state=UpdateState.FAILED, prev_state=update.state))
    if update.state is UpdateState.INITIALIZED:
        update = replace(update, state=UpdateState.ROLLING_FORWARD, prev_state=UpdateState.INITIALIZED)
    return _filled_up(update, pods, sla_maximum)


def moves(update: UpdateRecord, pods: Pods, sla_maximum: int = 0) -> bool:
    """Whether ``next_step`` would change anything: else nobody needs to take it."""
    step = next_step(update, pods, sla_maximum)
    return step.rolls_back or step.update != update


def sla_maximum(job: JobRecord) -> int:
    """What ``next_step`` is to keep to."""
    return job.sla.maximum_unavailable_instances if job.sla.strict_updates else 0


def _sorted_out(update: UpdateRecord, pods: Pods) -> UpdateRecord:
    done, failed = set(update.done), set(update.failed)
    current: set[int] = set()
    into = {Stage.COMPLETE: done, Stage.FAILED: failed, Stage.IN_PROGRESS: current}
    for instance in update.current:
        into[stage(update, instance, pods.get(instance))].add(instance)
    return replace(update, done=frozenset(done), failed=frozenset(failed), current=frozenset(current))


def _filled_up(update: UpdateRecord, pods: Pods, sla_maximum: int) -> Step:
    begun = update.current | update.done | update.failed
    coming = _in_order(update, pods, begun)
    room = update.spec.batch_size - len(update.current) if update.spec.batch_size else len(coming)
    chosen = coming[: max(room, 0)]
    waiting_for = f"{len(update.current)} instances in flight" if update.current else ""
    if sla_maximum and chosen:
        chosen, waiting_for = _allowed(chosen, pods, sla_maximum, waiting_for)
    if not coming and not update.current:
        is_back = update.state is UpdateState.ROLLING_BACKWARD
        end = UpdateState.ROLLED_BACK if is_back else UpdateState.SUCCEEDED
        return Step(replace(update, state=end, prev_state=update.state))
    after = replace(update, current=update.current | frozenset(chosen))
    add = tuple(i for i in chosen if i not in update.removed and i not in pods)
    remove = tuple(i for i in chosen if i in update.removed)
    change = tuple(i for i in chosen if i not in update.removed and i in pods)
    return Step(after, add, change, remove, waiting_for=waiting_for or f"{len(chosen)} instances in flight")


def _in_order(update: UpdateRecord, pods: Pods, begun: Instances) -> list[int]:
    """Instances that have not begun. An added one that exists is updated, an updated one that is gone is added."""
    added = sorted(i for i in (update.added | update.updated) - begun if i not in pods)
    updated = [i for i in (update.added | update.updated) - begun if i in pods]
    updated.sort(key=lambda i: (_ORDER[sla.availability(pods[i])], i))
    return added + updated + sorted(update.removed - begun)


def _allowed(chosen: list[int], pods: Pods, maximum: int, waiting_for: str) -> tuple[list[int], str]:
    """Those of the chosen that the SLA lets go now; instances that do not run yet, or are to stop, are free."""
    runs = [i for i in chosen if i in pods and pods[i].goal not in _ENDS]
    granted = sla.grant(maximum, sla.missing_of(pods), runs)
    refused = frozenset(granted.refused)
    return [i for i in chosen if i not in refused], granted.reason or waiting_for


@dataclass(frozen=True, slots=True)
class Difference:
    """What a new configuration means for the instances that exist."""

    added: Instances = NONE
    updated: Instances = NONE
    removed: Instances = NONE
    unchanged: Instances = NONE


def difference(
    pods: Pods, instance_count: int, config_version: int, is_changed: Mapping[tuple[int, int], bool]
) -> Difference:
    """``is_changed``: (instance, the version it is to run now) -> its configuration differs in ``config_version``."""
    added = frozenset(i for i in range(instance_count) if i not in pods)
    removed = frozenset(i for i in pods if i >= instance_count)
    updated = frozenset(
        i
        for i, pod in pods.items()
        if i < instance_count
        and (pod.config_version != pod.desired_config_version or is_changed[i, pod.config_version])
    )
    return Difference(added, updated, removed, frozenset(pods) - removed - updated)


def reversed_update(update: UpdateRecord, config_version: int, back: Difference) -> UpdateRecord:
    """The same update on its way back: to ``config_version``, a copy of the version before."""
    return replace(
        update,
        state=UpdateState.ROLLING_BACKWARD,
        prev_state=update.state,
        prev_config_version=update.config_version,
        config_version=config_version,
        added=back.added,
        updated=back.updated,
        removed=back.removed,
        current=NONE,
        done=NONE,
        failed=NONE,
    )


def progress_of(update: UpdateRecord, step: Step | None = None, pods: Pods | None = None) -> UpdateProgress:
    """After ``step``, taken on ``pods``; nobody tells when an update goes on that has nothing in flight."""
    chosen = () if step is None else (*step.add, *step.change, *step.remove)
    states = [pods[i].state for i in chosen if i in pods] if pods else []
    kill_count = sum(state in ON_HOST and state is not PodState.KILLING for state in states)
    return UpdateProgress(
        update_id=update.update_id,
        state=update.state,
        type=update.type,
        total_count=update.total_count,
        done_count=len(update.done),
        failed_count=len(update.failed),
        current_count=len(update.current),
        kill_count=kill_count,
        rest_count=len(chosen) - kill_count,
        waiting_for="" if step is None else step.waiting_for,
        look_again=step is not None and update.is_active and not update.current,
    )


def paused(update: UpdateRecord) -> UpdateRecord:
    if update.state is UpdateState.PAUSED or not update.is_active:
        return update
    return replace(update, state=UpdateState.PAUSED, prev_state=update.state)


def resumed(update: UpdateRecord) -> UpdateRecord:
    if update.state is not UpdateState.PAUSED:
        return update
    return replace(update, state=update.prev_state, prev_state=UpdateState.PAUSED)


def aborted(update: UpdateRecord) -> UpdateRecord:
    """The instances stay where they are; what is in flight is not undone."""
    if update.state in UPDATE_TERMINAL:
        return update
    return replace(update, state=UpdateState.ABORTED, prev_state=update.state)


def clipped(instances: Iterable[int], instance_count: int) -> Instances:
    """Of those named the ones that exist; all when none is named."""
    named = frozenset(instances)
    everything = frozenset(range(instance_count))
    return named & everything if named else everything
