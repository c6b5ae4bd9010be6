"""The part of the ``HostBook`` that is about how loaded hosts are, for the recipe that goes by it."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from peloton.model.ids import Hostname
from services.hostmgr.hosts.host_table import HostTable


class LoadBook:
    """Any thread calls. It shares table and lock with the ``HostBook``."""

    def __init__(self, lock: threading.RLock, table: HostTable) -> None:
        self._lock, self._table = lock, table

    def measured(self, beyond: dict[Hostname, tuple[int, int]], late: Iterable[Hostname] = ()) -> None:
        """Cpu and memory of hosts that are in use beyond what pods hold, in thousandths; measurements of ``late`` ones
        are too old. Hosts of which no room was announced are passed over."""
        with self._lock:
            fleet = self._table.rooms.fleet
            for hostname, found in (beyond | dict.fromkeys(late, (0, 0))).items():
                if (row := fleet.row_of.get(hostname)) is not None:
                    fleet.loads.set(row, found)
