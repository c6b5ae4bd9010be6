"""Records of the mover of host pools: loans of hosts, and past moves."""

from __future__ import annotations

import pytest

from peloton.model.host_pool import DEFAULT_HOST_POOL, HostInPool, HostPool, HostPools
from peloton.model.ids import Hostname
from peloton.model.mover import Made, MoverRule
from peloton.model.times import NS_PER_S
from services.storage.hosts import mover
from services.storage.hosts.host_pools import HostPoolRecords
from services.storage.storage import Storage
from tests.conformance.storage.builders import NOW

H1, H2 = Hostname("h1"), Hostname("h2")


def now(records: HostPoolRecords) -> HostPools:
    found = records.all()
    assert found is not None
    return found


@pytest.fixture(autouse=True)
def hosts(storage: Storage) -> None:
    storage.hosts.claim("a", [H1, H2])


def a_move(source: str, destination: str, at_ns: int = NOW, rule: MoverRule = MoverRule.LOAD) -> Made:
    return Made(source, destination, rule, "why", (H1, H2), at_ns)


def lend(storage: Storage, source: str, destination: str, at_ns: int = NOW) -> list[Hostname]:
    made = storage.mover.lend(a_move(source, destination, at_ns), source if source == "batch" else destination, 5)
    return list(made.hostnames) if made else []


def test_hosts_are_lent_and_given_back(storage: Storage) -> None:
    """The loan lasts while the host is outside its host pool. It ends when the host is back or another request moves
    it, and so does the bound of the move."""
    records = storage.host_pools
    records.create(HostPool("services"))
    records.create(HostPool("batch"))
    for host in ("h1", "h2"):
        records.relabel(host, DEFAULT_HOST_POOL, "batch", NOW)
    assert [] == lend(storage, "batch", "services"), "the mover is off"
    storage.mover.switch(True)
    assert now(records).is_mover_on

    assert ["h1", "h2"] == lend(storage, "batch", "services")
    assert [] == lend(storage, "batch", "services"), "they are not at rest there any more"
    assert ({"h1": "batch", "h2": "batch"}, {"h1": 5, "h2": 5}) == (now(records).lent, now(records).at_most)
    assert all(records.arrive(host, "services", NOW) for host in ("h1", "h2"))
    assert ({"h1": "batch", "h2": "batch"}, {}) == (now(records).lent, now(records).at_most)

    records.relabel("h2", "services", "services", NOW)
    assert {"h1": "batch", "h2": "batch"} == now(records).lent, "nothing has changed"
    records.desire(["h2"], "batch", NOW)
    assert {"h1": "batch"} == now(records).lent
    assert ["h1"] == lend(storage, "services", "batch")
    assert {"h1": "batch"} == now(records).lent
    assert records.arrive("h1", "batch", NOW)
    assert {} == now(records).lent


def test_a_host_lent_to_the_default_host_pool_is_remembered(storage: Storage) -> None:
    """The loan lasts until the lending host pool is deleted."""
    records = storage.host_pools
    records.create(HostPool("batch"))
    storage.mover.switch(True)
    records.relabel("h1", DEFAULT_HOST_POOL, "batch", NOW)
    assert ["h1"] == lend(storage, "batch", DEFAULT_HOST_POOL)
    assert records.arrive("h1", DEFAULT_HOST_POOL, NOW)
    assert {"h1": "batch"} == now(records).lent

    records.delete("batch")

    assert {} == now(records).lent
    assert [] == lend(storage, DEFAULT_HOST_POOL, "batch")


def lending(storage: Storage) -> HostPoolRecords:
    """Switches the mover on, with both hosts in batch."""
    records = storage.host_pools
    records.create(HostPool("services"))
    records.create(HostPool("batch"))
    for host in (H1, H2):
        records.relabel(host, DEFAULT_HOST_POOL, "batch", NOW)
    storage.mover.switch(True)
    return records


def test_past_moves_are_read_by_the_next_mover(storage: Storage) -> None:
    """Moves are listed newest first, with the hosts that moved. A decision that moved none is left out."""
    records = lending(storage)
    lend(storage, "batch", "services")
    for host in (H1, H2):
        records.arrive(host, "services", NOW)
    records.relabel(H2, "services", "batch", NOW)
    assert [H1] == lend(storage, "services", "batch", NOW + 5)
    assert [] == lend(storage, "services", "batch", NOW + 9)

    back, there = storage.mover.list_made()

    assert a_move("batch", "services") == there
    assert Made("services", "batch", MoverRule.LOAD, "why", (H1,), NOW + 5) == back


def test_old_moves_are_forgotten(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old moves are deleted, except the moves of the last hour and the newest ones."""
    monkeypatch.setattr(mover, "MADE_KEPT", 10)
    records = lending(storage)
    for at in range(mover.MADE_KEPT + 5):
        lend(storage, "batch", "services", NOW + at)
        for host in (H1, H2):
            records.relabel(host, "batch", "batch", NOW)
    assert mover.MADE_KEPT + 5 == len(storage.mover.list_made()), "all of them are of the last hour"

    later_ns = NOW + (mover.MADE_KEPT_S + 3) * NS_PER_S
    lend(storage, "batch", "services", later_ns)

    kept = [one.at_ns for one in storage.mover.list_made()]
    assert [later_ns, *(NOW + at for at in range(mover.MADE_KEPT + 4, 5, -1))] == kept


def test_hosts_that_do_not_get_away_stay(storage: Storage) -> None:
    """The hosts of the decision that are still on their way stay, with the loan that they had before. Other loans are
    unaffected."""
    records = lending(storage)
    lend(storage, "batch", "services")
    records.arrive(H2, "services", NOW)
    stuck = a_move("batch", "services", NOW + 7, MoverRule.STUCK)

    assert storage.mover.give_up(stuck, NOW - 1) is None, "that is another decision"
    made = storage.mover.give_up(stuck, NOW)

    assert (made and made.hostnames) == (H1,)
    assert HostInPool("batch", "batch") == now(records).of(H1)
    assert HostInPool("services", "services") == now(records).of(H2)
    assert {H2: "batch"} == now(records).lent
    assert [MoverRule.STUCK, MoverRule.LOAD] == [one.rule for one in storage.mover.list_made()]
    assert storage.mover.give_up(stuck, NOW) is None


def test_a_loan_that_is_not_given_back_in_time_is_still_one(storage: Storage) -> None:
    """A host that another request has moved since is no longer the mover's."""
    records = lending(storage)
    lend(storage, "batch", "services")
    for host in (H1, H2):
        records.arrive(host, "services", NOW)
    lend(storage, "services", "batch", NOW + 1)
    records.desire([H2], "batch", NOW + 2, at_most=3)

    made = storage.mover.give_up(a_move("services", "batch", NOW + 7, MoverRule.STUCK), NOW + 1)

    assert (made and made.hostnames) == (H1,)
    assert ({H1: "batch"}, HostInPool("services", "batch")) == (now(records).lent, now(records).of(H2))
