"""Sums over all hosts of the cluster, for its time series."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from peloton.hosts.host_table import HostTable
from peloton.model.host import ClusterSums, HostState
from peloton.model.ids import Hostname
from peloton.model.resources import Resources
from peloton.scheduling.qos import Use


class HostSums:
    """Sums over the hosts of the table."""

    def __init__(self, table: HostTable) -> None:
        self._table = table

    def slack(self) -> tuple[int, int]:
        """Return the revocable cpu of all registered hosts, and the part that pods hold, in thousandths of a core."""
        held = sum(host.revocable_held.cpu_milli for host in self._table.registered.holders.values())
        return self._table.registered.revocable_cpu_milli, held

    def now(self, capacity: Resources, revocable: Resources, uses: Mapping[Hostname, Use]) -> ClusterSums:
        """Return the sums at present. ``capacity`` and ``revocable`` cover the hosts that take pods."""
        table = self._table
        registered, states = table.registered, self._states()
        total = registered.total
        held = total - registered.free_total()
        slack_held = sum(host.revocable_held.cpu_milli for host in registered.holders.values())
        use = Resources(sum(use.cpu_milli for use in uses.values()), sum(use.memory_mib for use in uses.values()))
        allocation = held + Resources(cpu_milli=slack_held)
        return ClusterSums(
            capacity,
            total,
            allocation,
            slack_held,
            slack_milli=revocable.cpu_milli,
            use=use,
            measured_count=len(uses),
            states=states,
        )

    def _states(self) -> dict[HostState, int]:
        """Return the number of hosts in each state; maintenance by Peloton takes precedence over the cluster's
        state."""
        table = self._table
        states = Counter(host.state for host in table.maintained.values())
        states.update(host.state for name, host in table.withdrawn.items() if name not in table.maintained)
        states[HostState.UP] += len(table.registered.by_name.keys() - table.maintained.keys())
        return {state: states[state] for state in HostState}
