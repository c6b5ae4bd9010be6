"""Unused offers: another framework receives them, and Peloton's pods obtain hosts at once when some wait."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence

import pytest

from peloton.api.v0.task import task_pb2
from peloton.model.planned_capacity import PlannedPods
from peloton.model.pod import PodShape, Strategy
from peloton.model.resources import Resources
from services.hostmgr.mesos import offer_controller
from services.lab.shared.hosts import HostSpec
from tests.conformance.hostmgr.conftest import Make
from tests.conformance.hostmgr.emulated import TIMEOUT_S, Other
from tests.conformance.hostmgr.world import World, wait

HOLD_S = 0.4
HOSTS = [HostSpec(f"h{index}", revocable_cpus=2) for index in range(3)]
ALL = {"h0", "h1", "h2"}


@pytest.fixture
def world(make: Make, monkeypatch: pytest.MonkeyPatch) -> World:
    """A world in which unmet requests are forgotten soon, and a slow machine has time for the offers that a lease
    requests."""
    monkeypatch.setattr(offer_controller, "WAITING_AGE_S", 2 * HOLD_S)
    monkeypatch.setattr(offer_controller, "OFFERS_WAIT_S", TIMEOUT_S)
    return make(hosts=HOSTS, offer_hold_s=HOLD_S, agents_period_s=0.1)


@pytest.fixture
def other(world: World) -> Iterator[Other]:
    made = world.cluster.framework(roles=["other"])
    yield made
    made.close()


def idle(world: World) -> None:
    """Check that Mesos keeps all offers, perhaps since before this call."""
    wait(lambda: _is_suppressed(world.link.calls) and not world.core.cache.resources_count, "the end of all offers")


def _is_suppressed(calls: Sequence[str]) -> bool:
    return next((call for call in reversed(calls) if call in ("SUBSCRIBE", "REVIVE", "SUPPRESS")), "") == "SUPPRESS"


def test_another_framework_gets_what_is_idle(world: World, other: Other) -> None:
    """Another framework is offered all of an idle cluster, except what Peloton's pods hold."""
    job = world.running(1)
    host = world.pod(job).host

    wait(lambda: other.offered().keys() == ALL, "offers of all hosts")
    assert 3.0 == other.offered()[host]["cpus"]
    assert {"RUNNING": 1} == world.states(job)


def test_an_idle_cluster_has_its_capacity(world: World) -> None:
    """The hosts, their free resources and their slack come from the agents, whichever framework holds the offers."""
    world.running(2)
    idle(world)

    total = Resources.of(12, 3 * 2048, 60_000)
    wait(lambda: world.core.cache.free().cpu_milli == 10_000, "what is free")
    assert (total, Resources(cpu_milli=6_000), 3) == world.core.cache.capacity()
    assert 10_000 == sum(host.free.cpu_milli for host in world.core.cache.hosts())


def test_a_plan_sees_the_capacity_of_an_idle_cluster(world: World) -> None:
    """A plan counts the free resources although Mesos offers none now, and it requests no offers. Resources of
    Peloton's pods are not free."""
    job = world.running(2)
    idle(world)
    wait(lambda: world.core.cache.free().cpu_milli == 10_000, "what is free")
    shape = world.storage.pods.ready_gangs(world.job(1), 1)[0].shape

    (found,) = world.core.cache.finder.find([PlannedPods(shape, 99)], {})

    assert (10, 3) == (found.count, sum(hosts.host_count for hosts in found.refusing))
    assert not world.core.cache.resources_count
    assert {"RUNNING": 2} == world.states(job)


def test_the_first_launch_after_idleness_is_quick(world: World) -> None:
    """The first lease finds all hosts, though Mesos offered none before. The time of each launch is printed."""
    seconds = []
    for _ in range(3):
        idle(world)
        job = world.job(12)
        began_s = time.monotonic()
        gangs = world.storage.pods.ready_gangs(job, 100)
        lease = world.core.acquire_hosts(job, [(gangs[0].shape, 12)])

        assert ALL == {host.hostname for host in lease.hosts}
        world.core.release(lease.lease_id)
        assert 12 == world.launch(world.place(job)).launched_count
        world.wait_states(job, {"RUNNING": 12})
        seconds.append(round(time.monotonic() - began_s, 3))
        world.kill(job)
        world.wait_states(job, {"KILLED": 12})
    print(json.dumps({"case": "first-launch-after-idleness", "pods": 12, "seconds": seconds}))


def test_a_pod_that_spreads_sees_all_hosts(world: World) -> None:
    """A lease for the emptiest host requests the offers of all hosts, though the pod fits on a host that is kept on
    offer."""
    job = world.running(1, command="sleep 300")
    idle(world)
    shape = PodShape(Resources.of(1), strategy=Strategy.EMPTIEST_HOST)

    def elsewhere() -> bool:
        """Return whether a lease has another host. Mesos may offer its hosts one after the other, and the first offer
        ends the wait of a lease."""
        lease = world.core.acquire_hosts(job, [(shape, 1)])
        world.core.release(lease.lease_id)
        return lease.hosts[0].hostname != world.pod(job).host

    wait(elsewhere, "a host without a pod")


def test_revocable_pods_get_slack_that_was_given_back(world: World) -> None:
    """Revocable offers are declined and requested as ordinary ones are."""
    idle(world)

    def revocable(config: task_pb2.TaskConfig) -> None:
        config.revocable = True

    job = world.running(2, changes=[revocable])
    assert {"RUNNING": 2} == world.states(job)


def test_what_does_not_fit_asks_for_no_offers(world: World, other: Other, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod that fits on no host does not take offers from other frameworks repeatedly."""
    wait(lambda: other.offered().keys() == ALL, "offers of all hosts")
    for host in sorted(ALL):
        other.launch(host, f"t-{host}", cpus=3.5)
    other.decline_all(600.0)
    wait(lambda: sum(h.free.cpu_milli for h in world.core.cache.hosts()) == 1_500, "the agents' word")
    wait(lambda: "SUPPRESS" in world.link.calls, "the suppression")
    monkeypatch.setattr(offer_controller, "WAITING_AGE_S", 600.0)  # from here on the job waits
    job = world.job(1)
    shape = world.storage.pods.ready_gangs(job, 1)[0].shape
    world.core.acquire_hosts(job, [(shape, 1)])  # the first request since no pod waited
    wait(lambda: "REVIVE" in world.link.calls, "the question")
    wait(lambda: not world.core.cache.resources_count, "the end of all offers")
    revived = world.link.calls.count("REVIVE")

    for _ in range(3):
        assert () == world.core.acquire_hosts(job, [(shape, 1)]).hosts

    assert revived == world.link.calls.count("REVIVE")


def test_a_host_whose_rest_mesos_hides_has_its_free_resources(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch uses the offer that a pod's end released, and an earlier decline hides the rest. Free resources are the
    host's less the resources of its pods."""
    monkeypatch.setattr(offer_controller, "WAITING_AGE_S", 600.0)  # Mesos still sends offers
    job = world.running(1)
    wait(lambda: not world.core.cache.resources_count, "the decline of all offers")
    world.kill(job)
    wait(lambda: world.core.cache.resources_count, "the offer of the host whose pod has ended")
    name = world.pod(world.running(1)).host

    wait(lambda: not world.core.cache.resources_count, "the end of all offers")
    wait(lambda: world.core.cache.free().cpu_milli == 11_000, "what is free")
    assert [3_000] == [host.free.cpu_milli for host in world.core.cache.hosts([name])]
