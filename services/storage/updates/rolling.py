"""Steps of updates: each reads, decides (``lifecycle.rollout``) and changes pods in one transaction.

``workflows/update.py`` orders the steps; the job's own workflow ends, queues, places and starts the pods like any
others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from peloton.api import convert
from peloton.lifecycle import rollout
from peloton.lifecycle.creation import has_no_pods
from peloton.lifecycle.job import is_ending
from peloton.lifecycle.pod_machine import Event
from peloton.lifecycle.rollout_pods import AtHand, PodSource
from peloton.lifecycle.stall import evaluate_progress
from peloton.model.job import JobRecord, JobState
from peloton.model.pod import PodState, Termination, TerminationReason
from peloton.model.ranges import as_ranges
from peloton.model.update import UpdateProgress, UpdateRecord, UpdateState, UpdateType
from services.storage.jobs.configs import copy_config, facts_of, read_config_with_instances
from services.storage.jobs.rows import hold_job
from services.storage.pods.creation import insert_service_pods, set_facts
from services.storage.pods.scope import Chosen
from services.storage.pods.writes import fire
from services.storage.tables import JOB
from services.storage.updates import instances
from services.storage.updates.image_prefetch import next_images
from services.storage.updates.requests import adopt_config
from services.storage.updates.rows import read_update, write_update
from services.storage.updates.stalls import with_cause
from services.storage.updates.update_pods import StoredPods

FOR_RESTART = Termination(TerminationReason.KILLED_FOR_RESTART)
FOR_UPDATE = Termination(TerminationReason.KILLED_FOR_UPDATE)
UPDATED, ROLLED_BACK = "Job configuration updated via API", "Job configuration updated due to rollback"
_MESSAGES = {
    UpdateType.UPDATE: UPDATED,
    UpdateType.RESTART: "Task restarted via API",
    UpdateType.START: "Task started via API",
    UpdateType.STOP: "Task stopped via API",
}


def advance(conn: sa.Connection, job_id: str, now_ns: int) -> UpdateProgress:
    """Take a step of an update: record instances that are done or failed, and start the next ones.

    No instance starts when the update has to be rolled back.
    """
    job = hold_job(conn, job_id)
    update = None if job is None else read_update(conn, job.update_id)
    if job is None or update is None:
        return UpdateProgress()
    if not update.is_active:
        return rollout.progress_of(update)
    if job.goal is JobState.DELETED:  # a deletion of an earlier release aborted the update itself
        after = rollout.abort(update)
        write_update(conn, update, after, now_ns)
        return rollout.progress_of(after)
    is_first = has_no_pods(job, update)
    pods: PodSource = AtHand({}) if is_first else StoredPods(conn, job_id)
    before = update
    if update.state is UpdateState.INITIALIZED and update.type is UpdateType.UPDATE and not is_first:
        update = _begin(conn, job, update, now_ns)
    step = rollout.next_step(update, pods, rollout.sla_maximum(job), now_ns)
    step = replace(step, update=with_cause(conn, evaluate_progress(before, step.update, now_ns)))
    _apply(conn, job, step, now_ns)
    write_update(conn, before, step.update, now_ns)
    images = next_images(conn, step.update)
    return rollout.progress_of(step.update, step, sum(map(len, images.values())), now_ns)


def _begin(conn: sa.Connection, job: JobRecord, update: UpdateRecord, now_ns: int) -> UpdateRecord:
    """Determine the instances of an update at its begin; unchanged instances take the new version number."""
    found = _difference(conn, job, update.config_version)
    _relabel(conn, job.job_id, update.config_version, found.unchanged, now_ns)
    return replace(update, added=found.added, updated=found.updated, removed=found.removed)


def _difference(conn: sa.Connection, job: JobRecord, version: int) -> rollout.Difference:
    """Compare the job's pods with a configuration; reads all pods, once per update and once more for a rollback."""
    pods = instances.pods_of(conn, job.job_id)
    config = read_config_with_instances(conn, job.job_id, version)
    assert config is not None, f"job {job.job_id} has no configuration {version}"
    differs = instances.find_changed(conn, job.job_id, pods, config)
    return rollout.difference(pods, convert.count_wanted(job, config), version, differs)


