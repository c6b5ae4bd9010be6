"""Moves of hosts to other host pools in storage: rows of maintenance and of host pools change together."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from peloton.errors import Aborted
from peloton.model.host import HostState
from peloton.model.host_pool import DEFAULT_HOST_POOL, HostInPool, HostPool
from peloton.model.ids import Hostname
from peloton.model.maintenance import HostMaintenance, MaintenanceAct, MaintenanceRequest
from services.storage.storage import Storage
from tests.conformance.storage.builders import NOW

UP, DRAINING, DRAINED, DOWN = HostState.UP, HostState.DRAINING, HostState.DRAINED, HostState.DOWN
C, H1, H2 = "cluster", Hostname("h1"), Hostname("h2")


@pytest.fixture
def moving(storage: Storage) -> Storage:
    """The host h1 drains for a move to the host pool batch, and h2 waits for its turn to do the same."""
    storage.hosts.claim(C, [H1, H2])
    for name in ("batch", "gpu"):
        storage.host_pools.create(HostPool(name))
    storage.host_pools.desire([H1, H2], "batch", NOW)
    storage.maintenance.request(C, [MaintenanceRequest(name, "ip", to_pool="batch") for name in (H1, H2)], 1, NOW)
    assert {H1: (DRAINING, DOWN, "batch"), H2: (UP, DOWN, "batch")} == rows(storage)
    return storage


def rows(storage: Storage) -> dict[str, tuple[HostState, HostState, str]]:
    return {host.hostname: (host.state, host.goal, host.to_pool) for host in storage.maintenance.all(C)}


def place(storage: Storage, hostname: str = H1) -> tuple[str, str]:
    found = storage.host_pools.all()
    assert found is not None
    return found.of(hostname)


def test_a_drained_host_changes_its_host_pool_and_comes_back(moving: Storage) -> None:
    """The drained host changes its host pool and returns in one step, which may be repeated. The next host begins
    afterwards."""
    assert not moving.maintenance.relabel(C, H1, NOW)
    assert moving.maintenance.move(C, H1, DRAINING, DRAINED, NOW)
    assert (DEFAULT_HOST_POOL, "batch") == place(moving)

    assert moving.maintenance.relabel(C, H1, NOW)
    assert not moving.maintenance.relabel(C, H1, NOW)

    assert ("batch", "batch") == place(moving)
    assert (DRAINED, UP, "batch") == rows(moving)[H1]
    begun = moving.maintenance.end(C, H1, 1, NOW)
    assert ([H2], {H2: (DRAINING, DOWN, "batch")}) == ([host.hostname for host in begun], rows(moving))


def test_a_host_that_is_to_go_elsewhere_by_now_does_not_arrive(moving: Storage) -> None:
    """A host whose destination has changed does not arrive until its move has been redirected. A host that is coming up
    is not redirected."""
    moving.maintenance.move(C, H1, DRAINING, DRAINED, NOW)
    moving.host_pools.desire([H1], "gpu", NOW)
    assert not moving.maintenance.relabel(C, H1, NOW)

    moving.maintenance.redirect(C, {H1: "gpu"}, NOW)

    assert moving.maintenance.relabel(C, H1, NOW)
    assert ("gpu", "gpu") == place(moving)
    moving.maintenance.redirect(C, {H1: "batch"}, NOW)
    assert (DRAINED, UP, "gpu") == rows(moving)[H1]


def test_a_cancelled_move_leaves_the_host_where_it_is(moving: Storage) -> None:
    """The move is forgotten, whether it has begun or waits, and its place under the bound is free again."""
    moving.maintenance.steer(C, [H2], MaintenanceAct.CANCEL, 1, NOW)
    assert ({H1: (DRAINING, DOWN, "batch")}, HostInPool("default", "default")) == (rows(moving), place(moving, H2))

    moving.maintenance.steer(C, [H1], MaintenanceAct.CANCEL, 1, NOW)
    assert ({H1: (DRAINING, UP, "batch")}, HostInPool("default", "default")) == (rows(moving), place(moving))
    assert not moving.maintenance.relabel(C, H1, NOW)


def test_hosts_stay_whose_move_is_no_longer_wanted(moving: Storage) -> None:
    """The moves of both hosts are cancelled. A host in maintenance is unaffected."""
    moving.maintenance.request(C, [MaintenanceRequest(Hostname("h3"), "ip")], 3, NOW)

    changed = moving.maintenance.cancel_moves(C, [H1, H2, "h3"], 1, NOW)

    assert {H1, H2} == {host.hostname for host in changed}
    assert {H1: (DRAINING, UP, "batch"), H2: (DRAINING, UP, "batch"), "h3": (DRAINING, DOWN, "")} == rows(moving)


def test_maintenance_comes_before_a_move(moving: Storage) -> None:
    """A moving host that is requested DOWN goes down with the operator's reason, and keeps its destination. A host that
    is coming up can neither move nor go down."""
    request = MaintenanceRequest(H1, "ip", 2, 60, "kernel")
    (host,) = moving.maintenance.request(C, [request], 1, NOW)

    assert (DRAINING, DOWN, "", 60, "kernel", NOW) == (
        host.state, host.goal, host.to_pool, host.deadline_s, host.reason, host.drained_from_ns,
    )  # fmt: skip
    assert (DEFAULT_HOST_POOL, "batch") == place(moving)
    again = MaintenanceRequest(H1, "ip", to_pool="batch")
    assert [host] == moving.maintenance.request(C, [again], 1, NOW)
    moving.maintenance.steer(C, [H1], MaintenanceAct.CANCEL, 1, NOW)
    with pytest.raises(Aborted, match=r"is being ended"):
        moving.maintenance.request(C, [again], 1, NOW)


def test_a_move_and_its_cancellation_at_the_same_time(open_storage: Callable[[], Storage]) -> None:
    """The host has either moved or is where it was, and its two rows agree."""
    storages = [open_storage() for _ in range(2)]
    storages[0].hosts.claim(C, [H1])
    storages[0].host_pools.create(HostPool("batch"))
    for _ in range(10):
        storages[0].host_pools.desire([H1], "batch", NOW)
        storages[0].maintenance.request(C, [MaintenanceRequest(H1, "ip", to_pool="batch")], 1, NOW)
        storages[0].maintenance.move(C, H1, DRAINING, DRAINED, NOW)

        def cancel() -> list[HostMaintenance]:
            return storages[1].maintenance.steer(C, [H1], MaintenanceAct.CANCEL, 1, NOW)

        with ThreadPoolExecutor(2) as threads:
            moved, _ = threads.submit(storages[0].maintenance.relabel, C, H1, NOW), threads.submit(cancel)
        name = "batch" if moved.result() else DEFAULT_HOST_POOL
        assert (name, name) == place(storages[0])
        assert {H1: (DRAINED, UP, "batch")} == rows(storages[0])
        storages[0].maintenance.end(C, H1, 1, NOW)
        storages[0].host_pools.relabel(H1, name, DEFAULT_HOST_POOL, NOW)
