"""Host pools in storage: their records, the host pool of each host, and changes of both."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from peloton.errors import AlreadyExists, InvalidArgument, NotFound
from peloton.model.host_pool import DEFAULT_HOST_POOL, IN_DEFAULT, Factors, HostInPool, HostPool, HostPools, Workload
from peloton.model.ids import Hostname
from peloton.model.maintenance import MaintenanceRequest
from services.storage.hosts.host_pools import HostPoolRecords
from services.storage.storage import Storage
from tests.conformance.storage.builders import NOW

BATCH = HostPool("batch", frozenset({Workload.BATCH, Workload.SHARED}), Factors(160, 110), NOW)
SERVICES = HostPool("services", frozenset({Workload.STATELESS}), created_ns=NOW)


def now(records: HostPoolRecords) -> HostPools:
    found = records.all()
    assert found is not None
    return found


@pytest.fixture
def records(storage: Storage) -> HostPoolRecords:
    """Store the hosts h1 and h2 of one cluster and h3 of another one. h4 is DOWN for maintenance."""
    storage.hosts.claim("a", ["h1", "h2"])
    storage.hosts.claim("b", ["h3"])
    storage.maintenance.request("b", [MaintenanceRequest(Hostname("h4"), "10.0.0.4")], 1, NOW)
    return storage.host_pools


def test_there_is_a_default_host_pool_from_the_first_moment_on(records: HostPoolRecords) -> None:
    """All hosts are in the default host pool, of which nothing is stored."""
    before = now(records)

    assert {DEFAULT_HOST_POOL: HostPool(DEFAULT_HOST_POOL)} == before.pools
    assert (IN_DEFAULT, {}) == (before.of("h1"), before.hosts)
    assert ["h1", "h2", "h3", "h4"] == records.list_known_hosts()


def test_a_host_pool_is_created_once_and_read_back(records: HostPoolRecords) -> None:
    """A host pool is read back with its kinds of pods and its factors. A name that is taken is refused, also the
    default one."""
    records.create(BATCH)

    assert BATCH == now(records).pools["batch"]
    for taken in (BATCH, HostPool(DEFAULT_HOST_POOL)):
        with pytest.raises(AlreadyExists, match=f"host pool {taken.name} exists already"):
            records.create(taken)


def test_a_reader_that_knows_the_version_reads_nothing(records: HostPoolRecords) -> None:
    """A reader that has the current version reads nothing until a change."""
    known = now(records).version

    assert records.all(known) is None
    records.create(BATCH)
    found = records.all(known)
    assert found is not None
    assert (True, None) == (found.version > known, records.all(found.version))


def test_a_change_of_a_host_pool_leaves_alone_what_it_does_not_name(records: HostPoolRecords) -> None:
    """A change sets the given factors only. The default host pool may be changed too, and an unknown one is not
    found."""
    records.create(BATCH)

    records.change("batch", factors={"memory_percent": 120})
    records.change("batch", serves=frozenset({Workload.GPU}))
    records.change(DEFAULT_HOST_POOL, factors={"cpu_percent": 200})

    pools = now(records).pools
    assert HostPool("batch", frozenset({Workload.GPU}), Factors(160, 120), NOW) == pools["batch"]
    assert Factors(200) == pools[DEFAULT_HOST_POOL].factors
    with pytest.raises(NotFound, match=r"host pool other not found"):
        records.change("other")


def test_a_host_changes_its_host_pool_at_once(records: HostPoolRecords) -> None:
    """A host moves to another host pool and back to the default one, of which nothing is stored. The host may be of any
    cluster, or DOWN for maintenance."""
    records.create(BATCH)

    for name in ("h1", "h3", "h4"):
        assert records.relabel(name, DEFAULT_HOST_POOL, "batch", NOW)
    assert records.relabel("h1", "batch", DEFAULT_HOST_POOL, NOW)

    assert {"h3": HostInPool("batch", "batch"), "h4": HostInPool("batch", "batch")} == now(records).hosts


def test_refusals_of_a_change_come_in_the_order_of_the_original(records: HostPoolRecords) -> None:
    """The order is: unknown host, wrong source, a source equal to the destination, which is accepted, unknown
    destination. Nothing changes."""
    records.create(BATCH)
    before = now(records)

    with pytest.raises(NotFound, match=r"^host not found: h9"):
        records.relabel("h9", "nowhere", "nowhere", NOW)
    with pytest.raises(InvalidArgument, match=r"^source pool mismatch: host h1 is in host pool default, not in batch"):
        records.relabel("h1", "batch", "nowhere", NOW)
    assert not records.relabel("h1", DEFAULT_HOST_POOL, DEFAULT_HOST_POOL, NOW)
    with pytest.raises(InvalidArgument, match=r"^invalid dest pool: there is no host pool nowhere"):
        records.relabel("h1", DEFAULT_HOST_POOL, "nowhere", NOW)

    assert (before.pools, before.hosts) == (now(records).pools, now(records).hosts)


def test_hosts_of_a_deleted_host_pool_go_to_the_default_one(records: HostPoolRecords) -> None:
    """Hosts on their way to the deleted host pool stay where they are, and hosts on their way out of it continue."""
    for pool in (BATCH, SERVICES):
        records.create(pool)
    for host, name in (("h1", "batch"), ("h2", "services"), ("h3", "batch")):
        records.relabel(host, DEFAULT_HOST_POOL, name, NOW)
    records.desire(["h2"], "batch", NOW)
    records.desire(["h3"], "services", NOW)

    records.delete("batch")

    found = now(records)
    assert [DEFAULT_HOST_POOL, "services"] == list(found.pools)
    assert HostInPool("services", "services") == found.of("h2")
    assert {"h2": found.of("h2"), "h3": HostInPool(DEFAULT_HOST_POOL, "services")} == found.hosts


def test_the_default_host_pool_stays(records: HostPoolRecords) -> None:
    """The default host pool cannot be deleted, and an unknown one is not found."""
    with pytest.raises(InvalidArgument, match=r"^default pool"):
        records.delete(DEFAULT_HOST_POOL)
    with pytest.raises(NotFound, match=r"host pool batch not found"):
        records.delete("batch")


def test_a_move_is_wanted_first_and_arrives_later(records: HostPoolRecords) -> None:
    """All hosts of a request are accepted or none. A host arrives at its destination, and nowhere else."""
    records.create(BATCH)
    with pytest.raises(NotFound, match=r"host not found: h9"):
        records.desire(["h1", "h9"], "batch", NOW)
    with pytest.raises(InvalidArgument, match=r"invalid dest pool"):
        records.desire(["h1"], "nowhere", NOW)
    assert IN_DEFAULT == now(records).of("h1")

    assert ["h1", "h2"] == records.desire(["h1", "h2"], "batch", NOW)
    assert [] == records.desire(["h1"], "batch", NOW)
    assert HostInPool(DEFAULT_HOST_POOL, "batch") == now(records).of("h1")

    assert not records.arrive("h1", "services", NOW)
    assert records.arrive("h1", "batch", NOW)
    assert records.arrive("h1", "batch", NOW), "a repeated call finds it there"
    assert HostInPool("batch", "batch") == now(records).of("h1")
    assert records.relabel("h2", DEFAULT_HOST_POOL, DEFAULT_HOST_POOL, NOW)
    assert IN_DEFAULT == now(records).of("h2"), "a change by hand ends the move"


def test_of_changes_at_the_same_time_one_comes_after_the_other(open_storage: Callable[[], Storage]) -> None:
    """One of several concurrent changes that take a host from the same host pool succeeds. The others see the wrong
    source."""
    storages = [open_storage() for _ in range(4)]
    storages[0].hosts.claim("a", ["h1"])
    names = [f"pool{at}" for at in range(len(storages))]
    for name in names:
        storages[0].host_pools.create(HostPool(name))

    def take(at: int) -> bool:
        try:
            return storages[at].host_pools.relabel("h1", DEFAULT_HOST_POOL, names[at], NOW)
        except InvalidArgument:
            return False

    with ThreadPoolExecutor(len(storages)) as threads:
        took = list(threads.map(take, range(len(storages))))

    assert [names[took.index(True)]] == [now(each.host_pools).of("h1").current for each in storages[:1]]
    assert 1 == sum(took)
    assert len(names) + 1 == now(storages[0].host_pools).version


def test_the_least_number_of_hosts_is_kept(records: HostPoolRecords) -> None:
    """The minimum of a host pool changes when it is given, as its kinds of pods do."""
    records.create(HostPool("batch", minimum=3))
    assert 3 == records.change("batch", serves=frozenset({Workload.BATCH})).minimum
    assert 0 == records.change("batch", minimum=0).minimum
    assert 0 == now(records).pools["batch"].minimum
