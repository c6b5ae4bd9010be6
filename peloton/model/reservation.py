"""A host that is reserved for a pod which fits on none now."""

from __future__ import annotations

from dataclasses import dataclass

from peloton.model.ids import Hostname, JobId
from peloton.model.pod import PodShape


@dataclass(frozen=True, slots=True)
class WaitingPod:
    """An admitted pod that stands alone and waits for a host. ``vain_count``: admissions in a row before this one for
    which none was found."""

    instance_id: int
    shape: PodShape
    waited_s: float  # since it was admitted
    vain_count: int = 0


@dataclass(frozen=True, slots=True)
class SoonestHost:
    """The host on which the smallest part of what batch pods hold has to be given back: ``lacking`` of ``ending`` of
    ``kind``, the scarcest. ``host_count`` hosts were compared."""

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
