"""What happened to a host."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from peloton.model.ids import Hostname


class HostEventKind(StrEnum):
    # Its cluster.
    JOINED = "JOINED"  # it is registered, for the first time or again
    LEFT = "LEFT"  # it is registered no more: lost, or down for maintenance
    CHANGED = "CHANGED"  # capacity, labels, or another agent under its name
    CORDONED = "CORDONED"  # closed by an operator of the cluster
    UNCORDONED = "UNCORDONED"
    # What pods met there.
    AVOIDED = "AVOIDED"  # pods failed there
    FLAPPING = "FLAPPING"  # it left and came back again and again
    MARKED = "MARKED"  # by the host advisor
    RESERVED = "RESERVED"  # for a pod that has waited for long
    GIVEN_BACK = "GIVEN_BACK"  # to others: the pod is launched, or waits no more, or no room came
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
    POOL_WANTED = "POOL_WANTED"  # it is to be in another host pool, or to stay after all
    POOL_CHANGED = "POOL_CHANGED"


@dataclass(frozen=True, slots=True)
class HostEvent:
    """Times are unix nanoseconds."""

    hostname: Hostname
    kind: HostEventKind
    text: str  # an English sentence without its full stop, with numbers
    at_ns: int
    cluster: str = ""  # empty: not known
    until_ns: int = 0  # for how long it holds; 0: that is open
    seq: int = 0  # rises with each event of all hosts; 0: not stored yet
