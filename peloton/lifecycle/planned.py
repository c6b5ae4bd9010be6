"""Planned pods of a job in the form in which placement would receive them after admission."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from itertools import accumulate
from typing import NamedTuple

from peloton.lifecycle.constraints import pod_labels_named
from peloton.lifecycle.gang import enough_for_both, outside_gang
from peloton.lifecycle.host_pools import route
from peloton.lifecycle.migration import bound
from peloton.lifecycle.volumes import at_its_volume
from peloton.model.job import JobRecord
from peloton.model.planned_capacity import PlannedPods
from peloton.model.pod import Label, PodShape, ShapeRange

FIRST, LATER = 0, 1
"""Turns: pods that would be admitted now, and pods that would wait in the queue."""


class PlannedRange(NamedTuple):
    """Instances of one shape with the same labels."""

    pods: ShapeRange
    labels: tuple[Label, ...] = ()


def as_placed(pods: Sequence[PlannedRange], job: JobRecord, binding: str) -> list[ShapeRange]:
    """Return the ranges in the shapes in which they are placed outside a gang; requested volumes do not exist yet.
    ``binding``: the cluster to which the job is bound, or empty."""
    placed = {shape: _prepare_shape(outside_gang(shape), job, binding) for shape in {each.pods.shape for each in pods}}
    return [replace(each.pods, shape=placed[each.pods.shape]) for each in pods]


def plan_pods(
    job: JobRecord, pods: Sequence[PlannedRange], admitted: Sequence[range], queued_count: int, binding: str
) -> list[PlannedPods]:
    """Return the first ``queued_count`` instances grouped by their needs. Instances in ``admitted`` are in the first
    turn; a gang has one turn."""
    named = frozenset().union(*(pod_labels_named(each.pods.shape.constraint) for each in pods))
    size = job.gang_size if 1 < job.gang_size <= queued_count else 0
    before = _count_below(admitted)
    found: Counter[tuple[PodShape, tuple[Label, ...], int]] = Counter()
    for each, placed in zip(pods, as_placed(pods, job, binding), strict=True):
        begin, end = max(placed.start, size), min(placed.start + placed.count, queued_count)
        first = max(before(end) - before(begin), 0)
        labels = tuple(sorted(named.intersection(each.labels)))
        for turn, count in ((FIRST, first), (LATER, max(end - begin, 0) - first)):
            if count:
                found[placed.shape, labels, turn] += count
    singles = [PlannedPods(shape, count, labels, turn=turn) for (shape, labels, turn), count in found.items()]
    if not size:
        return singles
    members = [each for each in pods if each.pods.start < size]
    shape = _prepare_shape(reduce(enough_for_both, (each.pods.shape for each in members)), job, binding)
    labels = tuple(sorted(named.intersection(label for each in members for label in each.labels)))
    turn = FIRST if any(0 in chosen for chosen in admitted) else LATER
    return [PlannedPods(shape, size, labels, is_gang=True, turn=turn), *singles]


def _prepare_shape(shape: PodShape, job: JobRecord, binding: str) -> PodShape:
    return at_its_volume(bound(route(shape, job.type), binding), None)


def _count_below(chosen: Sequence[range]) -> Callable[[int], int]:
    """Return a function from an instance to the number of chosen instances below it; the ranges do not overlap."""
    spans = sorted(chosen, key=lambda span: span.start)
    starts, sums = [span.start for span in spans], [0, *accumulate(map(len, spans))]

    def before(instance: int) -> int:
        at = bisect_right(starts, instance)
        return sums[at] - (max(spans[at - 1].stop - instance, 0) if at else 0)

    return before
