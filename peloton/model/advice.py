"""What the host advisor says: how a host bears its load, and how fast a service answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from peloton.model.ids import Hostname, JobId


class Mark(StrEnum):
    """In the order of how bad it is."""

    GREEN = "GREEN"
    ORANGE = "ORANGE"
    RED = "RED"


class Marked(NamedTuple):
    """``reason``: in words, with its numbers."""

    mark: Mark
    reason: str


@dataclass(frozen=True, slots=True)
class HostMark:
    """``since_ns``: unix nanoseconds; ``reason``: in words, with its numbers."""

    hostname: Hostname
    mark: Mark
    since_ns: int
    reason: str


@dataclass(frozen=True, slots=True)
class ServiceMark:
    job_id: JobId
    mark: Mark
    since_ns: int
    reason: str


@dataclass(frozen=True, slots=True)
class PodLatency:
    """What a pod reports of the requests that it has answered lately. Percentiles in milliseconds."""

    p50_ms: float
    p95_ms: float
    p99_ms: float
    requests: int


@dataclass(frozen=True, slots=True)
class LatencyBounds:
    """Milliseconds from which on a service is marked; 0: it is not, by that."""

    p95_orange_ms: int = 0
    p95_red_ms: int = 0
    p99_orange_ms: int = 0
    p99_red_ms: int = 0
