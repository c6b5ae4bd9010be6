"""Pods of one job in memory, changed by the pod machine and settled like the pods of a database.

Pods are counted as they are written: the cost of a settle depends on the number of kinds of pods, not on the size of
the job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from peloton.lifecycle.gang_fate import SharedFate, decide_fate
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
"""Callback for each write, with the pod before and after; None where there is none."""


def ignore(before: PodRecord | None, after: PodRecord | None) -> None:
    """Ignore a write."""


class MemoryPods:
    """Pods of a job: ``records`` by instance, and the instances ``in_state`` by state."""

    def __init__(self, job_id: JobId, gang_size: int = 1, on_write: OnWrite = ignore) -> None:
        self.job_id = job_id
        self.records: dict[int, PodRecord] = {}
        self.in_state: dict[PodState, set[int]] = {state: set() for state in PodState}
        self._gang_size, self._on_write = gang_size, on_write
        self._kinds: dict[Kind, int] = {}
        self._kind_of: dict[int, Kind] = {}  # instance -> its kind, for pods whose kind does not depend on time
        self._dated: set[int] = set()  # instances whose kind depends on the time
        self._run_seconds = 0.0

    # -- writing

    def fire(self, instances: Iterable[int], event: Event, now_ns: int, **given: Any) -> list[int]:
        """Fire the event on the existing pods among these instances; returns the instances that changed."""
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
        """Store a pod as changed by the machine; an UNKNOWN one is deleted."""
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
        """Iterate by instance."""
        return (self.records[instance] for instance in sorted(self.records))

    def those(self, condition: Condition, instances: Iterable[int], **given: Any) -> list[PodRecord]:
        """Return the pods of these instances that meet a condition, by instance."""
        found = (self.records[instance] for instance in sorted(instances) if instance in self.records)
        return [pod for pod in found if condition.holds(pod, given)]

    def counts(self) -> dict[PodState, int]:
        return {state: len(instances) for state, instances in self.in_state.items() if instances}

    def members(self) -> list[PodRecord]:
        """Return the pods of the gang; none for a job without a gang."""
        size = self._gang_size if self._gang_size > 1 else 0
        return [self.records[instance] for instance in range(size) if instance in self.records]

    # -- settling

    def settle(self, job: JobRecord, now_ns: int, update: UpdateView | None = None) -> tuple[JobRecord, JobProgress]:
        """Settle an unfinished job: returns its new record, with another revision if anything changed, and the
        progress."""
        view = SettleView(job, self.count_for(job, now_ns), update or UpdateView())
        plan = plan_settle(view, now_ns)
        work = find_work(plan, partial(self._find, now_ns), self._decide_fate)
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
        """Count the pods, without times that the job does not use."""
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

    def _decide_fate(self, allowed: int) -> SharedFate | None:
        return decide_fate(self.members(), allowed) if self._gang_size > 1 else None


def _first(times_ns: Iterable[int]) -> int:
    return min((time_ns for time_ns in times_ns if time_ns), default=0)
