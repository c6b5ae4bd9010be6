"""Reasons for waiting and eviction of pods as values: a rule with its numbers.

``lifecycle.reason_text`` renders them as text at the edge, and no code parses that text. Amounts are in the small units
of ``Resources``. A constraint is named by its notation, ``label rack=a``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from peloton.model.misfit import HostRule, Misfit, OpenEnum, Slots, from_slots, to_slots
from peloton.model.resources import Resources

# Reasons in a queue.


class Rule(StrEnum):
    """Rule that keeps a gang in its queue."""

    ENTITLEMENT = "entitlement"
    SLACK_ENTITLEMENT = "slack entitlement"
    RESERVATION = "reservation for non-preemptible pods"
    CONTROLLER_LIMIT = "controller limit"
    POOL_LIMIT = "pool limit"
    CLUSTER_CAPACITY = "cluster capacity"
    HEAD_OF_LINE = "head of line"
    PRIORITY = "priority"
    BATCH_BOUND = "batch bound"
    NO_CYCLE = "no cycle yet"
    IN_BACKOFF = "backoff"


NOT_BACKFILLED = -1
"""Backfill time of a gang that others may never pass."""


class Reason(NamedTuple):
    """The first rule that a gang fails. For IN_BACKOFF ``left`` is in seconds, and ``bound`` counts failed launches of
    the gang."""

    rule: Rule
    pool_path: str = ""
    kind: str = ""
    wanted: int = 0
    left: int = 0
    bound: int = 0
    gang_size: int = 1
    job_id: str = ""  # job of the gang ahead, for HEAD_OF_LINE and PRIORITY
    is_final: bool = False  # waiting does not help: the request exceeds the maximum of the pool
    host_pools: str = ""  # names, comma-separated, if the rule counts hosts of these only
    backfill_s: int = NOT_BACKFILLED  # seconds for which later gangs may pass it; 0: no longer


# Reasons on hosts.


@dataclass(frozen=True, slots=True)
class RefusingHosts:
    """Hosts that fail the same rule, the misfit in its form of messages."""

    host_count: int
    misfit: Slots

    @classmethod
    def of(cls, host_count: int, why: Misfit) -> RefusingHosts:
        return cls(host_count, to_slots(why))

    @property
    def why(self) -> Misfit:
        return from_slots(self.misfit)


def merge_misfits(misfits: Iterable[tuple[Misfit, int]]) -> tuple[RefusingHosts, ...]:
    """Merge ``(misfit, hosts)`` pairs of the same rule and sum their hosts, in the order of the rules. A merged misfit
    has the largest slot ``left``."""
    counts: dict[tuple[object, ...], int] = {}
    most: dict[tuple[object, ...], Slots] = {}
    for why, count in misfits:
        if not count:
            continue  # without hosts ``left`` has no meaning
        misfit = to_slots(why)
        key = (misfit.rule, misfit.kind, misfit.wanted, misfit.bound, misfit.name)
        counts[key] = counts.get(key, 0) + count
        if key not in most or most[key].left < misfit.left:
            most[key] = misfit
    found = [RefusingHosts(count, most[key]) for key, count in counts.items()]
    return tuple(sorted(found, key=lambda one: (_RULES.index(one.misfit.rule), one.misfit.name, one.misfit.kind)))


_RULES = tuple(HostRule)


@dataclass(frozen=True, slots=True)
class NoHost:
    """Pods of one shape, or one gang, without a host. Each host counts under the first rule that it fails."""

    pod_count: int
    is_gang: bool = False
    hosts: tuple[RefusingHosts, ...] = ()


class ClusterRule(OpenEnum):
    """Rule that excludes a cluster from a placement."""

    UNKNOWN = ""
    NO_HOST = "no host"
    SILENT = "silent"  # its host manager does not answer
    ELSEWHERE = "elsewhere"  # constraints exclude all hosts there
    FAILED = "failed"  # the call failed
    NOT_READY = "not ready"  # no pod waits for a host any longer
    LEASE_LOST = "lease lost"


@dataclass(frozen=True, slots=True)
class ClusterReason:
    """A cluster and the rule it fails. ``cluster`` is empty if there is only one. ``more_count``: further pod shapes
    that are not in ``pods``."""

    cluster: str = ""
    rule: ClusterRule = ClusterRule.NO_HOST
    pods: tuple[NoHost, ...] = ()
    more_count: int = 0
    detail: str = ""  # error of the failed call; elsewhere: the kind of the cluster

    def within(self, cluster: str) -> ClusterReason:
        return replace(self, cluster=cluster)


PlacementReason = tuple[ClusterReason, ...]
"""Reasons by cluster; empty if every pod found a host."""


@dataclass(frozen=True, slots=True)
class Infeasible:
    """Hosts of a cluster of which none could take a pod even if empty."""

    cluster: str = ""  # empty if there is only one cluster
    host_count: int = 0
    meeting_count: int = 0  # hosts in matching host pools that meet the constraint, exclusive or not
    allowed_count: int = 0  # hosts of these that are not exclusive to other pods
    constraint: str = ""
    wanted: Resources = Resources()  # noqa: RUF009 - frozen
    largest: Resources = Resources()  # noqa: RUF009 - frozen; the most of each kind on an allowed host
    served_count: int = 0  # hosts in host pools that serve the workload
    workload: str = ""  # workload of the pod

    def within(self, cluster: str) -> Infeasible:
        return replace(self, cluster=cluster)


Infeasibility = tuple[Infeasible, ...]
"""Infeasibility by cluster; empty if some host could take the pod."""


# Requeues and evictions.


class RequeueRule(OpenEnum):
    """Rule that returns pods, or a gang, to the queue."""

    UNKNOWN = ""
    NO_HOST_IN_TIME = "no host in time"
    FITS_NO_HOST = "fits no host"
    NO_GANG_HOSTS_IN_TIME = "no hosts for the gang in time"
    NOT_RUNNING_IN_TIME = "gang not running in time"
    NOT_LAUNCHED = "members not launched"
    LEFT_BEHIND = "members left behind"
    CANCELLED = "cancelled"  # the launch workflow was cancelled


@dataclass(frozen=True, slots=True)
class RequeueReason:
    """Requeue of ``count`` of the ``gang_size`` members. ``infeasible``: the first pod shapes that no host could take,
    with ``more_count`` further ones. ``placement``: the last placement's reason for the others."""

    rule: RequeueRule = RequeueRule.NO_HOST_IN_TIME
    count: int = 0
    gang_size: int = 1
    seconds: float = 0.0
    infeasible: tuple[Infeasibility, ...] = ()
    placement: PlacementReason = ()
    more_count: int = 0


