"""The pods on draining hosts: one query of storage serves all drains for a fraction of a second."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from peloton.model.ids import Hostname, JobId
from peloton.model.maintenance import HostedPod

AGE_MAX_S = 0.25
ASKED_WITHIN_S = 60.0
"""Seconds after the last request for a host until the query omits it."""
REST_PER_QUERY = 10
"""Ratio of the time for which a query's result is used to the duration of the query."""

Find = Callable[[Collection[str]], Mapping[Hostname, Sequence[HostedPod]]]


class HostedPods:
    def __init__(self, find: Find, clock: Callable[[], float] = time.monotonic) -> None:
        self._find = find
        self._clock = clock
        self._lock = threading.Lock()
        self._asked_s: dict[Hostname, float] = {}
        self._found: dict[Hostname, Sequence[HostedPod]] = {}
        self._good_until_s = 0.0

    def of(self, hostname: Hostname) -> Sequence[HostedPod]:
        """Return the pods on a host from the cached query."""
        with self._lock:
            now_s = self._clock()
            self._asked_s[hostname] = now_s
            if hostname not in self._found or now_s >= self._good_until_s:
                self._query(now_s)
            return self._found[hostname]

    def note_leaving(self, hostname: Hostname, job_id: JobId, instance_ids: Collection[int]) -> None:
        """Record that these pods were asked to leave after the last query, so that they are not asked again."""
        with self._lock:
            if hostname in self._found:
                self._found[hostname] = [
                    replace(pod, is_leaving=True) if pod.job_id == job_id and pod.instance_id in instance_ids else pod
                    for pod in self._found[hostname]
                ]

    def now_of(self, hostnames: Collection[Hostname]) -> Mapping[Hostname, Sequence[HostedPod]]:
        """Query storage for the pods on these hosts, without the cache."""
        return self._find(hostnames)

    def _query(self, now_s: float) -> None:
        self._asked_s = {host: at_s for host, at_s in self._asked_s.items() if now_s - at_s < ASKED_WITHIN_S}
        self._found = dict(self._find(list(self._asked_s)))
        took_s = self._clock() - now_s
        self._good_until_s = now_s + took_s + max(AGE_MAX_S, REST_PER_QUERY * took_s)
