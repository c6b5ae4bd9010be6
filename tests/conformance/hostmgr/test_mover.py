"""The mover of host pools over the host managers of two clusters: a spike of services takes hosts from batch jobs, and
returns them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import grpc
import pytest

from peloton.api.v0.host.svc import host_svc_pb2
from peloton.api.v0.mover import mover_pb2 as pb
from peloton.errors import Unavailable, Unimplemented
from peloton.lifecycle.maintenance import Step
from peloton.model.ids import Hostname, JobId
from peloton.model.job import JobState, JobType
from peloton.model.reason import PlacementReason
from peloton.model.resources import Resources
from peloton.scheduling.mover import MoverPolicy
from services.hostmgr.client import HostManagerClient
from services.hostmgr.driver import RegisteredHost, UseSample
from services.hostmgr.federation import HostManagers
from services.hostmgr.host_samples import HostSample
from services.hostmgr.host_use import HostUse, next_use
from services.resmgr.host_mover import HostMover
from services.resmgr.mover_service import MoverService
from services.resmgr.settings import MoverSettings
from tests.conformance.hostmgr.test_host_moves import settle
from tests.conformance.hostmgr.test_host_pools import CAPACITY, CREATE, Manager, hosts, url
from tests.conformance.hostmgr.world import wait
from tests.conformance.storage import builders
from tests.present import require

__all__ = ["url"]
CONTEXT: Any = None
UPDATE = host_svc_pb2.UpdateHostPoolRequest
POLICY = MoverPolicy(hosts_at_a_time=2)
GIVE_UP_S = 1_000.0


class Moved:
    """Two clusters, the mover over them, and its clock."""

    def __init__(self, east: Manager, west: Manager) -> None:
        self.by_cluster = {"east": east, "west": west}
        self.east, self.now_s = east, 0.0
        self.unplaced: list[tuple[JobId, PlacementReason]] = []
        self.silent: set[str] = set()
        self.led = dict.fromkeys(self.by_cluster, "address")
        self.federation = HostManagers(
            lambda: self.led,
            lambda cluster: HostManagerClient(lambda: self.channel(cluster)),
            east.storage.hosts,
            east.storage.host_pods,
        )
        self.succeed()

    def succeed(self) -> None:
        """Make another process lead, which knows what is stored."""
        storage = self.east.storage
        settings = MoverSettings(POLICY, give_up_s=GIVE_UP_S)
        records = storage.host_pools, storage.mover, storage.pods, storage.host_pods
        clocks = lambda: self.now_s, lambda: builders.NOW + int(self.now_s * 1e9)
        self.mover = HostMover(lambda: self.unplaced, *records, self.federation, settings, *clocks)
        self.service = MoverService(self.mover, storage.mover)

    def channel(self, cluster: str) -> grpc.Channel:
        if cluster in self.silent:
            raise Unavailable("no host manager leads")
        return self.by_cluster[cluster].channel

    def switch(self, is_on: bool) -> None:
        asyncio.run(self.service.Switch(pb.SwitchRequest(on=is_on), CONTEXT))

    def query(self) -> pb.QueryResponse:
        return asyncio.run(self.service.Query(pb.QueryRequest(), CONTEXT))

    def turn(self, after_s: float = 0.0) -> list[str]:
        """Take one turn of the mover. Returns the hosts that it begins to move."""
        self.now_s += after_s
        return [host for one in asyncio.run(self.mover.turn()) for host in one.hostnames]

    def pools(self) -> dict[str, str]:
        return {host: pool for pool, hosts in self.east.pools().items() for host in hosts}

    def finish(self, host: str) -> list[Step]:
        """Take all steps of a move, once its host manager knows of it and batch pods there have ended."""
        manager = self.by_cluster["east" if host.startswith("e") else "west"]
        wait(lambda: manager.storage.maintenance.get(manager.cluster, host) is not None, f"{host} to move")
        return settle(manager, host)


@pytest.fixture
def moved(url: str) -> Iterator[Moved]:
    """Two clusters in which e0 is for services and all others are for batch jobs, which require at least one."""
    east, west = Manager(url, "east", hosts("e")), Manager(url, "west", hosts("w"))
    wait(lambda: len(east.pools()["default"]) == 6, "all hosts")
    east.stub.CreateHostPool(CREATE(name="services", serves=["stateless"], minimum=1))
    east.stub.CreateHostPool(CREATE(name="batch", serves=["batch", "shared"], minimum=1))
    for host in ("e0", "e1", "e2", "w0", "w1", "w2"):
        require(east.controller).change(host, "default", "services" if host == "e0" else "batch")
    west.core.read_host_pools()
    yield Moved(east, west)
    for one in (east, west):
        one.close()


def test_a_spike_takes_hosts_from_batch_and_gives_them_back(moved: Moved) -> None:
    """Idle hosts of any cluster move first, up to the limit of concurrent moves. After the spike exactly the lent hosts
    return."""
    east = moved.east
    batch = east.job(20, 1.0)
    assert {"e1": 10, "e2": 10} == east.start(batch)
    service = east.job(25, 1.0, JobType.SERVICE)
    assert {"e0": 10} == east.start(service)
    assert [] == moved.turn(), "it is off"
    moved.switch(True)

    moved.unplaced = [(service, east.place(service).why)]
    assert [] == moved.turn(), "the spike may be short"
    assert {"w0", "w1"} == set(moved.turn(POLICY.take_after_red_s))
    assert [] == moved.turn(POLICY.settle_s), "they are on their way"
    for host in ("w0", "w1"):
        assert [Step.DRAIN, Step.RELABEL, Step.BRING_UP] == moved.finish(host)
    assert {"e0", "w0", "w1"} == {host for host, pool in moved.pools().items() if pool == "services"}
    assert 15 == moved.by_cluster["west"].start(service).total()

    moved.unplaced = []
    end(moved, service)
    assert [] == moved.turn(POLICY.settle_s)
    assert [] == moved.turn(POLICY.return_after_s - 1)
    assert {"w0", "w1"} == set(moved.turn(1))
    for host in ("w0", "w1"):
        moved.finish(host)
    assert {"e0"} == {host for host, pool in moved.pools().items() if pool == "services"}
    assert [] == moved.turn(POLICY.return_after_s * 2), "what is left was not lent"
    assert ["SPARE", "WAITING"] == [one.rule for one in moved.query().made]


def end(moved: Moved, job: JobId) -> None:
    """Stop the job and end its pods in both clusters."""
    storage = moved.east.storage
    storage.jobs.set_goal(job, JobState.KILLED, builders.NOW)
    storage.jobs.settle(job, builders.NOW)
    for manager in moved.by_cluster.values():
        manager.core.kill_running(job)
    wait(lambda: moved.query().pools[0].used_percent == 0, "the end of the service")


def test_a_host_pool_keeps_its_minimum(moved: Moved) -> None:
    """Hosts with the fewest pods move first. The last host never moves."""
    east = moved.east
    moved.switch(True)
    east.stub.UpdateHostPool(UPDATE(name="batch", minimum=4))
    service = east.job(60, 1.0, JobType.SERVICE)
    moved.unplaced = [(service, east.place(service).why)]
    moved.turn()

    (gone,) = moved.turn(POLICY.take_after_red_s)
    moved.finish(gone)

    assert [] == moved.turn(POLICY.settle_s)
    pools = {one.name: one for one in moved.query().pools}
    assert (4, 4, 2) == (pools["batch"].host_count, pools["batch"].minimum, pools["services"].host_count)


def test_a_host_pool_below_its_minimum_fetches_hosts(moved: Moved) -> None:
    """A host pool below its minimum takes hosts without any demand. A lender below its minimum recovers a host that it
    has lent."""
    east = moved.east
    moved.switch(True)
    east.stub.UpdateHostPool(UPDATE(name="services", minimum=3))
    assert [] == moved.turn()
    gone = moved.turn(POLICY.take_after_s)
    for host in gone:
        moved.finish(host)
    assert 2 == len(gone)
    assert "services has 1 host, fewer than its minimum of 3" == moved.query().made[0].reason

    east.stub.UpdateHostPool(UPDATE(name="services", minimum=2))
    east.stub.UpdateHostPool(UPDATE(name="batch", minimum=6))
    moved.turn(POLICY.settle_s)
    (back,) = moved.turn(POLICY.take_after_s)
    moved.finish(back)

    assert back in gone
    last = moved.query().made[0]
    assert ("MINIMUM", "batch has 3 hosts, fewer than its minimum of 6") == (last.rule, last.reason)
    assert [] == moved.turn(POLICY.settle_s * 2), "services keeps its minimum"
    assert {"batch": 1} == next(dict(pool.lent) for pool in moved.query().pools if pool.name == "services")


def test_a_host_that_does_not_get_empty_stays(moved: Moved) -> None:
    """The move is given up after the limit, which is reported. The mover continues with other hosts."""
    moved.switch(True)
    service = moved.east.job(25, 1.0, JobType.SERVICE)
    moved.east.start(service)
    moved.unplaced = [(service, moved.east.place(service).why)]
    moved.turn()
    stuck = moved.turn(POLICY.take_after_red_s)
    quick, slow = stuck
    moved.finish(quick)
    assert [] == moved.turn(GIVE_UP_S - 1)

    assert [slow] == moved.turn(1)

    reported = moved.query().made[0]
    assert ("STUCK", "not empty 1000 s after the decision, the limit is 1000 s: stays in batch") == (
        reported.rule, reported.reason,
    )  # fmt: skip
    moved.finish(slow)
    assert ("services", "batch") == (moved.pools()[quick], moved.pools()[slow])
    assert {"batch": 1} == dict(moved.query().pools[0].lent)
    others = moved.turn()
    assert (2, False) == (len(others), slow in others)


def test_a_new_leader_knows_what_has_moved(moved: Moved) -> None:
    """A new leader observes the hourly budget and the pause after a move."""
    moved.switch(True)
    moved.east.stub.UpdateHostPool(UPDATE(name="services", minimum=3))
    moved.turn()
    for host in moved.turn(POLICY.take_after_s):
        moved.finish(host)
    moved.east.stub.UpdateHostPool(UPDATE(name="services", minimum=4))

    moved.succeed()
    assert [] == moved.turn()
    assert [] == moved.turn(POLICY.take_after_s), "too soon after the last move"
    assert [2] == [one.host_count for one in moved.query().made]
    moved.mover.settings = MoverSettings(replace(POLICY, hosts_per_hour=2))
    assert [] == moved.turn(POLICY.settle_s), "two hosts have moved in this hour"
    moved.mover.settings = MoverSettings(replace(POLICY, hosts_per_hour=3))
    assert 1 == len(moved.turn())


def test_what_it_sees_and_would_do_is_reported(moved: Moved) -> None:
    """The state of the mover shows the current numbers and the next move, also while the mover is off."""
    east = moved.east
    service = east.job(25, 1.0, JobType.SERVICE)
    east.start(service)
    moved.unplaced = [(service, east.place(service).why)]

    reported = moved.query()

    assert not reported.on
    services, batch = reported.pools
    assert ("services", True, 1, 1, 100, 2) == (
        services.name, services.takes, services.host_count, services.minimum, services.used_percent,
        services.waiting_count,
    )  # fmt: skip
    assert ("batch", False, 5, 1, 0) == (batch.name, batch.takes, batch.host_count, batch.minimum, batch.used_percent)
    assert [("batch", "services", 2, "WAITING", "pods of services wait for 2 hosts")] == [
        (one.source, one.destination, one.host_count, one.rule, one.reason) for one in reported.planned
    ]
    assert {"batch"} == set(moved.pools().values()) - {"services"}
    moved.switch(True)
    moved.turn()
    moved.now_s += 5
    assert "has lacked hosts for 5 s" == moved.query().pools[0].state


def test_nothing_moves_while_a_cluster_is_silent(moved: Moved) -> None:
    """No host moves while the resources of a cluster's hosts are unknown."""
    moved.switch(True)
    moved.silent.add("west")

    with pytest.raises(Unavailable):
        moved.turn()


