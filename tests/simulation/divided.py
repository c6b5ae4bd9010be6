"""A day on hosts that host pools divide, and that move between them while pods run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from peloton.lifecycle.host_pools import host_pool_labels, serving, workload_of
from peloton.model.host import HostPoolCapacity, LeasedHost
from peloton.model.host_pool import DEFAULT_HOST_POOL, HostPool, Workload
from peloton.model.ids import Hostname, PodId
from peloton.model.job import JobType
from peloton.model.pod import PodShape
from peloton.model.resources import Resources
from peloton.scheduling.tree import Flags
from tests.simulation.day import Day
from tests.simulation.description import JobPlan
from tests.simulation.hosts import SimulatedHosts

BATCH, GPU = "batch", "gpu"
SERVES = serving(
    [
        HostPool(BATCH, frozenset({Workload.BATCH})),
        HostPool(GPU, frozenset({Workload.GPU})),
        HostPool(DEFAULT_HOST_POOL),
    ]
)
BATCH_EVERY = 4
"""One of so many hosts without gpus begins in the host pool for batch jobs."""
MOVES_PER_DAY = 200


class DividedHosts(SimulatedHosts):
    def __init__(self, hosts: Sequence[LeasedHost]) -> None:
        super().__init__(hosts)
        self.first = [self._first(row, host) for row, host in enumerate(hosts)]
        self.pool_of = [*self.first]

    def _first(self, row: int, host: LeasedHost) -> str:
        if host.free.gpu_milli:
            return GPU
        return DEFAULT_HOST_POOL if row % BATCH_EVERY else BATCH

    def host_pools(self) -> list[HostPoolCapacity]:
        rows = {name: np.array(self.pool_of) == name for name in SERVES}
        return [HostPoolCapacity(name, SERVES[name], *self._up(mine)) for name, mine in rows.items()]

    def _up(self, mine: Flags) -> tuple[Resources, int]:
        mine = mine & self.is_up
        return Resources(*self.total[mine].sum(axis=0).tolist()), int(self.revocable_total[mine].sum())

    def move(self, row: int, pool: str) -> None:
        """Move the host at once; its pods stay."""
        self.pool_of[row] = pool

    def _lease_of(self, row: int) -> LeasedHost:
        leased, pool = super()._lease_of(row), self.pool_of[row]
        return replace(leased, labels=(*leased.labels, *host_pool_labels(pool, SERVES[pool]).items()))

    def _accepts(self, shape: PodShape) -> Flags:
        serves = np.array([shape.workload in SERVES[pool] for pool in self.pool_of], np.bool_)
        return super()._accepts(shape) & serves

    def put(self, hostname: Hostname, pod_id: PodId, shape: PodShape) -> None:
        pool, work = self.pool_of[self.row[hostname]], workload_of(JobType.BATCH, shape)
        assert work in SERVES[pool], f"{pod_id} of workload {work} was launched in host pool {pool}"
        super().put(hostname, pod_id, shape)


class DividedDay(Day):
    hosts: DividedHosts
    hosts_type = DividedHosts
    moved_count = 0

    def _plan_day(self, plans: list[JobPlan]) -> None:
        super()._plan_day(plans)
        for _ in range(round(MOVES_PER_DAY * self.size.hours / 24)):
            self._at(self._moment(), self._move_host)

    def _repeat(self) -> str:
        return f"{super()._repeat()} DIVIDED=1"

    def _move_host(self) -> None:
        """Move a host into the host pool for batch jobs, or out of it."""
        row = self.random.choice([row for row, pool in enumerate(self.hosts.pool_of) if pool != GPU])
        self.hosts.move(row, DEFAULT_HOST_POOL if self.hosts.pool_of[row] == BATCH else BATCH)
        self.moved_count += 1
        self.resmgr.set_capacity()

    def _restore(self) -> None:
        for row, pool in enumerate(self.hosts.first):
            self.hosts.move(row, pool)
        super()._restore()
        self.resmgr.set_capacity()
