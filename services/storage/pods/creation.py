"""Creation of pods: instances of a new or grown job, or added by an update."""

from __future__ import annotations

from collections.abc import Mapping

import sqlalchemy as sa

from peloton.lifecycle.goal import default_pod_goal
from peloton.lifecycle.job import is_ending
from peloton.lifecycle.pod_machine import Event, next_pod, no_pod
from peloton.model.job import JobRecord
from peloton.model.pod import HealthState
from services.storage.codec import InstanceFacts
from services.storage.jobs.configs import read_facts
from services.storage.pods.scope import Chosen, Span
from services.storage.pods.writes import add_events, fire, fire_each, insert_pods
from services.storage.tables import POD_EVENT


def insert_batch_pods(conn: sa.Connection, job: JobRecord, start: int, count: int, now_ns: int) -> None:
    span = Span(job.job_id, start, count)
    _insert(conn, job, job.config_version, span, now_ns)
    add_events(conn, span, now_ns)


def insert_service_pods(conn: sa.Connection, job: JobRecord, version: int, start: int, count: int, now_ns: int) -> None:
    """Insert instances that an update adds; an instance that existed before continues to number its runs."""
    span = Span(job.job_id, start, count)
    _insert(conn, job, version, span, now_ns)
    mine = sa.and_(POD_EVENT.c.job_id == job.job_id, POD_EVENT.c.instance_id.between(start, start + count - 1))
    last = sa.select(POD_EVENT.c.instance_id, sa.func.max(POD_EVENT.c.run_id), sa.func.max(POD_EVENT.c.revision))
    before = {
        instance: {"last_run": run, "last_revision": revision}
        for instance, run, revision in conn.execute(last.where(mine).group_by(POD_EVENT.c.instance_id))
    }
    if before:
        fire_each(conn, job.job_id, Event.RESUME_NUMBERING, now_ns, before)
    add_events(conn, span, now_ns)


def _insert(conn: sa.Connection, job: JobRecord, version: int, span: Span, now_ns: int) -> None:
    """Insert pods without their events."""
    default, overridden = read_facts(conn, job.job_id, version, (span.start, span.start + span.count - 1))
    assert default is not None, f"job {job.job_id} has no configuration {version}"
    pod = next_pod(
        no_pod(job.job_id, span.start),
        Event.CREATE,
        now_ns,
        is_ending=is_ending(job),
        goal=default_pod_goal(job.type),
        version=version,
        max_failures=default.max_failures,
        initial_health=default.health,
    )
    assert pod is not None
    insert_pods(conn, span, pod)
    usual = (default.max_failures, default.health)
    special = {i: facts for i, facts in overridden.items() if (facts.max_failures, facts.health) != usual}
    set_facts(conn, job.job_id, special, now_ns)


def set_facts(conn: sa.Connection, job_id: str, facts: Mapping[int, InstanceFacts], now_ns: int) -> None:
    """Update the configuration facts that are kept in the rows of pods."""
    alike: dict[tuple[int, HealthState], list[int]] = {}
    for instance, own in facts.items():
        alike.setdefault((own.max_failures, own.health), []).append(instance)
    for (max_failures, health), instances in alike.items():
        scope = Chosen(job_id, instances)
        fire(conn, scope, Event.SET_FACTS, now_ns, max_failures=max_failures, initial_health=health)
