"""Moves of hosts between host pools by the mover, with the rule and reason of each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from peloton.model.ids import Hostname


class MoverRule(StrEnum):
    LOAD = "LOAD"  # its hosts are loaded
    MARKS = "MARKS"  # too many of its hosts are marked orange or red
    LATENCY = "LATENCY"  # its services answer too slowly
    WAITING = "WAITING"  # its pods wait for hosts
    MINIMUM = "MINIMUM"  # it has fewer hosts than its minimum
    SPARE = "SPARE"  # it no longer needs its hosts
    STUCK = "STUCK"  # hosts were not drained in time and stay


@dataclass(frozen=True, slots=True)
class Made:
    """Hosts that the mover moves, or with STUCK keeps in their host pool. ``at_ns``: unix nanoseconds."""

    source: str
    destination: str
    rule: MoverRule
    reason: str  # in words, with its numbers
    hostnames: tuple[Hostname, ...]
    at_ns: int
