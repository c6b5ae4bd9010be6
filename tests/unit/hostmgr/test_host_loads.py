"""Measurements of hosts become the load by which a lease chooses hosts."""

from __future__ import annotations

from dataclasses import replace

from peloton.model.ids import Hostname
from peloton.model.pod import Strategy
from peloton.model.resources import Resources
from services.hostmgr.driver import UseSample
from services.hostmgr.host_loads import ROUNDS_MIN, TURNS_MAX, HostLoads
from services.hostmgr.host_samples import HOSTS_PER_ROUND_MAX, HostSample
from services.hostmgr.host_use import HostUse, next_use
from services.hostmgr.hosts.host_cache import HostCache
from services.hostmgr.messages import lease_from_wire, lease_to_wire
from tests.unit.hostmgr.test_hosts import JOB, agent, free_part, pool_with, shape

ASKED = shape(1, strategy=Strategy.LEAST_LOADED)
OTHERS = [Hostname(f"other{at}") for at in range(HOSTS_PER_ROUND_MAX * 5)]


class Story:
    """Hosts ``h1`` and ``h2`` with four cpus each, of which pods hold one on ``h1`` and two on ``h2``."""

    def __init__(self) -> None:
        self.cache = pool_with(free_part("h1", cpus=3), free_part("h2", cpus=2))
        self.hosts = {
            name: replace(agent(name, 0, 0), capacity=Resources.of(4, 1000), held=Resources.of(held))
            for name, held in (("h1", 1), ("h2", 2))
        }
        self.cache.set_hosts(self.hosts.values())
        self.loads = HostLoads(self.cache.loads)
        self.uses: dict[str, HostUse] = {}
        self.now_s = 0.0

    def round(self, known: int = 0, **cpus: float) -> None:
        """Measure hosts with their used cpus; ``known`` more hosts are registered."""
        self.now_s += 10
        for name, cpu in cpus.items():
            samples = [UseSample("pod", None, cpu * self.now_s, self.now_s, 100)]
            self.uses[name] = next_use(self.uses.get(name, HostUse()), samples)
        looks = [HostSample(self.hosts[name], self.uses[name]) for name in cpus]
        self.loads.take_samples(looks, [*map(Hostname, self.hosts), *OTHERS[:known]], self.now_s)

    def first(self) -> str:
        """Return the host of the next pod."""
        return first_host(self.cache)


def first_host(cache: HostCache) -> str:
    lease = cache.acquire(JOB, [(ASKED, 1)], 0.0)
    cache.release(lease.lease_id)
    return lease.hosts[0].hostname


def test_a_host_that_is_measured_hot_comes_last() -> None:
    """A hot host comes last after two samples: the first one has no rate yet."""
    story = Story()
    assert "h1" == story.first()
    story.round(h1=3.5, h2=0.1)
    assert "h1" == story.first()

    story.round(h1=3.5, h2=0.1)

    assert "h2" == story.first()
    story.round(h1=0.0, h2=2.0)
    assert "h1" == story.first()


def test_pods_that_come_after_a_measurement_count_by_what_they_hold() -> None:
    """A quiet host is not given all pods until its next measurement."""
    story = Story()
    for _ in range(2):
        story.round(h1=3.5, h2=0.1)

    story.cache.remove_resources(["h2-O1"])
    story.cache.add_resources([replace(free_part("h2", cpus=2), free=Resources(0, 100, 100))])

    assert "h1" == story.first()


def test_a_measurement_that_is_too_old_counts_no_more() -> None:
    """The load is dropped of a host that no longer answers or is no longer registered; with many hosts each has its
    turn later.
    """
    story = Story()
    for known in (0, len(OTHERS)):
        turn = (2 + known - 1) // (HOSTS_PER_ROUND_MAX // 2) + 1
        for _ in range(2):
            story.round(known, h1=3.5, h2=0.1)
        for _ in range(max(ROUNDS_MIN, TURNS_MAX * turn) - 1):
            story.round(known)
            assert "h2" == story.first()
        story.round(known)
        assert "h1" == story.first()
    for _ in range(2):
        story.round(h1=3.5, h2=0.1)
    del story.hosts["h1"], story.hosts["h2"]
    story.round()
    assert "h1" == story.first()


def test_loads_cross_the_wire() -> None:
    """A worker places pods on the leased hosts as the lease did; a host manager of the previous release sends no load
    beyond the allocation, which counts as zero.
    """
    story = Story()
    story.cache.loads.set_measured({Hostname("h1"): (-100, 20)})
    lease = story.cache.acquire(JOB, [(shape(2), 2)], 0.0)
    wire = lease_to_wire(lease, [])

    assert {"h1": (-100, 20), "h2": (0, 0)} == {
        host.hostname: host.load_beyond for host in lease_from_wire(wire, []).hosts
    }
    for host in wire.hosts:
        host.ClearField("cpu_beyond")
        host.ClearField("memory_beyond")
    assert [(0, 0), (0, 0)] == [host.load_beyond for host in lease_from_wire(wire, []).hosts]
