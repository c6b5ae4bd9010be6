"""Misfits: the first rule that a host fails for a pod, one class for each shape of a rule.

Messages and payloads have one form for all rules, ``Slots``, whose fields mean what the class of the rule says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar


class OpenEnum(StrEnum):
    """Enumeration of the wire whose unknown values, of other releases, become the empty member."""

    @classmethod
    def _missing_(cls, value: object) -> OpenEnum | None:
        return cls("") if value else None


class HostRule(OpenEnum):
    """Rule by which a host refuses a pod. The values are stored, so they stay even where the names have changed."""

    UNKNOWN = ""
    EXCLUSIVE = "exclusive"  # the host takes only pods that request it
    HOST_POOL = "host pool"  # the host pool of the host does not serve the workload
    CONSTRAINT = "constraint"  # the pod's constraint on labels of hosts or of other pods is not met
    SIZE = "size"  # the capacity of the empty host is too small
    FREE_RESOURCES = "room"
    VOLUME_DISK = "volume room"  # disk of the host itself, without overcommitment by its host pool
    REVOCABLE_RESOURCES = "revocable room"
    POD_SLOTS = "pod slots"  # the host has its maximum number of pods
    PORTS = "ports"
    NOT_OFFERED = "not offered"
    LEASED = "leased"  # another placement holds the host
    MAINTENANCE = "maintenance"
    GOES_SOON = "goes soon"  # the cluster removes the host
    NAME_TAKEN = "name taken"  # another cluster has a host of the same name
    CLOSED = "closed"  # closed to revocable pods after a high load
    HELD = "held"  # resources are held for pods that return
    AVOIDED = "avoided"  # pods failed on the host
    FLAPPING = "flapping"  # the host leaves the cluster and returns repeatedly
    GPU_KEPT = "gpu kept"  # the host has gpus, and pods that request gpus wait
    SKEW = "skew"  # the pod would raise the skew of the job's spread above its maximum
    GANG_CAPACITY = "gang room"  # fewer members fit on these hosts than the gang has
    RESERVED = "reserved"  # freed resources are reserved for another pod
    OWN_RESERVATION = "own reservation"  # reserved for this pod, and not enough is free yet
    RETURN = "return"  # the resources are for a pod that returns to the host


@dataclass(frozen=True, slots=True)
class Refused:
    """A rule without numbers."""

    rule: HostRule


@dataclass(frozen=True, slots=True)
class LackingAmount:
    """The pod wants more of a resource than the ``left`` of the host: SIZE, FREE_RESOURCES or REVOCABLE_RESOURCES."""

    rule: HostRule
    kind: str
    wanted: int
    left: int


@dataclass(frozen=True, slots=True)
class LackingVolumeDisk:
    """The host itself has too little disk for a pod with a new volume, which is part of ``wanted_mib``."""

    rule: ClassVar = HostRule.VOLUME_DISK
    host_pool: str
    wanted_mib: int
    left_mib: int
    volume_mib: int


@dataclass(frozen=True, slots=True)
class LackingPorts:
    rule: ClassVar = HostRule.PORTS
    wanted: int
    left: int


@dataclass(frozen=True, slots=True)
class PortInUse:
    rule: ClassVar = HostRule.PORTS
    port: str


@dataclass(frozen=True, slots=True)
class UnservedWorkload:
    rule: ClassVar = HostRule.HOST_POOL
    host_pool: str
    workload: str


@dataclass(frozen=True, slots=True)
class UnmetConstraint:
    rule: ClassVar = HostRule.CONSTRAINT
    constraint: str


@dataclass(frozen=True, slots=True)
class NameTaken:
    rule: ClassVar = HostRule.NAME_TAKEN
    cluster: str


@dataclass(frozen=True, slots=True)
class FailedPods:
    """Pods of several jobs, or of the pod's own job, failed on the host within a time after their start."""

    rule: ClassVar = HostRule.AVOIDED
    pod_count: int
    job_count: int
    within_s: int


@dataclass(frozen=True, slots=True)
class FlappingHost:
    rule: ClassVar = HostRule.FLAPPING
    return_count: int
    within_s: int


@dataclass(frozen=True, slots=True)
class SkewExceeded:
    """The domain of the host has ``pod_max`` pods of the job, ``skew_max`` more than the lowest domain."""

    rule: ClassVar = HostRule.SKEW
    label: str
    lowest_domain: str
    lowest_count: int
    pod_max: int
    skew_max: int


