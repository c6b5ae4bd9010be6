"""Events of a host: joins, maintenance, failures of its pods."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from peloton.model.ids import Hostname


class HostEventKind(StrEnum):
    # Registration in its cluster.
    JOINED = "JOINED"  # registered, for the first time or again
    LEFT = "LEFT"  # no longer registered: lost, or down for maintenance
    CHANGED = "CHANGED"  # capacity, labels, or a new agent under the same name
    CORDONED = "CORDONED"  # closed by an operator of the cluster
    UNCORDONED = "UNCORDONED"
    # Experience of pods with the host.
    AVOIDED = "AVOIDED"  # pods failed there
    FLAPPING = "FLAPPING"  # left and returned repeatedly
    MARKED = "MARKED"  # mark of the host advisor changed
    RESERVED = "RESERVED"  # for a pod that has waited for long
    GIVEN_BACK = "GIVEN_BACK"  # reservation ended: the pod was launched, waits no longer, or resources did not suffice
    VOLUME_LOST = "VOLUME_LOST"
    VOLUME_FOUND = "VOLUME_FOUND"
    # Maintenance, and moves to other host pools.
    MAINTENANCE_ASKED = "MAINTENANCE_ASKED"
    DRAINING = "DRAINING"  # the drain has begun
    DRAIN_PROGRESS = "DRAIN_PROGRESS"
    DRAIN_FORCED = "DRAIN_FORCED"
    DRAINED = "DRAINED"
    DOWN = "DOWN"
    COMPLETED = "COMPLETED"  # it may come back
    CANCELLED = "CANCELLED"
    UP = "UP"  # it takes pods again
    POOL_WANTED = "POOL_WANTED"  # a move to another host pool was requested or withdrawn
    POOL_CHANGED = "POOL_CHANGED"


@dataclass(frozen=True, slots=True)
class HostEvent:
    """An event of one host. Times are unix nanoseconds."""

    hostname: Hostname
    kind: HostEventKind
    text: str  # an English sentence without its full stop, with numbers
    at_ns: int
    cluster: str = ""  # empty: unknown
    until_ns: int = 0  # end of the condition; 0: unknown
    seq: int = 0  # rises with each event of all hosts; 0: not stored yet