def roll_back_failed(conn: sa.Connection, job_id: str, now_ns: int) -> None:
    """Start a rollback of the update if too many of its instances have failed; later steps carry it out."""
    job = hold_job(conn, job_id)
    update = None if job is None else read_update(conn, job.update_id)
    if job is None or update is None or job.goal is JobState.DELETED:
        return
    step = rollout.next_step(update, StoredPods(conn, job_id), rollout.sla_maximum(job), now_ns)
    if step.rolls_back:
        _, turned = start_rollback(conn, job, step.update, now_ns)
        write_update(conn, update, turned, now_ns)


def start_rollback(
    conn: sa.Connection, job: JobRecord, update: UpdateRecord, now_ns: int
) -> tuple[JobRecord, UpdateRecord]:
    """Copy the previous configuration as the newest version, and make the update roll out that."""
    version = job.config_version + 1
    copy_config(conn, job.job_id, update.prev_config_version, version, now_ns)
    config = read_config_with_instances(conn, job.job_id, version)
    assert config is not None, f"job {job.job_id} has no configuration {update.prev_config_version}"
    back = _difference(conn, job, version)
    mine = JOB.c.job_id == job.job_id
    conn.execute(sa.update(JOB).where(mine).values(config_version=version, revision=JOB.c.revision + 1))
    adopt_config(conn, job, config, now_ns)
    _relabel(conn, job.job_id, version, back.unchanged, now_ns)
    job = replace(job, config_version=version, instance_count=convert.count_wanted(job, config))
    return job, rollout.reverse(update, version, back)


def _relabel(conn: sa.Connection, job_id: str, version: int, unchanged: Iterable[int], now_ns: int) -> None:
    if chosen := sorted(unchanged):
        fire(conn, Chosen(job_id, chosen), Event.RELABEL, now_ns, version=version)


# -- pods ----------------------------------------------------------------------------------------------------------


def _apply(conn: sa.Connection, job: JobRecord, step: rollout.Step, now_ns: int) -> None:
    update = step.update
    for start, count in as_ranges(step.add):
        insert_service_pods(conn, job, update.config_version, start, count, now_ns)
    if step.remove:
        fire(conn, Chosen(job.job_id, step.remove), Event.REMOVE, now_ns, version=update.config_version)
    if not step.change:
        return
    facts = facts_of(conn, job.job_id, dict.fromkeys(step.change, update.config_version))
    set_facts(conn, job.job_id, facts, now_ns)
    is_back = update.state is UpdateState.ROLLING_BACKWARD
    words = {"message": ROLLED_BACK if is_back else _MESSAGES[update.type], "version": update.config_version}
    scope = Chosen(job.job_id, step.change)
    match update.type:
        case UpdateType.UPDATE:
            _replace(conn, job, update, scope, words, now_ns)
        case UpdateType.RESTART:
            _restart(conn, update, scope, words, now_ns)
        case UpdateType.START:
            fire(conn, scope, Event.UPDATE_START, now_ns, **words)
        case UpdateType.STOP:
            fire(conn, scope, Event.UPDATE_STOP, now_ns, **words)


def _replace(
    conn: sa.Connection, job: JobRecord, update: UpdateRecord, scope: Chosen, words: Mapping[str, Any], now_ns: int
) -> None:
    """Move pods to the new configuration; a stopped pod stays stopped, unless the update starts pods."""
    if update.spec.start_pods:
        fire(conn, scope, Event.REVIVE, now_ns)
    else:
        fire(conn, scope, Event.KEEP, now_ns, goal=PodState.KILLED if is_ending(job) else PodState.RUNNING)
    # An update in place keeps the pod's host, or the host to which it is moving.
    fire(conn, scope, Event.STAY_ON_HOST if update.spec.in_place else Event.LEAVE_HOST, now_ns)
    fire(conn, scope, Event.UPDATE, now_ns, is_new=True, failure_count=0, why=FOR_UPDATE, **words)


def _restart(conn: sa.Connection, update: UpdateRecord, scope: Chosen, words: Mapping[str, Any], now_ns: int) -> None:
    fire(conn, scope, Event.REVIVE, now_ns)
    if update.spec.in_place:
        fire(conn, scope, Event.STAY_ON_HOST, now_ns)
    fire(conn, scope, Event.UPDATE, now_ns, is_new=False, failure_count=None, why=FOR_RESTART, **words)
