"""Index of the jobs that drains of hosts wait for, so that a change of a job wakes the right drains."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable

from peloton.model.ids import Hostname, JobId
from peloton.model.reason import SlaRefusal
from peloton.ports import HostLifecycles, PodLifecycles

REFUSAL_S = 5.0
"""Seconds for which a refusal is cached, unless its job changes earlier."""


class DrainWatch:
    """Implements ``ports.PodLifecycles``: forwards changes of jobs, and wakes the drains that wait for these jobs.

    A changed job may allow one more eviction, so only the first of the hosts that it refused is woken. A granted
    eviction changes the job again, and a refusal is cached for the other hosts. The drains of many hosts thus ask an
    SLA once per change, not once per host.
    """

    def __init__(self, jobs: PodLifecycles, hosts: HostLifecycles, clock: Callable[[], float] = time.monotonic) -> None:
        self._jobs = jobs
        self._hosts = hosts
        self._clock = clock
        self._lock = threading.Lock()
        self._leaving: dict[Hostname, frozenset[JobId]] = {}  # host -> jobs whose pods are leaving
        self._refused: dict[Hostname, frozenset[JobId]] = {}  # host -> jobs whose pods may not leave yet
        self._asking: set[JobId] = set()
        self._refusals: dict[JobId, tuple[float, SlaRefusal]] = {}  # expiry, reason

    def watch(self, hostname: Hostname, leaving: Collection[JobId] = (), refused: Collection[JobId] = ()) -> None:
        """Set the jobs that the drain of a host waits for; none when the drain ends."""
        with self._lock:
            for known, jobs in ((self._leaving, leaving), (self._refused, refused)):
                known.pop(hostname, None)
                if jobs:
                    known[hostname] = frozenset(jobs)

    def refusal(self, job_id: JobId) -> SlaRefusal | None:
        """Return the SLA's last refusal while it is valid; else None, and the caller asks the SLA and records its
        answer."""
        with self._lock:
            until_s, refusal = self._refusals.get(job_id, (0.0, None))
            if refusal and self._clock() < until_s:
                return refusal
            self._asking.add(job_id)
            return None

    def note_refusal(self, job_id: JobId, refusal: SlaRefusal) -> None:
        """Cache a refusal, unless the job changed since the SLA was asked."""
        with self._lock:
            if job_id in self._asking:
                self._asking.discard(job_id)
                self._refusals[job_id] = (self._clock() + REFUSAL_S, refusal)

    def jobs_changed(self, job_ids: Iterable[JobId], cause: str = "") -> None:
        changed = set(job_ids)
        self._jobs.jobs_changed(changed, cause)
        self._wake(changed)

    def pods_changed(self, job_ids: Iterable[JobId], cause: str = "") -> None:
        changed = set(job_ids)
        self._jobs.pods_changed(changed, cause)
        self._wake(changed)

    def _wake(self, changed: set[JobId]) -> None:
        if concerned := self._hosts_to_wake(changed):
            self._hosts.hosts_changed(concerned)

    def _hosts_to_wake(self, changed: set[JobId]) -> list[Hostname]:
        with self._lock:
            self._asking -= changed
            for job_id in changed & self._refusals.keys():
                del self._refusals[job_id]
            hosts = {hostname for hostname, jobs in self._leaving.items() if not jobs.isdisjoint(changed)}
            left = set(changed)
            for hostname in sorted(self._refused):
                if not left.isdisjoint(self._refused[hostname]):
                    hosts.add(hostname)
                    left -= self._refused[hostname]
            return sorted(hosts)
