"""Rolling update, step by step: classification of instances in flight, and the choice of the next ones.

    INITIALIZED --> ROLLING_FORWARD --+--> SUCCEEDED
                        |  ^          +--> FAILED
                        v  |          +--> ROLLING_BACKWARD --+--> ROLLED_BACK
                       PAUSED                                 +--> FAILED

A step reads the pods of the update, sorts instances in flight into done, failed and current, and fills up the batch:
first added instances, then updated ones (unavailable before killed before invalid before available), then removed ones.
A pulsed update without a recent pulse starts no instance. All decisions are made in this module; storage applies the
step in the transaction that reads the pods, as far as the step needs them.

``plan_step`` decides from counts of pods; ``next_step`` chooses the instances of its plan, and ``may_move`` says
whether the plan changes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from peloton.lifecycle import pod_terms as terms
from peloton.lifecycle import sla, stall
from peloton.lifecycle.guards import ALWAYS, Condition, Differs, Exceeds, In, Parameter
from peloton.lifecycle.rollout_pods import AtHand, Coming, Pods, PodSource, waiting_of
from peloton.model.job import JobRecord
from peloton.model.pod import ENDING_GOALS, ON_HOST, TERMINAL, PodRecord, PodState
from peloton.model.reason import SlaRefusal
from peloton.model.times import NS_PER_S
from peloton.model.update import (
    NONE,
    ROLLING,
    UPDATE_TERMINAL,
    Instances,
    UpdateProgress,
    UpdateRecord,
    UpdateState,
    UpdateType,
)
from peloton.model.update_text import instances_text, update_wait_text

_VERBS = {
    UpdateType.UPDATE: "replace",
    UpdateType.RESTART: "restart",
    UpdateType.START: "start",
    UpdateType.STOP: "stop",
}
COMING_BATCHES = 2
"""Batches ahead that ``coming_back`` returns. A batch is filled up as its instances finish, and images are read once
per started batch: one batch ahead would miss a part of the next."""


class Stage(StrEnum):
    COMPLETE = "complete"
    FAILED = "failed"
    IN_PROGRESS = "in progress"


@dataclass(frozen=True, slots=True)
class Step:
    """The update after the step, and the instances to put in flight now."""

    update: UpdateRecord
    add: tuple[int, ...] = ()
    change: tuple[int, ...] = ()
    remove: tuple[int, ...] = ()
    kill_count: int = 0  # instances of these on hosts that have not been asked to end
    rolls_back: bool = False  # too many have failed: nothing starts before ``reverse``


# -- an instance in flight -----------------------------------------------------------------------------------------

_RESTS = In("state", TERMINAL) & terms.GOAL_ENDED
_RUNS_TARGET = terms.RUNNING & ~terms.RUN_SUPERSEDED & ~Differs("config_version", Parameter("version")) & terms.HEALTHY
_HAS_FAILED = Exceeds("failure_count", Parameter("failures_free"))
_IS_DONE = ~terms.DIFFERS & (_RUNS_TARGET | _RESTS)
_HAS_STOPPED = ~terms.DIFFERS & (_RESTS | terms.GOAL_ALIVE)  # an instance that was started again is not stopped twice


def _done_condition(update: UpdateRecord) -> Condition:
    return _HAS_STOPPED if update.type is UpdateType.STOP else _IS_DONE


def _may_fail(update: UpdateRecord) -> bool:
    return update.type is not UpdateType.STOP and update.spec.max_instance_attempts > 0


def _parameters(update: UpdateRecord) -> dict[str, Any]:
    """Return the parameters of these conditions."""
    return {"version": update.config_version, "failures_free": update.spec.max_instance_attempts - 1}


def stage(update: UpdateRecord, instance: int, pod: PodRecord | None) -> Stage:
    """Return the stage of an instance in flight; the first rule that applies decides."""
    if pod is None:
        return Stage.COMPLETE if instance in update.removed else Stage.IN_PROGRESS
    if instance in update.removed:
        return Stage.IN_PROGRESS
    given = _parameters(update)
    if _done_condition(update).holds(pod, given):
        return Stage.COMPLETE
    return Stage.FAILED if _may_fail(update) and _HAS_FAILED.holds(pod, given) else Stage.IN_PROGRESS


# -- the next step -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StepPlan:
    """The update after its next step, without the instances that begin: at most ``begin_max`` of them."""

    update: UpdateRecord
    begin_max: int = 0
    rolls_back: bool = False
    missing_count: int = 0  # missing instances of the job, counted only for an SLA


PodCounter = Callable[[Condition, Mapping[str, Any], Collection[int] | None], int]
"""Function that counts the pods that meet a condition with parameters, among these instances; None: among all of the
job."""


def next_step(update: UpdateRecord, pods: Pods | PodSource, sla_maximum: int = 0, now_ns: int = 0) -> Step:
    """Return the next step. ``pods``: the existing pods of the job, or their source. ``sla_maximum``: unavailable
    instances allowed for a job with strict updates; 0 = only the batch limits. ``now_ns``: on the clock that dates
    pulses."""
    if not update.is_active:
        return Step(update)
    source = AtHand(pods) if isinstance(pods, Mapping) else pods
    settled = classify_in_flight(update, source.in_flight(update))
    plan = plan_step(settled, source.count, sla_maximum, now_ns)
    return fill_batch(plan, source, sla_maximum) if plan.begin_max else Step(plan.update, rolls_back=plan.rolls_back)


def may_move(update: UpdateRecord, count: PodCounter, sla_maximum: int = 0, now_ns: int = 0) -> bool:
    """Return whether ``next_step`` would change the update, from counts alone. No step is missed; a step that the SLA
    refuses may be reported when instances wait to be removed."""
    if not update.is_active:
        return False
    if _has_settled(update, count):
        return True
    plan = plan_step(update, count, sla_maximum, now_ns)
    return plan.rolls_back or plan.begin_max > 0 or plan.update != update


def plan_step(update: UpdateRecord, count: PodCounter, sla_maximum: int = 0, now_ns: int = 0) -> StepPlan:
    """Plan the step of an active update whose instances in flight have been classified."""
    update = replace(update, awaits_pulse=False, refusal=None)
    if update.state is UpdateState.PAUSED:
        return StepPlan(update)
    if _has_failed(update):
        if update.spec.rollback_on_failure and update.state is not UpdateState.ROLLING_BACKWARD:
            return StepPlan(update, rolls_back=True)
        return StepPlan(_move(update, UpdateState.FAILED))
    if update.state is UpdateState.INITIALIZED:
        update = _move(update, UpdateState.ROLLING_FORWARD)
    waiting = waiting_of(update)
    if not waiting and not update.current:
        is_back = update.state is UpdateState.ROLLING_BACKWARD
        return StepPlan(_move(update, UpdateState.ROLLED_BACK if is_back else UpdateState.SUCCEEDED))
    allowed = update.spec.batch_size - len(update.current) if update.spec.batch_size else len(waiting)
    begin_max = min(max(allowed, 0), len(waiting))
    if begin_max and is_pulse_missing(update, now_ns):
        return StepPlan(replace(update, awaits_pulse=True))
    if not sla_maximum or not begin_max:
        return StepPlan(update, begin_max)
    missing = count(terms.MISSING, {}, None)
    if missing >= sla_maximum and count(terms.AVAILABLE, {}, waiting) == len(waiting):
        return StepPlan(replace(update, refusal=sla.refuse(sla_maximum, missing, begin_max)))
    return StepPlan(update, begin_max, missing_count=missing)


def _move(update: UpdateRecord, state: UpdateState) -> UpdateRecord:
    return replace(update, state=state, prev_state=update.state)


def _has_failed(update: UpdateRecord) -> bool:
    failures = update.spec.max_failure_instances
    return bool(failures) and len(update.failed) >= failures


def _has_settled(update: UpdateRecord, count: PodCounter) -> bool:
    """Return whether an instance in flight is done or has failed."""
    leaving, others = update.current & update.removed, update.current - update.removed
    if leaving and count(ALWAYS, {}, leaving) < len(leaving):
        return True
    return bool(others) and count(*find_settled(update), others) > 0


def find_settled(update: UpdateRecord) -> tuple[Condition, dict[str, Any]]:
    """Return the condition of a pod in flight that is done or has failed, and its parameters. The condition does not
    apply to instances that are removed."""
    condition = _done_condition(update) | _HAS_FAILED if _may_fail(update) else _done_condition(update)
    return condition, _parameters(update)


def sla_maximum(job: JobRecord) -> int:
    """Return the maximum of unavailable instances that ``next_step`` must respect, 0 = none."""
    return job.sla.maximum_unavailable_instances if job.sla.strict_updates else 0


def classify_in_flight(update: UpdateRecord, pods: Pods) -> UpdateRecord:
    done, failed = set(update.done), set(update.failed)
    current: set[int] = set()
    into = {Stage.COMPLETE: done, Stage.FAILED: failed, Stage.IN_PROGRESS: current}
    known: dict[tuple[int, bool], Stage] = {}  # keyed by record: equal pods share one
    for instance in update.current:
        pod = pods.get(instance)
        key = (id(pod), instance in update.removed)
        if key not in known:
            known[key] = stage(update, instance, pod)
        into[known[key]].add(instance)
    return replace(update, done=frozenset(done), failed=frozenset(failed), current=frozenset(current))


def fill_batch(plan: StepPlan, source: PodSource, sla_maximum: int) -> Step:
    """Choose the instances that begin; all of the plan unless the SLA refuses some."""
    update = plan.update
    if sla_maximum:
        coming, refusal = _choose_allowed(plan, source, sla_maximum)
    else:
        coming, refusal = source.coming(update, plan.begin_max), None
    chosen, pods = coming.first, coming.pods
    after = replace(update, current=update.current | frozenset(chosen), refusal=refusal)
    add = tuple(i for i in chosen if i not in update.removed and i not in pods)
    remove = tuple(i for i in chosen if i in update.removed)
    change = tuple(i for i in chosen if i not in update.removed and i in pods)
    states = [pods[i].state for i in chosen if i in pods]
    kill_count = sum(state in ON_HOST and state is not PodState.KILLING for state in states)
    return Step(after, add, change, remove, kill_count)


def is_pulse_missing(update: UpdateRecord, now_ns: int) -> bool:
    """Return whether a pulse is required and missing. A rollback requires none: a service must not stay broken because
    pulses stopped."""
    if not update.spec.pulse_s or update.state is UpdateState.ROLLING_BACKWARD:
        return False
    return not update.pulsed_ns or now_ns - update.pulsed_ns > update.spec.pulse_s * NS_PER_S


def coming_back(update: UpdateRecord, pods: Pods | PodSource) -> dict[int, PodRecord]:
    """Return the pods that the next instances replace on the same host with another configuration, in the order of
    their start. Hosts of other instances are unknown before placement."""
    if update.type is not UpdateType.UPDATE or not update.spec.in_place or update.state not in ROLLING:
        return {}
    source = AtHand(pods) if isinstance(pods, Mapping) else pods
    coming = source.coming(update, COMING_BATCHES * update.spec.batch_size or len(waiting_of(update)))
    return {i: coming.pods[i] for i in coming.first if i in coming.pods and i not in update.removed}


def _choose_allowed(plan: StepPlan, source: PodSource, maximum: int) -> tuple[Coming, SlaRefusal | None]:
    """Return the planned instances that the SLA allows, and its refusal of the others. Instances that do not run yet,
    or have to stop, are always allowed."""
    update, missing_count = plan.update, plan.missing_count
    coming = source.coming(update, min(plan.begin_max, _count_to_read(update, source, maximum - missing_count)))
    runs = [i for i, pod in coming.pods.items() if pod.goal not in ENDING_GOALS]
    missing = {i for i in runs if sla.is_missing(coming.pods[i])}
    refused = frozenset(sla.grant(maximum, missing, runs, missing_count).refused)
    chosen = tuple(i for i in coming.first if i not in refused)
    left = plan.begin_max - len(chosen)
    return Coming(chosen, coming.pods), sla.refuse(maximum, missing_count, left) if left else None


def _count_to_read(update: UpdateRecord, source: PodSource, spare: int) -> int:
    """Return how many of the waiting instances must be read when ``spare`` available ones may be taken down: available
    ones come last, unless others are removed."""
    waiting = waiting_of(update)
    if update.spec.batch_size or waiting & update.removed:
        return len(waiting)
    return len(waiting) - source.count(terms.AVAILABLE, {}, waiting) + max(spare, 0)


@dataclass(frozen=True, slots=True)
class Difference:
    """Differences between a new configuration and the existing instances."""

    added: Instances = NONE
    updated: Instances = NONE
    removed: Instances = NONE
    unchanged: Instances = NONE


def difference(
    pods: Pods, instance_count: int, config_version: int, is_changed: Mapping[tuple[int, int], bool]
) -> Difference:
    """Return the difference. ``is_changed``: (instance, its current version) -> its configuration differs in
    ``config_version``."""
    added = frozenset(i for i in range(instance_count) if i not in pods)
    removed = frozenset(i for i in pods if i >= instance_count)
    updated = frozenset(
        i
        for i, pod in pods.items()
        if i < instance_count
        and (pod.config_version != pod.desired_config_version or is_changed[i, pod.config_version])
    )
    return Difference(added, updated, removed, frozenset(pods) - removed - updated)


def reverse(update: UpdateRecord, config_version: int, back: Difference) -> UpdateRecord:
    """Return the update on its way back to ``config_version``, a copy of the version before."""
    return replace(
        stall.without_stall(update),
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


def progress_of(
    update: UpdateRecord, step: Step | None = None, coming_image_count: int = 0, now_ns: int = 0
) -> UpdateProgress:
    """Summarize the update after ``step``, at ``now_ns``. An update with nothing in flight polls, as no pod will report
    a change, unless it waits for a pulse."""
    chosen_count = 0 if step is None else len(step.add) + len(step.change) + len(step.remove)
    kill_count = 0 if step is None else step.kill_count
    return UpdateProgress(
        update_id=update.update_id,
        state=update.state,
        type=update.type,
        total_count=update.total_count,
        done_count=len(update.done),
        failed_count=len(update.failed),
        current_count=len(update.current),
        kill_count=kill_count,
        rest_count=chosen_count - kill_count,
        begun="" if step is None else describe_step(step),
        rolls_back_to=update.prev_config_version if step is not None and step.rolls_back else 0,
        waiting_for=update_wait_text(update),
        look_again=step is not None and update.is_active and not update.current and not update.awaits_pulse,
        batch_size=update.spec.batch_size,
        coming_image_count=coming_image_count,
        stalls_in_s=stall.stalls_in_s(update, now_ns),
        stall=stall.stall_text(update),
        needs_no_pulse=not update.spec.pulse_s,
        is_first=not update.prev_config_version,
    )


def describe_step(step: Step) -> str:
    """Name the instances that a step put in flight, like "add instance 10 and replace instances 0-4"."""
    parts = (("add", step.add), (_VERBS[step.update.type], step.change), ("remove", step.remove))
    return " and ".join(f"{verb} {instances_text(chosen)}" for verb, chosen in parts if chosen)


def pause(update: UpdateRecord) -> UpdateRecord:
    if update.state is UpdateState.PAUSED or not update.is_active:
        return update
    return replace(
        stall.without_stall(update),
        state=UpdateState.PAUSED,
        prev_state=update.state,
        awaits_pulse=False,
        refusal=None,
    )


def resume(update: UpdateRecord) -> UpdateRecord:
    if update.state is not UpdateState.PAUSED:
        return update
    return replace(update, state=update.prev_state, prev_state=UpdateState.PAUSED)


def abort(update: UpdateRecord) -> UpdateRecord:
    """Return the update as ABORTED. Instances keep their configuration; changes in flight are not undone."""
    if update.state in UPDATE_TERMINAL:
        return update
    return replace(stall.without_stall(update), state=UpdateState.ABORTED, prev_state=update.state, awaits_pulse=False)


def pulse(update: UpdateRecord, now_ns: int) -> UpdateRecord:
    """Return the update with the time of a pulse. ``next_step`` clears ``awaits_pulse``; until then each pulse signals
    the workflow."""
    return replace(update, pulsed_ns=max(update.pulsed_ns, now_ns)) if update.is_active else update


def not_latest_text(update_id: str, job_id: str, latest_id: str) -> str:
    return f"update {update_id} is not the latest of job {job_id}, which is {latest_id}"


def nothing_before_text(update_id: str, job_id: str) -> str:
    return f"job {job_id} has no configuration before that of update {update_id}"


def no_pulse_text(job_id: str) -> str:
    return f"the update of job {job_id} needs no pulses: its pulse_seconds are 0"


def clip(instances: Iterable[int], instance_count: int) -> Instances:
    """Return the named instances that exist, or all if none is named."""
    named = frozenset(instances)
    everything = frozenset(range(instance_count))
    return named & everything if named else everything
