"""Updates carried out: one step at a time, each in one transaction that looks, decides (``lifecycle.rollout``) and
changes the pods it decided on. The job's own workflow then ends, queues, places and starts them as any others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import sqlalchemy as sa

from peloton.api.convert import HEALTH_NUMBERS, POD_STATE_NUMBERS
from peloton.lifecycle import rollout
from peloton.lifecycle.job import is_ending
from peloton.lifecycle.retry import NextRun
from peloton.model.ids import Hostname, JobId
from peloton.model.job import JobRecord, JobState
from peloton.model.pod import PodRecord, PodState, TerminationReason
from peloton.model.update import UpdateProgress, UpdateRecord, UpdateState, UpdateType
from services.storage import instances
from services.storage.codec import job_record
from services.storage.coming import coming_images, images_ahead
from services.storage.configs import copy_config, read_config_with_instances, read_facts
from services.storage.engine import lock_job
from services.storage.jobs import insert_service_pods
from services.storage.store import (
    DELETED,
    ENDS,
    INITIALIZED,
    KILLED,
    KILLING,
    NO_DESIRED_HOST,
    NO_NEXT_RUN,
    NO_TERMINATION,
    ON_HOST_NUMBERS,
    STAYS,
    TERMINAL_NUMBERS,
    Store,
    among,
    as_ranges,
    change_pods,
    new_run,
    terminated,
)
from services.storage.tables import JOB, POD
from services.storage.update_rows import read_update, write_update
from services.storage.updates import adopt_config

RUNNING = POD_STATE_NUMBERS[PodState.RUNNING]
UPDATED, ROLLED_BACK = "Job configuration updated via API", "Job configuration updated due to rollback"
REMOVED = "Task Count reduced via API"
_MESSAGES = {
    UpdateType.UPDATE: UPDATED,
    UpdateType.RESTART: "Task restarted via API",
    UpdateType.START: "Task started via API",
    UpdateType.STOP: "Task stopped via API",
}


class Rolling(Store):
    def advance_update(self, job_id: JobId, now_ns: int) -> UpdateProgress:
        """One step of the job's update. Safe to repeat: what is in flight is not begun again."""
        return self.db.write(partial(_advance, job_id=job_id, now_ns=now_ns))

    def coming_images(self, job_id: JobId) -> dict[str, list[Hostname]]:
        """Image -> hosts to which the instances that are updated next bring it."""
        return self.db.read(partial(coming_images, job_id=job_id))


def _advance(conn: sa.Connection, job_id: str, now_ns: int) -> UpdateProgress:
    row = lock_job(conn, job_id)
    job = None if row is None else job_record(row)
    update = None if job is None else read_update(conn, job.update_id)
    if job is None or update is None:
        return UpdateProgress()
    if not update.is_active:
        return rollout.progress_of(update)
    if job.goal is JobState.DELETED:  # a deletion of before it aborted the update itself
        after = rollout.aborted(update)
        write_update(conn, update, after, now_ns)
        return rollout.progress_of(after)
    pods = instances.pods_of(conn, job_id)
    before = update
    if update.state is UpdateState.INITIALIZED and update.type is UpdateType.UPDATE:
        update = _begun(conn, job, update, pods, now_ns)
    sla_maximum = rollout.sla_maximum(job)
    step = rollout.next_step(update, pods, sla_maximum, now_ns)
    if step.rolls_back:
        job, turned = _turn_back(conn, job, step.update, pods, now_ns)
        write_update(conn, before, turned, now_ns)
        before = turned
        step = rollout.next_step(turned, pods, sla_maximum, now_ns)
    _apply(conn, job, step, now_ns)
    write_update(conn, before, step.update, now_ns)
    images = images_ahead(conn, step.update, pods)
    return rollout.progress_of(step.update, step, pods, sum(map(len, images.values())))


def _begun(
    conn: sa.Connection, job: JobRecord, update: UpdateRecord, pods: Mapping[int, PodRecord], now_ns: int
) -> UpdateRecord:
    """What there is to do, seen at the moment it begins; who has nothing to do takes the new version's name."""
    found = _difference(conn, job, update.config_version, pods)
    _relabel(conn, job.job_id, update.config_version, found.unchanged, now_ns)
    return replace(update, added=found.added, updated=found.updated, removed=found.removed)


def _difference(conn: sa.Connection, job: JobRecord, version: int, pods: Mapping[int, PodRecord]) -> rollout.Difference:
    config = read_config_with_instances(conn, job.job_id, version)
    assert config is not None, f"job {job.job_id} has no configuration {version}"
    differs = instances.changed(conn, job.job_id, pods, config)
    return rollout.difference(pods, config.instanceCount, version, differs)


