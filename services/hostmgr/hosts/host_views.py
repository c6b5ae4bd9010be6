"""All hosts at once, in columns for pages."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import NamedTuple

from peloton.hosts.state import HostState
from peloton.model.host_pool import HostPools
from peloton.model.ids import Hostname
from peloton.model.maintenance import HostMaintenance
from peloton.scheduling.columns import ColumnReader, HostColumns
from services.hostmgr.driver import NOTHING, RegisteredHost
from services.hostmgr.hosts.host_owner import HostOwner


class HostView(NamedTuple):
    """All hosts. Hosts that are unschedulable, or down and unregistered, have no amounts."""

    columns: HostColumns
    maintained: Mapping[Hostname, HostMaintenance]
    host_pools: HostPools | None  # None: host pools are disabled
    are_hosts_known: bool  # False: the cluster has not listed its hosts yet


class HostViews:
    """Views of hosts. Any thread may call."""

    def __init__(self, state: HostState, owner: HostOwner) -> None:
        self._state, self._owner = state, owner
        self._reading = threading.Lock()
        self._reader = ColumnReader(RegisteredHost("", Hostname(""), "", NOTHING, NOTHING, {}))

    def view(self) -> HostView:
        registered, withdrawn, maintained, pools, are_known = self._owner.apply(self._state.share_hosts)
        states = {name: host.state for name, host in withdrawn.items()}
        states |= {name: host.state for name, host in maintained.items()}
        with self._reading:
            columns = self._reader.read(registered, states)
        return HostView(columns, maintained, pools, are_known)
