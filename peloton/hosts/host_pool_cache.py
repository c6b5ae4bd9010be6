"""The part of the state about host pools: their definitions, and the resources requested by the pods on each
host."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from peloton.hosts.announced import NOTHING, RegisteredHost
from peloton.hosts.asked_amounts import PodAmounts
from peloton.hosts.daemon_hosts import DaemonHosts
from peloton.hosts.effects import JobsToWake, event
from peloton.hosts.host_table import HostTable
from peloton.hosts.waiting_jobs import WaitingJobs
from peloton.model.host import HostPoolCapacity
from peloton.model.host_pool import HostPools, HostPoolTotals
from peloton.model.ids import Hostname, PodId


class HostPoolCache:
    """State of host pools."""

    def __init__(self, table: HostTable, waiting: WaitingJobs, daemons: DaemonHosts) -> None:
        self._table, self._waiting, self._daemons = table, waiting, daemons
        self._pooled = table.pooled
        self.is_stale = False  # requests of pods must be read from storage

    @property
    def are_used(self) -> bool:
        return self._pooled.are_used

    @property
    def version(self) -> int:
        """Return the version of the host pools; -1 while they are disabled."""
        return self._pooled.version

    @event()
    def set(self, pools: HostPools) -> JobsToWake:
        """Enable host pools with these definitions; an older version is ignored. Ends leases of hosts whose host pool
        is another one or has changed. Returns the jobs that may find hosts now."""
        if pools.version <= self._pooled.version:
            return set()
        self._pooled.set_pools(pools)
        seen, changed = self._pooled.again()
        self._table.set_hosts(seen)
        unregistered = self._table.free_resources.hosts.keys() - self._table.registered.by_name.keys()
        for hostname in (*changed, *unregistered):
            self._table.free_resources.change_pool(hostname)
        return self._waiting.pop_all()

    def capacities(self) -> list[HostPoolCapacity]:
        """Return the capacity of hosts that take pods, by host pool, less the requests of daemons; empty while host
        pools are disabled."""
        serves = self._pooled.serves()
        if not serves:
            return []
        unavailable = self._table.unavailable()
        sums = self._table.registered.by_host_pool(unavailable, self._table.closed)
        overheads = self._daemons.overheads(unavailable)
        found = ((name, *sums.get(name, (NOTHING, 0))) for name in sorted(serves))
        return [
            HostPoolCapacity(name, serves[name], up - overheads.get(name, NOTHING), slack) for name, up, slack in found
        ]

    def moving(self) -> dict[Hostname, str]:
        """Return the desired host pool of each host, in all clusters, that is in another pool."""
        return self._pooled.moving()

    def move_bounds(self) -> dict[Hostname, int]:
        """Return the number of hosts that may be unavailable when a host starts to move, where it differs from the
        installation's."""
        return self._pooled.move_bounds()

    def totals(self) -> dict[str, HostPoolTotals]:
        """Return the resources of hosts that take pods, by host pool."""
        found: dict[str, HostPoolTotals] = {}
        for name, host in self._up():
            pool, asked = self._pooled.pool_of(name), self._pooled.asked.on_host(name)
            of_pool = found.get(pool, HostPoolTotals())
            found[pool] = HostPoolTotals(of_pool.host_count + 1, of_pool.capacity + host.capacity, of_pool.used + asked)
        return found

    def hosts_of(self, pool: str) -> list[Hostname]:
        """Return the hosts of a host pool that take pods."""
        return [name for name, _ in self._up() if self._pooled.pool_of(name) == pool] if pool else []

    def _up(self) -> Iterator[tuple[Hostname, RegisteredHost]]:
        unavailable = self._table.unavailable()
        return ((name, host) for name, host in self._table.registered.by_name.items() if name not in unavailable)

    @event()
    def begin_reading(self) -> None:
        """Prepare for requests of pods that are read from storage while pods launch and end."""
        self.is_stale = False
        self._pooled.asked.begin_reading()

    @event()
    def end_reading(self, pods: Iterable[PodAmounts] | None) -> None:
        """Take the requests read from storage; None when the read failed."""
        if pods is None:
            self.is_stale = True
        else:
            self._table.free_resources.recount(self._pooled.asked.end_reading(pods))

    @event()
    def remove_refused(self, pod_ids: Sequence[PodId]) -> None:
        """Remove pods of a claim that storage did not allow to launch."""
        self._table.free_resources.recount(self._pooled.asked.remove(pod_ids))

    @event()
    def unknown(self, pod_ids: Sequence[PodId]) -> None:
        """Mark requests as stale: it is unknown whether storage allowed these pods of a claim to launch."""
        self._pooled.asked.confirm((pod.job_id, pod.instance_id) for pod in pod_ids)
        self.is_stale = self._pooled.are_used
