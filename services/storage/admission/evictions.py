"""Evictions of pods of one job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from peloton.lifecycle import pod_terms as terms
from peloton.lifecycle.goal import goal_after_eviction
from peloton.lifecycle.pod_machine import Event
from peloton.lifecycle.pod_terms import GOAL_ALIVE, STAYING
from peloton.lifecycle.reason_text import NO_NAMES, Names, eviction_text
from peloton.model.admission import EvictionOrder, EvictionResult
from peloton.model.ids import JobId
from peloton.model.job import JOB_TERMINAL, JobRecord
from peloton.model.pod import Termination, TerminationReason
from peloton.model.ranges import as_ranges
from peloton.model.reason import EvictionReason, Grounds, QosReason
from services.storage.jobs.configs import facts_of
from services.storage.jobs.names import job_names
from services.storage.jobs.rows import hold_job
from services.storage.jobs.wakes import note_wakes
from services.storage.pods.scope import READY, Chosen, Span, within
from services.storage.pods.sql import where
from services.storage.pods.writes import fire
from services.storage.tables import POD
from services.storage.updates.disruptions import ask

EVICTION_MESSAGE = "evicting running task: "
MAINTENANCE_REASON = "EvictionReason_HOST_MAINTENANCE"
PREEMPTION_REASON = "EvictionReason_PREEMPTION"
QOS_REASON = "EvictionReason_QOS"
_EVICTABLE = where((terms.READY & GOAL_ALIVE) | STAYING)


def reason_code(why: EvictionReason) -> str:
    return QOS_REASON if isinstance(why, QosReason) else PREEMPTION_REASON


def evict_from_host(
    conn: sa.Connection, job_id: JobId, hostname: str, now_ns: int, for_move: bool = False
) -> list[int]:
    job = hold_job(conn, job_id)
    if job is None or job.state in JOB_TERMINAL:
        return []
    return evict_staying(
        conn, job, POD.c.host == hostname, f"{'move' if for_move else 'maintenance'} of host {hostname}", now_ns
    )


def evict_staying(
    conn: sa.Connection,
    job: JobRecord,
    chosen: sa.ColumnElement[bool],
    cause: str,
    now_ns: int,
    limit: int | None = None,
) -> list[int]:
    """Evict at most ``limit`` pods that would stay on their hosts, and with a gang member its whole gang."""
    staying = sa.and_(POD.c.job_id == job.job_id, where(STAYING))
    query = sa.select(POD.c.instance_id, POD.c.config_version).where(staying).order_by(POD.c.instance_id)
    versions = {pod.instance_id: pod.config_version for pod in conn.execute(query.where(chosen).limit(limit))}
    if job.gang_size > 1 and any(instance < job.gang_size for instance in versions):
        gang = conn.execute(query.where(POD.c.instance_id < job.gang_size))
        versions |= {pod.instance_id: pod.config_version for pod in gang}
    if versions:
        words = {"message": f"{EVICTION_MESSAGE}{cause}", "reason": MAINTENANCE_REASON}
        why = TerminationReason.KILLED_HOST_MAINTENANCE
        preempt_running(conn, job, False, sorted(versions.items()), words=words, now_ns=now_ns, why=why)
    return sorted(versions)


def evict_job(conn: sa.Connection, job_id: JobId, orders: Sequence[EvictionOrder], now_ns: int) -> EvictionResult:
    result = EvictionResult(job_id)
    job = hold_job(conn, job_id)
    if job is None or job.state in JOB_TERMINAL:
        return result
    for order in orders:
        scope = within(conn, Span(job_id, order.start, order.count))
        if order.run_id:
            scope = sa.and_(scope, POD.c.run_id == order.run_id)
        query = sa.select(POD.c.instance_id, POD.c.state, POD.c.queue_seq, POD.c.config_version)
        pods = conn.execute(query.where(scope, _EVICTABLE).order_by(POD.c.instance_id)).all()
        waiting = [(pod.instance_id, pod.queue_seq) for pod in pods if pod.state == READY]
        on_hosts = [(pod.instance_id, pod.config_version) for pod in pods if pod.state != READY]
        said = eviction_text(order.why, _names(conn, order.why))
        words = {"message": said, "reason": reason_code(order.why)}
        if waiting:
            requeue_ready(
                conn,
                order,
                waiting,
                order.is_gang and len(waiting) < order.count,
                words=words,
                now_ns=now_ns,
                result=result,
            )
        why, message = TerminationReason.PREEMPTED_RESOURCES, EVICTION_MESSAGE + said
        granted = ask(
            conn, job, frozenset(i for i, _ in on_hosts), why, message=message, checks_sla=True, now_ns=now_ns
        ).granted
        on_hosts = [(instance, version) for instance, version in on_hosts if instance in granted]
        if on_hosts:
            words["message"] = message
            preempt_running(conn, job, order.is_gang, on_hosts, words=words, now_ns=now_ns, why=why)
            result.leaving += as_ranges(instance for instance, _ in on_hosts)
    return result


def _names(conn: sa.Connection, why: EvictionReason) -> Names:
    """Return the name of the job for which the pods are evicted, if it is in the same pool.

    The text is stored for readers of the pool of the pods: it has the ids of jobs of other pools, which are hidden from
    readers who may not read them.
    """
    if not isinstance(why, Grounds) or not why.for_job or not why.is_inside:
        return NO_NAMES
    return job_names(conn, [why.for_job])


def requeue_ready(
    conn: sa.Connection,
    order: EvictionOrder,
    waiting: Sequence[tuple[int, int]],
    is_to_gather: bool,
    words: dict[str, Any],
    now_ns: int,
    result: EvictionResult,
) -> None:
    """Return READY pods, given as ``(instance, queue_seq)``, to the queue; no host has them yet."""
    scope = Chosen(order.job_id, [instance for instance, _ in waiting])
    fire(conn, scope, Event.UNADMIT, now_ns, gang_incomplete=is_to_gather, **words)
    note_wakes(conn, [order.job_id], now_ns)
    if is_to_gather:
        result.unqueued += as_ranges(instance for instance, _ in waiting)
        return
    for seq in sorted({seq for _, seq in waiting}):
        ranges = as_ranges(instance for instance, own in waiting if own == seq)
        result.queued += [(seq, start, count) for start, count in ranges]


def preempt_running(
    conn: sa.Connection,
    job: JobRecord,
    is_gang: bool,
    on_hosts: Sequence[tuple[int, int]],
    words: dict[str, Any],
    now_ns: int,
    why: TerminationReason,
) -> None:
    """End pods on hosts, given as ``(instance, config version)``; they restart unless killOnPreempt is set."""
    facts = facts_of(conn, job.job_id, dict(on_hosts))
    ending: dict[bool, list[int]] = {True: [], False: []}
    for instance, own in facts.items():
        ending[own.kill_on_preempt].append(instance)
    if is_gang and ending[True]:
        ending = {True: [instance for instance, _ in on_hosts], False: []}
    given = {**words, "why": Termination(why)}
    note_wakes(conn, [job.job_id], now_ns)
    if ending[False]:
        fire(conn, Chosen(job.job_id, ending[False]), Event.EVICT, now_ns, **given)
    if ending[True]:
        goal = goal_after_eviction(job.type)
        fire(conn, Chosen(job.job_id, ending[True]), Event.EVICT_FINAL, now_ns, goal=goal, **given)
