"""Distribution of like pods over hosts. H hosts; all amounts int64."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heapreplace

import numpy as np

from peloton.model.resources import free_share
from peloton.scheduling.tree import Ints


def pack(fit_counts: Ints, count: int) -> Ints:
    """First fit: fill each host before the next. -> host of each pod, shorter than ``count`` if they do not all fit."""
    fit_counts = np.minimum(fit_counts, count)
    before = np.cumsum(fit_counts) - fit_counts
    taken = np.clip(count - before, 0, fit_counts)
    return np.repeat(np.arange(len(fit_counts)), taken)


def spread(fit_counts: Ints, held: Ints, count: int) -> Ints:
    """Level out: each pod goes to the host that holds fewest (``held`` ``[H]`` at the start), first host among equals.

    -> host of each pod in that order, shorter than ``count`` if they do not all fit.
    """
    fit_counts = np.minimum(fit_counts, count)
    low, high = 0, int((held + fit_counts).max(initial=0))
    while low < high:  # the highest level that count pods fill everywhere
        level = (low + high + 1) // 2
        if _fill_to_level(fit_counts, held, level).sum() <= count:
            low = level
        else:
            high = level - 1
    taken = _fill_to_level(fit_counts, held, low)
    one_more = np.flatnonzero((held + taken == low) & (taken < fit_counts))[: max(count - int(taken.sum()), 0)]
    taken[one_more] += 1
    hosts = np.repeat(np.arange(len(fit_counts)), taken)
    nth = np.arange(len(hosts)) - np.repeat(np.cumsum(taken) - taken, taken)
    return hosts[np.lexsort((hosts, np.repeat(held, taken) + nth))]


def emptiest(fit_counts: Ints, free: Ints, need: Ints, total: Ints, count: int, weighed: Ints) -> Ints:
    """Emptiest first: each pod goes to the host with the largest free share in its turn, first host among equals.

    ``free`` and ``total`` are ``[H,R]``; kinds count where ``weighed`` is not 0. -> host of each pod in that order,
    shorter than ``count`` if they do not all fit.
    """
    needs, totals, kinds = need.tolist(), total.tolist(), weighed.tolist()
    amounts, fit_counts = free.tolist(), fit_counts.tolist()
    heap = [(-free_share(amounts[host], totals[host], kinds), host) for host in np.flatnonzero(fit_counts).tolist()]
    heapify(heap)
    hosts: list[int] = []
    while heap and len(hosts) < count:
        host = heap[0][1]
        hosts.append(host)
        fit_counts[host] -= 1
        amounts[host] = [have - taken for have, taken in zip(amounts[host], needs, strict=True)]
        if fit_counts[host]:
            heapreplace(heap, (-free_share(amounts[host], totals[host], kinds), host))
        else:
            heappop(heap)
    return np.array(hosts, np.int64)


def _fill_to_level(fit_counts: Ints, held: Ints, level: int) -> Ints:
    return np.clip(level - held, 0, fit_counts)


class PortAllocator:
    """The free ports of one host, allocated in ascending order."""

    def __init__(self, ranges: Sequence[tuple[int, int]]) -> None:
        """``ranges`` are inclusive."""
        self._ranges = sorted(ranges)
        self._range, self._next = 0, self._ranges[0][0] if ranges else 0

    def allocate(self, count: int) -> tuple[int, ...]:
        """Allocate the next ports; the caller has checked that there are enough."""
        ports: list[int] = []
        while len(ports) < count:
            if self._next > self._ranges[self._range][1]:
                self._range += 1
                self._next = self._ranges[self._range][0]
            ports.append(self._next)
            self._next += 1
        return tuple(ports)


def port_count(ranges: Sequence[tuple[int, int]]) -> int:
    return sum(end - begin + 1 for begin, end in ranges)
