"""Pods of one job in memory, written by the pod machine and settled as those of a database are.

For tests in virtual time. The conformance suite holds it to what the databases do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from peloton.lifecycle.gang_fate import SharedFate, shared_fate
from peloton.lifecycle.pod_machine import Event, next_pod
from peloton.lifecycle.settle import PodAction, PodCounts, SettleView, UpdateView, count_pods, find_work, plan_settle
from peloton.model.job import JobProgress, JobRecord
from peloton.model.pod import PodRecord, PodState

NO_UPDATE = UpdateView()


class MemoryPods:
    """By instance."""

    def __init__(self, pods: Iterable[PodRecord] = ()) -> None:
        self.records = {pod.instance_id: pod for pod in pods}

    def _put(self, pod: PodRecord) -> None:
        """One that is UNKNOWN is forgotten."""
        if pod.state is PodState.UNKNOWN:
            self.records.pop(pod.instance_id, None)
        else:
            self.records[pod.instance_id] = pod

    def fire(self, instances: Iterable[int], event: Event, now_ns: int, **given: Any) -> None:
        """The event happens to these pods."""
        for instance in instances:
            after = next_pod(self.records[instance], event, now_ns, **given)
            if after is not None:
                self._put(after)

    def settle(self, job: JobRecord, now_ns: int, update: UpdateView = NO_UPDATE) -> tuple[JobRecord, JobProgress]:
        """Of a job that has not ended: what it is afterwards, and what is left to do."""
        view = SettleView(job, self._count(job, now_ns), update)
        plan = plan_settle(view, now_ns)
        work = find_work(plan, partial(self._find, now_ns), partial(self._shared_fate, job))
        for change in work.changes:
            self.fire(change.instances, change.event, now_ns, **change.given)
        if work.changes:
            pods = self._count(job, now_ns).with_times_of(view.pods)
            plan = plan_settle(replace(view, pods=pods), now_ns)
        return plan.job, replace(plan.progress, settle_again=work.more)

    def _count(self, job: JobRecord, now_ns: int) -> PodCounts:
        return count_pods(job, self.records.values(), now_ns)

    def _find(self, now_ns: int, action: PodAction, limit: int) -> list[int]:
        given = {"now_ns": now_ns}
        found = sorted(
            instance
            for instance, pod in self.records.items()
            if action.condition.holds(pod, given)
            and (not action.started_before_ns or pod.started_ns < action.started_before_ns)
        )
        return found[:limit]

    def _shared_fate(self, job: JobRecord, room: int) -> SharedFate | None:
        if job.gang_size == 1:
            return None
        return shared_fate([pod for i, pod in sorted(self.records.items()) if i < job.gang_size], room)
