"""Daemons on a Mesos cluster: a pod on each matching host, in resources that are reserved for it."""

from __future__ import annotations

import time

import pytest

from peloton.api.v0.job.job_pb2 import JobConfig
from peloton.errors import Unavailable
from peloton.model.daemon import DaemonPlan, DaemonReach, DaemonStep
from peloton.model.ids import Hostname, JobId
from peloton.model.job import JobState, JobType
from peloton.model.misfit import HostRule
from peloton.model.pod import PodShape, PodState
from peloton.model.resources import Resources
from services.hostmgr import daemon_evictions
from services.hostmgr.daemons import DaemonReconciler
from services.lab.shared.hosts import HostSpec
from tests.conformance.hostmgr.conftest import Make
from tests.conformance.hostmgr.emulated import LONG
from tests.conformance.hostmgr.test_qos import StoredEvictions
from tests.conformance.hostmgr.world import World, wait
from tests.conformance.storage import builders

TWO_CPUS = [HostSpec(f"h{i}", cpus=2.0) for i in range(3)]


def a_config(cpu: float = 0.5) -> JobConfig:
    config = builders.a_config(0, type_=JobType.DAEMON)
    config.defaultConfig.command.value = LONG
    config.defaultConfig.resource.cpuLimit = cpu
    return config


def a_daemon(world: World, cpu: float = 0.5) -> JobId:
    wait(lambda: world.core.cache.host_count() == len(TWO_CPUS), "agents")
    return builders.create(world.storage, a_config(cpu))


def step(world: World, job: JobId) -> DaemonStep:
    world.settle(job)
    world.core.kill_running(job)
    found = world.core.daemons.step(job, -1)
    world.settle(job)
    return found


def run(world: World, job: JobId, count: int) -> None:
    """Take steps until this number of its pods run."""

    def runs() -> bool:
        step(world, job)
        return world.states(job).get("RUNNING", 0) == count

    wait(runs, f"{count} pods that run")


def pod_hosts(world: World, job: JobId) -> list[str]:
    return sorted(pod.host for pod in world.pods(job) if pod.state is PodState.RUNNING)


@pytest.fixture
def world(make: Make) -> World:
    return make(hosts=TWO_CPUS, offer_hold_s=600.0)


def test_a_pod_on_each_host(world: World) -> None:
    """Each host has one pod, however often the step is repeated."""
    job = a_daemon(world)
    run(world, job, 3)
    assert (["h0", "h1", "h2"], DaemonStep(after=-1)) == (pod_hosts(world, job), step(world, job))


def test_offers_are_kept_while_a_daemon_waits(world: World) -> None:
    """Other pods may use what the daemon leaves, and the reported capacity is reduced by the daemon's part."""
    job = a_daemon(world)
    world.core.daemons.refresh()
    assert 6_000 - 1_500 == world.core.cache.capacity()[0].cpu_milli
    wait(lambda: world.core.cache.resources_count == 3, "offers")
    wide = world.job(3, changes=[lambda task: setattr(task.resource, "cpuLimit", 1.5)])
    world.launch(world.place(wide))
    run(world, job, 3)
    assert (["h0", "h1", "h2"], 4_500) == (pod_hosts(world, job), world.core.cache.capacity()[0].cpu_milli)


def test_a_host_that_has_no_free_resources_is_said_to_have_none(world: World) -> None:
    """The host without free resources is reported, and the pods of the other hosts run."""
    full = world.job(1, changes=[lambda task: setattr(task.resource, "cpuLimit", 2.0)])
    world.launch(world.place(full))
    world.wait_states(full, {"RUNNING": 1})
    job = a_daemon(world)
    run(world, job, 2)
    found = step(world, job)
    assert 1 == found.waiting_count
    rules = {hosts.misfit.rule for reason in found.why for pods in reason.pods for hosts in pods.hosts}
    assert {HostRule.FREE_RESOURCES} == rules


def test_the_pod_of_a_lost_host_comes_back_with_it(world: World) -> None:
    """The pod is lost with its host, and the same instance runs again when the host returns."""
    job = a_daemon(world)
    run(world, job, 3)
    instance = {pod.host: pod.instance_id for pod in world.pods(job)}
    world.cluster.agent("h1", "stop")
    wait(lambda: world.core.cache.host_count() == 2, "the loss of h1")
    run(world, job, 2)
    wait(
        lambda: step(world, job) and world.pods(job)[instance["h1"]].goal is PodState.KILLED, "the end of the instance"
    )
    assert ["h0", "h2"] == pod_hosts(world, job)
    world.cluster.agent("h1", "start")
    wait(lambda: world.core.cache.host_count() == 3, "the return of h1")
    assert job in world.wakes.jobs
    run(world, job, 3)
    assert instance == {pod.host: pod.instance_id for pod in world.pods(job)}


def test_a_new_leader_knows_who_runs(world: World) -> None:
    """A new leader starts no pod twice and reserves nothing for pods that run."""
    job = a_daemon(world)
    run(world, job, 3)
    tasks = world.tasks()
    world.core.stop()
    world.lead()
    wait(lambda: world.core.cache.host_count() == 3 and world.core.cache.resources_count == 3, "hosts and offers")
    assert (DaemonStep(after=-1), tasks) == (step(world, job), world.tasks())
    free = {host.free.cpu_milli for host in world.core.cache.hosts()}
    assert {1_500} == free


