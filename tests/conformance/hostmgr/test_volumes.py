"""Volumes on Mesos: created with the first launch, found by every later one, lost and given up."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from peloton.api.v0.job import job_pb2
from peloton.errors import Aborted, NotFound
from peloton.lifecycle.reason_text import infeasible_text
from peloton.lifecycle.volumes import HostSight
from peloton.model.ids import JobId
from peloton.model.job import JobState
from peloton.model.pod import PodState, TerminationReason
from peloton.model.volume import VolumeRecord, VolumeState
from services.hostmgr import volumes as controller
from services.lab.mesos.agents.kept_resources import volume_folder
from services.lab.shared.hosts import HostSpec
from tests.conformance.hostmgr.world import Outage, World, wait
from tests.conformance.storage import builders

Make = Callable[..., World]
SIZE_MB, DISK_MB = 1_000, 20_000
HOSTS = [HostSpec("h0", disk=DISK_MB), HostSpec("h1", disk=DISK_MB)]
WRITES = "echo $PELOTON_TASK_ID >> data/log; sleep 300"


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the keeper of volumes read at every turn of the chores."""
    monkeypatch.setattr(controller, "POLL_PERIOD_S", 0.0)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make lists of hosts current, and treats no unavailable host as restarting."""
    monkeypatch.setattr("peloton.lifecycle.volumes.LISTING_LAG_S", 0.0)
    monkeypatch.setattr("services.hostmgr.mesos.driver.AGENT_RESTART_S", 0.0)


@pytest.fixture
def listed_at_once(monkeypatch: pytest.MonkeyPatch, at_once: None) -> None:
    """Make a volume missing as soon as its host does not list it."""
    monkeypatch.setattr(controller, "LISTING_LAG_S", 0.0)


def a_database(world: World, count: int = 1, command: str = WRITES, size_mb: int = SIZE_MB) -> JobId:
    """Create a service whose pods are READY and have volumes."""
    config = builders.a_config(count)
    config.type = job_pb2.SERVICE
    config.defaultConfig.command.value = command
    config.defaultConfig.resource.cpuLimit = 1.0
    config.defaultConfig.volume.containerPath, config.defaultConfig.volume.sizeMB = "data", size_mb
    job = builders.create(world.storage, config)
    world.storage.pods.create(job, lambda _: None)
    world.admit(job)
    return job


def running(world: World, count: int = 1, **more: Any) -> JobId:
    job = a_database(world, count, **more)
    launch(world, job, count)
    return job


def launch(world: World, job: JobId, count: int = 1) -> None:
    world.launch(world.place(job))
    world.wait_states(job, {"RUNNING": count})


def volumes(world: World, job: JobId) -> list[VolumeRecord]:
    return sorted(world.storage.volumes.page(job_id=job), key=lambda volume: volume.instance_id)


def volume(world: World, job: JobId) -> VolumeRecord:
    (found,) = volumes(world, job)
    return found


def wait_volume(world: World, job: JobId, state: VolumeState) -> VolumeRecord:
    wait(lambda: volume(world, job).state is state, f"the volume to be {state}")
    return volume(world, job)


def die_after_commit(world: World, then: Callable[[str], object] = lambda host: None) -> tuple[JobId, VolumeRecord]:
    """Commit a launch of which Mesos never hears, and which the next host manager reports as lost. The pod is READY
    again."""
    job = a_database(world)
    batch = world.place(job)
    world.storage.host_pods.answers_to_fail = 1
    with pytest.raises(Outage):
        world.launch(batch)
    chosen = volume(world, job)
    world.core.stop()
    then(chosen.host)
    world.lead()
    wait(lambda: world.states(job) == {"LOST": 1}, "the reconciliation")
    world.admit(job)
    return job, chosen


def end_runs(world: World, job: JobId) -> None:
    """End the runs as an update or a restart does. The next ones are READY."""
    reason = TerminationReason.KILLED_FOR_RESTART
    instances = [pod.instance_id for pod in world.pods(job)]
    world.storage.disruptions.disrupt(
        job, instances, reason=reason, message="again", checks_sla=False, now_ns=time.time_ns()
    )
    world.core.kill_running(job)
    wait(lambda: not world.tasks(), "the end of the tasks")
    wait(lambda: all(pod.state is PodState.KILLED for pod in world.pods(job)), "the reports")
    world.admit(job)


def lines(folder: Path, found: VolumeRecord) -> list[str]:
    path = volume_folder(folder / "minicluster", found.host, "peloton", f"peloton-{found.volume_id}") / "log"
    return path.read_text().split()


def free_disk(world: World) -> int:
    return world.core.cache.free().disk_mib


def test_every_run_finds_what_the_one_before_wrote(make: Make, tmp_path: Path) -> None:
    """Every run starts on the host of its volume, which takes its disk once."""
    world = make(simulate=False, hosts=HOSTS)
    job = running(world)
    first = wait_volume(world, job, VolumeState.CREATED)
    wait(lambda: len(lines(tmp_path, first)) == 1, "the first line")

    for count in (2, 3):
        end_runs(world, job)
        launch(world, job)
        wait(lambda count=count: len(lines(tmp_path, first)) == count, "another line")

    assert first == volume(world, job)
    assert {first.host} == {pod.host for pod in world.pods(job)}
    assert (SIZE_MB, "data", "pool") == (first.size_mib, first.container_path, first.respool_id)
    wait(lambda: free_disk(world) == 2 * DISK_MB - SIZE_MB, "the offers")
    assert 2 * DISK_MB == world.core.cache.capacity()[0].disk_mib  # as volumes count against pools


def test_a_pod_waits_for_its_host_and_goes_nowhere_else(make: Make) -> None:
    """A pod with a volume waits for its host, whatever is free elsewhere."""
    world = make(hosts=HOSTS)
    job = running(world)
    home = volume(world, job).host
    world.cluster.agent(home, "stop")
    wait(lambda: world.states(job) == {"LOST": 1}, "the loss")
    world.admit(job)
    gangs = world.storage.pods.ready_gangs(job, 10)

    lease = world.core.acquire_hosts(job, [(gangs[0].shape, 1)])

    assert ((), home) == (lease.hosts, gangs[0].desired_host)
    world.core.release(lease.lease_id)
    world.cluster.agent(home, "start")
    launch(world, job)
    assert [home] == [pod.host for pod in world.pods(job)]


def test_a_volume_needs_capacity_in_one_piece(make: Make) -> None:
    """The disk of the volume adds to the pod's. Of three volumes, each half as large as the host, two find a host."""
    world = make(hosts=HOSTS)
    job = a_database(world, 2, size_mb=DISK_MB - 100)

    launch(world, job, 2)

    assert {"h0", "h1"} == {one.host for one in volumes(world, job)}
    shapes = [gang.shape for gang in world.storage.pods.ready_gangs(a_database(world), 1)]
    assert [SIZE_MB] == [shape.resources.disk_mib for shape in shapes]
    assert () == world.core.acquire_hosts(job, [(shapes[0], 1)]).hosts


