"""Placement in vain in a simulated day: what storage writes when no host was found for admitted pods in time."""

from __future__ import annotations

from dataclasses import replace

from peloton.lifecycle.gang import HOLD
from peloton.lifecycle.in_vain import in_vain, least_hold_s
from peloton.model.admission import EvictionResult
from peloton.model.host import PlacementBatch, ReadyGang
from peloton.model.pod import ON_HOST, PodShape, PodState
from tests.simulation.records import Job, Records, ranges_of

PLACEMENT_S = 600.0
_NS = 10**9


def requeue(records: Records, job: Job, batch: PlacementBatch, turns: int) -> EvictionResult:
    """READY pods that stand alone are PENDING again in their old place, and held back together with those like them."""
    size, now_ns, result = job.record.gang_size, records.clock_ns, EvictionResult(job.record.job_id)
    alone = [i for left in batch.unplaced for i in left.instances if size == 1 or i >= size]
    gangs = [
        ReadyGang(
            job.shape(i),
            ((i, job.pods[i].run_id),),
            waited_s=(now_ns - job.admitted_ns[i]) / _NS,
            vain_count=job.vain_count.get(i, 0),
        )
        for i in alone
        if i in job.members[PodState.READY]
    ]
    given_up = in_vain(gangs, batch, PLACEMENT_S, turns).instances
    named = [i for start, count in given_up for i in range(start, start + count)]
    since_ns = min((job.admitted_ns[i] for i in named), default=0)
    counts = _counts(job, named, since_ns)
    by_time: dict[int, list[int]] = {}
    back = [i for i in sorted(counts) if i in job.members[PodState.READY]]
    for instance_id, count in sorted(counts.items()):
        job.vain_count[instance_id] = count
        until_ns = now_ns + max(HOLD.delay_after_ns(count, now_ns - since_ns), least_hold_s(turns) * _NS)
        job.held_until_ns[instance_id] = until_ns
        by_time.setdefault(until_ns, []).append(instance_id)
    for instance_id in back:
        records.put(job, replace(job.pods[instance_id], state=PodState.PENDING))
    for seq in sorted({job.queue_seq[i] for i in back}):
        result.queued += [(seq, *span) for span in ranges_of([i for i in back if job.queue_seq[i] == seq])]
    for until_ns, mine in sorted(by_time.items()):
        result.held_back += [(*span, until_ns) for span in ranges_of(mine)]
    return result


def _counts(job: Job, given_up: list[int], since_ns: int) -> dict[int, int]:
    """Instances that are held back -> how often in a row."""
    size = job.record.gang_size if job.record.gang_size > 1 else 0
    counts = {i: job.vain_count.get(i, 0) + 1 for i in given_up}
    launched = {
        job.shape(pod.instance_id)
        for pod in job.pods
        if pod.instance_id >= size
        and (pod.started_ns >= since_ns or (pod.state in ON_HOST and job.admitted_ns[pod.instance_id] >= since_ns))
    }
    alike: dict[PodShape, list[int]] = {}
    for instance_id in sorted(job.members[PodState.READY] | job.members[PodState.PENDING]):
        if instance_id >= size and job.pods[instance_id].goal is not PodState.KILLED:
            alike.setdefault(job.shape(instance_id), []).append(instance_id)
    for shape in {job.shape(i) for i in given_up} - launched:
        ready = job.members[PodState.READY]
        most = max(job.vain_count.get(i, 0) + (i in ready) for i in alike[shape])
        counts |= dict.fromkeys(alike[shape], most)
    return counts
