"""Time series of pools and clusters, which the recorder writes once a minute and from which charts are drawn.

Amounts are in the small units of ``Resources``, times in unix seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple
from urllib.parse import quote, unquote

from peloton.model.ids import RespoolId

OWNERS_PREFIX = "owner/"
OTHER_OWNERS = "*"
"""Stands for the owners beyond the limit of series, in their place in the name. An owner of this name is quoted."""


class Quantity(StrEnum):
    """The quantity that a column measures. Values are stored: they are never renamed."""

    # Quantities of a pool, by kind; sums include the pools below it.
    RESERVATION = "reservation"
    LIMIT = "limit"
    ENTITLEMENT = "entitlement"
    ALLOCATION = "allocation"  # for a cluster: resources of registered hosts that pods hold
    SLACK_ALLOCATION = "slack_allocation"  # the revocable part of the allocation
    DEMAND = "demand"  # demand of queued pods
    BORROWED = "borrowed"  # the part of the allocation above the reservation
    LENT = "lent"  # the part of the reservation that other pools hold
    # Quantities of a cluster, by kind.
    CAPACITY = "capacity"  # hosts that take pods
    REGISTERED = "registered"  # all hosts
    USE = "use"  # measured use, on measured hosts
    SLACK = "slack"  # revocable capacity
    # Counts of hosts of a cluster.
    HOSTS_UP = "hosts_up"
    HOSTS_DRAINING = "hosts_draining"
    HOSTS_DRAINED = "hosts_drained"
    HOSTS_DOWN = "hosts_down"
    HOSTS_MEASURED = "hosts_measured"
    # Counts of pods of a pool during the interval.
    ADMITTED = "admitted"
    PREEMPTED = "preempted"


class Column(NamedTuple):
    """A quantity of one resource kind; ``kind`` is empty for counts."""

    quantity: Quantity
    kind: str = ""


class Preemption(NamedTuple):
    """Pods of one pool that were evicted for one pool, possibly the same: a mark in a chart."""

    at_s: int
    for_pool: str  # path of the pool whose gangs waited; empty: several pools, unnamed
    pod_count: int


@dataclass(slots=True)
class Series:
    """Columns over time. ``times_s`` rise; each is the start of an interval of which ``covered_s`` seconds were
    recorded, and gaps may lie between two intervals. A missing column is 0. ``maxima`` belong to columns of means;
    without an entry the maximum equals the mean."""

    times_s: list[int] = field(default_factory=list)
    covered_s: list[int] = field(default_factory=list)
    columns: dict[Column, list[int]] = field(default_factory=dict)
    maxima: dict[Column, list[int]] = field(default_factory=dict)
    preemptions: list[Preemption] = field(default_factory=list)

    def maxima_of(self, column: Column) -> list[int]:
        return self.maxima.get(column, self.columns[column])


def pool_series(pool_id: RespoolId) -> str:
    """Return the name of a pool's series."""
    return f"pool/{pool_id}"


def owner_series(pool_id: RespoolId, owner: str | None) -> str:
    """Return the name of the series of one owner's pods in one pool; None: of all owners beyond the limit."""
    return f"{OWNERS_PREFIX}{pool_id}/{OTHER_OWNERS if owner is None else quote(owner, safe='')}"


def parse_owner_series(name: str) -> tuple[RespoolId, str]:
    """Return the pool and the owner of a series."""
    pool_id, owner = name.removeprefix(OWNERS_PREFIX).split("/")
    return RespoolId(pool_id), unquote(owner)


def cluster_series(cluster: str) -> str:
    return f"cluster/{cluster}"


@dataclass(frozen=True, slots=True)
class Sample:
    """All series at one moment, by series name. The sample covers ``covered_s`` seconds from ``at_s``, during which the
    counts were taken; amounts of 0 may be left out."""

    at_s: int
    covered_s: int
    amounts: Mapping[str, Mapping[Column, int]]
    preemptions: Mapping[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)  # (pool, pods)
