"""Reservations of hosts for pods that fit on no host now."""

from __future__ import annotations

from dataclasses import dataclass

from peloton.model.ids import Hostname, JobId
from peloton.model.pod import PodShape


@dataclass(frozen=True, slots=True)
class WaitingPod:
    """An admitted pod outside a gang that waits for a host. ``vain_count``: consecutive earlier admissions without a
    host."""

    instance_id: int
    shape: PodShape
    waited_s: float  # since its admission
    vain_count: int = 0


@dataclass(frozen=True, slots=True)
class SoonestHost:
    """The host that needs the smallest part of its batch pods to end: ``lacking`` of ``ending`` of ``kind``, the
    scarcest kind. ``host_count`` hosts were compared."""

    hostname: Hostname
    kind: str
    lacking: int
    ending: int
    host_count: int


@dataclass(frozen=True, slots=True)
class HostReservation:
    job_id: JobId
    instance_id: int
    shape: PodShape
    host: SoonestHost
    since_ns: int
    until_ns: int

    @property
    def hostname(self) -> Hostname:
        return self.host.hostname

    @property
    def key(self) -> tuple[JobId, int]:
        return self.job_id, self.instance_id
