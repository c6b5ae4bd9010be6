"""Recipes: the choice among the hosts that take a pod. ``RECIPES`` has them by the name that a job may give.

Hosts of a lower rank come first, and among hosts of one rank those with the highest score by the preferences of the
pod. Among equals a recipe distributes ``count`` like pods over candidates, and names the row of each pod in the order
of the pods; fewer when not all fit. It decides by the resources that the pods before have left.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from peloton.model.layout import GangClose
from peloton.model.pod import Label, PodShape, Strategy
from peloton.model.resources import UNLIMITED, compute_needed
from peloton.scheduling.fleet import Barred, Fleet
from peloton.scheduling.loads import LOAD_KINDS
from peloton.scheduling.packing import emptiest, pack, spread
from peloton.scheduling.rows import FREE, GPU, ORDER, PUT, SLACK, TOTAL
from peloton.scheduling.spreading import Recipe as RankedRecipe
from peloton.scheduling.spreading import Rule, Spreading, lay
from peloton.scheduling.tree import CPU, Flags, Ints

NONE = np.array([], np.int64)


@dataclass(frozen=True)
class Candidates:
    """The hosts of one rank that take the pod."""

    fleet: Fleet
    shape: PodShape
    labels: Collection[Label]
    flags: Flags  # [H] the host is a candidate
    at_most: int = UNLIMITED  # pods per host

    @cached_property
    def rows(self) -> Ints:
        return np.flatnonzero(self.flags)

    def only(self, flags: Flags) -> Candidates:
        return replace(self, flags=self.flags & flags)

    def count_fits(self, rows: Ints) -> Ints:
        fleet = self.fleet
        fit_counts = np.minimum(fleet.count_fits(self.shape, rows), self.at_most)
        return fleet.count_fits_with_pods(self.shape, self.labels, rows, fit_counts)

    def first(self, count: int, *keys: Ints, by_name: bool = False) -> Ints:
        """Return ``count`` rows with the lowest keys, the first key before the second; ``keys`` are by candidate.

        Equal rows are sorted by ``ORDER``, or with ``by_name`` by host name.
        """
        at = np.arange(len(self.rows))
        if count < len(at):  # sorting all of 50,000 hosts takes longer than finding the lowest
            bound = np.partition(keys[0], count - 1)[count - 1]
            at = np.flatnonzero(keys[0] <= bound)
        rows = self.rows[at]
        last = self.fleet.by_name(rows) if by_name else self.fleet.column(ORDER, rows)
        return rows[np.lexsort((last, *(key[at] for key in reversed(keys))))[:count]]

    def fill_hosts(self, ordered: Callable[[int], Ints], count: int) -> Ints:
        """Fill host after host to its last place. ``ordered(n)`` names the first n."""
        wanted = count
        while True:
            rows = ordered(wanted)
            fit_counts = self.count_fits(rows)
            if int(fit_counts.sum()) >= count or len(rows) < wanted:
                return rows[pack(fit_counts, count)]
            wanted *= 8  # some could not take a pod because of other pods there


GPU_LAST = 1_000
"""An offset above any rank: hosts with gpus take pods without after all others."""
Recipe = Callable[[Candidates, int], Ints]


def pack_tightly(hosts: Candidates, count: int) -> Ints:
    """Best fit: the used host that has least left; if none fits, the unused one whose amounts take most of the pods."""
    is_used = hosts.fleet.is_used
    chosen = _pack_used(hosts.only(is_used), count)
    if len(chosen) < count:
        chosen = np.concatenate([chosen, _pack_unused(hosts.only(~is_used), count - len(chosen))])
    return chosen


def _pack_used(hosts: Candidates, count: int) -> Ints:
    left = hosts.fleet.leftover(hosts.rows)
    return hosts.fill_hosts(lambda wanted: hosts.first(wanted, left), count)


def _pack_unused(hosts: Candidates, count: int) -> Ints:
    most = np.minimum(hosts.fleet.count_fits(hosts.shape, hosts.rows), min(hosts.at_most, count))
    left = hosts.fleet.leftover(hosts.rows)
    return hosts.fill_hosts(lambda wanted: hosts.first(wanted, -most, left), count)


def spread_evenly(hosts: Candidates, count: int) -> Ints:
    """Spread: the host with the fewest pods of this placement."""
    fleet = hosts.fleet
    rows, fit_counts = _find_first_hosts(hosts, count, fleet.column(PUT, hosts.rows))
    in_order = np.argsort(fleet.column(ORDER, rows), kind="stable")
    rows, fit_counts = rows[in_order], fit_counts[in_order]
    return rows[spread(fit_counts, fleet.column(PUT, rows), count)]


def emptiest_first(hosts: Candidates, count: int) -> Ints:
    """Emptiest host: the one with the largest free share of the kinds that the pod needs, by name among equals."""
    need = np.array(tuple(compute_needed(hosts.shape.resources)), np.int64)
    return _choose_by_share(hosts, count, need, need, _free_and_total)


def least_loaded_first(hosts: Candidates, count: int) -> Ints:
    """Least loaded: the host that uses least of its cpu or memory, whichever is scarcer there, by name among equals."""
    need = np.array(tuple(compute_needed(hosts.shape.resources))[LOAD_KINDS], np.int64)
    return _choose_by_share(hosts, count, need, np.ones_like(need), _read_unused_and_total)


def _choose_by_share(
    hosts: Candidates, count: int, need: Ints, weighed: Ints, amounts: Callable[[Candidates, Ints], tuple[Ints, Ints]]
) -> Ints:
    """Choose the host with the largest share of the kinds that are ``weighed``, of the two ``amounts`` ``[R,H]``."""
    free, total = amounts(hosts, hosts.rows)
    counts = (weighed[:, None] > 0) & (total > 0)
    shares = np.where(counts, free * 10**6 // np.maximum(total, 1), UNLIMITED).min(axis=0)
    shares[~counts.any(axis=0)] = 10**6  # as in ``free_share``
    rows, fit_counts = _find_first_hosts(hosts, count, -shares, by_name=True)
    in_order = np.argsort(hosts.fleet.by_name(rows), kind="stable")
    rows, fit_counts = rows[in_order], fit_counts[in_order]
    free, total = amounts(hosts, rows)
    return rows[emptiest(fit_counts, free.T, need, total.T, count, weighed)]


def _free_and_total(hosts: Candidates, rows: Ints) -> tuple[Ints, Ints]:
    free, total = hosts.fleet.amounts(FREE, rows), hosts.fleet.amounts(TOTAL, rows)
    if hosts.shape.revocable:
        free[CPU] = hosts.fleet.column(SLACK, rows)
    return free, total


def _read_unused_and_total(hosts: Candidates, rows: Ints) -> tuple[Ints, Ints]:
    free, total = hosts.fleet.amounts(FREE, rows), hosts.fleet.amounts(TOTAL, rows)
    return hosts.fleet.loads.compute_unused(rows, free, total), total[LOAD_KINDS]


def _find_first_hosts(hosts: Candidates, count: int, key: Ints, by_name: bool = False) -> tuple[Ints, Ints]:
    """Return all hosts that ``count`` pods may go to when each takes the first one, and the number that fits on
    each."""
    rows = hosts.first(count, key, by_name=by_name)
    fit_counts = hosts.count_fits(rows)
    if len(rows) < len(hosts.rows) and np.count_nonzero(fit_counts) < len(rows):  # other pods exclude some
        rows, fit_counts = hosts.rows, hosts.count_fits(hosts.rows)
    return rows, fit_counts


def least_free_first(hosts: Candidates, count: int) -> Ints:
    """Defragment: the host with the least free gpu, then cpu, memory and disk, whatever the pod needs.

    The free resources of the others remain in large pieces.
    """
    kinds = (GPU, *(kind for kind in range(FREE.start, FREE.stop) if kind != GPU))
    keys = [hosts.fleet.column(kind, hosts.rows) for kind in kinds]
    return hosts.fill_hosts(lambda wanted: hosts.first(wanted, *keys), count)


RECIPES: dict[Strategy, Recipe] = {
    Strategy.PACK_HOST: pack_tightly,
    Strategy.SPREAD_JOB: spread_evenly,
    Strategy.EMPTIEST_HOST: emptiest_first,
    Strategy.DEFRAGMENT: least_free_first,
    Strategy.LEAST_LOADED: least_loaded_first,
}
"""The recipes by strategy. A plugin may replace one; workers and host managers need the same."""


def choose(
    fleet: Fleet,
    shape: PodShape,
    labels: Collection[Label],
    count: int,
    barred: Barred | None = None,
    spreading: Spreading | None = None,
) -> Ints:
    """Return the row of each pod's host ``[count]``, by the recipe of the shape; hosts of a lower rank come first."""
    fits, ranks = fleet.fitting(shape, barred or {}), _rank_hosts(fleet, shape)
    by_rank = partial(_choose_by_rank, fleet, shape, labels, ranks)
    layout = shape.layout
    if layout is None:
        return by_rank(fits, count)
    mark = fleet.mark
    rules = (spreading or Spreading(fleet, {})).rules(shape)
    lay_all = lay if layout.is_hard or not shape.preferences else partial(_lay_by_rank, ranks)

    def put(flags: Flags) -> Ints:
        if not rules:
            return by_rank(flags, count)
        rows = lay_all(rules, flags, count, by_rank, partial(fleet.take, shape, labels))
        fleet.back_to(mark)
        return rows

    return put(fits) if layout.close is None else _choose_close(fleet, shape, layout.close, fits, count, put)


