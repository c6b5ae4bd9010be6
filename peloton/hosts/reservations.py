"""Hosts reserved for pods: resources that become free there are withheld from other pods. A pod reserves one host, a
host has one reservation, and a job one at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from peloton.model.ids import Hostname, JobId
from peloton.model.reservation import HostReservation, WaitingPod

ASKED_AGAIN_S = 120.0
"""Seconds within which a job with waiting pods requests hosts again; a job that does not has no waiting pod left."""
RESTS_MAX = 10_000
"""Limit of jobs whose pods get no reservation for a while; further jobs are not delayed."""


class HostReservations:
    """Reservations in memory only: under the next leader of the host manager a host is chosen again. Times are of the
    monotonic clock, except the displayed ones. Not thread-safe."""

    def __init__(self) -> None:
        self._by_job: dict[JobId, HostReservation] = {}
        self._by_host: dict[Hostname, HostReservation] = {}
        self._until_s: dict[JobId, float] = {}
        self._asked_s: dict[JobId, float] = {}
        self._rests: dict[JobId, float] = {}  # job -> end of its pause

    def __len__(self) -> int:
        return len(self._by_job)

    def all(self) -> list[HostReservation]:
        return list(self._by_host.values())

    def hostnames(self) -> Collection[Hostname]:
        return self._by_host.keys()

    def of_job(self, job_id: JobId) -> HostReservation | None:
        return self._by_job.get(job_id)

    def on(self, hostname: Hostname) -> HostReservation | None:
        return self._by_host.get(hostname)

    def may_add(self, job_id: JobId, now_s: float) -> bool:
        for late in [job for job, until_s in self._rests.items() if until_s <= now_s]:
            del self._rests[late]
        return job_id not in self._by_job and job_id not in self._rests

    def rest(self, job_id: JobId, until_s: float) -> None:
        if len(self._rests) < RESTS_MAX:
            self._rests[job_id] = until_s

    def add(self, made: HostReservation, until_s: float, now_s: float) -> None:
        assert made.job_id not in self._by_job
        assert made.hostname not in self._by_host
        self._by_job[made.job_id] = self._by_host[made.hostname] = made
        self._until_s[made.job_id], self._asked_s[made.job_id] = until_s, now_s

    def record_request(self, job_id: JobId, waiting: Sequence[WaitingPod], now_s: float) -> HostReservation | None:
        """Record that the job requests hosts for these pods. Its reservation ends when its pod is not among them."""
        kept = self._by_job.get(job_id)
        if kept is not None and all(pod.instance_id != kept.instance_id for pod in waiting):
            self.drop([job_id])
            return None
        if kept is not None:
            self._asked_s[job_id] = now_s
        return kept

    def drop(self, jobs: Iterable[JobId]) -> None:
        for job_id in jobs:
            if kept := self._by_job.pop(job_id, None):
                del self._by_host[kept.hostname], self._until_s[job_id], self._asked_s[job_id]

    def late(self, now_s: float) -> list[HostReservation]:
        """Return expired reservations."""
        return [kept for job, kept in self._by_job.items() if self._until_s[job] <= now_s]

    def forgotten(self, now_s: float) -> list[HostReservation]:
        """Return reservations of jobs that have not requested hosts for ASKED_AGAIN_S."""
        return [kept for job, kept in self._by_job.items() if self._asked_s[job] + ASKED_AGAIN_S <= now_s]
