"""Ranges of numbers: instances of a job as ``(start, count)``, ports as ``(first, last)``."""

from __future__ import annotations

from collections.abc import Collection, Iterable


def as_ranges(instance_ids: Iterable[int]) -> list[tuple[int, int]]:
    """Merge rising instance ids into ranges ``(start, count)``."""
    ranges: list[tuple[int, int]] = []
    for instance_id in instance_ids:
        if ranges and sum(ranges[-1]) == instance_id:
            ranges[-1] = (ranges[-1][0], ranges[-1][1] + 1)
        else:
            ranges.append((instance_id, 1))
    return ranges


def ranges_without(ranges: Iterable[tuple[int, int]], ports: Collection[int]) -> tuple[tuple[int, int], ...]:
    """Return the ranges ``(first, last)`` without these ports."""
    left = list(ranges)
    for port in ports:
        for begin, end in [each for each in left if each[0] <= port <= each[1]]:
            left.remove((begin, end))
            left += [(low, high) for low, high in ((begin, port - 1), (port + 1, end)) if low <= high]
    return tuple(sorted(left))