def _rank_hosts(fleet: Fleet, shape: PodShape) -> Ints:
    """Return the order ``[H]`` of hosts before the recipe: their rank, hosts with gpus after others, then the score."""
    ranks = fleet.ranks
    if shape.resources.gpu_milli == 0:
        ranks = ranks + GPU_LAST * fleet.has_gpus
    if shape.preferences:
        best = sum(each.weight for each in shape.preferences)
        ranks = ranks * (best + 1) + best - fleet.scores(shape.preferences)
    return ranks


def _lay_by_rank(
    ranks: Ints, rules: Sequence[Rule], fits: Flags, count: int, recipe: RankedRecipe, take: Callable[[Ints], None]
) -> Ints:
    """Spread pods over the hosts of the lowest rank as ``lay`` does, then over those of the next: soft bounds yield to
    preferences."""
    chosen = NONE
    for rank in np.unique(ranks[fits]):
        rows = lay([*map(replace, rules)], fits & (ranks == rank), count - len(chosen), recipe, take)
        for rule in rules:
            rule.put(rows)
        chosen = np.concatenate([chosen, rows])
        if len(chosen) == count:
            break
    return chosen


def _choose_close(
    fleet: Fleet, shape: PodShape, close: GangClose, fits: Flags, count: int, put: Callable[[Flags], Ints]
) -> Ints:
    """Choose hosts in the smallest domain in which all fit, of those with the highest sum of scores.

    If there is none: in the one that takes most if one domain is required, otherwise in any.
    """
    numbers, values = fleet.values_of(close.label)
    rows = np.flatnonzero(fits & (numbers >= 0))
    fit_counts, domain_of = fleet.count_fits(shape, rows), numbers[rows]
    domain_fits = np.bincount(domain_of, fit_counts, len(values))
    domains = [int(domain) for domain in np.argsort(domain_fits, kind="stable") if domain_fits[domain]]
    enough = [each for each in domains if domain_fits[each] >= count]
    if shape.preferences:
        sums = _sum_best(fleet.scores(shape.preferences)[rows], fit_counts, domain_of, len(values), count)
        enough.sort(key=lambda domain: -sums[domain])
    most = NONE
    for domain in enough or domains[-1:]:
        chosen = put(fits & (numbers == domain))
        if len(chosen) == count:
            return chosen
        most = max(most, chosen, key=len)
    return most if close.is_required else put(fits)


