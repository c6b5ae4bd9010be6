"""Preemption: which pods may be evicted, and the eviction itself. Each job is one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any

import sqlalchemy as sa

from peloton.api.convert import TERMINATION_NUMBERS
from peloton.lifecycle import pod_terms as terms
from peloton.lifecycle.goal import goal_after_eviction
from peloton.lifecycle.pod_machine import Event
from peloton.lifecycle.pod_terms import STAYING, STAYS
from peloton.lifecycle.reason_text import eviction_text
from peloton.model.ids import JobId, PodId
from peloton.model.job import JOB_TERMINAL, JobRecord
from peloton.model.pod import ALLOCATED, Termination, TerminationReason
from peloton.model.reason import EvictionReason, QosReason
from services.storage.admission.snapshot import EvictionOrder, EvictionResult, HeldRange, RevocablePodRow
from services.storage.codec import job_record
from services.storage.engine import key_table, key_values, lock_job
from services.storage.jobs.configs import read_facts
from services.storage.pods.sql import ENDS, NEWER, where
from services.storage.pods.writes import Chosen, fire
from services.storage.repository import (
    ENDING_NUMBERS,
    KILLING,
    ON_HOST_NUMBERS,
    READY,
    Store,
    as_ranges,
    in_range,
    numbers,
)
from services.storage.tables import JOB, POD
from services.storage.updates.disruptions import ask

EVICTION_MESSAGE = "evicting running task: "
JOBS_PER_QUERY = 200
MAINTENANCE_REASON = "EvictionReason_HOST_MAINTENANCE"
PREEMPTION_REASON = "EvictionReason_PREEMPTION"
QOS_REASON = "EvictionReason_QOS"
_ALLOCATED_NUMBERS = numbers(ALLOCATED)
_EVICTABLE = where((terms.READY & STAYS) | STAYING)


def _reason_code(why: EvictionReason) -> str:
    return QOS_REASON if isinstance(why, QosReason) else PREEMPTION_REASON


def is_evicted() -> sa.ColumnElement[bool]:
    """Of a pod on a host: it was told to leave for somebody else."""
    reason = POD.c.termination == TERMINATION_NUMBERS[TerminationReason.PREEMPTED_RESOURCES]
    return sa.and_(reason, sa.or_(ENDS, NEWER))


class Evictions(Store):
    def held(self, job_ids: Iterable[JobId]) -> dict[JobId, list[HeldRange]]:
        """What pods of these jobs hold resources, as ranges by start, all at one moment."""
        on_host = POD.c.state.in_(ON_HOST_NUMBERS)
        leaves = sa.or_(ENDS, POD.c.state == KILLING, sa.and_(on_host, NEWER))
        key = POD.c.queue_seq * 4 + sa.case((on_host, 2), else_=0) + sa.case((leaves, 1), else_=0)

        wanted = list(job_ids)

        def work(conn: sa.Connection) -> dict[JobId, list[HeldRange]]:
            found: dict[JobId, list[HeldRange]] = {job_id: [] for job_id in wanted}
            for at in range(0, len(wanted), JOBS_PER_QUERY):
                query = runs_of(
                    POD.c.job_id.in_(wanted[at : at + JOBS_PER_QUERY]), POD.c.state.in_(_ALLOCATED_NUMBERS), key
                )
                for number, start, count, version, job_id in conn.execute(query.order_by("start")):
                    one = HeldRange(number // 4, start, count, version, bool(number & 2), bool(number & 1))
                    found[job_id].append(one)
            return found

        return self.db.read(work)

    def revocable_pods(self, pod_ids: Sequence[PodId]) -> list[RevocablePodRow]:
        """Those of these runs that are on hosts on revocable cpu."""
        return self.db.read(partial(_revocable_pods, pod_ids=pod_ids)) if pod_ids else []

    def evict(self, orders: Sequence[EvictionOrder]) -> list[EvictionResult]:
        """READY pods are PENDING again, in their old place; pods on hosts become PREEMPTING and want a new run, or,
        with killOnPreempt, their end; what one member of a gang asks for is for all. Pods that end anyway are passed
        over, and so are those of a service that its SLA keeps.

        Of a gang that has been launched in part, READY members wait for the others: they are INITIALIZED once more.
        """
        results: list[EvictionResult] = []
        by_job = groupby(sorted(orders, key=lambda order: (order.job_id, order.start)), key=lambda order: order.job_id)
        for job_id, mine in by_job:
            results.append(self.db.write(partial(_evict, job_id=job_id, orders=list(mine), now_ns=self.clock_ns())))
        return results

    def evict_from_host(self, job_id: JobId, hostname: str, now_ns: int) -> list[int]:
        """The pods of a job that a host in maintenance has, and with one of its gang the whole gang, leave as evicted
        pods do; those that leave already are passed over. Returns the instances."""
        return self.db.write(partial(_evict_from_host, job_id=job_id, hostname=hostname, now_ns=now_ns))


def _evict_from_host(conn: sa.Connection, job_id: JobId, hostname: str, now_ns: int) -> list[int]:
    row = lock_job(conn, job_id)
    if row is None or (job := job_record(row)).state in JOB_TERMINAL:
        return []
    staying = sa.and_(POD.c.job_id == job_id, where(STAYING))
    query = sa.select(POD.c.instance_id, POD.c.config_version).order_by(POD.c.instance_id)
    here = conn.execute(query.where(staying, POD.c.host == hostname)).all()
    chosen = {pod.instance_id: pod.config_version for pod in here}
    if job.gang_size > 1 and any(instance < job.gang_size for instance in chosen):
        gang = conn.execute(query.where(staying, POD.c.instance_id < job.gang_size))
        chosen |= {pod.instance_id: pod.config_version for pod in gang}
    if chosen:
        words = {"message": f"{EVICTION_MESSAGE}maintenance of host {hostname}", "reason": MAINTENANCE_REASON}
        why = TerminationReason.KILLED_HOST_MAINTENANCE
        _send_away(conn, job, False, sorted(chosen.items()), words, now_ns, why)
    return sorted(chosen)


def _revocable_pods(conn: sa.Connection, pod_ids: Sequence[PodId]) -> list[RevocablePodRow]:
    asked = {(pod_id.job_id, pod_id.instance_id): pod_id for pod_id in pod_ids}
    keys = key_table(conn.dialect.name)
    same = sa.and_(POD.c.job_id == keys.c.job_id, POD.c.instance_id == keys.c.instance_id)
    query = (
        sa.select(POD, JOB.c.priority)
        .select_from(keys.join(POD, same).join(JOB, JOB.c.job_id == POD.c.job_id))
        .where(POD.c.state.in_(ON_HOST_NUMBERS))
    )
    found_rows = conn.execute(query, key_values(conn.dialect.name, sorted(asked)))
    rows = [row for row in found_rows if row.run_id == asked[row.job_id, row.instance_id].run_id]
    found: list[RevocablePodRow] = []
    by_config = attrgetter("job_id", "config_version")
    for (job_id, version), group in groupby(sorted(rows, key=by_config), key=by_config):
        mine = sorted(group, key=attrgetter("instance_id"))
        default, overridden = read_facts(conn, job_id, version, (mine[0].instance_id, mine[-1].instance_id))
        for row in mine:
            own = overridden.get(row.instance_id, default)
            assert own is not None, f"job {job_id} has no configuration {version}"
            if own.shape.revocable:
                leaves = row.goal in ENDING_NUMBERS or row.state == KILLING or row.desired_run_id > row.run_id
                pod_id, resources = asked[row.job_id, row.instance_id], own.shape.resources
                found.append(RevocablePodRow(pod_id, row.priority, row.started_ns, resources, leaves))
    return found


def _evict(conn: sa.Connection, job_id: JobId, orders: Sequence[EvictionOrder], now_ns: int) -> EvictionResult:
    result = EvictionResult(job_id)
    row = lock_job(conn, job_id)
    if row is None or (job := job_record(row)).state in JOB_TERMINAL:
        return result
    for order in orders:
        scope = in_range(job_id, order.start, order.count)
        if order.run_id:
            scope = sa.and_(scope, POD.c.run_id == order.run_id)
        query = sa.select(POD.c.instance_id, POD.c.state, POD.c.queue_seq, POD.c.config_version)
        pods = conn.execute(query.where(scope, _EVICTABLE).order_by(POD.c.instance_id)).all()
        waiting = [(pod.instance_id, pod.queue_seq) for pod in pods if pod.state == READY]
        on_hosts = [(pod.instance_id, pod.config_version) for pod in pods if pod.state != READY]
        said = eviction_text(order.why)
        words = {"message": said, "reason": _reason_code(order.why)}
        if waiting:
            _send_back(conn, order, waiting, order.is_gang and len(waiting) < order.count, words, now_ns, result)
        why, message = TerminationReason.PREEMPTED_RESOURCES, EVICTION_MESSAGE + said
        granted = ask(conn, job, frozenset(i for i, _ in on_hosts), why, message, True, now_ns).granted
        on_hosts = [(instance, version) for instance, version in on_hosts if instance in granted]
        if on_hosts:
            words["message"] = message
            _send_away(conn, job, order.is_gang, on_hosts, words, now_ns, why)
            result.leaving += as_ranges(instance for instance, _ in on_hosts)
    return result


def _send_back(
    conn: sa.Connection,
    order: EvictionOrder,
    waiting: Sequence[tuple[int, int]],
    is_to_gather: bool,
    words: dict[str, Any],
    now_ns: int,
    result: EvictionResult,
) -> None:
    """Pods that no host knows yet: ``(instance, queue_seq)``."""
    scope = Chosen(order.job_id, [instance for instance, _ in waiting])
    fire(conn, scope, Event.SEND_BACK, now_ns, gathers=is_to_gather, **words)
    if is_to_gather:
        result.unqueued += as_ranges(instance for instance, _ in waiting)
        return
    for seq in sorted({seq for _, seq in waiting}):
        ranges = as_ranges(instance for instance, own in waiting if own == seq)
        result.queued += [(seq, start, count) for start, count in ranges]


def _send_away(
    conn: sa.Connection,
    job: JobRecord,
    is_gang: bool,
    on_hosts: Sequence[tuple[int, int]],
    words: dict[str, Any],
    now_ns: int,
    why: TerminationReason,
) -> None:
    """Pods on hosts, ``(instance, config version)``: they end, and run anew unless they are not to."""
    span = (on_hosts[0][0], on_hosts[-1][0])
    facts = {version: read_facts(conn, job.job_id, version, span) for version in {version for _, version in on_hosts}}
    ending: dict[bool, list[int]] = {True: [], False: []}
    for instance, version in on_hosts:
        default, overridden = facts[version]
        own = overridden.get(instance, default)
        assert own is not None, f"job {job.job_id} has no configuration {version}"
        ending[own.kill_on_preempt].append(instance)
    if is_gang and ending[True]:
        ending = {True: [instance for instance, _ in on_hosts], False: []}
    given = {**words, "why": Termination(why)}
    if ending[False]:
        fire(conn, Chosen(job.job_id, ending[False]), Event.EVICT, now_ns, **given)
    if ending[True]:
        goal = goal_after_eviction(job.type)
        fire(conn, Chosen(job.job_id, ending[True]), Event.EVICT_FOR_GOOD, now_ns, goal=goal, **given)


def runs_of(
    jobs: sa.ColumnElement[bool],
    condition: sa.ColumnElement[bool],
    key: sa.ColumnElement[Any],
    *more: sa.ColumnElement[Any],
) -> sa.Select[Any]:
    """Runs of instances alike in job, ``key``, configuration, and what more is asked for: (key, start, count, config
    version, job, more ...).

    Within a run instance ids and row numbers rise alike, so their difference names the run.
    """
    others = [column.label(f"also{number}") for number, column in enumerate(more)]
    labelled = (
        sa.select(key.label("key"), POD.c.job_id, POD.c.instance_id, POD.c.config_version, *others)
        .where(jobs, condition)
        .subquery()
    )
    also = [labelled.c[column.name] for column in others]
    alike = (labelled.c.job_id, labelled.c.key, labelled.c.config_version, *also)
    order = sa.func.row_number().over(partition_by=alike, order_by=labelled.c.instance_id)
    pods = sa.select(labelled, (labelled.c.instance_id - order).label("run")).subquery()
    also = [pods.c[column.name] for column in others]
    return sa.select(
        pods.c.key,
        sa.func.min(pods.c.instance_id).label("start"),
        sa.func.count(),
        pods.c.config_version,
        pods.c.job_id,
        *also,
    ).group_by(pods.c.job_id, pods.c.key, pods.c.config_version, pods.c.run, *also)
