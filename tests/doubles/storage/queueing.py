"""Queueing of one job in memory: its queue, held resources, evictions and requeues."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from peloton.lifecycle.gang import REQUEUE_BACKOFF, Stage, Step, evaluate, member_of, stage
from peloton.lifecycle.goal import goal_after_eviction
from peloton.lifecycle.job import count_scheduled, is_ending
from peloton.lifecycle.pod_machine import Event
from peloton.lifecycle.pod_terms import (
    CONFIG_OUTDATED,
    GOAL_ALIVE,
    GOAL_ENDED,
    INITIALIZED,
    LAUNCHABLE,
    NO_PREFERRED_HOST,
    QUEUED,
    READY,
    RUN_SUPERSEDED,
    STAYING,
)
from peloton.lifecycle.reason_text import Names, eviction_text, requeue_text
from peloton.model.admission import (
    AllocatedRange,
    EvictionOrder,
    EvictionResult,
    HeldRange,
    JobSnapshot,
    PendingRange,
)
from peloton.model.pod import (
    ALLOCATED,
    ON_HOST,
    PodRecord,
    PodShape,
    PodState,
    Termination,
    TerminationReason,
)
from peloton.model.ranges import as_ranges
from peloton.model.reason import RequeueReason
from peloton.model.times import NS_PER_S
from services.storage.admission.evictions import EVICTION_MESSAGE, reason_code
from services.storage.admission.gang_requeues import FOR_RESTART, REQUEUE_REASON
from services.storage.admission.requeues import POD_REQUEUE_REASON, tries_text
from services.storage.ranges import CHUNK_PODS
from tests.doubles.storage.jobs import MemoryJob

Range = tuple[int, int]
_S = PodState


def _ranges(pods: Iterable[PodRecord]) -> list[Range]:
    return as_ranges(pod.instance_id for pod in pods)


def _groups(pods: Iterable[PodRecord], key: Callable[[PodRecord], Any]) -> dict[Any, list[Range]]:
    """Group pods by a key, as ranges of instances."""
    alike: dict[Any, list[PodRecord]] = {}
    for pod in pods:
        alike.setdefault(key(pod), []).append(pod)
    return {found: _ranges(mine) for found, mine in alike.items()}


def _span(start: int, count: int) -> range:
    return range(start, start + count)


# -- queueing ------------------------------------------------------------------------------------------------------


def queueable(job: MemoryJob, limit: int) -> list[Range]:
    record, size = job.record, job.gang_size
    if limit <= 0 or job.has_ended or is_ending(record):
        return []
    maximum = record.sla.maximum_running_instances
    allowed = max(maximum - count_scheduled(job.pods.counts()), 0) if maximum else limit
    waiting = [pod.instance_id for pod in job.pods.those(GOAL_ALIVE, job.pods.in_state[_S.INITIALIZED])]
    gang: list[Range] = []
    if size > 1 and sum(instance < size for instance in waiting) == size:
        if maximum and allowed < size:
            return []
        gang, allowed, limit = [(0, size)], allowed - size, limit - size
    singles = [instance for instance in waiting if instance >= job.first_single]
    return gang + as_ranges(singles[: max(min(limit, allowed), 0)])


def mark_pending(job: MemoryJob, ranges: Sequence[Range], queue_seq: int, now_ns: int) -> list[tuple[int, int, int]]:
    if job.has_ended:
        return []
    marked: list[int] = []
    for start, count in ranges:
        event, seq = Event.ENQUEUE, queue_seq
        if job.gang_size > 1 and (start, count) == (0, job.gang_size):
            waiting = job.pods.those(INITIALIZED & GOAL_ALIVE, _span(start, count))
            if len(waiting) < count:
                continue
            places = [pod.queue_seq for pod in waiting]
            event, seq = Event.ENQUEUE_GANG, max(places) if min(places) else queue_seq
        marked += job.pods.fire(_span(start, count), event, now_ns, queue_seq=seq)
    return _group_by_place(job, marked)


def _group_by_place(job: MemoryJob, instances: Iterable[int]) -> list[tuple[int, int, int]]:
    groups = _groups((job.pods.records[i] for i in sorted(instances)), lambda pod: pod.queue_seq)
    return [(seq, *span) for seq, spans in sorted(groups.items()) for span in spans]


def kill_queued(job: MemoryJob, now_ns: int) -> list[tuple[int, int, PodState]]:
    killed: list[tuple[int, int, PodState]] = []
    for was in (_S.PENDING, _S.READY):
        leaving = [pod.instance_id for pod in job.pods.those(GOAL_ENDED | CONFIG_OUTDATED, job.pods.in_state[was])]
        killed += [(start, count, was) for start, count in as_ranges(leaving)]
        job.pods.fire(leaving, Event.LEAVE_QUEUE, now_ns)
    return killed


# -- held resources ------------------------------------------------------------------------------------------------


def _allocated(job: MemoryJob) -> list[PodRecord]:
    instances = set().union(*(job.pods.in_state[state] for state in ALLOCATED))
    return [job.pods.records[instance] for instance in sorted(instances)]


def _leaves(pod: PodRecord) -> bool:
    return (
        GOAL_ENDED.holds(pod, {}) or pod.state is _S.KILLING or (pod.state in ON_HOST and RUN_SUPERSEDED.holds(pod, {}))
    )


def list_held_ranges(job: MemoryJob) -> list[HeldRange]:
    groups = _groups(
        _allocated(job), lambda pod: (pod.queue_seq, pod.config_version, pod.state in ON_HOST, _leaves(pod))
    )
    found = [
        HeldRange(seq, *span, version, launched, leaves)
        for (seq, version, launched, leaves), spans in groups.items()
        for span in spans
    ]
    return sorted(found, key=lambda one: one.start)


def is_evicted(pod: PodRecord) -> bool:
    """Return whether a pod on a host was preempted and will end."""
    why = pod.termination.reason if pod.termination is not None else None
    return why is TerminationReason.PREEMPTED_RESOURCES and (GOAL_ENDED | RUN_SUPERSEDED).holds(pod, {})


def snapshot(job: MemoryJob) -> JobSnapshot:
    queued = (job.pods.records[instance] for instance in sorted(job.pods.in_state[_S.PENDING]))
    waiting = _groups(queued, lambda pod: (pod.queue_seq, pod.config_version, pod.held_until_ns))
    pending = [
        PendingRange(seq, *span, version, until_ns)
        for (seq, version, until_ns), spans in waiting.items()
        for span in spans
    ]
    holding = _groups(
        _allocated(job),
        lambda pod: (pod.config_version, pod.state in ON_HOST, pod.state in ON_HOST and is_evicted(pod)),
    )
    allocated = [
        AllocatedRange(*span, version, launched, evicted)
        for (version, launched, evicted), spans in holding.items()
        for span in spans
    ]
    return JobSnapshot(
        job.record,
        tuple(sorted(pending, key=lambda one: (one.queue_seq, one.start))),
        tuple(sorted(allocated, key=lambda one: one.start)),
    )


# -- evictions and requeues ----------------------------------------------------------------------------------------


def evict(job: MemoryJob, order: EvictionOrder, now_ns: int, result: EvictionResult, names: Names) -> None:
    """Evict pods: READY pods return to PENDING, pods on hosts leave."""
    found = job.pods.those((READY & GOAL_ALIVE) | STAYING, _span(order.start, order.count))
    if order.run_id:
        found = [pod for pod in found if pod.run_id == order.run_id]
    waiting = [pod for pod in found if pod.state is _S.READY]
    on_hosts = [pod for pod in found if pod.state is not _S.READY]
    said, reason = eviction_text(order.why, names), reason_code(order.why)
    if waiting:
        gang_incomplete = order.is_gang and len(waiting) < order.count
        _return_to_queue(job, waiting, gang_incomplete, {"message": said, "reason": reason}, now_ns, result)
    if on_hosts:
        words = {"message": EVICTION_MESSAGE + said, "reason": reason}
        why = Termination(TerminationReason.PREEMPTED_RESOURCES)
        ending = [pod for pod in on_hosts if job.facts_of(pod.instance_id).kill_on_preempt]
        if order.is_gang and ending:
            ending = on_hosts
        again = [pod.instance_id for pod in on_hosts if pod not in ending]
        job.pods.fire(again, Event.EVICT, now_ns, why=why, **words)
        goal = goal_after_eviction(job.record.type)
        last = [pod.instance_id for pod in ending]
        job.pods.fire(last, Event.EVICT_FINAL, now_ns, why=why, goal=goal, **words)
        result.leaving += _ranges(on_hosts)


def _return_to_queue(
    job: MemoryJob,
    waiting: Sequence[PodRecord],
    gang_incomplete: bool,
    words: dict[str, Any],
    now_ns: int,
    result: EvictionResult,
) -> None:
    job.pods.fire([pod.instance_id for pod in waiting], Event.UNADMIT, now_ns, gang_incomplete=gang_incomplete, **words)
    if gang_incomplete:
        result.unqueued += _ranges(waiting)
    else:
        result.queued += _group_by_place(job, (pod.instance_id for pod in waiting))


def requeue_gang(job: MemoryJob, reason: RequeueReason, backoff_min_s: int, now_ns: int) -> EvictionResult:
    record, result = job.record, EvictionResult(job.record.job_id)
    members = job.pods.members()
    if job.has_ended or not members or evaluate(job.launch_progress()).step in (Step.RUNNING, Step.SUPERSEDED):
        return result
    ready = [pod for pod in members if stage(member_of(pod)) is Stage.READY]
    since_ns = min((pod.updated_ns for pod in ready), default=now_ns)
    count, until_ns = record.gang_requeue_count, record.gang_due_ns
    if until_ns <= now_ns:
        count += 1
        until_ns = now_ns + max(REQUEUE_BACKOFF.delay_after_ns(count, now_ns - since_ns), backoff_min_s * NS_PER_S)
    result.requeue_count, result.held_until_ns = count, until_ns
    job.write(gang_requeue_count=count, gang_due_ns=until_ns)
    words = {"message": f"queued again: {requeue_text(reason)}", "reason": REQUEUE_REASON}
    is_whole = len(ready) == job.gang_size
    everyone = range(job.gang_size)
    job.pods.fire(everyone, Event.REQUEUE_GANG, now_ns, gang_incomplete=not is_whole, why=FOR_RESTART, **words)
    if is_whole:
        result.queued += [(ready[0].queue_seq, *span) for span in _ranges(ready)]
    else:
        result.unqueued += _ranges(ready)
    return result


def requeue_pods(
    job: MemoryJob,
    instances: Sequence[Range],
    reason: RequeueReason,
    backoff_min_s: int,
    now_ns: int,
    but: Sequence[int] = (),
) -> EvictionResult:
    """Requeue READY pods outside gangs in their old place, in backoff together with the pods of their shape."""
    result = EvictionResult(job.record.job_id)
    named = [instance for start, count in instances for instance in _span(start, count)]
    chosen = [
        pod
        for pod in job.pods.those(LAUNCHABLE, named)
        if pod.instance_id >= job.first_single and pod.instance_id not in but
    ]
    if job.has_ended or not chosen:
        return result
    since_ns = min(pod.updated_ns for pod in chosen)
    counts, along = _find_backoff_groups(job, chosen, since_ns, but)
    places = _group_by_place(job, counts)
    for vain_count in sorted({*counts.values()}):
        until_ns = now_ns + max(REQUEUE_BACKOFF.delay_after_ns(vain_count, now_ns - since_ns), backoff_min_s * NS_PER_S)
        words = {
            "message": f"queued again, {tries_text(vain_count, until_ns - now_ns)}: {requeue_text(reason)}",
            "reason": POD_REQUEUE_REASON,
        }
        mine = sorted(instance for instance, count in counts.items() if count == vain_count)
        job.pods.fire(mine, Event.REQUEUE, now_ns, vain_count=vain_count, held_until_ns=until_ns, **words)
        result.in_backoff += [(*span, until_ns) for span in as_ranges(mine)]
    result.queued += places
    for vain_count in sorted({*along.values()}):
        until_ns = now_ns + max(REQUEUE_BACKOFF.delay_after_ns(vain_count, now_ns - since_ns), backoff_min_s * NS_PER_S)
        mine = sorted(instance for instance, count in along.items() if count == vain_count)
        job.pods.fire(mine, Event.BACK_OFF, now_ns, vain_count=vain_count, held_until_ns=until_ns)
        result.in_backoff += [(*span, until_ns) for span in as_ranges(mine)]
    return result


def _find_backoff_groups(
    job: MemoryJob, chosen: Sequence[PodRecord], since_ns: int, but: Sequence[int]
) -> tuple[dict[int, int], dict[int, int]]:
    """Count the failed attempts of READY pods that are requeued, and of PENDING pods that share their backoff.

    All pods of a shape are included when none of that shape was launched since the first of the chosen was admitted.
    """
    counts = {pod.instance_id: pod.vain_count + 1 for pod in chosen}
    launched = {
        job.shape(pod.instance_id)
        for pod in job.pods.records.values()
        if pod.instance_id >= job.first_single
        and (pod.started_ns >= since_ns or (pod.state in ON_HOST and pod.updated_ns >= since_ns))
    }
    together: dict[PodShape, int] = {}
    for pod in chosen:
        shape = job.shape(pod.instance_id)
        if shape not in launched:
            together[shape] = max(together.get(shape, 0), pod.vain_count + 1)
    in_state = job.pods.in_state
    waits = job.singles(
        QUEUED & GOAL_ALIVE & ~CONFIG_OUTDATED & NO_PREFERRED_HOST, in_state[_S.PENDING], in_state[_S.READY]
    )
    waiting = [pod for pod in waits if job.shape(pod.instance_id) in together and pod.instance_id not in but]
    for pod in waiting:
        shape = job.shape(pod.instance_id)
        together[shape] = max(together[shape], pod.vain_count + (pod.state is _S.READY))
    along: dict[int, int] = {}
    for pod in waiting:
        count = together[job.shape(pod.instance_id)]
        if pod.state is _S.PENDING:
            along[pod.instance_id] = count
        elif pod.instance_id in counts or len(counts) < CHUNK_PODS:
            counts[pod.instance_id] = count
    return counts, along
