"""The pool tree as arrays: pools in breadth-first order, siblings side by side and ordered by name.

Axes: P pools, R resource kinds in the order of ``PoolTree.kinds``, K = children of one level. Row 0 is the root.
Because siblings are ordered by name, "ties by pool path" is simply "the lower row first".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from peloton.model.ids import ROOT_POOL_ID, RespoolId
from peloton.model.resources import RESOURCE_KINDS, UNLIMITED, Resources, is_license
from peloton.model.respool import PoolResource, PoolSpec, ReservationType
from peloton.scheduling.filling import Flags as Flags
from peloton.scheduling.filling import Ints as Ints
from peloton.scheduling.filling import Weights, weigh

KIND_COUNT = len(RESOURCE_KINDS)
CPU = RESOURCE_KINDS.index("cpu")
DEFAULT_SLACK_LIMIT_PERCENT = 20.0
ROOT_PATH = "/"


@dataclass(frozen=True, eq=False)
class Level:
    """One level of the tree: pools ``begin .. end-1`` have the same depth; each group of siblings is one segment of
    them."""

    begin: int
    end: int
    parents: Ints  # [G] row of each group's parent
    starts: Ints  # [G] where each group begins, relative to ``begin``
    group: Ints  # [K] group of each pool
    share: Ints  # [K,R]

    @cached_property
    def by_share(self) -> Weights:
        return weigh(self.starts, self.group, self.share)

    @cached_property
    def cpu_by_share(self) -> Weights:
        """Return the weights of cpu alone."""
        return weigh(self.starts, self.group, self.share[:, CPU : CPU + 1])

    @cached_property
    def held_cpu(self) -> Weights:
        """Return the weights by which pools keep the cpu that they hold: pools of share 0 take part."""
        return weigh(self.starts, self.group, np.maximum(self.share[:, CPU : CPU + 1], 1))


@dataclass(frozen=True, eq=False)
class PoolTree:
    ids: tuple[RespoolId, ...]
    paths: tuple[str, ...]
    parent: Ints  # [P], -1 for the root
    depth: Ints  # [P]
    reservation: Ints  # [P,R]
    limit: Ints  # [P,R]; the root's is UNLIMITED: the capacity of the cluster bounds it
    share: Ints  # [P,R]
    static: Flags  # [P,R]
    slack_limit: Ints  # [P,R] bound of borrowing by revocable pods; cpu is 0, for theirs is not borrowed
    controller_limit: Ints  # [P,R] UNLIMITED where none is set
    levels: tuple[Level, ...]  # without the root
    policies: tuple[str, ...]  # [P] name in the wire's enum
    kinds: tuple[str, ...] = RESOURCE_KINDS  # [R] RESOURCE_KINDS, and then extended resources

    @cached_property
    def row(self) -> dict[RespoolId, int]:
        return {pool_id: row for row, pool_id in enumerate(self.ids)}

    @cached_property
    def licenses(self) -> tuple[int, ...]:
        """Return the indices of the kinds that belong to no host."""
        return tuple(at for at, kind in enumerate(self.kinds) if is_license(kind))

    def compute_capacity(self, hosts: Resources) -> Ints:
        """Return the amounts ``[R]`` to divide: those of the hosts, and the licenses of the pools below the root.

        There are as many licenses of a kind as these pools reserve together, or as the largest of their limits, if that
        is more.
        """
        capacity = np.array(hosts.row(self.kinds), np.int64)
        if self.licenses and self.levels:
            top, of = slice(self.levels[0].begin, self.levels[0].end), list(self.licenses)
            limit = self.limit[top, of]
            bounded = np.where(limit < UNLIMITED, limit, 0).max(axis=0)
            capacity[of] = np.maximum(self.reservation[top, of].sum(axis=0), bounded)
        return capacity

    @cached_property
    def is_leaf(self) -> Flags:
        leaf = np.ones(len(self.ids), np.bool_)
        leaf[self.parent[1:]] = False
        return leaf

    @cached_property
    def ancestors(self) -> tuple[tuple[int, ...], ...]:
        """Return for each pool ``[P]`` the rows from its parent up to the root."""
        chains: list[tuple[int, ...]] = [()]
        for parent in self.parent[1:].tolist():
            chains.append((parent, *chains[parent]))
        return tuple(chains)

    @cached_property
    def limit_above(self) -> Ints:
        """Return the lowest of the limits of a pool and of all pools above it, ``[P,R]``."""
        lowest = self.limit.copy()
        for level in self.levels:
            at = slice(level.begin, level.end)
            lowest[at] = np.minimum(lowest[at], lowest[self.parent[at]])
        return lowest

    def roll_up(self, amounts: Ints) -> Ints:
        """Sum own amounts ``[P,R]`` over each pool's subtree ``[P,R]``."""
        sums = amounts.copy()
        for level in reversed(self.levels):
            sums[level.parents] += np.add.reduceat(sums[level.begin : level.end], level.starts, axis=0)
        return sums


