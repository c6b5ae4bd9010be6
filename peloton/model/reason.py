"""Why pods wait or must leave, as values: a rule with its numbers. ``lifecycle.reason_text`` makes text of them at the
edge, and no code parses that text.

Amounts are in the small units of ``Resources``. A constraint is named by its notation, ``label rack=a``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from peloton.model.resources import Resources

# In a queue.


class Rule(StrEnum):
    """Why a gang waits in its queue."""

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
    HELD_BACK = "held back"


NOT_BACKFILLED = -1
"""Of a gang that others may never pass."""


class Reason(NamedTuple):
    """The first rule that a gang fails. For HELD_BACK ``left`` is in seconds, and ``bound`` counts failed launches of
    the gang."""

    rule: Rule
    pool_path: str = ""
    kind: str = ""
    wanted: int = 0
    left: int = 0
    bound: int = 0
    gang_size: int = 1
    job_id: str = ""  # of the gang ahead, for HEAD_OF_LINE and PRIORITY
    is_final: bool = False  # no wait helps: more than the pool may ever have
    host_pools: str = ""  # those of which alone the rule counts the hosts, with commas
    backfill_s: int = NOT_BACKFILLED  # for how long gangs behind it may still go first; 0: no longer


# On hosts.


class OpenEnum(StrEnum):
    """Values are the wire's. A value that only another version knows becomes the empty member."""

    @classmethod
    def _missing_(cls, value: object) -> OpenEnum | None:
        return cls("") if value else None


class HostRule(OpenEnum):
    """Why a host does not take a pod."""

    UNKNOWN = ""
    EXCLUSIVE = "exclusive"  # the host is kept for pods that ask for it
    HOST_POOL = "host pool"  # that of the host does not serve such pods
    CONSTRAINT = "constraint"  # of the pod, on labels of hosts or of the pods there
    SIZE = "size"  # the host has less than that even when it is empty
    ROOM = "room"
    VOLUME_ROOM = "volume room"  # disk of the host itself, without what its host pool announces by a factor
    REVOCABLE_ROOM = "revocable room"
    POD_SLOTS = "pod slots"  # the host has as many pods as it takes
    PORTS = "ports"
    NOT_OFFERED = "not offered"
    LEASED = "leased"  # to another placement, until that launches or gives it back
    MAINTENANCE = "maintenance"
    GOES_SOON = "goes soon"  # the cluster takes the host away
    NAME_TAKEN = "name taken"  # a host of another cluster has the same
    CLOSED = "closed"  # to revocable pods, after it was hot
    HELD = "held"  # room is kept for pods that come back
    AVOIDED = "avoided"  # pods failed there
    FLAPPING = "flapping"  # it leaves the cluster and comes back again and again
    GPU_KEPT = "gpu kept"  # the host has gpus, and pods that ask for gpus wait
    SKEW = "skew"  # the domain of the host would have too many pods of the job more than another
    GANG_ROOM = "gang room"  # fewer members of a gang fit on these hosts than it has
    RESERVED = "reserved"  # what frees there is kept for another pod
    OWN_RESERVATION = "own reservation"  # it is kept for this one, and not enough yet
    RETURN = "return"  # a pod that comes back waits for room there


@dataclass(frozen=True, slots=True)
class Misfit:
    """The first rule that a host fails.

    ``wanted`` and ``left`` are what the pod asks for and the most that is free, of ``kind`` or of ports; for GANG_ROOM
    members of the gang, which has to be in one domain of the label ``name`` if that is given. For VOLUME_ROOM ``bound``
    is the size of the volume that is part of ``wanted``, both of the host's own disk. For AVOIDED ``wanted``
    pods of ``bound`` jobs failed within ``left`` seconds of their start; for FLAPPING the host came back ``wanted``
    times within ``left`` seconds. For SKEW a domain of the label ``name`` may have ``wanted`` pods of the job,
    ``bound`` more than the domain ``kind``, which has ``left``; with ``bound`` 0 the host lacks the label. RESERVED
    names the pod; OWN_RESERVATION the host, from the second ``wanted`` to ``left`` of the unix time, where ``bound`` of
    ``kind`` is not free yet.
    """

    rule: HostRule
    kind: str = ""
    wanted: int = 0
    left: int = 0
    bound: int = 0
    name: str = ""  # of the constraint, of the other cluster, or of the host pool; then ``kind`` is the workload


@dataclass(frozen=True, slots=True)
class RefusingHosts:
    host_count: int
    misfit: Misfit


def merged(misfits: Iterable[tuple[Misfit, int]]) -> tuple[RefusingHosts, ...]:
    """``(misfit, hosts)``: hosts that fail the same rule are counted together, in the order of the rules; of what is
    left on them the most counts."""
    counts: dict[tuple[object, ...], int] = {}
    most: dict[tuple[object, ...], Misfit] = {}
    for misfit, count in misfits:
        if not count:
            continue  # what no host has says nothing of the others
        key = (misfit.rule, misfit.kind, misfit.wanted, misfit.bound, misfit.name)
        counts[key] = counts.get(key, 0) + count
        if key not in most or most[key].left < misfit.left:
            most[key] = misfit
    found = [RefusingHosts(count, most[key]) for key, count in counts.items()]
    return tuple(sorted(found, key=lambda one: (_RULES.index(one.misfit.rule), one.misfit.name, one.misfit.kind)))