def test_a_host_manager_that_dies_after_its_commit(make: Make) -> None:
    """Mesos has never heard of the launch. The next run of the pod creates the volume, on the chosen host."""
    world = make(hosts=HOSTS)
    job, chosen = die_after_commit(world)
    assert VolumeState.INITIALIZED is chosen.state

    launch(world, job)

    assert wait_volume(world, job, VolumeState.CREATED).volume_id == chosen.volume_id
    assert [chosen.host] == [pod.host for pod in world.pods(job)]


@pytest.mark.usefixtures("listed_at_once")
def test_a_volume_that_never_came_to_be_does_not_keep_its_host(make: Make) -> None:
    """The pod goes to any host with free resources once its launch is known to have failed."""
    world = make(hosts=HOSTS, agents_period_s=0.1)
    job, chosen = die_after_commit(world)

    wait(lambda: volume(world, job).volume_id != chosen.volume_id, "the end of the choice")

    assert ("", VolumeState.INITIALIZED) == (volume(world, job).host, volume(world, job).state)
    world.cluster.agent(chosen.host, "stop")
    wait(lambda: world.core.cache.host_count() == len(HOSTS) - 1, "the loss of the host")
    launch(world, job)
    made = wait_volume(world, job, VolumeState.CREATED)
    assert chosen.host != made.host == world.pod(job).host
    wait(lambda: free_disk(world) == DISK_MB - SIZE_MB, "the disk")


@pytest.mark.usefixtures("listed_at_once")
def test_a_host_that_is_away_may_have_made_the_volume(make: Make) -> None:
    """The pod waits for the host and reports it. It is released when the host returns without the volume."""
    world = make(hosts=HOSTS, agents_period_s=0.1)
    job, chosen = die_after_commit(world, lambda host: world.cluster.agent(host, "stop"))

    wait(lambda: volume(world, job).note.startswith(f"host {chosen.host} is not in cluster local; no pod"), "the note")

    assert (chosen.volume_id, VolumeState.INITIALIZED) == (volume(world, job).volume_id, volume(world, job).state)
    assert chosen.host == world.storage.pods.ready_gangs(job, 10)[0].desired_host
    world.cluster.agent(chosen.host, "start")
    wait(lambda: volume(world, job).volume_id != chosen.volume_id, "the end of the choice")
    launch(world, job)


