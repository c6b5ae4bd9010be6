"""Improvement of a small placement by a search for one that opens fewer unused hosts.

Largest-first packing uses about one host in twenty too many where a host holds only a few pods. For a handful of shapes
other orders are tried, and hosts are filled one after the other with the pods that best fit their free resources.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, permutations

import numpy as np

from peloton.scheduling.tree import Flags, Ints

SHAPES_MAX = 8
PODS_MAX = 200
HOSTS_MAX = 50
"""Bounds of the search: it costs more with each, and gains less. Larger placements are close to the best as they
are."""
ORDERS_MAX = 120
SCALE = 2**14
Laid = Ints
"""The number of pods of each shape on each host, ``[S,H]``."""


@dataclass(frozen=True, slots=True)
class PackingProblem:
    """A small placement problem: S shapes, H hosts, K amounts (resources, ports and pods)."""

    free: Ints  # [H,K]
    used: Flags  # [H] has pods already
    needs: Ints  # [S,K]
    counts: Ints  # [S] pods
    may: Flags  # [S,H]

    def count_opened(self, laid: Laid) -> int:
        """Count the unused hosts that receive pods."""
        return int(((laid.sum(axis=0) > 0) & ~self.used).sum())

    def lower_bound(self) -> int:
        """Return a lower bound of the hosts that any placement opens."""
        rest = (self.needs * self.counts[:, None]).sum(axis=0) - self.free[self.used].sum(axis=0)
        sorted_free = -np.sort(-self.free[~self.used], axis=0)
        enough = np.cumsum(sorted_free, axis=0)
        return max((int((enough[:, kind] < lack).sum()) + 1 for kind, lack in enumerate(rest) if lack > 0), default=0)


def minimize_hosts(problem: PackingProblem, laid: Laid) -> Laid | None:
    """Return another placement of the same pods that opens fewer hosts, or None."""
    best, least, bound = None, problem.count_opened(laid), problem.lower_bound()
    tries = _generate_placements(problem) if least > 1 else iter(())
    while least > bound and (other := next(tries, None)) is not None:
        if (count := problem.count_opened(other)) < least and (other.sum(axis=1) == problem.counts).all():
            best, least = other, count
    return best


def _generate_placements(problem: PackingProblem) -> Iterator[Laid]:
    mean = np.maximum(problem.free.sum(axis=0) // len(problem.free), 1)
    for is_balanced in (True, False):
        yield _host_by_host(problem, mean, is_balanced)
    shapes = len(problem.counts)
    largest = sorted(range(shapes), key=lambda shape: -int((problem.needs[shape] * SCALE // mean).max()))
    total = int(np.prod(np.arange(1, shapes + 1)))
    step = max(total // ORDERS_MAX, 1) | 1  # odd, so that the sampled permutations differ early
    for order in islice(permutations(largest), 0, total, step):
        yield _shape_by_shape(problem, order, mean)


def _count_fitting(free: Ints, need: Ints) -> Ints:
    wanted = need > 0
    return np.asarray((free[..., wanted] // need[wanted]).min(axis=-1))


def _shape_by_shape(problem: PackingProblem, shapes: Sequence[int], mean: Ints) -> Laid:
    free, used = problem.free.copy(), problem.used.copy()
    laid = np.zeros(problem.may.shape, np.int64)
    for shape in shapes:
        left, need = int(problem.counts[shape]), problem.needs[shape]
        while left:
            fit_counts = np.where(problem.may[shape], _count_fitting(free, need), 0)
            if not fit_counts.any():
                break
            tight = (free * SCALE // mean).sum(axis=1)
            order = np.lexsort((np.where(used, tight, -fit_counts), ~used, fit_counts == 0))
            at = int(order[0])
            taken = min(left, int(fit_counts[at]))
            laid[shape, at] += taken
            free[at] -= taken * need
            used[at] = True
            left -= taken
    return laid


def _host_by_host(problem: PackingProblem, mean: Ints, is_balanced: bool) -> Laid:
    """Fill the hosts one by one, used ones first.

    Each takes the pod whose needs point most where its free resources and the demand are, or, unless ``is_balanced``,
    the one that leaves least.
    """
    laid, counts = np.zeros(problem.may.shape, np.int64), problem.counts.copy()
    waiting = list(range(len(problem.used)))
    while counts.any() and waiting:
        rest = np.maximum((problem.needs * counts[:, None]).sum(axis=0), 1)
        fullest = (problem.free * SCALE // rest).min(axis=1)
        at = min(waiting, key=lambda host: (not problem.used[host], -int(fullest[host])))
        waiting.remove(at)
        free = problem.free[at].copy()
        while True:
            fits = (counts > 0) & problem.may[:, at] & (problem.needs <= free).all(axis=1)
            if not fits.any():
                break
            demand = (problem.needs * counts[:, None]).sum(axis=0) * SCALE // mean
            if is_balanced:
                score = -((problem.needs * SCALE // mean) * (free * SCALE // mean) * demand).sum(axis=1)
            else:
                score = (((free - problem.needs) * SCALE // mean) ** 2 * demand).sum(axis=1)
            shape = int(np.argmin(np.where(fits, score, np.iinfo(np.int64).max)))
            laid[shape, at] += 1
            counts[shape] -= 1
            free -= problem.needs[shape]
    return laid
