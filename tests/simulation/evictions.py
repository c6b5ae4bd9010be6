"""Preemption in a simulated day: what storage says of held pods, and what it writes when some are evicted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from peloton.lifecycle.reason_text import eviction_text
from peloton.model.admission import EvictionOrder, EvictionResult, HeldRange
from peloton.model.ids import JobId, PodId
from peloton.model.pod import ALLOCATED, ON_HOST, PodState, Termination, TerminationReason
from peloton.model.resources import RESOURCE_KINDS
from peloton.scheduling.cycle import Snapshot
from peloton.scheduling.eviction import Eviction
from tests.simulation.invariants import Broken
from tests.simulation.records import Job, Records, ranges_of

STAYING = ON_HOST - {PodState.KILLING, PodState.PREEMPTING}


def held(records: Records, job_ids: Iterable[JobId]) -> dict[JobId, list[HeldRange]]:
    """What pods of these jobs hold resources, as ranges by start."""
    found: dict[JobId, list[HeldRange]] = {}
    for job_id in job_ids:
        job = records.jobs.get(job_id)
        alike: dict[tuple[int, bool, bool], list[int]] = {}
        for instance_id in sorted(i for state in ALLOCATED for i in job.members[state]) if job else ():
            assert job is not None
            pod = job.pods[instance_id]
            is_launched = pod.state in ON_HOST
            goes = pod.goal is PodState.KILLED or (is_launched and pod.desired_run_id > pod.run_id)
            alike.setdefault((job.queue_seq[instance_id], is_launched, goes), []).append(instance_id)
        spans = [HeldRange(key[0], *span, 1, *key[1:]) for key, own in alike.items() for span in ranges_of(own)]
        found[job_id] = sorted(spans, key=lambda span: span.start)
    return found


def evict(records: Records, orders: Sequence[EvictionOrder]) -> tuple[list[EvictionResult], list[PodId]]:
    """READY pods are PENDING again in their old place, pods on hosts PREEMPTING; returns those as well."""
    results: dict[JobId, EvictionResult] = {}
    ends: list[PodId] = []
    for order in sorted(orders, key=lambda order: (order.job_id, order.start)):
        job, result = records.jobs[order.job_id], results.setdefault(order.job_id, EvictionResult(order.job_id))
        mine = [i for i in range(order.start, order.start + order.count) if job.pods[i].goal is not PodState.KILLED]
        ready = [i for i in mine if job.pods[i].state is PodState.READY]
        leaving = [i for i in mine if job.pods[i].state in STAYING and job.pods[i].desired_run_id <= job.pods[i].run_id]
        if ready:
            _send_back(records, job, ready, bool(leaving) and order.is_gang, result)
        for instance_id in leaving:
            pod, why = job.pods[instance_id], Termination(TerminationReason.PREEMPTED_RESOURCES)
            pod = replace(pod, state=PodState.PREEMPTING, termination=why)
            if job.plan.kills_on_preempt:
                pod = replace(pod, goal=PodState.KILLED)
            else:
                pod = replace(pod, desired_run_id=pod.run_id + 1)
            records.put(job, pod)
            ends.append(pod.pod_id)
        result.leaving += ranges_of(leaving)
        _check_all_left(job, order)
    return list(results.values()), ends


def _check_all_left(job: Job, order: EvictionOrder) -> None:
    """Of what was to be evicted nothing stays: a gang leaves whole."""
    own = [job.pods[i] for i in range(order.start, order.start + order.count)]
    here = [pod for pod in own if pod.state in (*STAYING, PodState.READY) and pod.goal is not PodState.KILLED]
    stays = [pod.instance_id for pod in here if pod.desired_run_id <= pod.run_id]
    if stays:
        raise Broken(f"of {order.count} evicted pods of {job.record.name} from {order.start} on {stays} stay")


def check_storm(now: Snapshot, chosen: Sequence[Eviction]) -> None:
    """What is evicted is wanted: no more of each kind than waits, than is lacking already (hosts were lost, limits were
    cut), and than one gang more for each that is served, for gangs leave whole."""
    waits = (now.demand + now.slack_demand).sum(axis=0)
    held = now.usage.physical(now.tree)
    limit = np.minimum(now.tree.limit, now.capacity)
    lacking = np.maximum(held - limit, 0).sum(axis=0)
    taken, largest = np.zeros_like(waits), np.zeros_like(waits)
    for one in chosen:
        kind = RESOURCE_KINDS.index(one.grounds.kind)
        taken[kind] += one.run.need[kind] * one.run.gang_count
        largest[kind] = max(largest[kind], one.run.need[kind])
    served = len({(one.grounds.for_job, one.grounds.kind, one.pool) for one in chosen})
    if (taken > waits + lacking + served * largest).any():
        wanted = f"{waits.tolist()} waits, {lacking.tolist()} is lacking"
        raise Broken(f"{taken.tolist()} was evicted in one round, {wanted}: {eviction_text(chosen[0].grounds)}")


def _send_back(records: Records, job: Job, ready: list[int], is_to_gather: bool, result: EvictionResult) -> None:
    state = PodState.INITIALIZED if is_to_gather else PodState.PENDING
    for instance_id in ready:
        records.put(job, replace(job.pods[instance_id], state=state))
    if is_to_gather:
        result.unqueued += ranges_of(ready)
        return
    for seq in sorted({job.queue_seq[i] for i in ready}):
        result.queued += [(seq, *span) for span in ranges_of([i for i in ready if job.queue_seq[i] == seq])]
