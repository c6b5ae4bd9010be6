"""Instance ranges of requests: half open ``[from, to)``; no ranges mean every instance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha.pod import pod_pb2
from peloton.errors import InvalidArgument

INT32_MAX = 2**31 - 1
Range = task_pb2.InstanceRange | pod_pb2.InstanceIDRange


class OutOfRange(InvalidArgument):
    """Range that covers no instance of the job."""


def clip(ranges: Iterable[Range], instance_count: int) -> list[tuple[int, int]]:
    """Return disjoint ``(start, count)`` in ascending order, with ``to`` clipped to ``instance_count``.

    Raises OutOfRange for a range that is empty or lies beyond the last instance.
    """
    asked = sorted((getattr(r, "from"), r.to) for r in ranges)
    if not asked:
        return [(0, instance_count)] if instance_count else []
    merged: list[tuple[int, int]] = []
    for begin, end in asked:
        if begin >= min(end, instance_count):
            raise OutOfRange(f"instances [{begin}, {end}) asked, the job has instances [0, {instance_count})")
        end = min(end, instance_count)
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return [(begin, end - begin) for begin, end in merged]


def is_whole_job(ranges: Iterable[Range], instance_count: int) -> bool:
    """Return whether a request has no ranges, or exactly one that covers all instances."""
    asked = list(ranges)
    return not asked or (len(asked) == 1 and getattr(asked[0], "from") == 0 and asked[0].to >= instance_count)


def list_instances(ranges: Sequence[Range], instance_count: int) -> list[int]:
    """List the instances in the ranges; empty for a request without ranges. Raises OutOfRange."""
    spans = clip(ranges, instance_count) if ranges else []
    return [i for start, count in spans for i in range(start, start + count)]
