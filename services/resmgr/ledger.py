"""The resource manager's record of a job: a state per instance, and footprints by ranges of instances."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from itertools import islice, pairwise
from operator import le

import numpy as np
from numpy.typing import NDArray

from peloton.lifecycle.host_pools import workload_of
from peloton.model.admission import HeldRange
from peloton.model.host_pool import Workload
from peloton.model.ids import JobId, RespoolId
from peloton.model.job import JobRecord, JobType
from peloton.model.pod import ALLOCATED, PodState, ShapeRange
from peloton.model.resources import RESOURCE_KINDS
from peloton.scheduling.gangs import Footprint, GangRun, Need, Needs
from peloton.scheduling.tree import Ints

_STATES = tuple(PodState)
CODES: dict[PodState, int] = {state: code for code, state in enumerate(_STATES)}
"""The codes of pod states as uint8; 0 is UNKNOWN: the pod is not tracked."""
IS_ALLOCATED = np.array([state in ALLOCATED for state in _STATES])
PENDING = CODES[PodState.PENDING]
HOLDING = CODES[PodState.READY]
"""The code of every state that holds resources: memory does not follow a pod between admission and end."""
LEAVING = CODES[PodState.PREEMPTING]
"""The code of an evicted pod that holds its resources until its host has ended it."""


class FootprintRanges:
    """Footprints of the instances of a job, kept as maximal ranges; unknown instances have None."""

    def __init__(self, job_type: JobType, kinds: tuple[str, ...]) -> None:
        self._job_type = job_type
        self.kinds = kinds
        self._starts: list[int] = [0]
        self._values: list[Footprint | None] = [None]
        self._array: Ints | None = None

    def learn(self, shapes: Sequence[ShapeRange], start: int, count: int) -> None:
        """Set the footprints of instances ``start .. start+count-1`` from ``shapes``, which are in order of
        instances."""
        end = start + count
        first = max(bisect_right(shapes, start, key=lambda shape: shape.start) - 1, 0)
        for shape in islice(shapes, first, None):
            if shape.start >= end:
                break
            footprint = Footprint.of(shape.shape, workload_of(self._job_type, shape.shape), self.kinds)
            self._set(max(shape.start, start), min(shape.start + shape.count, end), footprint)

    def _set(self, start: int, end: int, value: Footprint) -> None:
        if start >= end:
            return
        starts, values = self._starts, self._values
        after = values[bisect_right(starts, end) - 1]
        first, last = bisect_left(starts, start), bisect_right(starts, end)
        new: list[tuple[int, Footprint | None]] = []
        if first == 0 or values[first - 1] != value:
            new.append((start, value))
        if after != value:
            new.append((end, after))
        starts[first:last] = [at for at, _ in new]
        values[first:last] = [what for _, what in new]
        self._array = None

    def widen(self, kinds: tuple[str, ...]) -> FootprintRanges:
        """Return the same footprints with more kinds."""
        wider, by = copy(self), len(kinds) - len(self.kinds)
        wider.kinds, wider._starts = kinds, [*self._starts]
        wider._values = [value and value.widen(by) for value in self._values]
        return wider

    def pieces(self, start: int, count: int) -> Iterator[tuple[int, int, Footprint]]:
        """Yield ``(start, count, footprint)`` in order, covering the range; assert that it is known."""
        end = start + count
        index = bisect_right(self._starts, start) - 1
        while start < end:
            stop = self._starts[index + 1] if index + 1 < len(self._starts) else end
            value = self._values[index]
            assert value is not None, f"instance {start} has no known shape"
            yield start, min(stop, end) - start, value
            start, index = min(stop, end), index + 1

    def tally(self, instances: Ints) -> Iterator[tuple[int, Footprint]]:
        """Yield how many of these instances have each footprint."""
        if self._array is None:
            self._array = np.array(self._starts, np.int64)
        counts = np.bincount(np.searchsorted(self._array, instances, side="right") - 1)
        for index in np.flatnonzero(counts).tolist():
            value = self._values[index]
            assert value is not None, "an instance has no known shape"
            yield int(counts[index]), value


class JobLedger:
    def __init__(self, job: JobRecord, kinds: tuple[str, ...] = RESOURCE_KINDS) -> None:
        self.job_id: JobId = job.job_id
        self.pool_id: RespoolId = job.respool_id
        self.owner = job.owning_team
        self.held = Counter[Footprint]()  # pods that hold resources
        self.priority = job.sla.priority
        self.gang_size = job.gang_size
        self.requeue_count = job.gang_requeue_count  # failed launches of the gang in a row
        self.gang_due_ns = job.gang_due_ns  # end of the gang's backoff
        self.held_until_ns: Ints | None = None  # [instances]: end of the backoff of PENDING pods; None: no backoff
        self.last_due_ns = 0  # the latest of them
        self.config_version = job.config_version
        self.footprints = FootprintRanges(job.type, kinds)
        self.states: NDArray[np.uint8] = np.zeros(job.instance_count, np.uint8)
        self.pending_count = 0
        self.allocated_count = 0

    def widen(self, kinds: tuple[str, ...]) -> JobLedger:
        """Return the same ledger with more kinds of resources."""
        wider = copy(self)
        wider.footprints = self.footprints.widen(kinds)
        by = len(kinds) - len(self.footprints.kinds)
        wider.held = Counter({footprint.widen(by): count for footprint, count in self.held.items()})
        return wider

    @property
    def is_over(self) -> bool:
        return self.pending_count == 0 and self.allocated_count == 0

    def is_unlike(self, job: JobRecord) -> bool:
        """Return whether the job has changed in a property that decides its place in the queue."""
        return (self.gang_size, self.priority) != (job.gang_size, job.sla.priority)

    def grow(self, instance_count: int) -> None:
        """Grow the arrays to this number of instances. Jobs never shrink."""
        more = instance_count - len(self.states)
        if more > 0:
            self.states = np.concatenate([self.states, np.zeros(more, np.uint8)])
            if self.held_until_ns is not None:
                self.held_until_ns = np.concatenate([self.held_until_ns, np.zeros(more, np.int64)])

    def back_off(self, start: int, count: int, until_ns: int) -> None:
        """Keep instances from admission before ``until_ns``; 0: they may be admitted at once."""
        if self.held_until_ns is None and until_ns:
            self.held_until_ns = np.zeros(len(self.states), np.int64)
        if self.held_until_ns is not None:
            self.held_until_ns[start : start + count] = until_ns
            self.last_due_ns = max(self.last_due_ns, until_ns)

    def may_be_in_backoff(self, now_ns: int) -> bool:
        """Return whether some of the job's pods are in backoff if they still wait."""
        return max(self.last_due_ns, self.gang_due_ns) > now_ns

    def due_ns(self, run: GangRun) -> int:
        """Return the time from which this run of the job may be admitted."""
        if run.gang_size > 1:
            return self.gang_due_ns
        return 0 if self.held_until_ns is None else int(self.held_until_ns[run.start])

    def may_use(self, ended: Ints) -> bool:
        """Return whether some waiting pod needs no more than one of these ended instances did."""
        freed_needs = [footprint.need for _, footprint in self.footprints.tally(ended)]
        needs = [footprint.need for _, footprint in self.footprints.tally(np.flatnonzero(self.states == PENDING))]
        return any(all(map(le, need, freed)) for need in needs for freed in freed_needs)

    def release(self) -> None:
        """End the backoff of all of the job's pods."""
        self.held_until_ns, self.last_due_ns, self.gang_due_ns = None, 0, 0

    def runs(self, queue_seq: int, start: int, count: int) -> Iterator[GangRun]:
        """Yield the runs that queue this maximal range: the job's gang if the range has all of it, the rest as single
        pods."""
        if start == 0 and self.gang_size > 1 and count >= self.gang_size:
            yield self._gang(queue_seq)
            start, count = self.gang_size, count - self.gang_size
        for at, length, footprint in self.footprints.pieces(start, count):
            for begin, end in self._split_by_backoff(at, at + length):
                yield self._run(queue_seq, begin, end - begin, 1, footprint, footprint.need)

    def _split_by_backoff(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the maximal ranges with the same end of backoff."""
        if self.held_until_ns is None:
            yield start, end
            return
        breaks = np.flatnonzero(np.diff(self.held_until_ns[start:end])) + start + 1
        yield from pairwise([start, *breaks.tolist(), end])

    def _gang(self, queue_seq: int) -> GangRun:
        """Return the gang as a run with the flags of its first pod, and the sum of the needs."""
        pieces = list(self.footprints.pieces(0, self.gang_size))
        return self._run(queue_seq, 0, 1, self.gang_size, pieces[0][2], *_needs(pieces))

    def _run(
        self, queue_seq: int, start: int, count: int, size: int, footprint: Footprint, need: Need, apart: Needs = ()
    ) -> GangRun:
        return GangRun(
            self.job_id,
            start,
            count,
            size,
            need=need,
            priority=self.priority,
            queue_seq=queue_seq,
            preemptible=footprint.preemptible,
            revocable=footprint.revocable,
            controller=footprint.controller,
            workload=footprint.workload,
            apart=apart,
        )

    def list_held_runs(self, ranges: Sequence[HeldRange]) -> Iterator[tuple[GangRun, bool]]:
        """Yield runs of admitted gangs, and whether they are on hosts. The rest of the job's gang is one gang."""
        members: list[tuple[int, int, HeldRange]] = []
        for span in ranges:
            start, count = span.start, span.count
            if self.gang_size > 1 and start < self.gang_size:
                inside = min(count, self.gang_size - start)
                members.append((start, inside, span))
                start, count = start + inside, count - inside
            for at, length, footprint in self.footprints.pieces(start, count):
                yield self._run(span.queue_seq, at, length, 1, footprint, footprint.need), span.is_launched
        if members:
            pieces = [piece for at, length, _ in members for piece in self.footprints.pieces(at, length)]
            seq = max(span.queue_seq for _, _, span in members)
            run = self._run(seq, 0, 1, self.gang_size, pieces[0][2], *_needs(pieces))
            yield run, any(span.is_launched for _, _, span in members)

    def pending_ranges(self, instances: Ints) -> Iterator[tuple[int, int]]:
        """Yield maximal ``(start, count)`` of the sorted instances that are PENDING."""
        pending = instances[self.states[instances] == PENDING]
        if len(pending) == 0:
            return
        breaks = np.flatnonzero(np.diff(pending) != 1) + 1
        for piece in np.split(pending, breaks):
            yield int(piece[0]), len(piece)


def _needs(pieces: Sequence[tuple[int, int, Footprint]]) -> tuple[Need, Needs]:
    """Return the sum of the needs of a gang's members, and by workload if there are several."""
    by_workload: dict[Workload, list[Need]] = {}
    for _, count, footprint in pieces:
        by_workload.setdefault(footprint.workload, []).append(tuple(count * amount for amount in footprint.need))
    apart = tuple((workload, _sum(needs)) for workload, needs in sorted(by_workload.items()))
    return _sum(need for _, need in apart), apart if len(apart) > 1 else ()


def _sum(needs: Iterable[Need]) -> Need:
    return tuple(map(sum, zip(*needs, strict=True)))
