"""Sums over all hosts of the cluster, as its time series have them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping

from peloton.model.host import ClusterSums, HostState
from peloton.model.ids import Hostname
from peloton.model.resources import Resources
from peloton.scheduling.qos import Use
from services.hostmgr.hosts.host_table import HostTable


class HostSums:
    """Any thread calls. It shares table and lock with the ``HostBook``."""

    def __init__(self, lock: threading.RLock, table: HostTable) -> None:
        self._lock, self._table = lock, table

    def slack(self) -> tuple[int, int]:
        """Revocable cpu of all registered hosts, and the part that pods hold, in thousandths."""
        with self._lock:
            held = sum(host.revocable_held.cpu_milli for host in self._table.registered.holders.values())
            return self._table.registered.revocable_cpu_milli, held

    def now(self, capacity: Resources, revocable: Resources, uses: Mapping[Hostname, Use]) -> ClusterSums:
        """``capacity`` and ``revocable``: of the hosts that take pods."""
        with self._lock:
            table = self._table
            registered, states = table.registered, self._states()
            total = registered.total
            held = total - registered.free_total()
            slack_held = sum(host.revocable_held.cpu_milli for host in registered.holders.values())
        use = Resources(sum(use.cpu_milli for use in uses.values()), sum(use.memory_mib for use in uses.values()))
        allocation = held + Resources(cpu_milli=slack_held)
        return ClusterSums(capacity, total, allocation, slack_held, revocable.cpu_milli, use, len(uses), states)

    def _states(self) -> dict[HostState, int]:
        """How many hosts are in each state; what an operator of Peloton has asked for comes before the cluster's."""
        table = self._table
        states = Counter(host.state for host in table.maintained.values())
        states.update(host.state for name, host in table.withdrawn.items() if name not in table.maintained)
        states[HostState.UP] += len(table.registered.by_name.keys() - table.maintained.keys())
        return {state: states[state] for state in HostState}
