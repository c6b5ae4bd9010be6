"""Queues and admission, the resource manager's part of storage.

It reads which pods can be queued, queues, admits, evicts and requeues pods, and takes the snapshot of all queues.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, partial
from itertools import groupby
from typing import Any

import sqlalchemy as sa

from peloton.api.convert import POD_STATES
from peloton.lifecycle.pod_machine import Event
from peloton.lifecycle.volumes import without_volumes
from peloton.model.admission import AdmissionSnapshot, EvictionOrder, EvictionResult, HeldRange
from peloton.model.ids import JobId
from peloton.model.pod import PodState, ShapeRange
from peloton.model.reason import RequeueReason
from peloton.model.times import NS_PER_S
from services.storage.admission.evictions import evict_job
from services.storage.admission.gang_requeues import requeue_gang
from services.storage.admission.queue import join_ranges, leave_queue, mark_pending, queueable, refuse
from services.storage.admission.requeues import back_off, requeue_pods
from services.storage.admission.snapshot import read_held, read_snapshot, runs_of
from services.storage.engine import Repository, lock_jobs, reading, writing
from services.storage.jobs.configs import shape_runs
from services.storage.jobs.wakes import note_wakes
from services.storage.pods.scope import INITIALIZED, PENDING, Span, in_scope
from services.storage.pods.writes import fire
from services.storage.ranges import chunks, pod_spans
from services.storage.tables import POD, STATUS_LOG
from services.storage.volumes.rows import volumes_of

# MISSING AdmissionSnapshot

_READING_LOG = (
    sa.select(STATUS_LOG)
    .where(STATUS_LOG.c.seq > sa.bindparam("after_seq", type_=sa.BigInteger))
    .order_by(STATUS_LOG.c.seq)
    .limit(sa.bindparam("at_most", type_=sa.Integer))
)


@cache
def _select_waiting(dialect: str) -> sa.Select[Any]:
    """Build the statement that selects the INITIALIZED and PENDING pods of a span in runs of one configuration."""
    mine = POD.c.job_id == sa.bindparam("s_job_id", type_=POD.c.job_id.type)
    waits = sa.and_(in_scope(Span.kind, dialect), POD.c.state.in_([INITIALIZED, PENDING]))
    return runs_of(mine, waits, sa.literal(0)).order_by("start")


class Admission(Repository):
    def queueable(self, job_id: JobId, limit: int) -> list[tuple[int, int]]:
        """Return INITIALIZED instances that can be queued now, as ``(start, count)`` ranges by instance, at most
        ``limit``.

        A gang whose members all wait is a range of its own, comes first and is never split: it is the only range when
        it is larger than ``limit``, and is left out when it would exceed the job's maximum of running instances. A gang
        with missing members waits until all are INITIALIZED. The maximum is enforced here, so repeated calls never
        queue too much.
        """
        return self._db.read(partial(queueable, job_id=job_id, limit=limit))

    @reading
    def waiting_shapes(self, conn: sa.Connection, job_id: JobId, start: int, count: int) -> list[ShapeRange]:
        """Return the shapes of the INITIALIZED and PENDING pods among ``start .. start+count-1``.

        Each shape is taken from the configuration that the pod will run, which differs between pods of a job during a
        rollout. PENDING pods keep the configuration with which they were queued.
        """
        dialect = conn.dialect.name
        runs = conn.execute(_select_waiting(dialect), Span(job_id, start, count).bind(dialect)).all()
        shapes = [
            shape for _, first, length, version, _ in runs for shape in shape_runs(conn, job_id, version, first, length)
        ]
        has_volumes = any(each.shape.volume_mib for each in shapes)
        return without_volumes(shapes, volumes_of(conn, job_id)) if has_volumes else shapes

    def mark_pending(
        self, job_id: JobId, ranges: Sequence[tuple[int, int]], queue_seq: int
    ) -> list[tuple[int, int, int]]:
        """Move ``(start, count)`` ranges from INITIALIZED to PENDING in one transaction.

        Returns the pods that became PENDING as ``(queue_seq, start, count)`` by queue_seq. Pods that have a place in
        the queue from an earlier run keep it; the others take ``queue_seq``. A gang has one place: its old one if every
        member still has it.
        """
        return self._db.write(
            partial(mark_pending, job_id=job_id, ranges=ranges, queue_seq=queue_seq, now_ns=self._db.clock_ns())
        )

    def mark_ready(self, items: Sequence[tuple[JobId, int, int]]) -> int:
        """Move ``(job, start, count)`` ranges from PENDING to READY in one transaction; returns the number of pods."""

        def work(conn: sa.Connection) -> int:
            lock_jobs(conn, [job_id for job_id, _, _ in items])
            now_ns = self._db.clock_ns()
            note_wakes(conn, [job_id for job_id, _, _ in items], now_ns)
            return sum(fire(conn, Span(*item), Event.ADMIT, now_ns) for item in join_ranges(items))

        return self._db.write(work) if items else 0

    def refuse(self, job_id: JobId, message: str, now_ns: int) -> int:
        """Fail INITIALIZED pods that no queue will ever accept, without another run; returns their number."""
        spans = self._db.read(lambda conn: pod_spans(conn, job_id))
        return sum(
            self._db.write(partial(refuse, job_id=job_id, span=span, message=message, now_ns=now_ns)) for span in spans
        )

    def kill_queued(self, job_id: JobId, now_ns: int) -> list[tuple[int, int, PodState]]:
        """End PENDING and READY pods whose goal is an end, and reset pods with an outdated configuration to
        INITIALIZED.

        Returns ``(start, count, previous state)``.
        """
        killed: list[tuple[int, int, PodState]] = []
        for span in self._db.read(lambda conn: pod_spans(conn, job_id)):
            killed += self._db.write(partial(leave_queue, job_id=job_id, span=span, now_ns=now_ns))
        return killed

    # -- evictions and failed placements

    def list_held(self, job_ids: Iterable[JobId]) -> dict[JobId, list[HeldRange]]:
        """Return the pods of these jobs that hold resources, as ranges by start, all read at one moment."""
        return self._db.read(partial(read_held, job_ids=list(job_ids)))

    def evict(self, orders: Sequence[EvictionOrder]) -> list[EvictionResult]:
        """Evict pods: READY pods return to PENDING in their old place, pods on hosts become PREEMPTING.

        Pods on hosts get a new run, or end if killOnPreempt is set; one gang member with killOnPreempt ends the whole
        gang. Pods that end anyway are skipped, and so are pods that the SLA of their service protects. READY members of
        a partly launched gang become INITIALIZED and wait for the other members.
        """
        results: list[EvictionResult] = []
        by_job = groupby(sorted(orders, key=lambda order: (order.job_id, order.start)), key=lambda order: order.job_id)
        for job_id, mine in by_job:
            results.append(
                self._db.write(partial(evict_job, job_id=job_id, orders=list(mine), now_ns=self._db.clock_ns()))
            )
        return results

    def requeue_gang(self, job_id: JobId, reason: RequeueReason, backoff_min_s: int = 0) -> EvictionResult:
        """Undo the launch of a gang: READY members return to PENDING in their old place, members on hosts restart.

        The gang goes into backoff, longer each time, for at least ``backoff_min_s`` seconds. Nothing changes when all
        members run by now, or when the gang ends or restarts for another reason. READY members become INITIALIZED if
        other members have left already. Repeated calls are safe: they do not extend a backoff that has not expired.
        """
        least_ns = backoff_min_s * NS_PER_S
        return self._db.write(
            partial(requeue_gang, job_id=job_id, reason=reason, least_ns=least_ns, now_ns=self._db.clock_ns())
        )

    def requeue_pods(
        self,
        job_id: JobId,
        instances: Sequence[tuple[int, int]],
        reason: RequeueReason,
        backoff_min_s: int = 0,
        but: Sequence[int] = (),
    ) -> EvictionResult:
        """Return READY pods outside gangs, given as ``(start, count)`` by start, to PENDING, in backoff.

        The backoff grows with each failed placement in a row and with the time that the pods were READY, and lasts at
        least ``backoff_min_s`` seconds. If no pod of their shape was launched since they were admitted, all READY pods
        of that shape are requeued with them, and PENDING pods of it get the same backoff, except the instances in
        ``but``. Repeated calls are safe: pods that are no longer READY are skipped. PENDING pods get their backoff in
        later transactions of bounded size.
        """
        if not instances:
            return EvictionResult(job_id)
        least_ns, now_ns = backoff_min_s * NS_PER_S, self._db.clock_ns()
        work = partial(
            requeue_pods, job_id=job_id, instances=instances, reason=reason, least_ns=least_ns, now_ns=now_ns, but=but
        )
        result, along = self._db.write(work)
        for hold in along:
            for span in chunks(hold.ranges):
                self._db.write(partial(back_off, job_id=job_id, span=span, hold=hold, now_ns=now_ns))
                result.in_backoff.append((*span, hold.until_ns))
        return result

    # -- snapshot and log for a restarting resource manager

    def snapshot(self) -> AdmissionSnapshot:
        """Return all queues at one moment; the database reduces pods to ranges."""
        return self._db.read(read_snapshot)

    @reading
    def status_log(
        self, conn: sa.Connection, after_seq: int, limit: int
    ) -> list[tuple[int, JobId, int, int, PodState]]:
        """Return ended runs ``(seq, job, instance, run, state)`` in the order of their commits."""
        return [
            (row.seq, JobId(row.job_id), row.instance_id, row.run_id, POD_STATES[row.state])
            for row in conn.execute(_READING_LOG, {"after_seq": after_seq, "at_most": limit})
        ]

    @writing
    def prune_status_log(self, conn: sa.Connection, upto: int, limit: int) -> int:
        """Delete up to about ``limit`` of the rows up to a number; returns how many."""
        oldest = conn.execute(sa.select(sa.func.min(STATUS_LOG.c.seq))).scalar()
        if oldest is None:
            return 0
        return conn.execute(sa.delete(STATUS_LOG).where(STATUS_LOG.c.seq <= min(upto, oldest + limit - 1))).rowcount