def list_kinds(pools: Iterable[PoolSpec], known: tuple[str, ...] = RESOURCE_KINDS) -> tuple[str, ...]:
    """Return the known kinds, and then the other extended resources of these pools by name."""
    return (*known, *sorted({each.kind for pool in pools for each in pool.extras}.difference(known)))


def build_tree(pools: Iterable[PoolSpec], kinds: tuple[str, ...] | None = None) -> PoolTree:
    """Arrange pools under a new root; a given root is ignored, and so are pools whose parent is missing.

    ``kinds`` has at least the kinds of all pools; None: just these.
    """
    pools = list(pools)
    kinds = kinds or list_kinds(pools)
    children: dict[RespoolId, list[PoolSpec]] = {}
    for pool in pools:
        if not pool.is_root:
            children.setdefault(pool.parent_id, []).append(pool)
    ids, paths, parents, depths = [ROOT_POOL_ID], [ROOT_PATH], [-1], [0]
    specs: list[PoolSpec] = []
    row = 0
    while row < len(ids):
        for spec in sorted(children.get(ids[row], ()), key=lambda pool: (pool.name, pool.respool_id)):
            ids.append(spec.respool_id)
            paths.append(f"{paths[row].rstrip('/')}/{spec.name}")
            parents.append(row)
            depths.append(depths[row] + 1)
            specs.append(spec)
        row += 1
    parent, depth = np.array(parents, np.int64), np.array(depths, np.int64)
    static = ReservationType.STATIC
    resources = [_resources(spec, kinds) for spec in specs]
    reservation = _rows(0, kinds, [tuple([kind.reservation for kind in own]) for own in resources])
    share = _rows(1, kinds, [tuple([kind.share for kind in own]) for own in resources])
    return PoolTree(
        ids=tuple(ids),
        paths=tuple(paths),
        parent=parent,
        depth=depth,
        reservation=reservation,
        limit=_rows(UNLIMITED, kinds, [tuple([kind.limit for kind in own]) for own in resources]),
        share=share,
        static=_rows(0, kinds, [tuple([kind.type is static for kind in own]) for own in resources]).astype(np.bool_),
        slack_limit=_slack_limits(specs, reservation),
        controller_limit=_controller_limits(specs, reservation),
        levels=_levels(parent, depth, share),
        policies=("", *(spec.policy for spec in specs)),
        kinds=kinds,
    )


def _resources(spec: PoolSpec, kinds: Sequence[str]) -> Sequence[PoolResource]:
    """Return the settings of the pool for all kinds, in their order."""
    return spec.resources if len(kinds) == KIND_COUNT else [spec.resource(kind) for kind in kinds]


def _rows(root_value: int, kinds: Sequence[str], pools: Iterable[tuple[int, ...]]) -> Ints:
    return np.array([(root_value,) * len(kinds), *pools], np.int64)


def _slack_limits(specs: list[PoolSpec], reservation: Ints) -> Ints:
    given = (spec.slack_limit_percent for spec in specs)
    percents = [0.0, *(DEFAULT_SLACK_LIMIT_PERCENT if percent is None else percent for percent in given)]
    limits = _percent_of(reservation, percents)
    limits[0] = UNLIMITED
    limits[:, CPU] = 0
    return limits


def _controller_limits(specs: list[PoolSpec], reservation: Ints) -> Ints:
    percents = [spec.controller_limit_percent for spec in specs]
    limits = _percent_of(reservation, [0.0, *(percent or 0.0 for percent in percents)])
    limits[[0, *(row for row, percent in enumerate(percents, start=1) if percent is None)]] = UNLIMITED
    return limits


def _percent_of(amounts: Ints, percents: list[float]) -> Ints:
    """Return the percentages of the amounts, rounded down to whole units; percents count to a thousandth."""
    milli_percents = np.array([round(max(percent, 0.0) * 1000) for percent in percents], np.int64)
    whole, rest = np.divmod(amounts, 100_000)
    return whole * milli_percents[:, None] + rest * milli_percents[:, None] // 100_000


def _levels(parent: Ints, depth: Ints, share: Ints) -> tuple[Level, ...]:
    levels = []
    for at in range(1, int(depth.max()) + 1):
        begin, end = (int(edge) for edge in np.searchsorted(depth, [at, at + 1]))
        parents = parent[begin:end]
        is_first = np.r_[True, parents[1:] != parents[:-1]]
        starts = np.flatnonzero(is_first).astype(np.int64)
        levels.append(Level(begin, end, parents[starts], starts, np.cumsum(is_first) - 1, share[begin:end]))
    return tuple(levels)