def test_nothing_is_followed_before_hosts_are_known(make: Make) -> None:
    """A new leader changes no daemon before the hosts are known, since all hosts would appear lost."""
    world = make(hosts=TWO_CPUS)
    job = a_daemon(world)
    world.core.cache._state.are_hosts_known = False
    controller: DaemonReconciler = world.core.daemons
    with pytest.raises(Unavailable, match="not known yet"):
        controller.step(job, -1)


def test_a_stopped_daemon_gives_its_resources_back(world: World) -> None:
    """The resources of a stopped daemon are available to all other pods."""
    job = a_daemon(world)
    run(world, job, 3)
    world.storage.jobs.set_goal(job, JobState.KILLED, time.time_ns())
    step(world, job)
    wait(lambda: world.states(job) == {"KILLED": 3}, "the end of its pods")
    world.settle(job)
    world.core.daemons.refresh()
    assert 6_000 == world.core.cache.capacity()[0].cpu_milli


def full_hosts(world: World, **sla: object) -> JobId:
    """A job that leaves no free resources on any host."""
    others = world.job(3, sla=sla, changes=[lambda task: setattr(task.resource, "cpuLimit", 2.0)])
    world.launch(world.place(others))
    world.wait_states(others, {"RUNNING": 3})
    return others


def evicts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Evict pods as soon as the timeout allows it."""
    monkeypatch.setattr(daemon_evictions, "EVICT_AFTER_S", 0.1)
    core = world.core
    parts = "local", world.storage.daemons, core.cache, StoredEvictions(world), core.kill_evicted
    core.daemons._evictions = daemon_evictions.DaemonEvictions(*parts)


def test_preemptible_pods_free_resources(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Preemptible pods are evicted with the name of the daemon, and wait while the daemon runs in their place."""
    others = full_hosts(world, preemptible=True)
    evicts(world, monkeypatch)
    job = a_daemon(world)
    run(world, job, 3)
    wait(
        lambda: world.states(others).keys().isdisjoint({"RUNNING", "PREEMPTING", "KILLING"}), "the evicted pods to end"
    )
    events = world.storage.pods.events(others, 0, None, 0)
    assert any("frees resources for a daemon" in event.message for event in events)


def test_a_plan_says_where_a_daemon_would_run(world: World) -> None:
    """The plan distinguishes hosts that are free at once, hosts whose preemptible pods would be evicted, and hosts
    whose ordinary pods have to end first. The plan reserves nothing."""
    for sla in ({"preemptible": True}, {}):
        job = world.job(2, sla=sla)  # fills a host
        world.launch(world.place(job))
        world.wait_states(job, {"RUNNING": 2})
    wait(lambda: world.core.cache.free().cpu_milli == 2_000, "what is free")

    found = world.core.daemons.plan(PodShape(Resources.of(1.5, 32)))

    assert DaemonPlan(DaemonReach(3), 0, 1, 1, 2, 1, 0, Resources.of(4.5, 96), world.core.cache.capacity()[0]) == found
    assert 2_000 == world.core.cache.free().cpu_milli
    small = world.core.daemons.plan(PodShape(Resources.of(3)))
    assert (0, 3, Resources()) == (small.reach.matching_count, small.reach.refusing[0].host_count, small.overhead)


def test_ordinary_pods_stay(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon waits for ordinary pods and reports it."""
    others = full_hosts(world)
    evicts(world, monkeypatch)
    job = a_daemon(world)
    asked = world.core.daemons._evictions
    assert asked is not None
    wait(lambda: step(world, job).waiting_count == 3 and len(asked._since[job]) == 3, "three full hosts")
    due_s = time.monotonic() + 1.0
    short = dict.fromkeys(asked._since[job], PodShape(Resources.of(0.5, 32)))
    assert 0 == asked.note(job, list(short), short, due_s)
    found = step(world, job)
    assert (3, {"RUNNING": 3}) == (found.waiting_count, world.states(others))


def test_offers_that_come_wake_the_daemon(world: World) -> None:
    """The daemon is woken when its pod fits, whichever pods held the resources."""
    others = full_hosts(world)
    job = a_daemon(world)
    wait(lambda: step(world, job).waiting_count == 3, "three full hosts")
    world.wakes.jobs.clear()
    world.storage.jobs.set_goal(others, JobState.KILLED, time.time_ns())
    world.settle(others)
    world.core.kill_running(others)
    wait(lambda: job in world.wakes.jobs, "a wake-up of the daemon")


def test_the_end_of_its_timeout_wakes_the_daemon(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of the timeout wakes the daemon once for each host."""
    evicts(world, monkeypatch)
    job = a_daemon(world)
    asked = world.core.daemons._evictions
    assert asked is not None
    shape = PodShape(Resources.of(2, 32))
    first, both = dict.fromkeys([Hostname("h0")], shape), dict.fromkeys([Hostname("h0"), Hostname("h1")], shape)
    asked.note(job, list(first), first, 10.0)
    due = [asked.take_due(now_s) for now_s in (10.05, 10.2, 10.3)]
    asked.note(job, list(both), both, 10.4)
    due += [asked.take_due(now_s) for now_s in (10.45, 10.6)]
    asked.note(job, list(both), both, 10.7)
    assert [set(), {job}, set(), set(), {job}, set()] == [*due, asked.take_due(11.0)]
