"""The part of the state about the load of hosts, for the strategy that places by load."""

from __future__ import annotations

from collections.abc import Iterable

from peloton.hosts.effects import event
from peloton.hosts.host_table import HostTable
from peloton.model.ids import Hostname


class HostLoadCache:
    """Loads of hosts, kept with their rows of the fleet."""

    def __init__(self, table: HostTable) -> None:
        self._table = table

    @event()
    def set_measured(self, beyond: dict[Hostname, tuple[int, int]], late: Iterable[Hostname] = ()) -> None:
        """Set the cpu and memory in use beyond the resources that pods hold, in thousandths of the capacity;
        measurements of ``late`` hosts have expired. Hosts without an offer are skipped."""
        fleet = self._table.free_resources.fleet
        for hostname, found in (beyond | dict.fromkeys(late, (0, 0))).items():
            if (row := fleet.row_of.get(hostname)) is not None:
                fleet.loads.set(row, found)
