"""Time series of pools and clusters: what the recorder writes once a minute, and what charts are drawn from.

Amounts are in the small units of ``Resources``, times in unix seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from peloton.model.ids import RespoolId


class Quantity(StrEnum):
    """What a column measures. Values are stored: they are never renamed."""

    # Of a pool, by kind; sums over the pools below it.
    RESERVATION = "reservation"
    LIMIT = "limit"
    ENTITLEMENT = "entitlement"
    ALLOCATION = "allocation"  # of a cluster: what pods hold of its registered hosts
    SLACK_ALLOCATION = "slack_allocation"  # the revocable part of the allocation
    DEMAND = "demand"  # what waits in queues
    # Of a cluster, by kind.
    CAPACITY = "capacity"  # of hosts that take pods
    REGISTERED = "registered"  # of all hosts
    USE = "use"  # measured, on the hosts that are measured
    SLACK = "slack"  # revocable capacity
    # Of a cluster, in hosts.
    HOSTS_UP = "hosts_up"
    HOSTS_DRAINING = "hosts_draining"
    HOSTS_DRAINED = "hosts_drained"
    HOSTS_DOWN = "hosts_down"
    HOSTS_MEASURED = "hosts_measured"
    # Of a pool, in pods: how many in that time.
    ADMITTED = "admitted"
    PREEMPTED = "preempted"


class Column(NamedTuple):
    """``kind``: of RESOURCE_KINDS; empty for what is counted."""

    quantity: Quantity
    kind: str = ""


class Preemption(NamedTuple):
    """Pods of one pool were evicted for one other, or for the same one: a mark in a chart."""

    at_s: int
    for_pool: str  # path of the pool whose gangs waited; empty: several that are not named
    pod_count: int


@dataclass(slots=True)
class Series:
    """Columns over time. ``times_s`` rise, and each is the begin of an interval, of which ``covered_s`` seconds were
    recorded; between two of them may be a gap. A column that is missing is 0. ``maxima``: of a column whose value is a
    mean; where it is missing, each is the mean."""

    times_s: list[int] = field(default_factory=list)
    covered_s: list[int] = field(default_factory=list)
    columns: dict[Column, list[int]] = field(default_factory=dict)
    maxima: dict[Column, list[int]] = field(default_factory=dict)
    preemptions: list[Preemption] = field(default_factory=list)

    def maxima_of(self, column: Column) -> list[int]:
        return self.maxima.get(column, self.columns[column])


def pool_series(pool_id: RespoolId) -> str:
    """The name of a pool's series."""
    return f"pool/{pool_id}"


def cluster_series(cluster: str) -> str:
    return f"cluster/{cluster}"


@dataclass(frozen=True, slots=True)
class Sample:
    """All series at one moment. ``covered_s``: seconds from ``at_s`` on for which it stands, and in which was counted
    what is counted. By the name of the series; amounts of 0 may be left out."""

    at_s: int
    covered_s: int
    amounts: Mapping[str, Mapping[Column, int]]
    preemptions: Mapping[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)  # for which pool, pods
