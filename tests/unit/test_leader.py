"""At most one leader per role, found by everybody, and replaced when it falls silent."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import grpc
import pytest

from peloton.errors import Unavailable
from services import leader
from services.leader import LeaderChannels, LeaderElection

ROLE = "hostmgr"
TTL_S = 0.4
HELD_S = 4.0
"""Of a lease that must not run out while the test looks: a busy machine stops for less than a quarter of it."""


class Table:
    """Lease rows in memory, with the rules of storage; ``is_away`` fails every call, ``hang`` holds them."""

    def __init__(self) -> None:
        self.rows: dict[str, tuple[str, str, float]] = {}  # role -> owner, address, expiry
        self.is_away = False
        self.hang = threading.Event()
        self.hang.set()
        self.lookups = 0
        self._lock = threading.Lock()

    def acquire_lease(self, role: str, owner: str, address: str, ttl_s: float, now_s: float) -> bool:
        with self._reached():
            held = self.rows.get(role)
            if held is not None and held[0] != owner and held[2] > now_s:
                return False
            self.rows[role] = (owner, address, now_s + ttl_s)
            return True

    def renew_lease(self, role: str, owner: str, address: str, ttl_s: float, now_s: float) -> bool:
        with self._reached():
            is_mine = self.rows.get(role, ("",))[0] == owner
            if is_mine:
                self.rows[role] = (owner, address, now_s + ttl_s)
            return is_mine

    def release_lease(self, role: str, owner: str) -> bool:
        with self._reached():
            is_mine = self.rows.get(role, ("",))[0] == owner
            if is_mine:
                del self.rows[role]
            return is_mine

    @contextmanager
    def _reached(self) -> Iterator[None]:
        self.hang.wait()
        if self.is_away:
            raise OSError("storage is away")
        with self._lock:
            yield

    def leader(self, role: str, now_s: float) -> str | None:
        self.lookups += 1
        owner_address = self.rows.get(role)
        return owner_address[1] if owner_address and owner_address[2] > now_s else None

    def clusters(self, now_s: float) -> dict[str, str]:
        self.lookups += 1
        led = {role.removeprefix("hostmgr/"): row for role, row in self.rows.items() if role.startswith("hostmgr/")}
        return {name: address if expiry > now_s else "" for name, (_, address, expiry) in led.items()}


@pytest.fixture
def table() -> Iterator[Table]:
    made = Table()
    yield made
    made.hang.set()


def expiry(table: Table) -> float:
    return table.rows[ROLE][2]


async def test_one_of_two_leads(table: Table) -> None:
    """The second candidate stands by until the first resigns."""
    first, second = LeaderElection(table, ROLE, 60.0), LeaderElection(table, ROLE, TTL_S)
    await first.win()
    standby = asyncio.create_task(second.win())
    await asyncio.wait({standby}, timeout=TTL_S / 2)
    assert not standby.done()

    await first.resign()

    async with asyncio.timeout(10):
        await standby


async def test_a_silent_leader_is_replaced(table: Table) -> None:
    """Who does not renew loses the role when the lease runs out, and not before."""
    first, second = LeaderElection(table, ROLE, TTL_S), LeaderElection(table, ROLE, TTL_S)
    await first.win()
    ends_s = expiry(table)

    async with asyncio.timeout(10):
        await second.win()

    assert time.time() >= ends_s


async def test_a_leader_that_renews_stays(table: Table) -> None:
    """Holding moves the expiry on, again and again."""
    election = LeaderElection(table, ROLE, HELD_S)
    await election.win()
    ends_s = expiry(table)

    holding = asyncio.create_task(election.hold())
    async with asyncio.timeout(20):
        while expiry(table) < ends_s + HELD_S / 2:
            await asyncio.wait({holding}, timeout=0.01)

    assert not holding.done()
    holding.cancel()


@pytest.mark.parametrize("fault", ["away", "hangs"])
async def test_a_leader_that_cannot_renew_gives_up_before_its_lease_ends(fault: str, table: Table) -> None:
    """Whether storage fails or does not answer: there are never two that believe in themselves."""
    election = LeaderElection(table, ROLE, HELD_S)
    await election.win()
    if fault == "away":
        table.is_away = True
    else:
        table.hang.clear()

    with pytest.raises(Unavailable, match="leadership lost"):
        async with asyncio.timeout(10):
            await election.hold()

    assert time.time() < expiry(table)
    table.hang.set()


async def test_a_slow_election_counts_from_its_beginning(table: Table) -> None:
    """The lease began when the attempt began: a leader elected slowly gives up all the earlier."""
    election = LeaderElection(table, ROLE, HELD_S)
    table.hang.clear()
    winning = asyncio.create_task(election.win())
    await asyncio.wait({winning}, timeout=HELD_S * 0.7)
    table.hang.set()
    await winning
    table.is_away = True

    with pytest.raises(Unavailable):
        async with asyncio.timeout(10):
            await election.hold()

    assert time.time() < expiry(table)


async def test_a_leader_that_was_replaced_notices(table: Table) -> None:
    """The next renewal is refused."""
    election = LeaderElection(table, ROLE, TTL_S)
    await election.win()
    table.rows[ROLE] = ("another", "", time.time() + 60)

    with pytest.raises(Unavailable, match="leadership lost"):
        async with asyncio.timeout(10):
            await election.hold()


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_a_leader_that_was_stopped_asks_before_it_gives_up(
    is_replaced: bool, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease ran out while its machine slept: it leads on, unless somebody has led meanwhile, and be it for a
    moment."""
    monkeypatch.setattr(leader, "LATE_TRY_TTLS", 10 / TTL_S)
    election = LeaderElection(table, ROLE, TTL_S)
    await election.win()
    holding = asyncio.create_task(election.hold())
    await asyncio.sleep(0)
    ends_s = expiry(table)
    if is_replaced:
        table.rows[ROLE] = ("another", "", ends_s)
    time.sleep(TTL_S * 1.1)  # the whole process stands still

    if is_replaced:
        with pytest.raises(Unavailable, match="leadership lost"):
            async with asyncio.timeout(10):
                await holding
    else:
        async with asyncio.timeout(10):
            while expiry(table) == ends_s:
                await asyncio.wait({holding}, timeout=0.01)
        assert not holding.done()
        holding.cancel()