def test_a_host_manager_that_dies_after_the_accept(make: Make) -> None:
    """The next host manager finds the volume and creates no second one."""
    world = make(hosts=HOSTS)
    job = a_database(world)
    world.storage.host_pods.commits_to_fail = 10**6
    world.launch(world.place(job))
    wait(lambda: world.tasks(), "the task")
    assert VolumeState.INITIALIZED is volume(world, job).state
    world.core.stop()
    world.storage.host_pods.commits_to_fail = 0

    world.lead()

    world.wait_states(job, {"RUNNING": 1})
    made = wait_volume(world, job, VolumeState.CREATED)
    end_runs(world, job)
    launch(world, job)
    assert (made.volume_id, made.host) == (volume(world, job).volume_id, world.pod(job).host)
    wait(lambda: free_disk(world) == 2 * DISK_MB - SIZE_MB, "the offers")


def test_a_launch_that_certainly_came_to_nothing_binds_no_volume(make: Make) -> None:
    """The offers were gone, so the volume may be created on any host."""
    world = make(hosts=HOSTS)
    job = a_database(world)
    batch = world.place(job)
    world.mesos._offers.clear()

    world.launch(batch)

    wait(lambda: world.states(job) == {"LOST": 1}, "the refusal")
    assert [] == volumes(world, job)


@pytest.mark.usefixtures("at_once")
def test_a_lost_host_loses_its_volumes_and_may_bring_them_back(make: Make) -> None:
    """The state of the volume and its reason report the loss, and no other volume takes its place."""
    world = make(hosts=HOSTS, agents_period_s=0.1)
    job = running(world)
    made = wait_volume(world, job, VolumeState.CREATED)
    world.cluster.agent(made.host, "stop")

    lost = wait_volume(world, job, VolumeState.LOST)

    assert f"host {made.host} is not in cluster local" == lost.note
    world.cluster.agent(made.host, "start")
    back = wait_volume(world, job, VolumeState.CREATED)
    assert (made.volume_id, "") == (back.volume_id, back.note)