_RULES = tuple(HostRule)


@dataclass(frozen=True, slots=True)
class NoHost:
    """Like pods, or one gang, without a host. Each host counts under the first rule that it fails."""

    pod_count: int
    is_gang: bool = False
    hosts: tuple[RefusingHosts, ...] = ()


class ClusterRule(OpenEnum):
    """Why a placement uses no host of a cluster."""

    UNKNOWN = ""
    NO_HOST = "no host"
    SILENT = "silent"  # its host manager does not answer
    ELSEWHERE = "elsewhere"  # the pods may go to no host there
    FAILED = "failed"  # the call failed
    NOT_READY = "not ready"  # no pod waits for a host any more
    LEASE_LOST = "lease lost"


@dataclass(frozen=True, slots=True)
class ClusterReason:
    """``cluster`` is empty where there is only one. ``more_count``: sorts of pods that are not in ``pods``."""

    cluster: str = ""
    rule: ClusterRule = ClusterRule.NO_HOST
    pods: tuple[NoHost, ...] = ()
    more_count: int = 0
    detail: str = ""  # what the failed call said; elsewhere: the kind of the cluster

    def within(self, cluster: str) -> ClusterReason:
        return replace(self, cluster=cluster)


PlacementReason = tuple[ClusterReason, ...]
"""By cluster. Empty: every pod found a host."""


@dataclass(frozen=True, slots=True)
class Infeasible:
    """No host of a cluster could take a pod even if it were empty."""

    cluster: str = ""  # empty where there is only one
    host_count: int = 0
    meeting_count: int = 0  # that meet the constraint and are in host pools for it, whether exclusive or not
    allowed_count: int = 0  # of those, that are not exclusive to other pods
    constraint: str = ""
    wanted: Resources = Resources()  # noqa: RUF009 - frozen
    largest: Resources = Resources()  # noqa: RUF009 - frozen; the most of each kind on an allowed host
    served_count: int = 0  # in host pools that serve the workload
    workload: str = ""  # of the pod

    def within(self, cluster: str) -> Infeasible:
        return replace(self, cluster=cluster)


Infeasibility = tuple[Infeasible, ...]
"""By cluster. Empty: some host could take the pod."""


# Requeued, and evicted.


class RequeueRule(OpenEnum):
    """Why pods, or a gang, give back their admission."""

    UNKNOWN = ""
    NO_HOST_IN_TIME = "no host in time"
    FITS_NO_HOST = "fits no host"
    NO_GANG_HOSTS_IN_TIME = "no hosts for the gang in time"
    NOT_RUNNING_IN_TIME = "gang not running in time"
    NOT_LAUNCHED = "members not launched"
    LEFT_BEHIND = "members left behind"
    CANCELLED = "cancelled"  # the workflow of the launch


@dataclass(frozen=True, slots=True)
class RequeueReason:
    """For ``count`` of the ``gang_size`` members. ``infeasible``: the first sorts of pods that no host could take, and
    ``more_count`` the number of other sorts. ``placement``: the last placement's reason for the rest."""

    rule: RequeueRule = RequeueRule.NO_HOST_IN_TIME
    count: int = 0
    gang_size: int = 1
    seconds: float = 0.0
    infeasible: tuple[Infeasibility, ...] = ()
    placement: PlacementReason = ()
    more_count: int = 0


@dataclass(frozen=True, slots=True)
class Grounds:
    """Why gangs are evicted, and for which waiting gang.

    Between pools ``held`` is what the victim's pool holds and ``bound`` its entitlement; inside a pool ``held`` is what
    is used of the rule's ``bound``.
    """

    rule: Rule
    pool_path: str  # of the victim
    for_pool: str
    for_job: str
    kind: str
    wanted: int
    held: int
    bound: int
    priority: int = 0  # of the waiting gang
    own_priority: int = 0

    @property
    def is_inside(self) -> bool:
        return self.pool_path == self.for_pool


class QosRule(OpenEnum):
    """Why a revocable pod leaves its host."""

    UNKNOWN = ""
    HOT_CPU = "hot cpu"
    HOT_MEMORY = "hot memory"
    LESS_SLACK = "less slack"
    DAEMON = "daemon"  # it, or an ordinary preemptible one, makes room for a daemon


@dataclass(frozen=True, slots=True)
class QosReason:
    """``used`` of ``total`` is in use, and ``bound`` percent are allowed; for LESS_SLACK revocable pods hold ``used``
    of the ``total`` that is left."""

    rule: QosRule
    hostname: str
    used: int
    total: int
    bound: int = 0


EvictionReason = Grounds | QosReason


@dataclass(frozen=True, slots=True)
class SlaRefusal:
    """Of at most ``maximum`` instances that may be unavailable ``missing`` are; ``refused`` more have to wait."""

    maximum: int
    missing: int
    refused: int
