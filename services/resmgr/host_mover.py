"""The mover of host pools, in the leading resource manager.

It reads the state of host pools, decides by ``scheduling.mover``, and stores the desired host pool of hosts. The host
managers move them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from peloton.errors import PelotonError, Unavailable
from peloton.lifecycle.reason_text import format_count
from peloton.model.advice import Mark, Marked
from peloton.model.host_pool import HostPools, HostPoolTotals, Workload
from peloton.model.ids import Hostname, JobId
from peloton.model.mover import Made, MoverRule
from peloton.model.reason import PlacementReason
from peloton.model.resources import Resources
from peloton.model.times import NS_PER_S
from peloton.scheduling.host_demand import (
    Demand,
    giver_now,
    givers,
    lacks_hosts,
    lent_to,
    moving_count,
    sources_of,
    taker_now,
    takers,
)
from peloton.scheduling.host_pools import drain_order
from peloton.scheduling.mover import (
    HostPoolLoad,
    MoverPolicy,
    Shift,
    TakerState,
    list_past,
    plan,
    return_delay_s,
    shift_text,
)
from services.resmgr.rounds import repeat
from services.resmgr.settings import MoverSettings
from services.storage.hosts.host_pools import HostPoolRecords
from services.storage.hosts.mover import MoverRecords
from services.storage.pods.host_pods import HostPods
from services.storage.pods.pods import Pods

log = logging.getLogger(__name__)

WAITING_JOBS_MAX = 100
WAITING_PODS_MAX = 1_000
"""Limit of the waiting pods of one job that one reading counts."""


class HostTotals(Protocol):
    def host_pool_totals(self, hosts_of: str = "") -> tuple[dict[str, HostPoolTotals], list[Hostname]]:
        """Return the resources of each host pool, and the hosts that take pods in ``hosts_of``.

        Raises Unavailable, Unimplemented.
        """
        ...

    def advice(self) -> tuple[dict[Hostname, Marked], dict[JobId, Marked]]:
        """Return the hosts and services that are marked orange or red. Raises Unavailable."""
        ...


@dataclass(frozen=True)
class MoverSnapshot:
    """A snapshot for the mover: the demand, the host pools that take hosts, and the ones that give them.

    ``made``: the mover's past decisions, the newest first.
    """

    demand: Demand
    made: tuple[Made, ...]
    takers: tuple[HostPoolLoad, ...]
    givers: tuple[HostPoolLoad, ...]
    moving_count: int

    @classmethod
    def of(cls, demand: Demand, made: Iterable[Made]) -> MoverSnapshot:
        taking, giving = takers(demand.pools), givers(demand.pools)
        return cls(
            demand,
            tuple(made),
            tuple(taker_now(name, demand) for name in taking),
            tuple(giver_now(name, demand) for name in giving),
            moving_count({*taking, *giving}, demand.pools),
        )


class HostMover:
    """The mover. Its methods are called on one event loop."""

    def __init__(
        self,
        unplaced: Callable[[], Sequence[tuple[JobId, PlacementReason]]],
        host_pools: HostPoolRecords,
        records: MoverRecords,
        pods: Pods,
        host_pods: HostPods,
        hosts: HostTotals,
        settings: MoverSettings | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_ns: Callable[[], int] = time.time_ns,
        queued: Callable[[], Sequence[tuple[Workload, Resources, int]]] = tuple,
    ) -> None:
        """Take the sources of demand, which are called on the event loop.

        ``unplaced``: jobs whose last placement left pods without a host, and the reasons; ``queued``: pods that are not
        admitted because their hosts are full: workload, request of one, count.
        """
        self._unplaced, self._host_pools, self._records = unplaced, host_pools, records
        self._pods, self._host_pods, self._hosts, self._queued = pods, host_pods, hosts, queued
        self.settings, self._clock, self._wall_ns = settings or MoverSettings(), clock, wall_ns
        self._watches: dict[str, TakerState] = {}  # by host pool
        self._task: asyncio.Task[None] | None = None

    @property
    def policy(self) -> MoverPolicy:
        return self.settings.policy

    def start(self) -> None:
        period_s = self.settings.period_s
        self._task = asyncio.create_task(repeat(self._mover_round, period_s, period_s), name="mover of host pools")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _mover_round(self) -> None:
        await asyncio.sleep(self.settings.period_s)
        try:
            await self.turn()
        except Unavailable:
            raise
        except PelotonError as error:
            log.warning("hosts not moved between host pools, retrying: %s", error)

    async def turn(self) -> list[Made]:
        """Read once, and move the hosts that are due; return these moves.

        Raises the errors of storage and host managers; then nothing is decided.
        """
        pools = await asyncio.to_thread(self._host_pools.all) or HostPools()
        if not pools.is_mover_on:
            self._watches.clear()
            return []
        if given_up := await asyncio.to_thread(self._give_up, pools):
            return given_up
        snapshot = await self.read(pools)
        for pool in (*snapshot.takers, *snapshot.givers):
            before = self._watches.get(pool.name, TakerState())
            self._watches[pool.name], shifts = self._plan(before, pool, snapshot, self.policy)
            made = [one for shift in shifts if (one := await asyncio.to_thread(self._make, shift, snapshot))]
            if made:
                return made  # the next decision follows once these hosts have arrived
        return []

    async def read(self, pools: HostPools | None = None) -> MoverSnapshot:
        jobs = [job for job, why in self._unplaced() if lacks_hosts(why)][:WAITING_JOBS_MAX]
        return await asyncio.to_thread(self._take_snapshot, pools, jobs, self._queued())

    def plan_all(self, snapshot: MoverSnapshot) -> list[Shift]:
        """Return the moves that would be decided if their causes had lasted for long enough."""
        at_once = replace(self.policy, take_after_s=0.0, take_after_red_s=0.0, return_after_s=0.0)
        pools, idle = (*snapshot.takers, *snapshot.givers), replace(snapshot, made=())
        return [shift for pool in pools for shift in self._plan(TakerState(), pool, idle, at_once)[1]]

    def state_of(self, pool: HostPoolLoad, snapshot: MoverSnapshot) -> str:
        """Return a text about what the host pool waits for."""
        watch, now_s = self._watches.get(pool.name, TakerState()), self._clock()
        if snapshot.moving_count:
            return f"waits for {format_count(snapshot.moving_count, 'host')} on the way"
        if watch.hot_since_s is not None:
            return f"has lacked hosts for {now_s - watch.hot_since_s:.0f} s"
        if watch.spare_since_s is not None:
            delay_s = return_delay_s(list_past(pool.name, snapshot.made, self._wall_ns(), now_s), self.policy)
            return f"has had hosts to spare for {now_s - watch.spare_since_s:.0f} of {delay_s:.0f} s"
        return "has what it needs"

    def _plan(
        self, watch: TakerState, pool: HostPoolLoad, snapshot: MoverSnapshot, policy: MoverPolicy
    ) -> tuple[TakerState, tuple[Shift, ...]]:
        pools, now_s = snapshot.demand.pools, self._clock()
        past = list_past(pool.name, snapshot.made, self._wall_ns(), now_s)
        sources, lent = sources_of(pool, snapshot.takers, snapshot.givers, pools), lent_to(pool.name, pools)
        return plan(
            watch, past, pool, sources, lent=lent, moving_count=snapshot.moving_count, now_s=now_s, policy=policy
        )

    def _take_snapshot(
        self, pools: HostPools | None, jobs: Sequence[JobId], queued: Sequence[tuple[Workload, Resources, int]]
    ) -> MoverSnapshot:
        totals, _ = self._hosts.host_pool_totals()
        waiting: Counter[tuple[Workload, Resources]] = Counter()
        for job_id in jobs:
            for gang in self._pods.ready_gangs(job_id, WAITING_PODS_MAX):
                waiting[gang.shape.workload, gang.shape.resources] += len(gang.pods)
        wanted = [*queued, *((workload, resources, count) for (workload, resources), count in waiting.items())]
        hosts, services = self._hosts.advice()
        red = [host for host, marked in hosts.items() if marked.mark is Mark.RED]
        slow_count = sum(marked.mark is Mark.RED for marked in services.values())
        now = pools or self._host_pools.all() or HostPools()
        return MoverSnapshot.of(Demand(now, totals, wanted, list(hosts), red, slow_count), self._records.list_made())

    def _make(self, shift: Shift, snapshot: MoverSnapshot) -> Made | None:
        """Store a move of the hosts with the cheapest loss; hosts that an earlier move failed to empty come last.

        Return None when no host may move.
        """
        lent = snapshot.demand.pools.lent
        is_return = shift.rule is MoverRule.SPARE or shift.source in {taker.name for taker in snapshot.takers}
        lender = shift.destination if is_return else shift.source
        _, there = self._hosts.host_pool_totals(hosts_of=shift.source)
        chosen = [host for host in there if not is_return or lent.get(host) == lender]
        now_ns = self._wall_ns()
        order = drain_order(self._host_pods.occupancy(chosen, now_ns))
        going = sorted(order, key=_hosts_stuck_before(snapshot.made).__contains__)[: shift.count]
        reason = shift_text(shift, self.policy)
        asked = Made(shift.source, shift.destination, shift.rule, reason, tuple(going), now_ns)
        return _log_made(self._records.lend(asked, lender, self.policy.hosts_at_a_time))

    def _give_up(self, pools: HostPools) -> list[Made]:
        """Cancel moves of hosts that are not empty after ``give_up_s``: they stay in their host pool."""
        if not any(place.is_moving for place in pools.hosts.values()):
            return []
        now_ns, given_up, later = self._wall_ns(), list[Made](), set[Hostname]()
        for one in self._records.list_made():
            last = [host for host in one.hostnames if host not in later]
            later.update(last)
            moving = tuple(host for host in last if pools.of(host) == (one.source, one.destination))
            after_s, limit_s = (now_ns - one.at_ns) // NS_PER_S, int(self.settings.give_up_s)
            if moving and after_s >= limit_s and one.rule is not MoverRule.STUCK:
                shift = Shift(one.source, one.destination, len(moving), MoverRule.STUCK, after_s, limit_s)
                asked = Made(one.source, one.destination, shift.rule, shift_text(shift, self.policy), moving, now_ns)
                made = _log_made(self._records.give_up(asked, one.at_ns))
                given_up += [made] if made else []
        return given_up


def _log_made(made: Made | None) -> Made | None:
    if made is not None:
        hosts = ", ".join(made.hostnames)
        log.info("%s from host pool %s to %s: %s", hosts, made.source, made.destination, made.reason)
    return made


def _hosts_stuck_before(made: Iterable[Made]) -> Collection[Hostname]:
    return {host for one in made if one.rule is MoverRule.STUCK for host in one.hostnames}
