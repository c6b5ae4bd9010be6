"""Placement by load, on simulated hosts whose pods use the share of their cpu that they declare."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from peloton.api.v0.task import task_pb2
from peloton.model.ids import JobId
from peloton.model.pod import PodShape, Strategy
from peloton.model.resources import Resources
from services.hostmgr.host_loads import HostLoads
from services.hostmgr.host_samples import HostSamples
from services.lab.shared.hosts import HostSpec
from tests.conformance.hostmgr.world import World, wait

ASKED = PodShape(Resources.of(0.5, 16), strategy=Strategy.LEAST_LOADED)


class Story:
    def __init__(self, world: World) -> None:
        self.world = world
        self.samples = HostSamples(world.core, [HostLoads(world.core.cache.loads)], period_s=0.0, has_all=True)

    def run(self, cpu: float, share: float) -> str:
        """Start a pod that uses this share of its cpu and return its host."""

        def change(config: task_pb2.TaskConfig) -> None:
            config.resource.cpuLimit, config.resource.memLimitMb = cpu, 16
            config.command.environment.variables.add(name="SIMULATE_SHARE", value=str(share))

        return self.world.pod(self.world.running(1, changes=[change])).host

    def order(self) -> list[str]:
        """Return the hosts in the order in which placement chooses them."""
        cache = self.world.core.cache
        lease = cache.acquire(JobId("asks"), [(ASKED, 100)], 0.0)
        cache.release(lease.lease_id)
        return [host.hostname for host in lease.hosts]


@pytest.fixture
def story(make: Callable[..., World]) -> Iterator[Story]:
    found = Story(make(hosts=[HostSpec(name, cpus=4, mem=1024) for name in ("a", "b", "c")], agents_period_s=0.1))
    wait(lambda: found.world.core.cache.free() == Resources.of(12, 3072, 60_000), "the offers")
    yield found
    found.samples.stop()


def test_a_hot_host_is_chosen_last_once_it_is_measured(story: Story) -> None:
    """Placement chooses the hot host last once its load is measured, and the host with the most allocated resources
    last until then."""
    hot, quiet = story.run(2.5, 1.0), story.run(3.0, 0.05)
    (empty,) = {"a", "b", "c"} - {hot, quiet}
    wait(lambda: story.order() == [empty, hot, quiet], "an order by what pods hold")

    def is_measured() -> bool:
        story.samples.run_round()
        return story.order() == [empty, quiet, hot]

    wait(is_measured, "an order by what is in use")