async def test_a_leader_is_found_once_it_serves(table: Table) -> None:
    """Before the announcement there is a lease and no address; renewals keep the address."""
    election = LeaderElection(table, ROLE, HELD_S)
    await election.win()
    assert not table.leader(ROLE, time.time())

    await election.announce("h1:80")
    holding = asyncio.create_task(election.hold())
    ends_s = expiry(table)
    async with asyncio.timeout(10):
        while expiry(table) == ends_s:
            await asyncio.wait({holding}, timeout=0.01)

    assert "h1:80" == table.leader(ROLE, time.time())
    holding.cancel()


async def test_a_renewal_on_its_way_does_not_undo_the_announcement(table: Table) -> None:
    """An attempt that began without an address is over before the announcement writes one."""
    election = LeaderElection(table, ROLE, 60.0)
    await election.win()
    table.hang.clear()
    renewal = asyncio.create_task(election.win())
    await asyncio.wait({renewal}, timeout=0.05)
    announcement = asyncio.create_task(election.announce("h1:80"))
    await asyncio.wait({announcement}, timeout=0.05)

    table.hang.set()
    await asyncio.gather(renewal, announcement)

    assert "h1:80" == table.leader(ROLE, time.time())


async def test_who_lost_the_role_cannot_announce(table: Table) -> None:
    """A leader that took too long to start does not pretend."""
    election = LeaderElection(table, ROLE, TTL_S)
    await election.win()
    table.rows[ROLE] = ("another", "h2:80", time.time() + 60)

    with pytest.raises(Unavailable, match="leadership lost"):
        await election.announce("h1:80")

    assert "h2:80" == table.leader(ROLE, time.time())