@dataclass(frozen=True, slots=True)
class NoDomain:
    """The host lacks the label that the job spreads over."""

    rule: ClassVar = HostRule.SKEW
    label: str


@dataclass(frozen=True, slots=True)
class GangCapacity:
    """Fewer members fit than the gang has, in one domain of ``label`` if that is required."""

    rule: ClassVar = HostRule.GANG_CAPACITY
    size: int
    fit_count: int
    label: str = ""


@dataclass(frozen=True, slots=True)
class ReservedForOther:
    rule: ClassVar = HostRule.RESERVED
    pod: str


@dataclass(frozen=True, slots=True)
class OwnReservation:
    """The host is reserved for the pod in a span of unix seconds; ``lacking`` of ``kind`` is not free yet."""

    rule: ClassVar = HostRule.OWN_RESERVATION
    hostname: str
    since_s: int
    until_s: int
    kind: str
    lacking: int


Misfit = (
    Refused
    | LackingAmount
    | LackingVolumeDisk
    | LackingPorts
    | PortInUse
    | UnservedWorkload
    | UnmetConstraint
    | NameTaken
    | FailedPods
    | FlappingHost
    | SkewExceeded
    | NoDomain
    | GangCapacity
    | ReservedForOther
    | OwnReservation
)


# The form in messages and payloads.


@dataclass(frozen=True, slots=True)
class Slots:
    """Form of a misfit in messages and payloads. Releases add rules and keep the slots of those that exist."""

    rule: HostRule
    kind: str = ""
    wanted: int = 0
    left: int = 0
    bound: int = 0
    name: str = ""


_SLOTS: Mapping[type[Any], Mapping[str, str]] = {
    Refused: {"rule": "rule"},
    LackingAmount: {"rule": "rule", "kind": "kind", "wanted": "wanted", "left": "left"},
    LackingVolumeDisk: {"host_pool": "name", "wanted_mib": "wanted", "left_mib": "left", "volume_mib": "bound"},
    LackingPorts: {"wanted": "wanted", "left": "left"},
    PortInUse: {"port": "name"},
    UnservedWorkload: {"host_pool": "name", "workload": "kind"},
    UnmetConstraint: {"constraint": "name"},
    NameTaken: {"cluster": "name"},
    FailedPods: {"pod_count": "wanted", "job_count": "bound", "within_s": "left"},
    FlappingHost: {"return_count": "wanted", "within_s": "left"},
    SkewExceeded: {
        "label": "name",
        "lowest_domain": "kind",
        "lowest_count": "left",
        "pod_max": "wanted",
        "skew_max": "bound",
    },
    NoDomain: {"label": "name"},
    GangCapacity: {"size": "wanted", "fit_count": "left", "label": "name"},
    ReservedForOther: {"pod": "name"},
    OwnReservation: {"hostname": "name", "since_s": "wanted", "until_s": "left", "kind": "kind", "lacking": "bound"},
}
"""Slot of each field, by class."""
_CLASSES: Mapping[HostRule, type[Any]] = {
    HostRule.SIZE: LackingAmount,
    HostRule.FREE_RESOURCES: LackingAmount,
    HostRule.REVOCABLE_RESOURCES: LackingAmount,
} | {kind.rule: kind for kind in _SLOTS if kind not in (Refused, LackingAmount, PortInUse, NoDomain)}


def to_slots(misfit: Misfit) -> Slots:
    found = {slot: getattr(misfit, field) for field, slot in _SLOTS[type(misfit)].items()}
    if isinstance(misfit, LackingVolumeDisk):
        found["kind"] = "disk"
    return Slots(**{"rule": misfit.rule, **found})


def from_slots(slots: Slots) -> Misfit:
    kind = _class_of(slots)
    misfit: Misfit = kind(**{field: getattr(slots, slot) for field, slot in _SLOTS[kind].items()})
    return misfit


def _class_of(slots: Slots) -> type[Any]:
    """Return the class of the rule; some slots that are empty or given make another one of the same rule."""
    match slots.rule:
        case HostRule.PORTS if slots.name:
            return PortInUse
        case HostRule.SKEW if not slots.bound:
            return NoDomain
        case HostRule.AVOIDED | HostRule.FLAPPING if not slots.wanted:
            return Refused
    return _CLASSES.get(slots.rule, Refused)
