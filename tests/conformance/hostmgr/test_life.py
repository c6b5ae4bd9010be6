"""The life of pods between storage and Mesos in the absence of faults."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from peloton.api.v0.task import task_pb2
from peloton.errors import Unavailable
from peloton.lifecycle.backoff import Backoff
from peloton.model.host import LaunchedBatch, LaunchResult, PlacementBatch
from peloton.model.job import JobState
from peloton.model.pod import AllOf, HostLabel, NextRun, PodShape, PodState
from peloton.model.resources import Resources
from services.lab.shared.hosts import HostSpec
from tests.conformance.hostmgr.world import World, wait
from tests.conformance.storage.builders import queue

LAUNCHED, STARTING, RUNNING = PodState.LAUNCHED, PodState.STARTING, PodState.RUNNING
SUCCEEDED, KILLING, KILLED = PodState.SUCCEEDED, PodState.KILLING, PodState.KILLED


def test_a_pod_runs_to_its_end(any_world: World) -> None:
    """A launched pod reports that it runs and that it ended, and its job is woken."""
    job = any_world.start(command="true")

    any_world.wait_states(job, {"SUCCEEDED": 1})

    reported = [state for _, state in any_world.history(job) if state is not STARTING]
    assert [LAUNCHED, RUNNING, SUCCEEDED] == reported
    assert job in any_world.wakes.jobs


def test_pods_are_placed_and_launched_in_one_call(any_world: World) -> None:
    """A repeated call finds no READY pod, and pods beyond the limit wait for the next."""
    job = any_world.job(2)

    def launch_some(limit: int) -> LaunchedBatch | None:
        found = any_world.core.place_and_launch(job, limit)
        return found if found.launch.launched_count else None

    first = wait(lambda: launch_some(1), "a launch")
    again = wait(lambda: launch_some(9), "a launch")

    assert (LaunchResult(1), LaunchResult(1), 0) == (first.launch, again.launch, again.left.unplaced_count)
    assert LaunchedBatch(LaunchResult(0), PlacementBatch(job, "")) == any_world.core.place_and_launch(job, 9)
    any_world.wait_states(job, {"RUNNING": 2})


def test_a_failed_pod_reports_its_exit_code(any_world: World) -> None:
    """The exit code of the command is stored with the pod."""
    job = any_world.start(command="exit 3")

    any_world.wait_states(job, {"FAILED": 1})

    termination = any_world.pod(job).termination
    assert termination is not None
    assert 3 == termination.exit_code


def test_a_pod_that_fails_goes_elsewhere_at_once(world: World) -> None:
    """A failed pod waits for its next run only if no other host could take it, as when it names its host."""
    world.storage.host_pods.batch_backoff = Backoff(10, 600)
    wait(lambda: len(world.core.cache.hosts()) > 1, "two hosts")
    here = world.core.cache.hosts()[0].hostname

    def retries(config: task_pb2.TaskConfig) -> None:
        config.restartPolicy.maxFailures = 3

    def names_its_host(config: task_pb2.TaskConfig) -> None:
        config.constraint.type = task_pb2.Constraint.LABEL_CONSTRAINT
        label = config.constraint.labelConstraint
        label.kind, label.condition = task_pb2.LabelConstraint.HOST, task_pb2.LabelConstraint.CONDITION_EQUAL
        label.label.key, label.label.value, label.requirement = "hostname", here, 1

    free = world.start(command="exit 3", changes=[retries])
    bound = world.start(command="exit 3", changes=[retries, names_its_host])
    for job in (free, bound):
        world.wait_states(job, {"FAILED": 1})

    assert [NextRun.RETRY] * 2 == [world.pod(job).next_run for job in (free, bound)]
    assert [False, True] == [world.pod(job).due_ns > 0 for job in (free, bound)]


def test_a_killed_pod_ends(any_world: World) -> None:
    """A running pod is KILLING as soon as the kill is sent, and KILLED when its host reports it."""
    job = any_world.running()

    assert 1 == any_world.kill(job)

    any_world.wait_states(job, {"KILLED": 1})
    assert [RUNNING, KILLING, KILLED] == list(dict.fromkeys(s for _, s in any_world.history(job)))[-3:]
    assert [] == any_world.tasks()


def test_every_update_is_acknowledged(any_world: World) -> None:
    """Mesos keeps no task of the ended pods once their statuses are stored."""
    job = any_world.start(3, command="true")

    any_world.wait_states(job, {"SUCCEEDED": 3})

    wait(lambda: not any_world.tasks(), "acknowledgements")
    assert any_world.link.calls.count("ACKNOWLEDGE") >= 3


def test_an_update_is_acknowledged_only_when_it_is_stored(world: World) -> None:
    """A status whose commit fails is not acknowledged. Mesos sends it again, and it is stored."""
    batch = world.place(world.job(command="true"))
    acknowledged: list[int] = []  # at the beginning of each commit
    world.storage.host_pods.on_commit = lambda: acknowledged.append(world.link.calls.count("ACKNOWLEDGE"))
    world.storage.host_pods.commits_to_fail = 1

    world.launch(batch)

    world.wait_states(batch.job_id, {"SUCCEEDED": 1})
    world.wait_calls("ACKNOWLEDGE")
    assert [0, 0] == acknowledged[:2]


def test_a_repeated_launch_starts_nothing_twice(any_world: World) -> None:
    """A run that an earlier call committed is launched again neither with the same lease nor with a new one."""
    batch = any_world.place(any_world.job(2))
    other = any_world.job()

    first = any_world.launch(batch)
    again = any_world.launch(batch)
    lease = any_world.place(other)
    elsewhere = any_world.core.launch(batch.job_id, lease.lease_id, lease.placements)

    assert [LaunchResult(2), LaunchResult(0, 2), LaunchResult(0, 1)] == [first, again, elsewhere]
    any_world.wait_states(batch.job_id, {"RUNNING": 2})
    assert 2 == len(any_world.tasks())


def test_a_lease_that_ran_out_launches_nothing(make: Callable[..., World]) -> None:
    """A late launch on hosts that another job has leased is refused, and its pods stay READY."""
    world = make(hosts=[HostSpec("only", cpus=1)], lease_s=0.0)
    late = world.place(world.job())
    other = world.place(world.job())

    assert LaunchResult(0, 1) == world.launch(late)
    assert {"READY": 1} == world.states(late.job_id)
    assert LaunchResult(1) == world.launch(other)


def test_a_rescinded_offer_claims_nothing(world: World) -> None:
    """Hosts whose offers Mesos rescinded are not launched on."""
    batch = world.place(world.job(12))
    for host in ("h0", "h1", "h2"):
        world.cluster.agent(host, "freeze")

    wait(lambda: not any(h.free.cpu_milli for h in world.core.cache.hosts()), "no offers")

    assert LaunchResult(0, 12) == world.launch(batch)
    assert {"READY": 12} == world.states(batch.job_id)


def test_what_a_launch_leaves_of_a_host_is_offered_again(make: Callable[..., World]) -> None:
    """One cpu of four is used. The other three are offered again, and all four after the pod's end."""
    world = make(hosts=[HostSpec("only", cpus=4)])
    job = world.running()

    def free() -> list[int]:
        return [host.free.cpu_milli for host in world.core.cache.hosts()]

    wait(lambda: free() == [3_000], "the rest")
    world.kill(job)
    wait(lambda: free() == [4_000], "everything")


