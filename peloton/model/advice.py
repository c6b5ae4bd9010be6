"""Marks of the host advisor: how loaded a host is, and how fast a service answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from peloton.model.ids import Hostname, JobId


class Mark(StrEnum):
    """Severity of a mark; members are ordered from best to worst."""

    GREEN = "GREEN"
    ORANGE = "ORANGE"
    RED = "RED"


class Marked(NamedTuple):
    """A mark and its reason in words, with the measured numbers."""

    mark: Mark
    reason: str


@dataclass(frozen=True, slots=True)
class HostMark:
    """Mark of a host since ``since_ns`` (unix nanoseconds); ``reason`` is in words, with the measured numbers."""

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
    """Latency that a pod reports of the requests it answered recently. Percentiles are in milliseconds."""

    p50_ms: float
    p95_ms: float
    p99_ms: float
    requests: int


@dataclass(frozen=True, slots=True)
class LatencyBounds:
    """Milliseconds from which a service is marked; 0 disables the bound."""

    p95_orange_ms: int = 0
    p95_red_ms: int = 0
    p99_orange_ms: int = 0
    p99_red_ms: int = 0
