"""Keeps a host manager's copy of the host pools up to date: several host managers, and their predecessors, write to the
same rows."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from peloton.errors import Aborted, InvalidArgument
from peloton.lifecycle.host_pools import infer_workloads, serving
from peloton.model.host_pool import (
    FACTOR_PERCENT_MAX,
    HOST_POOL_NAME_MAX,
    Factors,
    HostPool,
    HostPools,
    Workload,
)
from peloton.model.ids import Hostname
from peloton.model.text import quote, shorten
from peloton.scheduling.host_pools import Sizes, count_to_move, leaving_order
from services.hostmgr.maintenance import MaintenanceController
from services.hostmgr.manager import HostManagerCore
from services.storage.hosts.host_pools import HostPoolRecords
from services.storage.pods.host_pods import HostPods
from services.ticks import ticking

log = logging.getLogger(__name__)

PERIOD_S = 1.0
"""Seconds between reads of changes made by other host managers."""
FOLLOW_PERIOD_S = 10.0
"""Seconds between checks of moves without a change: of hosts that come back, or whose maintenance ends."""
MINIMUM_MAX = 1_000_000
"""Upper limit of the minimum number of hosts of a host pool."""
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


class HostPoolController:
    """Controller of host pools. Each change is committed, and applied to this host manager, before its call returns."""

    def __init__(
        self,
        core: HostManagerCore,
        records: HostPoolRecords,
        pods: HostPods,
        maintenance: MaintenanceController,
        deadline_s: int,
        period_s: float = PERIOD_S,
    ) -> None:
        """``deadline_s`` applies to drains of moving hosts."""
        self._core, self._records, self._period_s = core, records, period_s
        self._pods, self._maintenance, self._deadline_s = pods, maintenance, deadline_s
        self._followed = (-1, float("-inf"))  # version of the host pools, and time
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="host pools", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        with ticking("host pools", self._period_s) as loop:
            while not self._stopping.wait(self._period_s):
                loop.tick()
                try:
                    self._core.read_host_pools()
                    self._follow()
                except Exception as error:
                    if not self._stopping.is_set():
                        log.warning("host pools not read, retrying: %s", error)

    def _follow(self) -> None:
        """Start moves of hosts with another desired pool, and cancels moves of hosts that no longer have one."""
        version, now_s = self._core.cache.host_pools.version, time.monotonic()
        if version != self._followed[0] or now_s - self._followed[1] >= FOLLOW_PERIOD_S:
            self._maintenance.follow_moves(self._deadline_s)
            self._followed = version, now_s

    # Calls.

    def all(self) -> list[tuple[HostPool, list[Hostname]]]:
        """Return the host pools by name, with the workloads that each effectively serves and its hosts in all
        clusters."""
        now = self._records.all() or HostPools()
        serves = serving(now.pools.values())
        hosts: dict[str, list[Hostname]] = {name: [] for name in now.pools}
        for hostname in self._records.list_known_hosts():
            hosts[now.of(hostname).current].append(hostname)
        return [(replace(pool, serves=serves[name]), hosts[name]) for name, pool in sorted(now.pools.items())]

    def create(self, name: str, serves: frozenset[Workload], factors: Mapping[str, int], minimum: int = 0) -> None:
        """Create a host pool. Raises InvalidArgument, AlreadyExists."""
        _check_name(name)
        _check_factors(name, factors)
        _check_minimum(name, minimum)
        pool = HostPool(name, serves or infer_workloads(name), Factors(**factors), time.time_ns(), minimum)
        self._records.create(pool)
        self._core.read_host_pools()

    def update(
        self, name: str, serves: frozenset[Workload] | None, factors: Mapping[str, int], minimum: int | None = None
    ) -> HostPool:
        """Change the given fields of a host pool. Raises InvalidArgument, NotFound."""
        _check_factors(name, factors)
        _check_minimum(name, minimum or 0)
        changed = self._records.change(name, serves, factors, minimum)
        self._core.read_host_pools()
        return changed

    def delete(self, name: str) -> None:
        """Delete a host pool; its hosts go to the default pool. Raises InvalidArgument, NotFound."""
        self._records.delete(name)
        self._core.read_host_pools()

    def move(self, hostnames: Sequence[str], destination: str, at_most: int = 0) -> None:
        """Set the desired pool of all hosts or none; they move once drained. Raises NotFound, InvalidArgument."""
        self._records.desire(hostnames, destination, time.time_ns(), at_most)
        self._core.read_host_pools()
        self._maintenance.follow_moves(self._deadline_s)

    def resize(self, source: tuple[str, int], destination: tuple[str, int]) -> None:
        """Move as many hosts between two pools, each given by name and desired size, as their sizes require; chooses
        the hosts where the least work is lost. Raises InvalidArgument, Aborted."""
        now = self._records.all() or HostPools()
        places = {hostname: now.of(hostname) for hostname in self._records.list_known_hosts()}
        counts = Counter(place.desired for place in places.values())
        losing, gaining = (Sizes(name, counts[name], wanted) for name, wanted in (source, destination))
        count, refusal = count_to_move(losing, gaining, now.pools)
        if refusal:
            raise InvalidArgument(refusal)
        if not count:
            return
        there = [hostname for hostname, place in places.items() if place == (source[0], source[0])]
        order = leaving_order(self._pods.occupancy(there, time.time_ns()))
        if len(order) < count:
            raise Aborted(
                f"{len(order)} of {len(there)} hosts in host pool {source[0]} have only pods that may be preempted, "
                f"{count} are to leave it"
            )
        self.move(order[:count], destination[0])

    def change(self, hostname: str, source: str, destination: str) -> None:
        """Relabels a host at once, without a drain. Raises NotFound, InvalidArgument."""
        self._records.relabel(hostname, source, destination, time.time_ns())
        self._core.read_host_pools()


def _check_name(name: str) -> None:
    if not name:
        raise InvalidArgument("name: a host pool must have one")
    if len(name) > HOST_POOL_NAME_MAX:
        raise InvalidArgument(f"name of a host pool has {len(name)} characters, the limit is {HOST_POOL_NAME_MAX}")
    if bad := sorted(set(name) - _NAME_CHARACTERS):
        raise InvalidArgument(
            f"name {quote(name)} of a host pool has {quote(''.join(bad))}: want letters, digits, any of -_."
        )


def _check_minimum(name: str, minimum: int) -> None:
    if minimum > MINIMUM_MAX:
        raise InvalidArgument(f"host pool {shorten(name)}: a minimum of {minimum} hosts, the limit is {MINIMUM_MAX}")


def _check_factors(name: str, factors: Mapping[str, int]) -> None:
    for field, percent in factors.items():
        if not 100 <= percent <= FACTOR_PERCENT_MAX:
            kind = field.removesuffix("_percent")
            raise InvalidArgument(
                f"host pool {shorten(name)}: the factor for {kind} is {percent / 100:g}, "
                f"want 1 to {FACTOR_PERCENT_MAX / 100:g}"
            )
