"""The recorder: the samples of pools and clusters, and that no count is lost or stored twice."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import cast

import pytest

from peloton.errors import InvalidSettings, Unavailable
from peloton.model.history import Column, Quantity, Sample, Series, cluster_series, owner_series, pool_series
from peloton.model.host import ClusterSums, HostState
from peloton.model.ids import ROOT_POOL_ID, RespoolId
from peloton.model.resources import Resources
from services.resmgr import recorder
from services.resmgr.audit import faults
from services.resmgr.recorder import Recorder, owner_amounts, pool_amounts
from services.resmgr.recovery import rebuild
from services.resmgr.settings import RecorderSettings
from services.resmgr.state import ResmgrState
from services.resmgr.tally import Tally
from services.settings import load
from services.storage.history.history import History
from tests.unit.resmgr.test_loop import running, until
from tests.unit.resmgr.test_preemption import ROUNDS, lend, two_pools
from tests.unit.resmgr.world import World

T0 = 1_700_006_400
SUMS = ClusterSums(
    Resources.of(100, 1_000),
    Resources.of(120, 1_200),
    Resources.of(40, 400),
    1_000,
    5_000,
    Resources.of(20, 300),
    3,
    {HostState.UP: 4, HostState.DOWN: 1},
)


def cpu(quantity: Quantity) -> Column:
    return Column(quantity, "cpu")


@dataclass
class Records:
    """A store that keeps samples."""

    samples: list[Sample] = field(default_factory=list)
    hours: int = 0  # hours that are over and not folded
    fault: Exception | None = None

    def add(self, sample: Sample) -> bool:
        if self.fault:
            raise self.fault
        if is_new := all(sample.at_s != one.at_s for one in self.samples):
            self.samples.append(sample)
        return is_new

    def fold(self, now_s: int) -> bool:
        self.hours -= 1
        return self.hours >= 0


def recorder_of(world: World, records: Records, tally: Tally) -> Recorder:
    state = rebuild(world.storage)
    state.set_capacity(Resources.of(100, 100_000), Resources())
    return Recorder(lambda: state, tally, lambda: {"local": SUMS}, cast(History, records), RecorderSettings())


async def test_a_sample_has_pools_and_clusters(world: World) -> None:
    """Inner pools are sums, the root has the capacity of the clusters, and hosts are counted by state."""
    inner = world.pool("eng", 10, 50)
    leaf = world.pool("maps", 5, 40, inner)
    job = world.job(leaf, 7)
    world.storage.admission.mark_pending(job, world.storage.admission.queueable(job, 10), 1)
    records = Records()

    await recorder_of(world, records, Tally()).record(T0 + 60)

    (sample,) = records.samples
    assert (T0, 60) == (sample.at_s, sample.covered_s)
    of_inner, of_leaf = sample.amounts[pool_series(inner)], sample.amounts[pool_series(leaf)]
    assert 7_000 == of_inner[cpu(Quantity.DEMAND)] == of_leaf[cpu(Quantity.DEMAND)]
    assert (5_000, 40_000) == (of_leaf[cpu(Quantity.RESERVATION)], of_leaf[cpu(Quantity.LIMIT)])
    root = sample.amounts[pool_series(ROOT_POOL_ID)]
    assert 100_000 == root[cpu(Quantity.LIMIT)] == root[cpu(Quantity.RESERVATION)]
    hosts = sample.amounts[cluster_series("local")]
    assert (100_000, 40_000, 20_000) == tuple(
        hosts[cpu(one)] for one in (Quantity.CAPACITY, Quantity.ALLOCATION, Quantity.USE)
    )
    assert (4, 1, 3) == tuple(
        hosts[Column(one)] for one in (Quantity.HOSTS_UP, Quantity.HOSTS_DOWN, Quantity.HOSTS_MEASURED)
    )


async def test_admissions_and_preemptions_are_counted_once(world: World) -> None:
    """Events are counted by pool and by the pool that receives the resources, for all parent pools too; the next sample
    starts at zero.
    """
    borrower, owner = two_pools(world)
    records = Records()
    async with running(world, ROUNDS) as loop:
        recorder = Recorder(lambda: loop.state, loop.tally, dict, cast(History, records), RecorderSettings())
        await lend(world, loop, borrower, owner)
        await until(lambda: loop.tally.preempted.total() == 5)  # a moment after storage shows it
        await recorder.record(T0 + 60)
        paths = dict(zip(loop.state.tree.paths, loop.state.tree.ids, strict=True))
    await recorder.record(T0 + 120)

    first, second = records.samples
    a, root = pool_series(paths["/a"]), pool_series(ROOT_POOL_ID)
    assert {a: (("/b", 5),), root: (("/b", 5),)} == first.preemptions
    assert (5, 10) == (first.amounts[a][Column(Quantity.PREEMPTED)], first.amounts[a][Column(Quantity.ADMITTED)])
    assert 10 == first.amounts[root][Column(Quantity.ADMITTED)]
    assert {} == second.preemptions
    assert Column(Quantity.ADMITTED) not in second.amounts[a]


async def test_what_is_not_stored_is_in_the_next_sample(world: World) -> None:
    """Count stay for the next sample if storage was unavailable, or if another leader had stored the minute."""
    pool = world.pool("maps", 5, 40)
    tally, records = Tally(), Records(fault=Unavailable("away"))
    tally.admitted["/maps"] = 3
    recorder = recorder_of(world, records, tally)
    with pytest.raises(Unavailable):
        await recorder.record(T0 + 60)

    records.fault = None
    records.samples.append(Sample(T0, 60, {}))
    await recorder.record(T0 + 60)
    await recorder.record(T0 + 120)

    assert [T0, T0 + 60] == [sample.at_s for sample in records.samples]
    assert 3 == records.samples[1].amounts[pool_series(pool)][Column(Quantity.ADMITTED)]


async def test_hours_are_folded(world: World) -> None:
    """All past hours are folded, even after an outage."""
    records = Records(hours=2)

    await recorder_of(world, records, Tally()).record(T0 + 60)

    assert -1 == records.hours


async def test_pools_have_no_sample_before_the_capacity_is_known(world: World) -> None:
    """A new leader has no entitlement yet: that is a gap, and not an empty pool."""
    assert ({}, {}) == pool_amounts(rebuild(world.storage), Tally())


async def test_a_running_recorder_keeps_to_the_clock(world: World) -> None:
    """Samples begin at multiples of the period, each once, and are read back from storage."""
    pool = world.pool("maps", 5, 40)
    state = rebuild(world.storage)
    state.set_capacity(Resources.of(100), Resources())
    recorder = Recorder(lambda: state, Tally(), dict, world.storage.history, RecorderSettings(1))
    recorder.start()
    name = pool_series(pool)

    def read_series() -> Series:
        return world.storage.history.read([name], 60, 0, 2**40).get(name, Series())

    await until(lambda: sum(read_series().covered_s) >= 2)
    await recorder.stop()

    assert all(at_s % 60 == 0 for at_s in read_series().times_s)
    assert {5_000} == set(read_series().columns[cpu(Quantity.RESERVATION)])


async def test_how_long_nothing_was_recorded(world: World) -> None:
    """The delay counts from the start of the recorder, or from the end of the last sample, even one
    of another leader.
    """
    now_s, records = float(T0), Records()
    state = rebuild(world.storage)
    recorder = Recorder(lambda: state, Tally(), dict, cast(History, records), RecorderSettings(), lambda: now_s)
    assert 0 == recorder.behind_s()
    recorder.start()
    now_s += 300
    assert 300 == recorder.behind_s()

    await recorder.record(T0 + 240)
    await recorder.stop()

    assert 60 == recorder.behind_s()


async def test_no_period_no_series(world: World) -> None:
    """The period 0 turns the recorder off."""
    recorder = Recorder(lambda: rebuild(world.storage), Tally(), dict, cast(History, Records()), RecorderSettings(0))
    recorder.start()
    await asyncio.sleep(0)
    await recorder.stop()

    assert 1 == len(asyncio.all_tasks())


@pytest.mark.parametrize("period_s", [-1, 7, 120])
def test_a_period_divides_a_minute(period_s: int) -> None:
    """Samples with another period would not add up to minutes."""
    with pytest.raises(InvalidSettings, match=f"PELOTON_HISTORY_PERIOD_S={period_s}"):
        load({"PELOTON_HISTORY_PERIOD_S": str(period_s)})


def holding(world: World, held: dict[tuple[RespoolId, str], int]) -> ResmgrState:
    """Return the state in which owners hold cores of pools, in pods of one core."""
    for (pool_id, owner), count in held.items():
        job = world.job(pool_id, count, owner=owner)
        world.storage.admission.mark_pending(job, world.storage.admission.queueable(job, count), 1)
        world.storage.admission.mark_ready([(job, 0, count)])
    state = rebuild(world.storage)
    state.set_capacity(Resources.of(100, 100_000), Resources())
    return state


def test_owners_have_what_their_pods_hold(world: World) -> None:
    """Owners of one pool borrow in proportion; the pool that lends and the pool that borrows have the same amount."""
    maps, rides = world.pool("maps", 40, 100), world.pool("rides", 60, 100)
    state = holding(world, {(maps, "alice"): 60, (maps, "b/ob"): 20, (rides, "alice"): 10})

    owners, (pools, _) = owner_amounts(state), pool_amounts(state, Tally())

    assert {
        owner_series(maps, "alice"): {cpu(Quantity.ALLOCATION): 60_000, cpu(Quantity.BORROWED): 30_000},
        owner_series(maps, "b/ob"): {cpu(Quantity.ALLOCATION): 20_000, cpu(Quantity.BORROWED): 10_000},
        owner_series(rides, "alice"): {cpu(Quantity.ALLOCATION): 10_000},
    } == owners
    assert 40_000 == pools[pool_series(maps)][cpu(Quantity.BORROWED)] == pools[pool_series(rides)][cpu(Quantity.LENT)]
    assert [] == list(faults(state))


def test_owners_beyond_the_limit_share_a_series(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owners with most cpu keep a series of their own; an owner named like the shared one is quoted."""
    monkeypatch.setattr(recorder, "OWNERS_MAX", 2)
    maps = world.pool("maps", 40, 100)
    state = holding(world, {(maps, "*"): 30, (maps, "b"): 20, (maps, "c"): 5, (maps, "d"): 4})

    found = {name: amounts[cpu(Quantity.ALLOCATION)] for name, amounts in owner_amounts(state).items()}

    assert {f"owner/{maps}/%2A": 30_000, f"owner/{maps}/b": 20_000, f"owner/{maps}/*": 9_000} == found
