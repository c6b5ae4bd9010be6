"""Which pods are on the hosts that are being drained: one look at storage serves all of them for a moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from peloton.model.ids import Hostname, JobId
from peloton.model.maintenance import Resident

AGE_MAX_S = 0.25
ASKED_FOR_S = 60.0
"""A host that nobody has asked for so long is not looked at any more."""
REST_PER_LOOK = 10
"""A look that took long serves for so many times as long."""

Look = Callable[[Collection[str]], Mapping[Hostname, Sequence[Resident]]]


class Residents:
    def __init__(self, look: Look, clock: Callable[[], float] = time.monotonic) -> None:
        self._look = look
        self._clock = clock
        self._lock = threading.Lock()
        self._asked_s: dict[Hostname, float] = {}
        self._found: dict[Hostname, Sequence[Resident]] = {}
        self._good_until_s = 0.0

    def of(self, hostname: Hostname) -> Sequence[Resident]:
        """As of a moment ago."""
        with self._lock:
            now_s = self._clock()
            self._asked_s[hostname] = now_s
            if hostname not in self._found or now_s >= self._good_until_s:
                self._look_again(now_s)
            return self._found[hostname]

    def note_leaving(self, hostname: Hostname, job_id: JobId, instance_ids: Collection[int]) -> None:
        """They have been told since the last look: nobody asks them again."""
        with self._lock:
            if hostname in self._found:
                self._found[hostname] = [
                    replace(pod, is_leaving=True) if pod.job_id == job_id and pod.instance_id in instance_ids else pod
                    for pod in self._found[hostname]
                ]

    def now_of(self, hostname: Hostname) -> Sequence[Resident]:
        """As of now, whatever was seen before."""
        return self._look([hostname])[hostname]

    def _look_again(self, now_s: float) -> None:
        self._asked_s = {host: at_s for host, at_s in self._asked_s.items() if now_s - at_s < ASKED_FOR_S}
        self._found = dict(self._look(list(self._asked_s)))
        took_s = self._clock() - now_s
        self._good_until_s = now_s + took_s + max(AGE_MAX_S, REST_PER_LOOK * took_s)
