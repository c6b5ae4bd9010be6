"""Elections by a lease row and by ZooKeeper: one leader at a time, found by all, whose epoch fences its writes."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from peloton.errors import LeadershipLost, Unavailable
from peloton.model.ids import hostmgr_role
from services.election.lease_row import LeaderElection
from services.election.port import Directory, Election
from services.election.zookeeper import Access, ZooKeeper, ZooKeeperElection, path_of
from services.storage import migrate
from services.storage.storage import Storage
from tests.nightly import NIGHTLY
from tests.waiting import timeout_s
from tests.zookeeper import zookeeper

__all__ = ["zookeeper"]  # a fixture
pytestmark = pytest.mark.xdist_group("election")
ROLE = hostmgr_role("east")
TTL_S = 1.0
_roots = itertools.count()


class Kind(Protocol):
    storage: Storage

    def candidate(self) -> Election: ...

    def directory(self) -> Directory: ...

    def silence(self, election: Election) -> None:
        """Make the leader unable to say that it leads, as if it were frozen."""
        ...

    def close(self) -> None: ...


class Rows:
    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def candidate(self) -> Election:
        return LeaderElection(self.storage.leases, ROLE, TTL_S)

    def directory(self) -> Directory:
        return self.storage.leases

    def silence(self, election: Election) -> None:
        """Does nothing: a leader renews only while it holds."""

    def close(self) -> None:
        self.storage.close()


class Nodes:
    def __init__(self, storage: Storage, address: str, digest: str = "") -> None:
        self.storage, self.address = storage, address
        self.access = Access(address, f"/peloton/{next(_roots)}", digest=digest)
        self._sessions: list[ZooKeeper] = []

    def session(self) -> ZooKeeper:
        self._sessions.append(ZooKeeper(self.access, TTL_S))
        return self._sessions[-1]

    def candidate(self) -> ZooKeeperElection:
        return self.session().election(self.storage.leases, ROLE, TTL_S, lambda _: None)

    def directory(self) -> Directory:
        directory = self.session().directory(self.storage.leases)
        until_s = time.monotonic() + timeout_s()
        while not self._sessions[-1]._client.connected and time.monotonic() < until_s:
            time.sleep(0.01)
        return directory

    def silence(self, election: Election) -> None:
        """End its session, as the server does when it hears nothing."""
        assert isinstance(election, ZooKeeperElection)
        thief = KazooClient(hosts=self.address, client_id=election._client.client_id)
        thief.start()
        thief.stop()
        thief.close()

    def close(self) -> None:
        for session in self._sessions:
            session.close()
        self.storage.close()


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    url = f"sqlite:///{tmp_path / 'storage.db'}"
    migrate.upgrade(url)
    return Storage(url)


@pytest.fixture(params=["rows", pytest.param("nodes", marks=NIGHTLY)])
async def kind(request: pytest.FixtureRequest, storage: Storage) -> AsyncIterator[Kind]:
    made: Kind = Rows(storage) if request.param == "rows" else Nodes(storage, request.getfixturevalue("zookeeper"))
    yield made
    await asyncio.to_thread(made.close)


def in_time(work: Awaitable[Any]) -> Coroutine[Any, Any, Any]:
    return asyncio.wait_for(work, timeout_s())


async def test_one_of_two_leads(kind: Kind) -> None:
    """The second stands by until the first resigns; its epoch is the next, and the first writes nothing any more."""
    first, second = kind.candidate(), kind.candidate()
    stands_by = asyncio.Event()
    await in_time(first.win())
    standby = asyncio.create_task(second.win(stands_by.set))
    await in_time(stands_by.wait())
    assert not standby.done()

    await first.resign()
    await in_time(standby)

    assert (1, 2) == (first.fence.epoch, second.fence.epoch)
    assert (False, True) == (first.fence.is_raised, second.fence.is_raised)
    await second.resign()


async def test_all_find_the_leader(kind: Kind) -> None:
    """A leader is found by the address that it announces, until it resigns; its cluster stays known by its host."""
    election, directory = kind.candidate(), await asyncio.to_thread(kind.directory)

    def look_up() -> tuple[str | None, str | None]:
        return directory.leader(ROLE, time.time()), directory.clusters(time.time()).get("east")

    assert (None, None) == await asyncio.to_thread(look_up)
    await in_time(election.win())
    assert ("", "") == await asyncio.to_thread(look_up)
    await election.announce("h1:5396")
    assert ("h1:5396", "h1:5396") == await asyncio.to_thread(look_up)
    await election.resign()
    leader, cluster = await asyncio.to_thread(look_up)
    assert leader is None
    assert not cluster


async def test_a_silent_leader_is_replaced(kind: Kind) -> None:
    """The next one leads when the time of the first has run out; the first finds out, and its writes fail."""
    first, second = kind.candidate(), kind.candidate()
    await in_time(first.win())
    await first.announce("h1:1")
    await asyncio.to_thread(kind.silence, first)

    await in_time(second.win())

    assert second.fence.epoch == first.fence.epoch + 1
    with pytest.raises(LeadershipLost):
        kind.storage.with_fence(first.fence).lockdowns.set("Read", True)
    with pytest.raises(Unavailable, match="leadership lost"):
        await in_time(first.hold())
    kind.storage.with_fence(second.fence).lockdowns.set("Read", True)
    await second.resign()


async def test_a_leader_holds(kind: Kind) -> None:
    """A leader that confirms its leadership keeps it, and may send, for longer than its lease."""
    election = kind.candidate()
    await in_time(election.win())
    holding = asyncio.create_task(election.hold())
    await asyncio.wait({holding}, timeout=2.5 * TTL_S)
    assert not holding.done()
    assert "" == election.fence.refusal()
    holding.cancel()
    await election.resign()


@pytest.fixture
async def nodes(storage: Storage, zookeeper: str) -> AsyncIterator[Callable[..., Nodes]]:
    made = []

    def make(**more: str) -> Nodes:
        made.append(Nodes(storage, zookeeper, **more))
        return made[-1]

    yield make
    for one in made:
        await asyncio.to_thread(one.close)


@NIGHTLY
async def test_a_leader_frozen_during_its_election_does_not_lead(
    nodes: Callable[..., Nodes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that stands still between its node and its epoch does not take the epoch from its successor."""
    world = nodes()
    first, second = world.candidate(), world.candidate()
    first_try, frozen = first._try, asyncio.Event()
    read_epoch, loop = world.storage.leases.epoch, asyncio.get_running_loop()

    def freeze(role: str) -> int:
        epoch = read_epoch(role)
        monkeypatch.setattr(world.storage.leases, "epoch", read_epoch)
        world.silence(first)
        loop.call_soon_threadsafe(frozen.set)
        asyncio.run_coroutine_threadsafe(second.win(), loop).result(timeout_s())
        while not first._client.connected:
            time.sleep(0.01)
        return epoch

    monkeypatch.setattr(world.storage.leases, "epoch", freeze)
    while not first._client.connected:
        await asyncio.sleep(0.01)
    assert 0 == await asyncio.to_thread(first_try, lambda _: None)
    assert frozen.is_set()
    assert (0, 1) == (first.fence.epoch, second.fence.epoch)


@NIGHTLY
async def test_only_its_user_changes_a_node(nodes: Callable[..., Nodes]) -> None:
    """All processes read the nodes of a user, who alone changes them."""
    world = nodes(digest="peloton:secret")
    election = world.candidate()
    await in_time(election.win())
    await election.announce("h1:7")

    def act_as_another() -> bytes:
        client = KazooClient(hosts=world.address)
        client.start()
        try:
            with pytest.raises(NoAuthError):
                client.delete(path_of(world.access.root, ROLE))
            return bytes(client.get(path_of(world.access.root, ROLE))[0])
        finally:
            client.stop()
            client.close()

    assert b'"address":"h1:7"' in await asyncio.to_thread(act_as_another)
    await election.resign()