def _turn_back(
    conn: sa.Connection, job: JobRecord, update: UpdateRecord, pods: Mapping[int, PodRecord], now_ns: int
) -> tuple[JobRecord, UpdateRecord]:
    """The configuration before becomes the newest one, and the update goes there."""
    version = job.config_version + 1
    copy_config(conn, job.job_id, update.prev_config_version, version, now_ns)
    config = read_config_with_instances(conn, job.job_id, version)
    assert config is not None, f"job {job.job_id} has no configuration {update.prev_config_version}"
    back = _difference(conn, job, version, pods)
    mine = JOB.c.job_id == job.job_id
    conn.execute(sa.update(JOB).where(mine).values(config_version=version, revision=JOB.c.revision + 1))
    adopt_config(conn, job, config, now_ns)
    _relabel(conn, job.job_id, version, back.unchanged, now_ns)
    job = replace(job, config_version=version, instance_count=config.instanceCount)
    return job, rollout.reversed_update(update, version, back)


def _relabel(conn: sa.Connection, job_id: str, version: int, unchanged: Iterable[int], now_ns: int) -> None:
    if chosen := sorted(unchanged):
        values = {"config_version": version, "desired_config_version": version}
        change_pods(conn, among(conn, job_id, chosen), sa.true(), values, now_ns)


# -- pods ----------------------------------------------------------------------------------------------------------


def _apply(conn: sa.Connection, job: JobRecord, step: rollout.Step, now_ns: int) -> None:
    update = step.update
    for start, count in as_ranges(step.add):
        insert_service_pods(conn, job, update.config_version, start, count, now_ns)
    if step.remove:
        gone = {"goal": DELETED, "desired_config_version": update.config_version, "message": REMOVED, "reason": ""}
        scope = among(conn, job.job_id, step.remove)
        change_pods(conn, scope, sa.true(), {**gone, **terminated(TerminationReason.KILLED_FOR_UPDATE)}, now_ns)
    if not step.change:
        return
    _take_facts(conn, job.job_id, update.config_version, step.change)
    is_back = update.state is UpdateState.ROLLING_BACKWARD
    message = ROLLED_BACK if is_back else _MESSAGES[update.type]
    match update.type:
        case UpdateType.UPDATE:
            _replace(conn, job, update, step.change, message, now_ns)
        case UpdateType.RESTART:
            _restart(conn, job, update, step.change, message, now_ns)
        case UpdateType.START:
            _start(conn, job, update, step.change, message, now_ns)
        case UpdateType.STOP:
            _stop(conn, job, update, step.change, message, now_ns)


def _take_facts(conn: sa.Connection, job_id: str, version: int, chosen: Sequence[int]) -> None:
    """What a pod's row keeps of its configuration."""
    default, overridden = read_facts(conn, job_id, version, (min(chosen), max(chosen)))
    assert default is not None, f"job {job_id} has no configuration {version}"
    by_facts: dict[tuple[int, int], list[int]] = {}
    for i in chosen:
        facts = overridden.get(i, default)
        by_facts.setdefault((facts.max_failures, HEALTH_NUMBERS[facts.health]), []).append(i)
    for (max_failures, health), mine in by_facts.items():
        values = {"max_failures": max_failures, "initial_health": health}
        conn.execute(sa.update(POD).where(among(conn, job_id, mine)).values(**values))


_ON_HOST = POD.c.state.in_(ON_HOST_NUMBERS)
_ENDED = POD.c.state.in_(TERMINAL_NUMBERS)
_NEWER = sa.case((POD.c.desired_run_id > POD.c.run_id, POD.c.desired_run_id), else_=POD.c.run_id + 1)


def _replace(
    conn: sa.Connection,
    job: JobRecord,
    update: UpdateRecord,
    chosen: Sequence[int],
    message: str,
    now_ns: int,
) -> None:
    """Each pod is to run the new configuration; one that was stopped stays so, unless it is to be started."""
    scope = among(conn, job.job_id, chosen)
    stays_after_all = {"goal": KILLED if is_ending(job) else RUNNING}
    change_pods(conn, scope, POD.c.goal == DELETED, stays_after_all, now_ns)  # an earlier update was removing them
    if update.spec.start_pods:
        _revive(conn, job, chosen, now_ns)
    if update.spec.in_place:
        _stay_on_hosts(conn, job.job_id, chosen)
    else:
        conn.execute(sa.update(POD).where(scope).values(**NO_DESIRED_HOST))
    _renew(conn, scope, update.config_version, message, TerminationReason.KILLED_FOR_UPDATE, now_ns, fresh=True)


