"""Admitted pods for which no host was found: what they were given is free again, and they wait in their old places."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import sqlalchemy as sa

from peloton.lifecycle.gang import HOLD
from peloton.model.ids import JobId
from peloton.model.job import JOB_TERMINAL
from services.storage.codec import job_record, stored_text
from services.storage.engine import lock_job
from services.storage.snapshot import EvictionResult
from services.storage.store import LAUNCHABLE, PENDING, Store, among, as_ranges, change_pods
from services.storage.tables import POD

POD_REQUEUE_REASON = "REASON_POD_REQUEUED"


class Requeues(Store):
    def requeue_pods(self, job_id: JobId, instances: Sequence[tuple[int, int]], reason: str) -> EvictionResult:
        """READY pods that stand alone, among ``(start, count)`` by start, are PENDING again, and each is held back for
        a while, longer each time in a row. Safe to repeat: those that are no longer READY are passed over."""
        work = partial(_requeue, job_id=job_id, instances=instances, reason=reason, now_ns=self.clock_ns())
        return self.db.write(work) if instances else EvictionResult(job_id)


def _requeue(
    conn: sa.Connection, job_id: JobId, instances: Sequence[tuple[int, int]], reason: str, now_ns: int
) -> EvictionResult:
    result = EvictionResult(job_id)
    row = lock_job(conn, job_id)
    if row is None or (job := job_record(row)).state in JOB_TERMINAL:
        return result
    named = among(conn, job_id, [i for start, count in instances for i in range(start, start + count)])
    alone = POD.c.instance_id >= (job.gang_size if job.gang_size > 1 else 0)
    query = sa.select(POD.c.instance_id, POD.c.queue_seq, POD.c.vain_count).where(named, alone, LAUNCHABLE)
    by_place: dict[int, list[int]] = {}
    by_delay: dict[int, list[int]] = {}
    for instance, queue_seq, vain_count in conn.execute(query.order_by(POD.c.instance_id)):
        by_place.setdefault(queue_seq, []).append(instance)
        by_delay.setdefault(HOLD.delay_ns(vain_count + 1), []).append(instance)
    words = {"message": stored_text(f"queued again: {reason}"), "reason": POD_REQUEUE_REASON}
    for delay_ns, mine in by_delay.items():
        held = {"vain_count": POD.c.vain_count + 1, "held_until_ns": now_ns + delay_ns}
        change_pods(conn, among(conn, job_id, mine), sa.true(), {"state": PENDING, **held, **words}, now_ns)
        result.held_back += [(start, count, now_ns + delay_ns) for start, count in as_ranges(mine)]
    for queue_seq, mine in sorted(by_place.items()):
        result.queued += [(queue_seq, start, count) for start, count in as_ranges(mine)]
    return result