def test_without_host_pools_it_is_not_switched_on(url: str) -> None:
    """The call is refused as calls about host pools are."""
    manager = Manager(url, "east", hosts("e"), is_on=False)
    try:
        moved = Moved(manager, manager)
        moved.led = {"east": "address"}
        with pytest.raises(Unimplemented, match="host pools not enabled"):
            moved.switch(True)
        found = manager.storage.host_pools.all()
        assert found is not None
        assert not found.is_mover_on
    finally:
        manager.close()


def test_what_the_advisor_marks_takes_hosts(moved: Moved) -> None:
    """A red host counts for its host pool, in whichever cluster. Red hosts of batch jobs have no effect."""
    moved.switch(True)
    make_red(moved.by_cluster["west"], "w0")
    moved.turn()
    assert [] == moved.turn(POLICY.take_after_s)
    make_red(moved.east, "e0")
    moved.turn()

    (gone,) = moved.turn(POLICY.take_after_red_s)
    reported = moved.query()

    assert ("MARKS", "1 of 1 hosts of services are marked orange or red") == (
        reported.made[0].rule,
        reported.made[0].reason,
    )
    assert [(1, 1), (1, 1)] == [(one.marked_count, one.red_count) for one in reported.pools]
    moved.finish(gone)
    assert "services" == moved.pools()[gone]


def make_red(manager: Manager, name: str) -> None:
    host, use = RegisteredHost("id", Hostname(name), "", CAPACITY, Resources(), {}, Resources()), HostUse()
    for at_s in range(10, 100, 10):
        use = next_use(use, [UseSample("pod", None, CAPACITY.cpu_milli / 1000 * at_s, float(at_s), 100)])
        manager.advisor.take_samples([HostSample(host, use)], [host.hostname], float(at_s))