@pytest.mark.parametrize("fault", ["away", "hangs"])
async def test_resigning_does_not_depend_on_storage(fault: str, table: Table) -> None:
    """The process ends all the same; the lease runs out by itself."""
    election = LeaderElection(table, ROLE, TTL_S)
    await election.win()
    table.is_away = fault == "away"
    if fault == "hangs":
        table.hang.clear()

    async with asyncio.timeout(10):
        await election.resign()

    table.hang.set()


async def test_resigning_leaves_a_successor_alone(table: Table) -> None:
    """A late resignation releases nothing of somebody else."""
    election = LeaderElection(table, ROLE, TTL_S)
    await election.win()
    table.rows[ROLE] = ("another", "h2:80", time.time() + 60)

    await election.resign()

    assert "h2:80" == table.leader(ROLE, time.time())


# Finding the leader.


@pytest.fixture
def channels(table: Table) -> Iterator[LeaderChannels]:
    made = LeaderChannels(table)
    yield made
    made.close()


def lead(table: Table, address: str) -> None:
    table.rows[ROLE] = ("owner", address, time.time() + 60)


def test_without_a_leader_there_is_no_channel(channels: LeaderChannels) -> None:
    """The caller may try again."""
    with pytest.raises(Unavailable, match="no hostmgr leads at present"):
        channels.channel(ROLE)()


def test_a_leader_is_looked_up_once_in_a_while(
    table: Table, channels: LeaderChannels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many calls share a look-up, and a new leader is found when it is old."""
    lead(table, "127.0.0.1:1")
    find = channels.channel(ROLE)
    first = find()
    assert all(find() is first for _ in range(100))
    assert 1 == table.lookups

    lead(table, "127.0.0.1:2")
    assert find() is first
    monkeypatch.setattr(leader, "LOOKUP_CACHE_S", -1.0)
    assert find() is not first


def test_that_nobody_leads_is_not_remembered(table: Table, channels: LeaderChannels) -> None:
    """A leader is found as soon as there is one."""
    assert channels.leader(ROLE) is None

    lead(table, "127.0.0.1:1")

    assert "127.0.0.1:1" == channels.leader(ROLE)


def test_channels_to_leaders_of_long_ago_are_closed(
    table: Table, channels: LeaderChannels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each failover brings a new address: the least recently used ones go."""
    monkeypatch.setattr(leader, "LOOKUP_CACHE_S", -1.0)
    find = channels.channel(ROLE)
    made: list[grpc.Channel] = []
    for number in range(leader.CHANNELS_MAX + 1):
        lead(table, f"127.0.0.1:{number + 1}")
        made.append(find())

    with pytest.raises(ValueError, match="closed channel"):
        made[0].unary_unary("/a/B")(b"", timeout=0.01)
    assert find() is made[-1]


def test_all_clusters_are_found_by_one_look_up(
    table: Table, channels: LeaderChannels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls to any of them share it; one that nobody leads is known and has no channel."""
    for name, address, left_s in (("a", "127.0.0.1:1", 60), ("b", "127.0.0.1:2", 60), ("c", "127.0.0.1:3", -1)):
        table.rows[f"hostmgr/{name}"] = ("owner", address, time.time() + left_s)
    find_a, find_b, find_c = (channels.cluster_channel(name) for name in "abc")

    assert {"a": "127.0.0.1:1", "b": "127.0.0.1:2", "c": ""} == channels.clusters()
    assert find_a() is find_a() is not find_b()
    with pytest.raises(Unavailable, match="no host manager of cluster c leads at present"):
        find_c()
    assert 1 == table.lookups

    table.rows["hostmgr/c"] = ("owner", "127.0.0.1:3", time.time() + 60)
    monkeypatch.setattr(leader, "LOOKUP_CACHE_S", -1.0)
    assert find_c() is not find_a()
