"""Latencies that pods have reported recently."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from peloton.errors import ResourceExhausted
from peloton.model.advice import PodLatency
from peloton.model.ids import JobId, PodName

PODS_MAX = 100_000
AGE_MAX_S = 60.0
Report = tuple[float, PodLatency]
"""Time of arrival, and the reported latency."""


class LatencyReports:
    """The last report of each instance. Any thread may call."""

    def __init__(self, clock: Callable[[], float], pods_max: int = PODS_MAX) -> None:
        self._clock, self._pods_max = clock, pods_max
        self._lock = threading.Lock()
        self._reports: dict[JobId, dict[int, Report]] = {}
        self._count = 0
        self._news: set[JobId] = set()

    def take(self, reports: Mapping[PodName, PodLatency]) -> None:
        """Record all of the reports or none. Raises ResourceExhausted."""
        now_s = self._clock()
        with self._lock:
            fresh = sum(pod.instance_id not in self._reports.get(pod.job_id, {}) for pod in reports)
            if self._count + fresh > self._pods_max:
                self._forget_old(now_s)
                fresh = sum(pod.instance_id not in self._reports.get(pod.job_id, {}) for pod in reports)
            if self._count + fresh > self._pods_max:
                raise ResourceExhausted(
                    f"latencies of {self._count} pods are kept, of {fresh} more are reported: at most {self._pods_max}",
                    AGE_MAX_S,
                )
            for pod, latency in reports.items():
                of_job = self._reports.setdefault(pod.job_id, {})
                self._count += pod.instance_id not in of_job
                of_job[pod.instance_id] = now_s, latency
                self._news.add(pod.job_id)

    def pop_news(self) -> dict[JobId, dict[int, PodLatency]]:
        """Return all known latencies of the jobs whose pods have reported since the last call, by instance."""
        with self._lock:
            self._forget_old(self._clock())
            news, self._news = self._news, set()
            return {job_id: {at: one[1] for at, one in self._reports[job_id].items()} for job_id in news}

    def jobs(self) -> set[JobId]:
        """Return the jobs whose pods report."""
        with self._lock:
            return set(self._reports)

    def forget(self, job_id: JobId) -> None:
        with self._lock:
            self._count -= len(self._reports.pop(job_id, {}))
            self._news.discard(job_id)

    def _forget_old(self, now_s: float) -> None:
        oldest_s = now_s - AGE_MAX_S
        for job_id, of_job in list(self._reports.items()):
            kept = {at: one for at, one in of_job.items() if one[0] > oldest_s}
            self._count -= len(of_job) - len(kept)
            if kept:
                self._reports[job_id] = kept
            else:
                del self._reports[job_id]
                self._news.discard(job_id)
