"""Simulated hosts: free resources, leases for the real placement, lost and returned hosts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from peloton.model.host import HostLease, HostPoolCapacity, LeasedHost
from peloton.model.ids import Hostname, PodId
from peloton.model.pod import Constraint, PodShape, Strategy
from peloton.model.resources import Resources
from peloton.scheduling.fit import label_misfit
from peloton.scheduling.tree import CPU, Flags, Ints

HOSTS_PER_LEASE_MAX = 1_000


class SimulatedHosts:
    """H hosts as arrays ``[H,R]``. A lease never outlives the step that asked for it."""

    def __init__(self, hosts: Sequence[LeasedHost]) -> None:
        self.hosts = hosts
        self.row = {host.hostname: row for row, host in enumerate(hosts)}
        self.total = np.array([tuple(host.free) for host in hosts], np.int64)
        self.revocable_total = np.array([host.revocable.cpu_milli for host in hosts], np.int64)
        self.free, self.revocable_free = self.total.copy(), self.revocable_total.copy()
        self.is_up = np.ones(len(hosts), np.bool_)
        self.pods: list[dict[PodId, PodShape]] = [{} for _ in hosts]
        self._no_ports = np.zeros(len(hosts), np.int64)
        self._pod_slots = np.array([host.pod_slots for host in hosts], np.int64)
        self._accepting: dict[Constraint | None, Flags] = {}

    def capacity(self) -> tuple[Resources, Resources]:
        """Return the resources of the hosts that are up: all, and the revocable part."""
        total = Resources(*self.total[self.is_up].sum(axis=0).tolist())
        return total, Resources(cpu_milli=int(self.revocable_total[self.is_up].sum()))

    def host_pools(self) -> Sequence[HostPoolCapacity]:
        """Return no host pools: each workload may use all hosts."""
        return ()

    def lease(self, shape: PodShape, count: int) -> HostLease:
        """Lease hosts in their order until ``count`` pods fit, as the host manager picks them."""
        free = self.free
        if shape.revocable:
            free = free.copy()
            free[:, CPU] = self.revocable_free
        fit_counts = count_fits(free, np.array(tuple(shape.resources), np.int64), self._pod_slots, self._no_ports, 0)
        fit_counts[~(self.is_up & self._accepts(shape))] = 0
        if shape.strategy is Strategy.SPREAD_JOB:
            np.minimum(fit_counts, 1, out=fit_counts)
        fitting = np.flatnonzero(fit_counts)
        enough = int(np.searchsorted(np.cumsum(fit_counts[fitting]), count)) + 1
        rows = fitting[: min(enough, HOSTS_PER_LEASE_MAX)].tolist()
        return HostLease("lease", tuple(self._lease_of(row) for row in rows))

    def _lease_of(self, row: int) -> LeasedHost:
        host = self.hosts[row]
        revocable = Resources(cpu_milli=int(self.revocable_free[row]))
        return LeasedHost(host.hostname, Resources(*self.free[row].tolist()), revocable, labels=host.labels)

    def _accepts(self, shape: PodShape) -> Flags:
        constraint = shape.constraint
        found = self._accepting.get(constraint)
        if found is None:
            found = np.array([label_misfit(constraint, dict(host.labels)) is None for host in self.hosts], np.bool_)
            self._accepting[constraint] = found
        return found

    def put(self, hostname: Hostname, pod_id: PodId, shape: PodShape) -> None:
        row = self.row[hostname]
        assert self.is_up[row], f"{pod_id} was launched on {hostname}, which is lost"
        assert pod_id not in self.pods[row], f"{pod_id} was launched twice"
        self.pods[row][pod_id] = shape
        self._use(row, shape, 1)
        free = [*self.free[row].tolist(), int(self.revocable_free[row])]
        assert min(free) >= 0, f"{hostname} is full beyond its capacity: {free} free, revocable cpu last"

    def drop(self, hostname: str, pod_id: PodId) -> None:
        """End a pod; a pod of a lost host frees no resources."""
        row = self.row[Hostname(hostname)]
        shape = self.pods[row].pop(pod_id, None)
        if shape is not None:
            self._use(row, shape, -1)

    def _use(self, row: int, shape: PodShape, count: int) -> None:
        cpu, *others = shape.resources
        if shape.revocable:
            self.revocable_free[row] -= cpu * count
        else:
            self.free[row, CPU] -= cpu * count
        for kind, amount in enumerate(others, start=1):
            if amount:
                self.free[row, kind] -= amount * count

    def lose(self, row: int) -> list[PodId]:
        """Remove the host and its pods; return the pods."""
        lost = list(self.pods[row])
        self.pods[row] = {}
        self.is_up[row] = False
        return lost

    def bring_back(self, row: int) -> None:
        """Return the host to the cluster, empty."""
        self.is_up[row] = True
        self.free[row], self.revocable_free[row] = self.total[row], self.revocable_total[row]

    def used(self) -> Ints:
        """Return the resources ``[R]`` of the pods on hosts, without revocable cpu."""
        used: Ints = (self.total - self.free)[self.is_up].sum(axis=0)
        return used


def count_fits(free: Ints, need: Ints, pod_slots: Ints, ports_free: Ints, port_count: int) -> Ints:
    """Return [H] how many pods of ``need`` ``[R]`` and ``port_count`` each host can take; ``free`` is ``[H,R]``."""
    fit_counts = pod_slots.copy()
    for kind in np.flatnonzero(need > 0):
        np.minimum(fit_counts, free[:, kind] // need[kind], out=fit_counts)
    if port_count > 0:
        np.minimum(fit_counts, ports_free // port_count, out=fit_counts)
    np.maximum(fit_counts, 0, out=fit_counts)
    return fit_counts