@dataclass(frozen=True, slots=True)
class Grounds:
    """Grounds of an eviction in favour of a waiting gang.

    Between pools ``held`` is the allocation of the victim's pool and ``bound`` its entitlement; inside a pool ``held``
    is the used part of the rule's ``bound``.
    """

    rule: Rule
    pool_path: str  # pool of the victim
    for_pool: str
    for_job: str
    kind: str
    wanted: int
    held: int
    bound: int
    priority: int = 0  # priority of the waiting gang
    own_priority: int = 0

    @property
    def is_inside(self) -> bool:
        return self.pool_path == self.for_pool


class QosRule(OpenEnum):
    """Rule that evicts a revocable pod from its host."""

    UNKNOWN = ""
    HOT_CPU = "hot cpu"
    HOT_MEMORY = "hot memory"
    LESS_SLACK = "less slack"
    DAEMON = "daemon"  # a preemptible pod is evicted for a daemon


@dataclass(frozen=True, slots=True)
class QosReason:
    """``used`` of ``total`` is in use, and ``bound`` percent are allowed. For LESS_SLACK, revocable pods hold ``used``
    of the remaining ``total``."""

    rule: QosRule
    hostname: str
    used: int
    total: int
    bound: int = 0


EvictionReason = Grounds | QosReason


@dataclass(frozen=True, slots=True)
class SlaRefusal:
    """Refusal by the SLA: ``missing`` of ``maximum`` instances are unavailable, and ``refused`` more have to wait; 0 if
    the maximum is reached, and all others have to."""

    maximum: int
    missing: int
    refused: int
