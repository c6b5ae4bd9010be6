"""Placement in vain in a simulated day: what storage writes when no host was found for admitted pods in time."""

from __future__ import annotations

from dataclasses import replace

from peloton.lifecycle.gang import HOLD
from peloton.model.host import PlacementBatch
from peloton.model.pod import PodState
from services.storage.snapshot import EvictionResult
from tests.simulation.records import Job, Records, ranges_of

PLACEMENT_NS = 600 * 10**9


def requeue(records: Records, job: Job, batch: PlacementBatch) -> EvictionResult:
    """READY pods that stand alone are PENDING again in their old place, and held back."""
    size, result = job.record.gang_size, EvictionResult(job.record.job_id)
    late_ns = records.clock_ns - PLACEMENT_NS
    late = sorted(
        i
        for left in batch.unplaced
        for i in left.instances
        if (size == 1 or i >= size) and job.members[PodState.READY] & {i} and job.admitted_ns[i] <= late_ns
    )
    by_delay: dict[int, list[int]] = {}
    for instance_id in late:
        records.put(job, replace(job.pods[instance_id], state=PodState.PENDING))
        job.vain_count[instance_id] = job.vain_count.get(instance_id, 0) + 1
        until_ns = records.clock_ns + HOLD.delay_ns(job.vain_count[instance_id])
        job.held_until_ns[instance_id] = until_ns
        by_delay.setdefault(until_ns, []).append(instance_id)
    for seq in sorted({job.queue_seq[i] for i in late}):
        result.queued += [(seq, *span) for span in ranges_of([i for i in late if job.queue_seq[i] == seq])]
    for until_ns, mine in sorted(by_delay.items()):
        result.held_back += [(*span, until_ns) for span in ranges_of(mine)]
    return result
