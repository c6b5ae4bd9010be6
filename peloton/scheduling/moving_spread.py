"""The spread of jobs whose pods move.

Each move of a plan may be carried out or not. So a pod goes to another domain only if that has fewer pods, even with
all pods planned to arrive, than its own has without all pods planned to leave: the fullest domain then gets no fuller
and the lowest no lower, whichever moves are carried out. A job with pods in other clusters, whose hosts are not known
here, keeps each pod in its domain.

Pods that leave in any case, as pods of drained hosts do, count in no domain until they are placed, and go where
placement would let them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain

import numpy as np

from peloton.model.ids import JobId
from peloton.model.pod import PodShape
from peloton.model.rebalance import JobSpread, PodNow
from peloton.scheduling.spreading import Rows, Rule, Spreading
from peloton.scheduling.tree import Flags, Ints


class MovingSpread:
    """The spread of all jobs of a plan that spread. Rows are hosts."""

    def __init__(self, rows: Rows, jobs: Mapping[JobId, JobSpread]) -> None:
        self.jobs = {job_id: _Job(rows, spread) for job_id, spread in sorted(jobs.items())}

    def put(self, pod: PodNow, source: int | None, target: int) -> None:
        """Plan the pod onto the target; ``source`` None: the pod waits."""
        if job := self.jobs.get(pod.pod_id.job_id):
            job.put(source, target)

    def take_back(self, pod: PodNow, source: int | None, target: int) -> None:
        if job := self.jobs.get(pod.pod_id.job_id):
            job.take_back(source, target)

    def may_move(self, pod: PodNow, source: int) -> Flags | bool:
        """Return a flag ``[H]`` for hosts to which the pod may go without more skew of its job."""
        job = self.jobs.get(pod.pod_id.job_id)
        return True if job is None else job.may_move(source)

    def leave(self, pod: PodNow, source: int) -> None:
        """Take the pod off its host; it waits from then on."""
        if job := self.jobs.get(pod.pod_id.job_id):
            job.leave(source)

    def may_come(self, pod: PodNow, left: int | None = None) -> Flags | bool:
        """Return a flag ``[H]`` for hosts that take a waiting pod by the bounds of its job. ``left``: its former
        host."""
        job = self.jobs.get(pod.pod_id.job_id)
        return True if job is None else job.may_come(pod.shape, left)

    def levels(self, pod: PodNow) -> list[Ints]:
        """Return for each spread rule of the pod how many pods of its job are in the domain of each host ``[H]``."""
        job = self.jobs.get(pod.pod_id.job_id)
        return [] if job is None else [rule.on_rows() for rule in job.now(pod.shape)]

    def is_whole(self, pod: PodNow) -> bool:
        """Return whether all pods of its job that count for a bound are known here."""
        job = self.jobs.get(pod.pod_id.job_id)
        return job is None or job.is_whole or not (pod.shape.layout and pod.shape.layout.is_hard)


class _Job:
    def __init__(self, rows: Rows, spread: JobSpread) -> None:
        self._rows, self._spread = rows, spread
        self._now, self._most, self._least = (Spreading(rows, spread.domains) for _ in range(3))
        self._shapes = sorted(spread.domains, key=repr)  # sorted, because their order of arrival is arbitrary
        self._known: list[tuple[Rule, Rule]] | None = None
        self._rules: dict[PodShape, list[Rule]] = {}  # with the pods as they are placed now

    @property
    def is_whole(self) -> bool:
        return self._spread.is_whole

    def put(self, source: int | None, target: int) -> None:
        self._known = None
        row = np.array([target])
        for each in (self._now, self._most):
            each.add(row)
        if source is None:
            for rule in chain.from_iterable(self._rules.values()):
                rule.put(row)
        else:
            self._rules.clear()
            self._now.remove(source)
            self._least.remove(source)

    def leave(self, source: int) -> None:
        self._forget()
        for each in (self._now, self._most, self._least):
            each.remove(source)

    def _forget(self) -> None:
        self._known = None
        self._rules.clear()

    def take_back(self, source: int | None, target: int) -> None:
        self._forget()
        for each in (self._now, self._most):
            each.remove(target)
        if source is not None:
            self._now.add(np.array([source]))
            self._least.add(np.array([source]))

    def rules(self) -> list[tuple[Rule, Rule]]:
        """Return the rules of all shapes of the job, each with the most pods that there may be and with the least."""
        if self._known is None:
            pairs = (zip(self._most.rules(one), self._least.rules(one), strict=True) for one in self._shapes)
            self._known = [pair for of_shape in pairs for pair in of_shape]
        return self._known

    def may_move(self, source: int) -> Flags | bool:
        found: Flags | bool = True
        for most, least in self.rules():
            found = found & _allow_without_more_skew(most, least, source, self._spread.is_whole)
        return found

    def now(self, shape: PodShape) -> list[Rule]:
        if shape not in self._rules:
            self._rules[shape] = self._now.rules(shape)
        return self._rules[shape]

    def may_come(self, shape: PodShape, left: int | None) -> Flags | bool:
        found: Flags | bool = True
        for rule in self.now(shape):
            if self._spread.is_whole:
                found = found & rule.find_allowed()
            elif rule.spread.is_hard:
                found = found & (left is not None and (rule.at == rule.at[left]) & (rule.at >= 0))
        return found


def _allow_without_more_skew(most: Rule, least: Rule, source: int, is_whole: bool) -> Flags:
    """Return a flag ``[H]`` for hosts in the row's domain, or in one with fewer pods where the bound allows more."""
    domain = int(most.at[source])
    found: Flags = np.asarray(most.at == domain)
    if domain < 0:
        return np.asarray(found & (not most.spread.is_hard))
    if is_whole:
        left = most.counts.copy()
        left[domain] -= 1
        has_fewer = (most.at >= 0) & (most.on_rows() < least.counts[domain])
        found = found | (has_fewer & replace(most, counts=left).find_allowed())
    return found