def _restart(
    conn: sa.Connection, job: JobRecord, update: UpdateRecord, chosen: Sequence[int], message: str, now_ns: int
) -> None:
    _revive(conn, job, chosen, now_ns)
    scope = among(conn, job.job_id, chosen)
    reason = TerminationReason.KILLED_FOR_RESTART
    if update.spec.in_place:
        _stay_on_hosts(conn, job.job_id, chosen)
    _renew(conn, scope, update.config_version, message, reason, now_ns)


def _start(
    conn: sa.Connection, job: JobRecord, update: UpdateRecord, chosen: Sequence[int], message: str, now_ns: int
) -> None:
    scope = among(conn, job.job_id, chosen)
    stopped = sa.and_(ENDS, _ENDED)
    same = {"config_version": update.config_version, "desired_config_version": update.config_version}
    dying = sa.and_(ENDS, _ON_HOST)
    desired = {"desired_config_version": update.config_version}
    wanted = {"goal": RUNNING, "message": message}
    change_pods(conn, scope, dying, {**wanted, **desired, "desired_run_id": _NEWER, **NO_TERMINATION}, now_ns)
    change_pods(conn, scope, stopped, {**new_run(message), **same, "goal": RUNNING}, now_ns)
    change_pods(conn, scope, POD.c.desired_config_version != update.config_version, {**wanted, **same}, now_ns)


def _stop(
    conn: sa.Connection, job: JobRecord, update: UpdateRecord, chosen: Sequence[int], message: str, now_ns: int
) -> None:
    scope = among(conn, job.job_id, chosen)
    same = {"config_version": update.config_version, "desired_config_version": update.config_version}
    values = {**same, "goal": KILLED, "message": message, **NO_NEXT_RUN, **NO_DESIRED_HOST}
    reason = terminated(TerminationReason.KILLED_ON_REQUEST)
    change_pods(conn, scope, sa.and_(STAYS, ~_ENDED), {**values, **reason}, now_ns)
    change_pods(conn, scope, POD.c.desired_config_version != update.config_version, values, now_ns)


def _revive(conn: sa.Connection, job: JobRecord, chosen: Sequence[int], now_ns: int) -> None:
    change_pods(conn, among(conn, job.job_id, chosen), ENDS, {"goal": RUNNING}, now_ns)


def _stay_on_hosts(conn: sa.Connection, job_id: str, chosen: Sequence[int]) -> None:
    """A pod comes back where it is; one that waits to go somewhere goes there."""
    placed = sa.and_(among(conn, job_id, chosen), _ON_HOST, POD.c.desired_host == "")
    conn.execute(sa.update(POD).where(placed).values(desired_host=POD.c.host))


def _renew(
    conn: sa.Connection,
    scope: sa.ColumnElement[bool],
    version: int,
    message: str,
    reason: TerminationReason,
    now_ns: int,
    *,
    fresh: bool = False,
) -> None:
    """A new run with the configuration of ``version``; ``fresh``: it differs, and failures are forgotten."""
    adopts = {"desired_config_version": version, "message": message, "reason": ""}
    if fresh:
        adopts["failure_count"] = 0
    now = {**adopts, "config_version": version}
    goes = {**adopts, "desired_run_id": _NEWER, **terminated(reason)}
    again = {**adopts, "desired_run_id": _NEWER, "next_run": int(NextRun.REPLACE), "due_ns": 0}
    fresh_health = {"health": POD.c.initial_health}
    unchanged = POD.c.desired_config_version != version
    dying = sa.and_(unchanged, STAYS, POD.c.state == KILLING)
    change_pods(conn, scope, dying, {**adopts, "desired_run_id": _NEWER}, now_ns)
    change_pods(conn, scope, sa.and_(unchanged, STAYS, _ON_HOST), goes, now_ns)
    change_pods(conn, scope, sa.and_(unchanged, STAYS, _ENDED), again, now_ns)
    change_pods(conn, scope, sa.and_(unchanged, ENDS), now, now_ns)
    change_pods(conn, scope, sa.and_(unchanged, POD.c.state == INITIALIZED), {**now, **fresh_health}, now_ns)
    # In a queue, which they leave for the new configuration; one that is the same they simply take.
    change_pods(conn, scope, unchanged, adopts if fresh else now, now_ns)
