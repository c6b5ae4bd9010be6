"""Elections: at most one leader per role, which all clients find, and which is replaced when it does not renew."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from peloton.errors import Unavailable
from services.election.lease_row import LeaderElection
from tests.unit.lease_table import Table, table
from tests.unit.virtual_time import Gate, VirtualTimeLoop, in_virtual_time, now_s

__all__ = ["table"]  # a fixture

ROLE = "hostmgr"
TTL_S = 0.4


def candidate(table: Table, ttl_s: float) -> LeaderElection:
    return LeaderElection(table, ROLE, ttl_s, now_s, now_s)


def expiry(table: Table) -> float:
    return table.rows[ROLE][2]


@in_virtual_time
async def test_one_of_two_leads(table: Table) -> None:
    """The second candidate stands by until the first resigns."""
    first, second = candidate(table, 60.0), candidate(table, TTL_S)
    await first.win()
    standby = asyncio.create_task(second.win())
    await asyncio.wait({standby}, timeout=TTL_S / 2)
    assert not standby.done()

    await first.resign()

    async with asyncio.timeout(120):
        await standby


@in_virtual_time
async def test_a_silent_leader_is_replaced(table: Table) -> None:
    """A leader that does not renew loses the role when the lease expires, and not before."""
    first, second = candidate(table, TTL_S), candidate(table, TTL_S)
    await first.win()
    ends_s = expiry(table)

    async with asyncio.timeout(120):
        await second.win()

    assert now_s() >= ends_s


@in_virtual_time
async def test_a_leader_that_renews_stays(table: Table) -> None:
    """A leader that holds its role moves the expiry on, again and again."""
    election = candidate(table, TTL_S)
    await election.win()
    ends_s = expiry(table)

    holding = asyncio.create_task(election.hold())
    async with asyncio.timeout(120):
        while expiry(table) < ends_s + TTL_S / 2:
            await asyncio.wait({holding}, timeout=0.01)

    assert not holding.done()
    holding.cancel()


@pytest.mark.parametrize("fault", ["away", "hangs"])
@in_virtual_time
async def test_a_leader_that_cannot_renew_gives_up_before_its_lease_ends(fault: str, table: Table) -> None:
    """A leader gives up before its lease ends when storage fails or does not respond: two never lead at once."""
    election = candidate(table, TTL_S)
    await election.win()
    if fault == "away":
        table.is_unavailable = True
    else:
        table.hang.clear()

    with pytest.raises(Unavailable, match="leadership lost"):
        async with asyncio.timeout(120):
            await election.hold()

    assert now_s() < expiry(table)
    table.hang.set()


@in_virtual_time
async def test_a_slow_election_counts_from_its_beginning(table: Table) -> None:
    """A lease begins when the attempt began: a leader elected slowly gives up all the earlier."""
    election = candidate(table, TTL_S)
    table.hang.clear()
    winning = asyncio.create_task(election.win())
    await asyncio.wait({winning}, timeout=TTL_S * 0.7)
    table.hang.set()
    await winning
    table.is_unavailable = True

    with pytest.raises(Unavailable):
        async with asyncio.timeout(120):
            await election.hold()

    assert now_s() < expiry(table)


@in_virtual_time
async def test_a_leader_that_was_replaced_notices(table: Table) -> None:
    """The next renewal is refused."""
    election = candidate(table, TTL_S)
    await election.win()
    table.rows[ROLE] = ("another", "", now_s() + 60)

    with pytest.raises(Unavailable, match="leadership lost"):
        async with asyncio.timeout(120):
            await election.hold()


@pytest.mark.parametrize("is_replaced", [False, True])
@in_virtual_time
async def test_a_leader_that_was_stopped_asks_before_it_gives_up(is_replaced: bool, table: Table) -> None:
    """A leader whose lease expired while its machine slept leads on, unless another has led meanwhile, even for a
    moment.
    """
    election = candidate(table, TTL_S)
    await election.win()
    holding = asyncio.create_task(election.hold())
    await asyncio.sleep(0)
    ends_s = expiry(table)
    if is_replaced:
        table.rows[ROLE] = ("another", "", ends_s)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    loop.advance(TTL_S * 1.1)  # the whole process stands still

    if is_replaced:
        with pytest.raises(Unavailable, match="leadership lost"):
            async with asyncio.timeout(120):
                await holding
    else:
        async with asyncio.timeout(120):
            while expiry(table) == ends_s:
                await asyncio.wait({holding}, timeout=0.01)
        assert not holding.done()
        holding.cancel()


@contextmanager
def renewals_hang(table: Table) -> Iterator[None]:
    """Make renewals that begin within the block hang until it ends."""
    before, table.renewals_hang = table.renewals_hang, Gate()
    hung = table.renewals_hang
    try:
        yield
    finally:
        table.renewals_hang = before
        hung.set()


@pytest.mark.parametrize("is_replaced", [False, True])
@in_virtual_time
async def test_a_leader_whose_renewals_take_long_asks_before_it_gives_up(is_replaced: bool, table: Table) -> None:
    """A leader leads on as long as no other has replaced it, however many renewals hang, and renews when it can."""
    ttl_s = TTL_S / 2
    election = candidate(table, ttl_s)
    await election.win()
    ends_s = expiry(table)
    with renewals_hang(table):
        holding = asyncio.create_task(election.hold())
        async with asyncio.timeout(60):
            while table.asked < 2 or now_s() < ends_s + 3 * ttl_s:
                await asyncio.wait({holding}, timeout=0.01)
                assert not holding.done()
            if is_replaced:
                table.rows[ROLE] = ("another", "", now_s() + 60)
                with pytest.raises(Unavailable, match="leadership lost"):
                    await holding
    if not is_replaced:
        async with asyncio.timeout(120):
            while expiry(table) == ends_s:
                await asyncio.wait({holding}, timeout=0.01)
        assert not holding.done()
        holding.cancel()


@in_virtual_time
async def test_a_renewal_that_never_ends_is_followed_by_another(table: Table) -> None:
    """A renewal that hangs, as on a dead connection, is followed by another: otherwise clients could not find the
    leader any more.
    """
    election = candidate(table, TTL_S / 2)
    await election.win()
    ends_s, living = expiry(table), table.renewals_hang
    with renewals_hang(table):
        holding = asyncio.create_task(election.hold())
        async with asyncio.timeout(120):
            while not table.asked:
                await asyncio.wait({holding}, timeout=0.01)
                assert not holding.done()
            table.renewals_hang = living
            while expiry(table) == ends_s:
                await asyncio.wait({holding}, timeout=0.01)
        assert not holding.done()
        holding.cancel()


@in_virtual_time
async def test_other_work_of_the_process_does_not_hold_up_renewals(table: Table) -> None:
    """All threads that the election shares are busy."""
    loop, free = asyncio.get_running_loop(), Gate()
    loop.set_default_executor(ThreadPoolExecutor(1))
    busy = asyncio.create_task(asyncio.to_thread(free.wait))
    election = candidate(table, TTL_S / 2)
    try:
        async with asyncio.timeout(120):
            await election.win()
            ends_s = expiry(table)
            holding = asyncio.create_task(election.hold())
            while expiry(table) == ends_s:
                await asyncio.wait({holding}, timeout=0.01)
        holding.cancel()
    finally:
        free.set()
        await busy


@in_virtual_time
async def test_a_leader_is_found_once_it_serves(table: Table) -> None:
    """Clients find no leader before the announcement: the lease has no address; renewals keep the address."""
    election = candidate(table, TTL_S)
    await election.win()
    assert not table.leader(ROLE, now_s())

    await election.announce("h1:80")
    holding = asyncio.create_task(election.hold())
    ends_s = expiry(table)
    async with asyncio.timeout(120):
        while expiry(table) == ends_s:
            await asyncio.wait({holding}, timeout=0.01)

    assert "h1:80" == table.leader(ROLE, now_s())
    holding.cancel()


@in_virtual_time
async def test_a_renewal_on_its_way_does_not_undo_the_announcement(table: Table) -> None:
    """A renewal that began without an address ends before the announcement writes one."""
    election = candidate(table, 60.0)
    await election.win()
    table.hang.clear()
    renewal = asyncio.create_task(election.win())
    await asyncio.wait({renewal}, timeout=0.05)
    announcement = asyncio.create_task(election.announce("h1:80"))
    await asyncio.wait({announcement}, timeout=0.05)

    table.hang.set()
    await asyncio.gather(renewal, announcement)

    assert "h1:80" == table.leader(ROLE, now_s())


@in_virtual_time
async def test_who_lost_the_role_cannot_announce(table: Table) -> None:
    """A leader that took too long to start does not announce itself."""
    election = candidate(table, TTL_S)
    await election.win()
    table.rows[ROLE] = ("another", "h2:80", now_s() + 60)

    with pytest.raises(Unavailable, match="leadership lost"):
        await election.announce("h1:80")

    assert "h2:80" == table.leader(ROLE, now_s())


@pytest.mark.parametrize("fault", ["away", "hangs"])
@in_virtual_time
async def test_resigning_does_not_depend_on_storage(fault: str, table: Table) -> None:
    """A resignation succeeds without storage; the lease expires by itself."""
    election = candidate(table, TTL_S)
    await election.win()
    table.is_unavailable = fault == "away"
    if fault == "hangs":
        table.hang.clear()

    async with asyncio.timeout(120):
        await election.resign()

    table.hang.set()


@in_virtual_time
async def test_resigning_leaves_a_successor_alone(table: Table) -> None:
    """A late resignation does not release the lease of another leader."""
    election = candidate(table, TTL_S)
    await election.win()
    table.rows[ROLE] = ("another", "h2:80", now_s() + 60)

    await election.resign()

    assert "h2:80" == table.leader(ROLE, now_s())
