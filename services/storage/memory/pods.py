"""Pods of one job in memory, written by the pod machine and settled as those of a database are.

Counted as they are written: a settle costs as much as the job has kinds of pods, whatever its size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from peloton.lifecycle.gang_fate import SharedFate, shared_fate
from peloton.lifecycle.guards import Condition
from peloton.lifecycle.pod_machine import Event, next_pod, no_pod
from peloton.lifecycle.pod_terms import TIMED, WAITS
from peloton.lifecycle.settle import (
    Kind,
    PodAction,
    PodCounts,
    SettleView,
    UpdateView,
    find_work,
    kind_of,
    plan_settle,
)
from peloton.model.ids import JobId
from peloton.model.job import JobProgress, JobRecord
from peloton.model.pod import TERMINAL, PodRecord, PodState

OnWrite = Callable[[PodRecord | None, PodRecord | None], None]
"""Hears of a pod as it was and as it is; None where there is none."""


def ignore(before: PodRecord | None, after: PodRecord | None) -> None:
    """For pods whose writes interest no observer."""


class MemoryPods:
    """``records`` by instance; ``in_state``: the instances in each state."""

    def __init__(self, job_id: JobId, gang_size: int = 1, on_write: OnWrite = ignore) -> None:
        self.job_id = job_id
        self.records: dict[int, PodRecord] = {}
        self.in_state: dict[PodState, set[int]] = {state: set() for state in PodState}
        self._gang_size, self._on_write = gang_size, on_write
        self._kinds: dict[Kind, int] = {}
        self._kind_of: dict[int, Kind] = {}  # instances that count as one of these
        self._dated: set[int] = set()  # the others: what kind they are of depends on the time
        self._run_seconds = 0.0

    # -- writing

    def fire(self, instances: Iterable[int], event: Event, now_ns: int, **given: Any) -> list[int]:
        """The event happens to those of these instances that exist; returns the ones that it changed."""
        changed = []
        for instance in instances:
            before = self.records.get(instance)
            after = next_pod(before, event, now_ns, **given) if before is not None else None
            if after is not None:
                self.put(after)
                changed.append(instance)
        return changed

    def create(self, instance: int, now_ns: int, **given: Any) -> None:
        pod = next_pod(no_pod(self.job_id, instance), Event.CREATE, now_ns, **given)
        assert pod is not None
        self.put(pod)

    def put(self, pod: PodRecord) -> None:
        """A pod as the machine made it; one that is UNKNOWN is forgotten."""
        instance = pod.instance_id
        before = self.records.get(instance)
        if before is not None:
            self._forget(before)
        if pod.state is PodState.UNKNOWN:
            self.records.pop(instance, None)
            self._on_write(before, None)
            return
        self.records[instance] = pod
        self._count(pod)
        self._on_write(before, pod)

    def _count(self, pod: PodRecord) -> None:
        self.in_state[pod.state].add(pod.instance_id)
        self._run_seconds += pod.run_seconds
        if pod.due_ns:
            self._dated.add(pod.instance_id)
            return
        kind = self._kind_of[pod.instance_id] = kind_of(pod, self._gang_size, 0)
        self._kinds[kind] = self._kinds.get(kind, 0) + 1

    def _forget(self, pod: PodRecord) -> None:
        self.in_state[pod.state].remove(pod.instance_id)
        self._run_seconds -= pod.run_seconds
        self._dated.discard(pod.instance_id)
        kind = self._kind_of.pop(pod.instance_id, None)
        if kind is not None:
            self._kinds[kind] -= 1
            if not self._kinds[kind]:
                del self._kinds[kind]

    # -- reading

    def __iter__(self) -> Iterator[PodRecord]:
        """By instance."""
        return (self.records[instance] for instance in sorted(self.records))

    def those(self, condition: Condition, instances: Iterable[int], **given: Any) -> list[PodRecord]:
        """Of these instances the pods that meet a condition, by instance."""
        found = (self.records[instance] for instance in sorted(instances) if instance in self.records)
        return [pod for pod in found if condition.holds(pod, given)]

    def counts(self) -> dict[PodState, int]:
        return {state: len(instances) for state, instances in self.in_state.items() if instances}

    def members(self) -> list[PodRecord]:
        """Of the gang; none when every pod stands alone."""
        size = self._gang_size if self._gang_size > 1 else 0
        return [self.records[instance] for instance in range(size) if instance in self.records]

    # -- settling

    def settle(self, job: JobRecord, now_ns: int, update: UpdateView | None = None) -> tuple[JobRecord, JobProgress]:
        """Of a job that has not ended: its record afterwards, with another revision if anything changed, and what is
        left to do."""
        view = SettleView(job, self.count_for(job, now_ns), update or UpdateView())
        plan = plan_settle(view, now_ns)
        work = find_work(plan, partial(self._find, now_ns), self._shared_fate)
        for change in work.changes:
            self.fire(change.instances, change.event, now_ns, **change.given)
        if work.changes:
            pods = self.count_for(job, now_ns).with_times_of(view.pods)
            plan = plan_settle(replace(view, pods=pods), now_ns)
        after = plan.job
        if work.changes or after != job:
            after = replace(after, revision=job.revision + 1, updated_ns=now_ns)
        return after, replace(plan.progress, settle_again=work.more)

    def count_for(self, job: JobRecord, now_ns: int) -> PodCounts:
        """Without times that the job does not need."""
        kinds = dict(self._kinds)
        dated = [self.records[instance] for instance in self._dated]
        for pod in dated:
            kind = kind_of(pod, self._gang_size, now_ns)
            kinds[kind] = kinds.get(kind, 0) + 1
        needs_times = not job.started_ns or all(kind.state in TERMINAL for kind in kinds)
        pods = self.records.values() if needs_times else ()
        timed = self.in_state[PodState.RUNNING] if job.sla.max_running_time_s else ()
        first = self.records.get(0)
        return PodCounts(
            kinds=kinds,
            oldest_start_ns=_first(pod.started_ns for pod in self.those(TIMED, timed)),
            first_start_ns=_first(pod.started_ns for pod in pods),
            last_end_ns=max((pod.completed_ns for pod in pods), default=0),
            next_due_ns=_first(pod.due_ns for pod in dated if WAITS.holds(pod, {"now_ns": now_ns})),
            run_seconds=self._run_seconds,
            first_run=first.run_id if first is not None else 0,
            controller=first.state if first is not None and job.has_controller else None,
        )

    def _find(self, now_ns: int, action: PodAction, limit: int) -> list[int]:
        found = self.those(action.condition, self.records, now_ns=now_ns)
        cutoff_ns = action.started_before_ns
        return [pod.instance_id for pod in found if not cutoff_ns or pod.started_ns < cutoff_ns][:limit]

    def _shared_fate(self, room: int) -> SharedFate | None:
        return shared_fate(self.members(), room) if self._gang_size > 1 else None


def _first(times_ns: Iterable[int]) -> int:
    return min((time_ns for time_ns in times_ns if time_ns), default=0)
