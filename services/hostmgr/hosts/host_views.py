"""The part of the ``HostCache`` that shows all hosts at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple

from peloton.model.host_pool import HostPools
from peloton.model.ids import Hostname
from peloton.model.maintenance import HostMaintenance
from peloton.scheduling.columns import ColumnReader, HostColumns
from services.hostmgr.driver import NOTHING, RegisteredHost
from services.hostmgr.hosts.host_table import HostTable


class HostView(NamedTuple):
    """All hosts. Hosts that are unschedulable, or down and unregistered, have no amounts."""

    columns: HostColumns
    maintained: Mapping[Hostname, HostMaintenance]
    host_pools: HostPools | None  # None: host pools are disabled
    are_hosts_known: bool  # False: the cluster has not listed its hosts yet


class HostViews:
    """Views of hosts. Any thread may call; table and lock are the ``HostCache``'s."""

    def __init__(self, lock: threading.RLock, table: HostTable, are_known: Callable[[], bool]) -> None:
        self._lock, self._table, self._are_known = lock, table, are_known
        self._reading = threading.Lock()
        self._reader = ColumnReader(RegisteredHost("", Hostname(""), "", NOTHING, NOTHING, {}))

    def view(self) -> HostView:
        with self._lock:  # these objects are replaced, never changed
            registered, withdrawn = self._table.registered.by_name, self._table.withdrawn
            maintained, pools = self._table.maintained, self._table.pooled.pools
            are_known = self._are_known()
        states = {name: host.state for name, host in withdrawn.items()}
        states |= {name: host.state for name, host in maintained.items()}
        with self._reading:
            columns = self._reader.read(registered, states)
        return HostView(columns, maintained, pools, are_known)
