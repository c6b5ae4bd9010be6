"""The QoS controller with a real host manager, on simulated hosts whose pods use what they declare."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest

from peloton.api.v0.task import task_pb2
from peloton.errors import Unavailable
from peloton.lifecycle.reason_text import eviction_text
from peloton.model.admission import EvictionOrder
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.pod import PodShape
from peloton.model.reason import QosReason, QosRule
from peloton.model.resources import Resources
from peloton.scheduling.qos import Correction, QosPolicy
from services.hostmgr.host_samples import HostSamples
from services.hostmgr.qos import QosController, QosSettings
from services.lab.shared.hosts import HostSpec
from tests.conformance.hostmgr.world import World, wait
from tests.unit.hostmgr.test_hosts import refusals_of

HOST = HostSpec("h", cpus=1, mem=1024, revocable_cpus=1)


class StoredEvictions:
    """``ports.Evictor`` without a resource manager's memory."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.is_unavailable = False

    def evict(self, pods: Sequence[tuple[PodId, QosReason]]) -> int:
        if self.is_unavailable:
            raise Unavailable("no resmgr leads at present")
        orders = [EvictionOrder(pod.job_id, pod.instance_id, 1, False, why, pod.run_id) for pod, why in pods]
        return sum(count for result in self._world.storage.admission.evict(orders) for _, count in result.leaving)


class Story:
    def __init__(self, world: World) -> None:
        self.world, self.evictor = world, StoredEvictions(world)
        settings = QosSettings(enabled=False, policy=QosPolicy(closed_s=1_000.0))  # the test takes the rounds
        self.controller = QosController(settings, world.core, world.storage.host_pods, self.evictor, world.wakes)
        self.samples = HostSamples(world.core, [self.controller], period_s=0.0)  # the test measures, too
        self.now_s = 0.0

    def round(self) -> list[Correction]:
        self.now_s += 1
        return self.controller.run_round(self.samples.measure(), self.now_s)

    def run(self, cpu: float, share: float, is_revocable: bool = False) -> JobId:
        """Start a pod on the host that uses this share of its cpu."""

        def change(config: task_pb2.TaskConfig) -> None:
            config.resource.cpuLimit, config.resource.memLimitMb, config.revocable = cpu, 16, is_revocable
            config.command.environment.variables.add(name="SIMULATE_SHARE", value=str(share))

        return self.world.running(1, changes=[change])

    def wait_held(self, milli: int) -> None:
        """Wait until the host manager knows the resources that revocable pods hold."""

        def count_held() -> int:
            agent = self.world.core.cache.host("h")
            return 0 if agent is None else agent.revocable_held.cpu_milli

        wait(lambda: count_held() == milli, f"{milli} revocable cpu held")


@pytest.fixture
def story(make: Callable[..., World]) -> Iterator[Story]:
    found = Story(make(hosts=[HOST], agents_period_s=0.1))
    yield found
    found.samples.stop()


def test_a_hot_host_sends_the_youngest_away(story: Story) -> None:
    """The younger of two revocable pods next to a busy one leaves: it is killed on Mesos at once and requests a new
    run. The host takes no revocable pods for the configured time."""
    busy = story.run(0.5, 1.0)
    old, young = story.run(0.2, 1.0, is_revocable=True), story.run(0.3, 1.0, is_revocable=True)
    story.wait_held(500)

    made = wait(story.round, "a correction")

    assert [(each.pod_id.job_id, each.why.rule) for each in made] == [(young, QosRule.HOT_CPU)]
    assert eviction_text(made[0].why).startswith("host h is hot: cpu 1.")
    story.world.wait_states(young, {"KILLED": 1})
    assert story.world.states(busy) == story.world.states(old) == {"RUNNING": 1}
    events = story.world.storage.pods.events(young, 0, 1, 0)
    reported = next(event for event in events if event.state == "PREEMPTING")
    assert (reported.message, reported.reason) == (
        f"evicting running task: {eviction_text(made[0].why)}",
        "EvictionReason_QOS",
    )
    story.world.settle(young)
    assert (story.world.pod(young).state, story.world.pod(young).run_id) == ("INITIALIZED", 2)
    shape = PodShape(Resources.of(0.1, 16), revocable=True)
    lease = story.world.core.acquire_hosts(young, [(shape, 1)])
    assert refusals_of(lease) == {"closed to revocable pods after it was hot": 1}
    story.now_s += 1_000
    assert story.round() == []
    assert young in story.world.wakes.jobs
    assert len(story.world.core.acquire_hosts(young, [(shape, 1)]).hosts) == 1


def test_slack_that_is_gone_is_left(story: Story) -> None:
    """The agent has less slack than revocable pods hold, so the pods that no longer fit leave, however little they use.
    The host stays open."""
    first, second = story.run(0.4, 0.1, is_revocable=True), story.run(0.4, 0.1, is_revocable=True)
    story.wait_held(800)
    assert [story.round() for _ in range(3)] == [[], [], []]
    story.world.cluster.set_revocable("h", 500)
    wait(lambda: story.world.core.cache.capacity()[1].cpu_milli == 500, "less slack")

    made = wait(story.round, "a correction")

    assert [(each.pod_id.job_id, each.why.rule) for each in made] == [(second, QosRule.LESS_SLACK)]
    assert eviction_text(made[0].why) == "host h has cpu 0.5 of slack left, revocable pods hold 0.8"
    story.world.wait_states(second, {"KILLED": 1})
    story.wait_held(400)
    assert [story.round() for _ in range(4)] == [[], [], [], []]
    assert story.world.states(first) == {"RUNNING": 1}
    assert story.world.core.cache.capacity()[1].cpu_milli == 500


def test_nothing_is_killed_that_was_not_evicted(story: Story) -> None:
    """No pod leaves while no resource manager leads. The next round after its return evicts it."""
    story.run(0.9, 1.0)
    slack = story.run(0.3, 1.0, is_revocable=True)
    story.wait_held(300)
    story.evictor.is_unavailable = True

    def is_refused() -> bool:
        try:
            story.round()
        except Unavailable:
            return True
        return False

    wait(is_refused, "a refused eviction")
    assert story.world.states(slack) == {"RUNNING": 1}
    story.evictor.is_unavailable = False

    assert [each.pod_id.job_id for each in wait(story.round, "a correction")] == [slack]


def test_an_agent_that_does_not_answer_is_passed_over(make: Callable[..., World]) -> None:
    """The controller decides nothing without statistics, and continues with the other hosts."""
    story = Story(make(hosts=[HOST], agents_period_s=60.0))
    story.run(0.9, 1.0)
    slack = story.run(0.3, 1.0, is_revocable=True)
    agent = story.world.host("h")
    story.world.mesos.agents.stop()  # from here on the test sets what is registered
    known = replace(agent, revocable_held=Resources(cpu_milli=300))
    there = story.world.mesos.agents.of_host(known.hostname)
    assert there is not None
    away = replace(there, host=replace(known, hostname=Hostname("away")), address="127.0.0.1:1")
    story.world.mesos.agents.take([replace(there, host=known), away])

    made = wait(story.round, "a correction")

    assert [each.pod_id.job_id for each in made] == [slack]
    story.samples.stop()
