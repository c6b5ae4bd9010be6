"""How the pods of a host would leave it, were it drained now."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from peloton.model.ids import Hostname, JobId


class Departure(StrEnum):
    REQUEUED = "REQUEUED"  # batch pods go back to their queue, gangs whole
    SLA = "SLA"  # pods of services leave as the SLA of their job allows
    STOPPED = "STOPPED"  # their volume is on the host: somebody has to stop them
    LAST = "LAST"  # pods of daemons leave when all others have


@dataclass(frozen=True, slots=True)
class JobDeparture:
    """Pods of one job on one host, without those that are leaving already."""

    job_id: JobId
    departure: Departure
    pod_count: int
    allowed_count: int = 0
    """Of SLA: pods that may leave now, of all hosts."""
    homeless_count: int = 0
    """Of SLA: pods that no other host takes as things are; they wait for room."""


@dataclass(frozen=True, slots=True)
class HostDeparture:
    """``unchecked_count``: pods of which it is not known whether another host takes them."""

    hostname: Hostname
    jobs: tuple[JobDeparture, ...] = ()
    leaving_count: int = 0
    unchecked_count: int = 0