def _sum_best(scores: Ints, fit_counts: Ints, domain_of: Ints, domain_count: int, count: int) -> Ints:
    """Return the highest sum of scores of ``count`` pods in each domain ``[D]``. The others are by host."""
    order = np.lexsort((-scores, domain_of))
    scores, fit_counts, domain_of = scores[order], np.minimum(fit_counts[order], count), domain_of[order]
    before = np.cumsum(fit_counts) - fit_counts
    first = np.searchsorted(domain_of, domain_of)
    taken = np.clip(count - (before - before[first]), 0, fit_counts)
    return np.bincount(domain_of, taken * scores, domain_count)


def _choose_by_rank(
    fleet: Fleet,
    shape: PodShape,
    labels: Collection[Label],
    ranks: Ints,
    fits: Flags,
    count: int,
    at_most: int = UNLIMITED,
) -> Ints:
    recipe, chosen, is_next = RECIPES[shape.strategy], NONE, fits & (ranks == 0)
    left = fits.copy()
    while True:
        hosts = Candidates(fleet, shape, labels, is_next, at_most)
        chosen = np.concatenate([chosen, recipe(hosts, count - len(chosen))])
        left &= ~is_next
        if len(chosen) == count or not left.any():
            return chosen
        is_next = left & (ranks == ranks[left].min())
