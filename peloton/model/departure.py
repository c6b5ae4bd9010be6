"""Expected departure of the pods of a host if it were drained now."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from peloton.model.ids import Hostname, JobId


class Departure(StrEnum):
    REQUEUED = "REQUEUED"  # batch pods go back to their queue, gangs whole
    SLA = "SLA"  # pods of services leave as the SLA of their job allows
    STOPPED = "STOPPED"  # the volume is on the host: an operator has to stop them
    LAST = "LAST"  # pods of daemons leave when all others have


@dataclass(frozen=True, slots=True)
class JobDeparture:
    """Pods of one job on one host, without pods that are leaving already."""

    job_id: JobId
    departure: Departure
    pod_count: int
    allowed_count: int = 0
    """Pods that the SLA lets leave now, counted over all hosts."""
    homeless_count: int = 0
    """Pods under an SLA that fit on no other host now and wait for free resources."""


@dataclass(frozen=True, slots=True)
class HostDeparture:
    """Departures from one host. ``unchecked_count``: pods that were not checked against the other hosts."""

    hostname: Hostname
    jobs: tuple[JobDeparture, ...] = ()
    leaving_count: int = 0
    unchecked_count: int = 0
