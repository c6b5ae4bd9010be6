"""Spreading the pods of a job over the domains of host labels, and the bound on skew.

H rows of hosts, D domains of a label that these hosts carry. The recipe decides as long as it keeps all bounds by
itself. Otherwise pods go to the domains that have fewest, and in each to the hosts that the recipe takes there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from peloton.model.layout import Domains, Spread
from peloton.model.misfit import Misfit, NoDomain, SkewExceeded
from peloton.model.pod import PodShape
from peloton.model.resources import UNLIMITED
from peloton.scheduling.tree import Flags, Ints

DomainsOf = Mapping[PodShape, Sequence[Domains]]
"""The domains of each shape, in the order of its spread rules."""
NONE = np.array([], np.int64)


class Rows(Protocol):
    def values_of(self, label: str) -> tuple[Ints, list[str]]:
        """Return the index of the label's value on each row ``[H]``, -1 where it has none or several; and the
        values."""


class Recipe(Protocol):
    def __call__(self, flags: Flags, count: int, at_most: int = UNLIMITED) -> Ints:
        """Return the rows of ``count`` pods on flagged hosts, at most ``at_most`` on each."""


@dataclass(slots=True)
class Rule:
    """One spread rule for pods of one shape, with the pods as they are placed now."""

    spread: Spread
    at: Ints  # [H] the domain, -1: the host has none that is open
    counts: Ints  # [D] pods
    is_open: Flags  # [D]
    outside: int  # the fewest pods in an open domain that has no rows
    lowest_name: str  # name of that domain, or of the one with fewest

    @property
    def lowest(self) -> int:
        return int(min(self.counts[self.is_open].min(initial=UNLIMITED), self.outside))

    def find_allowed(self) -> Flags:
        """Return a flag ``[H]`` for rows that take one more pod without breaking the bound."""
        if not self.spread.is_hard:
            return np.ones(len(self.at), np.bool_)
        return np.asarray((self.at >= 0) & (self.on_rows() < self.lowest + self.spread.max_skew))

    def on_rows(self) -> Ints:
        """Return the number of pods ``[H]`` in the domain of each row; rows without one come last."""
        return np.append(self.counts, UNLIMITED)[self.at]

    def headroom(self, domains: Ints, flags: Flags) -> int:
        """Return by how many pods these domains, which have equally few, may rise together.

        They rise to the next domain with free resources, and not above the bound.
        """
        level = int(self.counts[domains[0]])
        others = self.is_open.copy()
        others[domains] = False
        bound = UNLIMITED
        if self.spread.is_hard:
            floor = min(int(self.counts[others].min(initial=UNLIMITED)), self.outside)
            bound = floor + self.spread.max_skew - level
        fitting_domains = np.unique(self.at[flags & (self.at >= 0)])
        above = self.counts[fitting_domains]
        return min(bound, int(above[above > level].min(initial=UNLIMITED)) - level)

    def put(self, rows: Ints) -> None:
        at = self.at[rows]
        self.counts = self.counts + np.bincount(at[at >= 0], minlength=len(self.counts))

    def keeps(self, rows: Ints, fits: Flags) -> bool:
        """Return whether the bound would hold with pods on these rows; a soft one covers only domains with free
        resources."""
        at = self.at[rows]
        if (at < 0).any():
            return False
        after = self.counts + np.bincount(at, minlength=len(self.counts))
        others = after[self.is_open] if self.spread.is_hard else after[np.unique(self.at[fits & (self.at >= 0)])]
        lowest = min(int(others.min(initial=UNLIMITED)), self.outside if self.spread.is_hard else UNLIMITED)
        return int(after[at].max(initial=0)) <= lowest + self.spread.max_skew


class Spreading:
    """The domains of the pods of one job, placed and being placed."""

    def __init__(self, fleet: Rows, domains: DomainsOf) -> None:
        self._fleet = fleet
        self._domains = domains
        self._rows: dict[str, tuple[Ints, list[str]]] = {}  # by label: index of the value [H], and the values
        self._put: dict[str, Counter[str]] = {}

    def add(self, rows: Ints) -> None:
        """Count new pods of the job on these rows."""
        for label in {rule.label for shape in self._domains for rule in _spread_rules(shape)}:
            at, values = self._values_on_rows(label)
            own = self._put.setdefault(label, Counter())
            own.update(values[number] for number in at[rows].tolist() if number >= 0)

    def remove(self, row: int) -> None:
        """Count one pod of the job less on the row."""
        for label in {rule.label for shape in self._domains for rule in _spread_rules(shape)}:
            at, values = self._values_on_rows(label)
            if at[row] >= 0:
                self._put.setdefault(label, Counter()).subtract([values[at[row]]])

    def rules(self, shape: PodShape) -> list[Rule]:
        known = self._domains.get(shape, ())
        found = []
        for order, spread in enumerate(_spread_rules(shape)):
            domains = known[order] if order < len(known) else Domains()
            numbers, values = self._values_on_rows(spread.label)
            put = self._put.get(spread.label, Counter())
            counts = np.array([domains.counts.get(each, 0) + put.get(each, 0) for each in values], np.int64)
            is_open = np.array([each in domains.counts for each in values], np.bool_)
            at = np.where(np.append(is_open, False)[numbers], numbers, -1)
            near = set(values)
            beyond = [(count, each) for each, count in domains.counts.items() if each not in near]
            if domains.lowest is not None:
                beyond.append((domains.lowest, domains.lowest_name))
            outside, name = min(beyond, default=(UNLIMITED, ""))
            inside = min(zip(counts[is_open].tolist(), np.array(values, object)[is_open], strict=True), default=None)
            lowest_name = name if inside is None or outside < inside[0] else inside[1]
            found.append(Rule(spread, at, counts, is_open, outside, lowest_name))
        return found

    def refusing(self, shape: PodShape, fits: Flags) -> Iterator[tuple[int, Misfit]]:
        """Yield rows that would take the pod if not for a bound on skew."""
        left = fits.copy()
        for rule in self.rules(shape):
            refused = left & ~rule.find_allowed()
            label, bound, lowest = rule.spread.label, rule.spread.max_skew, rule.lowest
            for row in np.flatnonzero(refused & (rule.at < 0)).tolist():
                yield row, NoDomain(label)
            for row in np.flatnonzero(refused & (rule.at >= 0)).tolist():
                yield row, SkewExceeded(label, rule.lowest_name, lowest, lowest + bound, bound)
            left &= ~refused

    def _values_on_rows(self, label: str) -> tuple[Ints, list[str]]:
        if label not in self._rows:
            self._rows[label] = self._fleet.values_of(label)
        return self._rows[label]


def _spread_rules(shape: PodShape) -> tuple[Spread, ...]:
    return shape.layout.spread if shape.layout else ()


def lay(rules: Sequence[Rule], fits: Flags, count: int, recipe: Recipe, take: Callable[[Ints], None]) -> Ints:
    """Return the rows of pods, fewer than ``count`` where bounds or free resources do not allow more.

    ``take`` places pods on rows, which the recipe sees from then on.
    """
    rows = recipe(_restrict_to_domains(rules, fits), count)
    if all(rule.keeps(rows, fits) for rule in rules):
        return rows
    flags, chosen = fits.copy(), []
    while count:
        lowest = _find_lowest(rules, flags)
        if not lowest.any():
            break
        rows, full = (_lay_level if len(rules) == 1 else _lay_single)(rules[0], lowest, flags, count, recipe)
        flags &= ~full
        take(rows)
        for rule in rules:
            rule.put(rows)
        chosen.append(rows)
        count -= len(rows)
    return np.concatenate([NONE, *chosen])


def _restrict_to_domains(rules: Sequence[Rule], fits: Flags) -> Flags:
    for rule in rules:
        if rule.spread.is_hard:
            fits = fits & (rule.at >= 0)
    return fits


def _find_lowest(rules: Sequence[Rule], flags: Flags) -> Flags:
    """Return a flag for rows in the domains with fewest pods, by the first rule, then by the next, within all
    bounds."""
    for rule in rules:
        flags = flags & rule.find_allowed()
    for rule in rules:
        on_rows = rule.on_rows()
        flags = flags & (on_rows == on_rows[flags].min(initial=UNLIMITED))
    return flags


def _lay_single(rule: Rule, lowest: Flags, flags: Flags, count: int, recipe: Recipe) -> tuple[Ints, Flags]:
    """Return the row of one pod, or a flag for the rows if they cannot take it after all."""
    rows = recipe(lowest, 1)
    return rows, lowest & (len(rows) == 0)


def _lay_level(rule: Rule, lowest: Flags, flags: Flags, count: int, recipe: Recipe) -> tuple[Ints, Flags]:
    """Return the rows of pods that fill the lowest domains together, up to the next; and a flag for full domains."""
    domains = np.unique(rule.at[lowest])
    if domains[0] < 0:  # the rule is soft, and only hosts without the label are left
        return recipe(lowest, count), lowest
    is_row = len(domains) == np.count_nonzero(lowest)  # each domain has one row
    step = min(count // len(domains), rule.headroom(domains, flags))
    if not step and not is_row:
        return _lay_single(rule, lowest, flags, count, recipe)
    if not step:
        rows = recipe(lowest, count, 1)
        return rows, lowest & ~np.isin(np.arange(len(lowest)), rows)
    if is_row:
        rows = recipe(lowest, step * len(domains), step)
    else:
        rows = np.concatenate([recipe(lowest & (rule.at == domain), step) for domain in domains])
    got = np.bincount(rule.at[rows], minlength=len(rule.counts))[domains]
    if rule.spread.is_hard:  # the others may not rise far above a full one
        rows = rows[_count_earlier(rule.at[rows]) < got.min() + rule.spread.max_skew]
    return rows, lowest & np.isin(rule.at, domains[got < step])


def _count_earlier(numbers: Ints) -> Ints:
    """Return how often each number has occurred before."""
    order = np.argsort(numbers, kind="stable")
    in_order = numbers[order]
    is_first = np.append(True, in_order[1:] != in_order[:-1]) if len(in_order) else np.array([], np.bool_)
    starts = np.maximum.accumulate(np.where(is_first, np.arange(len(in_order)), 0))
    nth = np.empty(len(numbers), np.int64)
    nth[order] = np.arange(len(in_order)) - starts
    return nth
