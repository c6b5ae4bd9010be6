"""Hosts that are reserved in part: pods use the resources that are reserved for Peloton, and no others."""

from __future__ import annotations

from collections.abc import Callable

from peloton.model.resources import Resources
from services.lab.shared.hosts import HostSpec
from tests.conformance.hostmgr.world import World, wait

Make = Callable[..., World]
RESERVATION = {"type": "DYNAMIC", "role": "peloton"}


def wait_capacity(world: World, cpus: float, disk: float) -> None:
    """Wait for the capacity, by the agents and by the offers."""
    expected = Resources.of(cpus, 2048, disk)
    wait(world.core.cache.host_count, "the hosts")
    wait(lambda: world.core.cache.capacity()[0] == expected, "the capacity")
    wait(lambda: world.core.cache.free() == expected, "the offers")


def test_a_cluster_that_is_reserved_for_us_runs_pods(make: Make) -> None:
    """The whole cluster is capacity, also when it is reserved for a role above Peloton's."""
    world = make(hosts=[HostSpec("a", role="peloton")])
    wait_capacity(world, 4, 20_000)

    world.running(4, changes=[lambda config: setattr(config.resource, "diskLimitMb", 5_000)])


def test_pods_stay_off_what_is_reserved_dynamically(make: Make) -> None:
    """Resources that an operator reserved dynamically for Peloton's role are neither capacity nor free, nor is the
    volume on them."""
    world = make(hosts=[HostSpec("a")], agents_period_s=0.1)
    wait_capacity(world, 4, 20_000)
    cpus, disk = (
        {"name": name, "type": "SCALAR", "scalar": {"value": amount}, "reservations": [RESERVATION]}
        for name, amount in (("cpus", 3), ("disk", 19_000))
    )
    volume = {"persistence": {"id": "v"}, "volume": {"mode": "RW", "container_path": "data"}}
    world.cluster.operate("a", "RESERVE", {"resources": [cpus, disk]})
    world.cluster.operate("a", "CREATE", {"volumes": [{**disk, "disk": volume}]})
    wait_capacity(world, 1, 1_000)

    world.running(1, changes=[lambda config: setattr(config.resource, "diskLimitMb", 1_000)])


def test_pods_stay_off_disks_that_are_taken_whole(make: Make) -> None:
    """A MOUNT disk is not available for sandboxes: pods that require disk go to hosts with other disk, and other pods
    go anywhere."""
    world = make(hosts=[HostSpec("mounted", disk=0, mounts=(20_000,)), HostSpec("plain")])
    wait(lambda: world.core.cache.host_count() == 2, "the hosts")
    wait(lambda: world.core.cache.free() == Resources.of(8, 4096, 20_000), "the offers")
    assert world.core.cache.capacity()[0] == Resources.of(8, 4096, 20_000)

    job = world.running(4, changes=[lambda config: setattr(config.resource, "diskLimitMb", 100)])

    assert {"plain"} == {pod.host for pod in world.pods(job)}
    world.running(4)