def test_an_agent_that_restarts_keeps_its_volumes(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Read of an agent's volumes while it restarts, even many, change nothing and cause no warning."""
    monkeypatch.setattr("peloton.lifecycle.volumes.LISTING_LAG_S", 0.0)
    world = make(hosts=HOSTS, agents_period_s=0.1)
    job = running(world)
    made = wait_volume(world, job, VolumeState.CREATED)
    looks: list[bool] = []
    real = world.core.cache.sights

    def sights(hostnames: Collection[str]) -> dict[str, HostSight]:
        found = real(hostnames)
        looks.append(found[made.host].is_registered)
        return found

    monkeypatch.setattr(world.core.cache, "sights", sights)
    world.cluster.agent(made.host, "freeze")
    wait(lambda: looks.count(False) > 3, "looks while it is away")
    world.cluster.agent(made.host, "start")
    seen = len(looks)
    wait(lambda: True in looks[seen:], "the agent")

    assert made == volume(world, job)
    assert not [record for record in caplog.records if record.levelname == "WARNING" and "volume" in record.message]


@pytest.mark.usefixtures("at_once")
def test_a_lost_volume_says_what_is_known_by_now(make: Make) -> None:
    """The host is unavailable, then returns with another disk, then with the old one. The volume is LOST from the first
    moment on, and no other volume takes its place."""
    world = make(hosts=HOSTS, agents_period_s=0.1)
    job = running(world)
    made = wait_volume(world, job, VolumeState.CREATED)
    world.cluster.agent(made.host, "stop")
    lost = wait_volume(world, job, VolumeState.LOST)
    old = world.cluster.swap_disk(made.host)

    world.cluster.agent(made.host, "start")

    wait(lambda: volume(world, job).note == f"host {made.host} is registered and no longer has it", "the other reason")
    assert (made.volume_id, lost.changed_ns) == (volume(world, job).volume_id, volume(world, job).changed_ns)
    wait(lambda: world.states(job) == {"LOST": 1}, "the loss of the pod")
    world.admit(job)
    (gang,) = world.storage.pods.ready_gangs(job, 10)
    lease = world.core.acquire_hosts(job, [(gang.shape, 1)])
    assert () == lease.hosts
    world.core.release(lease.lease_id)
    world.cluster.agent(made.host, "stop")
    wait(lambda: "is not in cluster" in volume(world, job).note, "the first reason")
    world.cluster.swap_disk(made.host, old)
    world.cluster.agent(made.host, "start")
    assert "" == wait_volume(world, job, VolumeState.CREATED).note
    launch(world, job)
    assert [made.volume_id] == [one.volume_id for one in volumes(world, job)]


@pytest.mark.usefixtures("at_once")
def test_files_that_are_wiped_below_an_agent_are_not_made_again(make: Make, tmp_path: Path) -> None:
    """A task that uses the wiped files fails. The restarted agent does not have the volume, which is LOST."""
    world = make(simulate=False, hosts=HOSTS, agents_period_s=0.1, agent_reregister_timeout_s=0.0)
    job = running(world)
    made = wait_volume(world, job, VolumeState.CREATED)
    wait(lambda: lines(tmp_path, made), "the file")
    folder = volume_folder(tmp_path / "minicluster", made.host, "peloton", f"peloton-{made.volume_id}")
    shutil.rmtree(folder)
    end_runs(world, job)
    world.launch(world.place(job))

    wait(lambda: world.states(job) == {"FAILED": 1}, "the failure")

    assert f"Persistent volume '{folder}' does not exist" in world.pod(job).message
    world.restart_master()
    wait_volume(world, job, VolumeState.LOST)
    assert not folder.exists()


@pytest.mark.usefixtures("at_once")
def test_a_lost_volume_is_given_up(make: Make) -> None:
    """The pod has another volume elsewhere, and the host destroys the old one when it returns."""
    world = make(hosts=HOSTS, agents_period_s=0.1)
    job = running(world)
    made = wait_volume(world, job, VolumeState.CREATED)
    world.cluster.agent(made.host, "stop")
    wait_volume(world, job, VolumeState.LOST)
    wait(lambda: world.states(job) == {"LOST": 1}, "the loss of the pod")
    with pytest.raises(Aborted, match="comes back to it"):
        world.storage.volumes.delete(made.volume_id, False, time.time_ns())

    world.storage.volumes.delete(made.volume_id, True, time.time_ns())

    world.admit(job)
    launch(world, job)
    assert made.host != world.pod(job).host
    assert 2 == len(volumes(world, job))
    world.cluster.agent(made.host, "start")
    wait(lambda: len(volumes(world, job)) == 1, "the end of the old volume")
    assert made.volume_id != volume(world, job).volume_id
    wait(lambda: free_disk(world) == 2 * DISK_MB - SIZE_MB, "the disk of the old one")


def test_a_volume_is_deleted_with_its_files(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A volume is not deleted while a pod has it or returns to it. Its disk is free again once it is deleted. Its host
    had listed it, so only the next list is awaited."""
    monkeypatch.setattr("peloton.lifecycle.volumes.LISTING_LAG_S", 10_000.0)
    world = make(simulate=False, hosts=HOSTS, agents_period_s=0.1)
    job = running(world)
    made = wait_volume(world, job, VolumeState.CREATED)
    wait(lambda: lines(tmp_path, made), "the file")
    for gives_up in (False, True):
        with pytest.raises(Aborted, match=r"is in use: pod .* is RUNNING on host"):
            world.storage.volumes.delete(made.volume_id, gives_up, time.time_ns())
    world.storage.jobs.set_goal(job, JobState.KILLED, time.time_ns())
    world.core.kill_running(job)
    wait(lambda: world.states(job) == {"KILLED": 1}, "the end")

    world.storage.volumes.delete(made.volume_id, False, time.time_ns())

    wait(lambda: not volumes(world, job), "the end of the volume")
    wait(lambda: free_disk(world) == 2 * DISK_MB, "its disk")
    assert not list((tmp_path / "minicluster" / "volumes").glob("*/*/*"))
    with pytest.raises(NotFound):
        world.storage.volumes.delete(made.volume_id, False, time.time_ns())


def test_volumes_outlive_the_cluster(make: Make, tmp_path: Path) -> None:
    """A minicluster that starts again on its folder has the volumes, and pods find their files."""
    world = make(simulate=False, hosts=HOSTS, agent_reregister_timeout_s=0.0)
    job = running(world)
    made = wait_volume(world, job, VolumeState.CREATED)
    wait(lambda: lines(tmp_path, made), "the first line")

    world.restart_master()

    wait(lambda: world.states(job) == {"LOST": 1}, "the loss")
    world.admit(job)
    launch(world, job)
    wait(lambda: len(lines(tmp_path, made)) == 2, "the second line")
    assert made.volume_id == volume(world, job).volume_id


def test_a_framework_without_a_role_gets_no_pods_with_volumes(make: Make) -> None:
    """Resources cannot be reserved for the default role. The reason names the label that its hosts lack. Other pods
    run."""
    world = make(hosts=HOSTS, role="*")
    wait(lambda: world.core.cache.are_hosts_known, "the hosts")
    (gang,) = world.storage.pods.ready_gangs(a_database(world), 10)

    assert ("0 of 2 hosts meet the constraint label peloton/volumes=kept") == infeasible_text(
        tuple(world.core.cache.evaluate([gang.shape]).values())
    )
    world.running()
