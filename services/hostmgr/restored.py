"""Launches wait after a restoration of the database: pods that were launched since the backup run on, unknown to it.

The first full reconciliation finds them as orphans and kills them. A launch before their end could run an instance
twice at the same time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from peloton.errors import Unavailable
from peloton.model.ids import PodId
from peloton.model.pod import TERMINAL, PodStatus
from services.storage.restored import Restorations

log = logging.getLogger(__name__)

QUIET_S = 10.0
"""Seconds without a new orphan after the reconciliation, until launches begin."""
WAIT_MAX_S = 600.0
"""Seconds for which orphans that do not end delay launches."""


class RestoredGate:
    """Gate of launches. Any thread may call."""

    def __init__(self, restorations: Restorations, cluster: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._restorations, self._cluster, self._clock = restorations, cluster, clock
        self._lock = threading.Lock()
        self._is_open = True
        self._orphans: set[PodId] = set()
        self._compared_s: float | None = None  # when the first full reconciliation was complete
        self._quiet_since_s = 0.0

    def start(self) -> None:
        self._is_open = self._restorations.is_compared(self._cluster)
        if not self._is_open:
            log.warning("the database was restored: launches wait until it is compared with cluster %s", self._cluster)

    def check(self) -> None:
        """Raise Unavailable while launches wait."""
        if not self._is_open:
            raise Unavailable(
                f"the database was restored, and is being compared with cluster {self._cluster}: launches wait until "
                f"{len(self._orphans)} orphaned pods have ended"
            )

    @property
    def is_open(self) -> bool:
        return self._is_open

    def note_compared(self) -> None:
        """Note the end of a full reconciliation."""
        with self._lock:
            if self._compared_s is None:
                self._compared_s = self._quiet_since_s = self._clock()

    def note_orphans(self, orphans: Iterable[PodId]) -> None:
        if not self._is_open:
            with self._lock:
                self._orphans.update(orphans)
                self._quiet_since_s = self._clock()

    def note_statuses(self, statuses: Sequence[PodStatus]) -> None:
        if self._orphans:
            with self._lock:
                self._orphans.difference_update(s.pod_id for s in statuses if s.state in TERMINAL)

    def review(self) -> None:
        """Open the gate when nothing is left to wait for. Raises what storage raises."""
        if self._is_open or self._compared_s is None:
            return
        now_s = self._clock()
        with self._lock:
            is_quiet = not self._orphans and now_s - self._quiet_since_s >= QUIET_S
            is_late = now_s - self._compared_s >= WAIT_MAX_S
        if is_quiet or is_late:
            self._restorations.note_compared(self._cluster, time.time_ns())
            self._is_open = True
            log.info("the restored database was compared with cluster %s: launches begin", self._cluster)