def test_hosts_of_a_lease_that_a_launch_does_not_use_are_free_at_once(world: World) -> None:
    """The offers of an unused host are leased again without Mesos, and waiting requests are notified at once."""
    job, other, wanted = world.job(12), world.job(), [(PodShape(Resources.of(3.0, 32)), 2)]
    batch = world.place(job)
    assert () == world.core.acquire_hosts(other, wanted).hosts

    world.core.launch(job, batch.lease_id, batch.placements[:1])

    assert other in world.wakes.jobs
    assert 2 == len(world.core.acquire_hosts(other, wanted).hosts)


HOSTS = [
    HostSpec("gpu", attributes={"rack": "a"}, gpus=2),
    HostSpec("plain", attributes={"rack": "b"}),
    HostSpec("kept", attributes={"rack": "b", "peloton/exclusive": "maps"}),
    HostSpec("slack", cpus=0.5, revocable_cpus=4, attributes={"rack": "c"}, ports=((31000, 31001),)),
]


@pytest.mark.parametrize(
    ("shape", "hosts"),
    [
        (PodShape(Resources.of(1, 32), constraint=HostLabel("rack", "a")), {"gpu"}),
        (PodShape(Resources.of(1, 32), constraint=HostLabel("rack", "b")), {"plain"}),
        (PodShape(Resources.of(1, 32), constraint=HostLabel("hostname", "plain")), {"plain"}),
        (
            PodShape(
                Resources.of(1, 32), constraint=AllOf((HostLabel("rack", "b"), HostLabel("peloton/exclusive", "maps")))
            ),
            {"kept"},
        ),
        (PodShape(Resources.of(1, 32, 0, 2)), {"gpu"}),
        (PodShape(Resources.of(2, 32), revocable=True), {"slack"}),
        (PodShape(Resources.of(0.5, 32), port_count=3, constraint=HostLabel("rack", "c")), set()),
        (PodShape(Resources.of(0.5, 32), port_count=2, constraint=HostLabel("rack", "c")), {"slack"}),
    ],
)
def test_a_pod_gets_a_host_that_suits_it(make: Callable[..., World], shape: PodShape, hosts: set[str]) -> None:
    """Labels, exclusiveness, gpus, revocable cpu and ports decide. A reserved host is not taken."""
    world = make(hosts=HOSTS)
    wait(lambda: sum(host.free.cpu_milli > 0 for host in world.core.cache.hosts()) == 4, "all offers")

    lease = world.core.acquire_hosts(world.job(), [(shape, 1)])

    assert hosts == {host.hostname for host in lease.hosts}


