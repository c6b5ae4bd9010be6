"""Queues and admission, the resource manager's part of storage: what may be queued, is queued, admitted, evicted and
queued again, and a snapshot of it all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import groupby

import sqlalchemy as sa

from peloton.api.convert import POD_STATES
from peloton.lifecycle.pod_machine import Event
from peloton.lifecycle.volumes import beside_volumes
from peloton.model.admission import AdmissionSnapshot, EvictionOrder, EvictionResult, HeldRange
from peloton.model.ids import JobId
from peloton.model.pod import PodState, ShapeRange
from peloton.model.reason import RequeueReason
from peloton.model.times import NS_PER_S
from services.storage.admission.evictions import evict_job
from services.storage.admission.gang_requeues import requeue_gang
from services.storage.admission.queue import joined, leave_queue, mark_pending, queueable, refuse
from services.storage.admission.requeues import hold_back, requeue_pods
from services.storage.admission.snapshot import read_held, read_snapshot, runs_of
from services.storage.engine import Database, lock_jobs
from services.storage.jobs.configs import shape_runs
from services.storage.jobs.wakes import note_wakes
from services.storage.pods.scope import INITIALIZED, PENDING, Span, within
from services.storage.pods.writes import fire
from services.storage.ranges import chunks, pod_spans
from services.storage.tables import POD, STATUS_LOG
from services.storage.volumes.rows import volumes_of

# MISSING AdmissionSnapshot


class Admission:
    def __init__(self, db: Database) -> None:
        self._db = db

    def queueable(self, job_id: JobId, limit: int) -> list[tuple[int, int]]:
        """INITIALIZED instances that may be queued now, as ``(start, count)`` ranges by instance, at most ``limit``.

        A gang that waits whole is a range of its own, comes first, and comes whole: alone when it is larger than
        ``limit``, not at all when the maximum of running instances has no room for it. Until all its members are here
        they wait for each other. The maximum is kept here, so that asking twice never queues too much.
        """
        return self._db.read(partial(queueable, job_id=job_id, limit=limit))

    def waiting_shapes(self, job_id: JobId, start: int, count: int) -> list[ShapeRange]:
        """Shapes of the INITIALIZED and PENDING pods among ``start .. start+count-1``, each of the configuration that
        it is to run, in which pods of one job differ during a rollout. PENDING pods keep the one that they were queued
        with."""

        def work(conn: sa.Connection) -> list[ShapeRange]:
            waits = sa.and_(within(conn, Span(job_id, start, count)), POD.c.state.in_([INITIALIZED, PENDING]))
            runs = conn.execute(runs_of(POD.c.job_id == job_id, waits, sa.literal(0)).order_by("start")).all()
            shapes = [
                shape
                for _, first, length, version, _ in runs
                for shape in shape_runs(conn, job_id, version, first, length)
            ]
            has_volumes = any(each.shape.volume_mib for each in shapes)
            return beside_volumes(shapes, volumes_of(conn, job_id)) if has_volumes else shapes

        return self._db.read(work)

    def mark_pending(
        self, job_id: JobId, ranges: Sequence[tuple[int, int]], queue_seq: int
    ) -> list[tuple[int, int, int]]:
        """INITIALIZED -> PENDING for ``(start, count)`` ranges, in one transaction; returns what has become PENDING, as
        ``(queue_seq, start, count)`` by queue_seq.

        Pods that have a place in the queue from an earlier run take it again; the others get ``queue_seq``. A gang has
        one place: its old one if no member has lost it.
        """
        return self._db.write(
            partial(mark_pending, job_id=job_id, ranges=ranges, queue_seq=queue_seq, now_ns=self._db.clock_ns())
        )

    def mark_ready(self, items: Sequence[tuple[JobId, int, int]]) -> int:
        """PENDING -> READY for ``(job, start, count)``, in one transaction; returns how many."""

        def work(conn: sa.Connection) -> int:
            lock_jobs(conn, [job_id for job_id, _, _ in items])
            now_ns = self._db.clock_ns()
            note_wakes(conn, [job_id for job_id, _, _ in items], now_ns)
            return sum(fire(conn, Span(*item), Event.ADMIT, now_ns) for item in joined(items))

        return self._db.write(work) if items else 0

    def refuse(self, job_id: JobId, message: str, now_ns: int) -> int:
        """INITIALIZED pods that no queue will ever take fail, and have no other run. Returns how many."""
        spans = self._db.read(lambda conn: pod_spans(conn, job_id))
        return sum(
            self._db.write(partial(refuse, job_id=job_id, span=span, message=message, now_ns=now_ns)) for span in spans
        )

    def kill_queued(self, job_id: JobId, now_ns: int) -> list[tuple[int, int, PodState]]:
        """PENDING and READY pods that are to end do; those that await a newer configuration are INITIALIZED with it.
        Returns ``(start, count, state they were in)``."""
        killed: list[tuple[int, int, PodState]] = []
        for span in self._db.read(lambda conn: pod_spans(conn, job_id)):
            killed += self._db.write(partial(leave_queue, job_id=job_id, span=span, now_ns=now_ns))
        return killed

    # -- evictions, and launches in vain

    def held(self, job_ids: Iterable[JobId]) -> dict[JobId, list[HeldRange]]:
        """What pods of these jobs hold resources, as ranges by start, all at one moment."""
        return self._db.read(partial(read_held, job_ids=list(job_ids)))

    def evict(self, orders: Sequence[EvictionOrder]) -> list[EvictionResult]:
        """READY pods are PENDING again, in their old place; pods on hosts become PREEMPTING and want a new run, or,
        with killOnPreempt, end; one member of a gang that has it ends all. Pods that end anyway are passed over, and so
        are those that the SLA of their service keeps.

        Of a gang that has been launched in part, READY members wait for the others: they are INITIALIZED once more.
        """
        results: list[EvictionResult] = []
        by_job = groupby(sorted(orders, key=lambda order: (order.job_id, order.start)), key=lambda order: order.job_id)
        for job_id, mine in by_job:
            results.append(
                self._db.write(partial(evict_job, job_id=job_id, orders=list(mine), now_ns=self._db.clock_ns()))
            )
        return results

    def requeue_gang(self, job_id: JobId, reason: RequeueReason, least_hold_s: int = 0) -> EvictionResult:
        """Give up a launch: READY members are PENDING again, in their old place, members on hosts are to end and
        run anew, and the gang is held back for a while, longer each time, ``least_hold_s`` at least.

        Nothing changes when all members run by now, or when the gang ends or restarts for another reason. When some
        members have left already, READY ones wait for them, INITIALIZED. Safe to repeat: within the time that it is
        held back a gang is not held back longer.
        """
        least_ns = least_hold_s * NS_PER_S
        return self._db.write(
            partial(requeue_gang, job_id=job_id, reason=reason, least_ns=least_ns, now_ns=self._db.clock_ns())
        )

    def requeue_pods(
        self,
        job_id: JobId,
        instances: Sequence[tuple[int, int]],
        reason: RequeueReason,
        least_hold_s: int = 0,
        but: Sequence[int] = (),
    ) -> EvictionResult:
        """READY pods that stand alone, among ``(start, count)`` by start, are PENDING again, and held back for a while:
        longer each time in a row, as long as they were READY, and ``least_hold_s`` at least. When no pod of their shape
        was launched since they were admitted, all READY pods of that shape come back with them, and PENDING ones are
        held back as long, ``but`` these.

        Safe to repeat: those that are no longer READY are passed over. PENDING ones are held back when the rest is
        committed, a bounded number in a transaction.
        """
        if not instances:
            return EvictionResult(job_id)
        least_ns, now_ns = least_hold_s * NS_PER_S, self._db.clock_ns()
        work = partial(
            requeue_pods, job_id=job_id, instances=instances, reason=reason, least_ns=least_ns, now_ns=now_ns, but=but
        )
        result, along = self._db.write(work)
        for hold in along:
            for span in chunks(hold.ranges):
                self._db.write(partial(hold_back, job_id=job_id, span=span, hold=hold, now_ns=now_ns))
                result.held_back.append((*span, hold.until_ns))
        return result

    # -- what a rebuild of the resource manager begins with, and what it follows

    def snapshot(self) -> AdmissionSnapshot:
        """Everything at one moment; pods only as ranges, found by the database."""
        return self._db.read(read_snapshot)

    def status_log(self, after_seq: int, limit: int) -> list[tuple[int, JobId, int, int, PodState]]:
        """Ended runs ``(seq, job, instance, run, state)`` in the order of their commits."""
        query = sa.select(STATUS_LOG).where(STATUS_LOG.c.seq > after_seq).order_by(STATUS_LOG.c.seq).limit(limit)

        def work(conn: sa.Connection) -> list[tuple[int, JobId, int, int, PodState]]:
            return [
                (row.seq, JobId(row.job_id), row.instance_id, row.run_id, POD_STATES[row.state])
                for row in conn.execute(query)
            ]

        return self._db.read(work)

    def prune_status_log(self, upto: int) -> int:
        statement = sa.delete(STATUS_LOG).where(STATUS_LOG.c.seq <= upto)
        return self._db.write(lambda conn: conn.execute(statement).rowcount)
