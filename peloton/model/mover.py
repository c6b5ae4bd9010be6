"""What the mover of host pools has done: hosts that go from one host pool to another, and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from peloton.model.ids import Hostname


class MoverRule(StrEnum):
    LOAD = "LOAD"  # its hosts are loaded
    MARKS = "MARKS"  # too many of its hosts are marked orange or red
    LATENCY = "LATENCY"  # its services answer too slowly
    WAITING = "WAITING"  # its pods wait for hosts
    MINIMUM = "MINIMUM"  # it has fewer hosts than it is to keep
    SPARE = "SPARE"  # it needs its hosts no longer
    STUCK = "STUCK"  # hosts that were to go, and were not empty in time: they stay


@dataclass(frozen=True, slots=True)
class Made:
    """Hosts that were told to go, or with STUCK to stay after all. ``at_ns``: unix nanoseconds."""

    source: str
    destination: str
    rule: MoverRule
    reason: str  # in words, with its numbers
    hostnames: tuple[Hostname, ...]
    at_ns: int
