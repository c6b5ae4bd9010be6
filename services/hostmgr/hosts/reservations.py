"""Hosts that are reserved for pods: what frees there is kept for them. One host for a pod, one pod for a host, and one
pod of a job at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from peloton.model.ids import Hostname, JobId
from peloton.model.reservation import HostReservation, WaitingPod

ASKED_AGAIN_S = 120.0
"""A job whose pods wait looks for hosts again within less. One that does not has no pod any more that waits."""
RESTS_MAX = 10_000
"""Jobs whose pods get no host reserved for a while; more of them do not rest."""


class HostReservations:
    """In memory only: under a successor of the host manager a host is chosen again. Times are those of the monotonic
    clock, but for those that people read. Not safe for threads."""

    def __init__(self) -> None:
        self._by_job: dict[JobId, HostReservation] = {}
        self._by_host: dict[Hostname, HostReservation] = {}
        self._until_s: dict[JobId, float] = {}
        self._asked_s: dict[JobId, float] = {}
        self._rests: dict[JobId, float] = {}  # job -> until when it gets none

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

    def asked(self, job_id: JobId, waiting: Sequence[WaitingPod], now_s: float) -> HostReservation | None:
        """The job looks for hosts for these pods. Its reservation ends when the pod is not among them."""
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
        """Those whose time is over."""
        return [kept for job, kept in self._by_job.items() if self._until_s[job] <= now_s]

    def forgotten(self, now_s: float) -> list[HostReservation]:
        """Those of jobs that have not looked for hosts for long."""
        return [kept for job, kept in self._by_job.items() if self._asked_s[job] + ASKED_AGAIN_S <= now_s]
