"""When to compare what storage believes to be on hosts with what Mesos knows, and about which pods not to ask."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum

from peloton.model.ids import PodId
from peloton.model.pod import PodState

PERIOD_S = 1_800.0
FOLLOW_UPS_S = (20.0, 60.0, 180.0, 600.0)
"""After a comparison of everything. A master that still waits for its agents does not answer for their pods."""

Row = tuple[PodId, str, str, PodState]
"""Pod, host, agent id, stored state."""


class Look(IntEnum):
    NONE = 0
    UNSETTLED = 1  # pods that should have moved on: launched and not seen since, or killed and not ended
    ALL = 2

    def covers(self, state: PodState) -> bool:
        return self is Look.ALL or state in (PodState.LAUNCHED, PodState.KILLING)


class ReconcileSchedule:
    """One thread takes what is due; any thread may want a look now."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted = Look.ALL
        self._due_s: list[float] = []  # the last one is a look at everything

    @property
    def is_wanted(self) -> bool:
        return self._wanted is not Look.NONE

    def want(self, look: Look) -> None:
        with self._lock:
            self._wanted = max(self._wanted, look)

    def take(self, now_s: float) -> Look:
        """What is to be done now; whoever fails at it wants it again."""
        with self._lock:
            look, self._wanted = self._wanted, Look.NONE
            while self._due_s and self._due_s[0] <= now_s:
                look = max(look, Look.UNSETTLED if len(self._due_s) > 1 else Look.ALL)
                del self._due_s[0]
            if look is Look.ALL:
                self._due_s = [now_s + delay_s for delay_s in (*FOLLOW_UPS_S, PERIOD_S)]
            return look


class InFlight:
    """Pods between their commit as LAUNCHED and their ACCEPT: Mesos has not heard of them, and would call them lost."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pods: Counter[PodId] = Counter()

    @contextmanager
    def launching(self, pods: Sequence[PodId]) -> Iterator[None]:
        with self._lock:
            self._pods.update(pods)
        try:
            yield
        finally:
            with self._lock:
                self._pods.subtract(pods)
                for pod_id in pods:
                    if self._pods[pod_id] <= 0:
                        del self._pods[pod_id]

    def landed(self, rows: Sequence[Row]) -> list[Row]:
        """Rows read from storage before, without those in flight: what has landed since is known to Mesos."""
        with self._lock:
            return [row for row in rows if row[0] not in self._pods]