def test_a_revocable_pod_runs_on_revocable_cpu(make: Callable[..., World]) -> None:
    """A pod larger than the host's ordinary cpu runs on cpu that other pods do not use."""

    def revocable(config: task_pb2.TaskConfig) -> None:
        config.revocable = True

    world = make(hosts=[HostSpec("slack", cpus=0.5, revocable_cpus=4)])

    job = world.running(2, changes=[revocable])

    assert ["slack", "slack"] == [pod.host for pod in world.pods(job)]


def test_every_pod_has_ports_of_its_own(any_world: World) -> None:
    """Dynamic ports are assigned by name and stored with the pod, and no two pods of a host share one."""

    def two_ports(config: task_pb2.TaskConfig) -> None:
        config.ports.add(name="http", envName="HTTP_PORT")
        config.ports.add(name="admin", value=8080)
        config.ports.add(name="debug")

    job = any_world.running(3, changes=[two_ports])

    pods = any_world.pods(job)
    assert all({"http", "debug"} == set(pod.ports) for pod in pods)
    assert 6 == len({(pod.host, port) for pod in pods for port in pod.ports.values()})


def test_pods_that_ask_for_nothing_are_placed_where_something_is(make: Callable[..., World]) -> None:
    """Mesos starts nothing without resources, so such a pod takes a little cpu, and a host without any is passed
    over."""

    def nothing(config: task_pb2.TaskConfig) -> None:
        config.resource.cpuLimit = config.resource.memLimitMb = 0

    world = make(hosts=[HostSpec("full", cpus=0), HostSpec("free", cpus=1)])

    job = world.job(2, changes=[nothing])
    wait(lambda: len(world.core.cache.hosts()) == 2, "agents")

    assert LaunchResult(2) == world.launch(world.place(job))
    assert {"free"} == {pod.host for pod in world.pods(job)}
    assert 0 == queue(world.storage, job)


def test_locked_acts_wait(world: World) -> None:
    """No pod is launched or killed while an administrator has locked these operations. Both continue afterwards."""
    batch = world.place(world.job())
    world.storage.lockdowns.set("Launch", True)
    with pytest.raises(Unavailable, match="launch op is locked"):
        world.launch(batch)
    world.storage.lockdowns.set("Launch", False)
    assert LaunchResult(1) == world.launch(batch)
    world.wait_states(batch.job_id, {"RUNNING": 1})

    world.storage.jobs.set_goal(batch.job_id, JobState.KILLED, time.time_ns())
    world.storage.lockdowns.set("Kill", True)
    with pytest.raises(Unavailable, match="kill op is locked"):
        world.core.kill_running(batch.job_id)
    world.storage.lockdowns.set("Kill", False)
    assert 1 == world.core.kill_running(batch.job_id)
    world.wait_states(batch.job_id, {"KILLED": 1})
