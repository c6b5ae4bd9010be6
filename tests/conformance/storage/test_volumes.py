"""Volumes: creation by launches, lists, deletion, and limits of updates."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from peloton.api import convert
from peloton.api.v0.job import job_pb2
from peloton.errors import Aborted, InvalidArgument, NotFound
from peloton.model.ids import Hostname, JobId, PodId, new_job_id
from peloton.model.job import JobState
from peloton.model.pod import Cause, PodState, PodStatus
from peloton.model.volume import VolumeRecord, VolumeSpec, VolumeState
from services.storage.pods.host_pods import LaunchRow
from services.storage.storage import Storage
from tests.conformance.storage.builders import NOW, K, L, R, admit, runs_of, settle_all
from tests.conformance.storage.services import ALL_AT_ONCE, service_config, turn, update

CREATED, DELETED, INITIALIZED, LOST = (
    VolumeState.CREATED,
    VolumeState.DELETED,
    VolumeState.INITIALIZED,
    VolumeState.LOST,
)
SPEC = VolumeSpec("data", 500)


def config_of(count: int = 2, size_mb: int = 500, pool: str = "") -> job_pb2.JobConfig:
    config = service_config(count)
    config.respoolID.value = pool or config.respoolID.value
    config.defaultConfig.volume.containerPath, config.defaultConfig.volume.sizeMB = "data", size_mb
    return config


def a_database(storage: Storage, count: int = 2, job_id: JobId | None = None, **more: Any) -> JobId:
    """Create a service whose pods are READY."""
    job_id, config = job_id or new_job_id(), config_of(count, **more)
    storage.updates.create_service(convert.new_job_record(job_id, config, NOW), config, b"", ALL_AT_ONCE, "", NOW)
    turn(storage, job_id, starts=False)
    admit(storage, job_id)
    return job_id


def launch(storage: Storage, job_id: JobId, hosts: dict[int, str], run: int = 1, cluster: str = "east") -> set[int]:
    rows: list[LaunchRow] = [(instance, run, host, "agent", {}) for instance, host in hosts.items()]
    return storage.host_pods.mark_launched(job_id, rows, NOW, cluster, dict.fromkeys(hosts, SPEC))


def of_job(storage: Storage, job_id: JobId) -> dict[int, VolumeRecord]:
    found = storage.volumes.page(job_id=job_id)
    return {one.instance_id: one for one in sorted(found, key=lambda volume: volume.instance_id)}


def report(storage: Storage, job_id: JobId, instances: Iterable[int], state: PodState, **more: Any) -> None:
    runs = runs_of(storage, job_id)
    statuses = [PodStatus(PodId(job_id, i, runs[i]), state, NOW, **more) for i in instances]
    storage.host_pods.apply_status(statuses, "east")


def rerun(storage: Storage, job_id: JobId) -> None:
    """End the runs of all instances. Their next ones are READY."""
    report(storage, job_id, of_job(storage, job_id), L, cause=Cause.HOST_LOST)
    storage.jobs.settle(job_id, NOW)
    admit(storage, job_id)


def test_a_launch_takes_a_volume(storage: Storage) -> None:
    """Each instance has one volume, on the host of the launch, with the pool that pays for it."""
    job_id = a_database(storage)

    assert {0, 1} == launch(storage, job_id, {0: "h0", 1: "h1"})

    before = of_job(storage, job_id)
    assert [("h0", "pool", INITIALIZED), ("h1", "pool", INITIALIZED)] == [
        (one.host, one.respool_id, one.state) for one in before.values()
    ]
    assert before == storage.volumes.of_instances(job_id, [0, 1])
    assert before[0] == storage.volumes.get(before[0].volume_id)


def test_pods_come_back_to_their_volumes(storage: Storage) -> None:
    """Placement reads the host of the volume, and a launch on another host is refused."""
    job_id = a_database(storage)
    assert [500, 500] == [gang.shape.resources.disk_mib for gang in storage.pods.ready_gangs(job_id, 10)]
    launch(storage, job_id, {0: "h0", 1: "h1"})
    ids = [one.volume_id for one in of_job(storage, job_id).values()]
    storage.volumes.note(dict.fromkeys(ids, (CREATED, "")), NOW)
    rerun(storage, job_id)

    gangs = storage.pods.ready_gangs(job_id, 10)

    assert [("h0", "east", 0), ("h1", "east", 0)] == [
        (gang.desired_host, gang.desired_cluster, gang.shape.resources.disk_mib) for gang in gangs
    ]
    assert set() == launch(storage, job_id, {0: "h1"}, run=2)
    assert set() == launch(storage, job_id, {0: "h0"}, run=2, cluster="west")
    assert {0} == launch(storage, job_id, {0: "h0"}, run=2)
    assert sorted(ids) == sorted(one.volume_id for one in of_job(storage, job_id).values())


@pytest.mark.parametrize(("cause", "is_left"), [(Cause.RESOURCES_GONE, False), (Cause.HOST_LOST, True)])
def test_a_volume_that_was_never_made_is_forgotten(storage: Storage, cause: Cause, is_left: bool) -> None:
    """The volume is deleted when its launch certainly failed. A volume of unknown fate stays, and so does its host."""
    job_id = a_database(storage)
    launch(storage, job_id, {0: "h0", 1: "h1"})

    report(storage, job_id, [0], L, cause=cause)

    assert ([0, 1] if is_left else [1]) == sorted(of_job(storage, job_id))


def test_a_pod_that_runs_has_its_volume(storage: Storage) -> None:
    """The row of the instance's volume, and no other, changes in the same transaction."""
    job_id = a_database(storage)
    launch(storage, job_id, {0: "h0", 1: "h1"})

    report(storage, job_id, [0], R)

    assert [CREATED, INITIALIZED] == [one.state for one in of_job(storage, job_id).values()]


def let_go(storage: Storage, volume: VolumeRecord, run: int = 1, is_begun: bool = False) -> bool:
    return storage.volumes.let_go(volume, run, is_begun, NOW)


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_volume_that_was_never_made_lets_its_pod_go(storage: Storage, is_begun: bool) -> None:
    """The pod was queued without the disk, so another volume counts for it, on the host of the next launch. The host
    destroys what it has begun."""
    job_id = a_database(storage, 1)
    launch(storage, job_id, {0: "h0"})
    volume = of_job(storage, job_id)[0]
    rerun(storage, job_id)

    assert let_go(storage, volume, is_begun=is_begun)

    gone = storage.volumes.get(volume.volume_id)
    assert (gone is not None and gone.goal is DELETED) if is_begun else gone is None
    (fresh,) = storage.volumes.of_instances(job_id, [0]).values()
    assert ("", "", INITIALIZED) == (fresh.host, fresh.cluster, fresh.state)
    assert [fresh.volume_id] == [one.volume_id for one in storage.volumes.page(cluster="")]
    (gang,) = storage.pods.ready_gangs(job_id, 10)
    assert ("", 500) == (gang.desired_host, gang.shape.resources.disk_mib)
    assert {0} == launch(storage, job_id, {0: "h1"}, run=2, cluster="west")
    (taken,) = storage.volumes.of_instances(job_id, [0]).values()
    assert (fresh.volume_id, "h1", "west") == (taken.volume_id, taken.host, taken.cluster)


def test_a_pod_between_its_runs_is_let_go_without_another_volume(storage: Storage) -> None:
    """The pod requests the disk when it is queued again. A pod with goal KILLED does so after a start."""
    job_id = a_database(storage)
    launch(storage, job_id, {0: "h0", 1: "h1"})
    volumes = of_job(storage, job_id)
    report(storage, job_id, [0], L, cause=Cause.HOST_LOST)
    assert let_go(storage, volumes[0])
    rerun(storage, job_id)
    storage.jobs.set_goal(job_id, JobState.KILLED, NOW)

    assert let_go(storage, volumes[1])

    assert {} == of_job(storage, job_id)


def test_a_volume_that_may_be_made_holds_its_pod(storage: Storage) -> None:
    """The volume binds its pod during a launch, after another one, once a pod has run with it, and once it has to be
    deleted."""
    job_id = a_database(storage, 1)
    launch(storage, job_id, {0: "h0"})
    volume = of_job(storage, job_id)[0]
    assert not let_go(storage, volume)
    rerun(storage, job_id)
    assert not let_go(storage, volume, run=2)
    launch(storage, job_id, {0: "h0"}, run=2)
    rerun(storage, job_id)
    assert not let_go(storage, volume, run=1)
    launch(storage, job_id, {0: "h0"}, run=3)
    report(storage, job_id, [0], R)
    rerun(storage, job_id)
    assert not let_go(storage, volume, run=3)

    assert [volume.volume_id] == [one.volume_id for one in storage.volumes.page()]
    deleted = storage.volumes.delete(volume.volume_id, True, NOW)
    assert not let_go(storage, deleted, run=3)


def test_a_volume_without_a_host_goes_at_once(storage: Storage) -> None:
    """A volume without a host is deleted at once by request or with its job, since there is nothing to destroy."""
    job_id = a_database(storage)
    launch(storage, job_id, {0: "h0", 1: "h1"})
    volumes = of_job(storage, job_id)
    rerun(storage, job_id)
    for volume in volumes.values():
        assert let_go(storage, volume)
    storage.jobs.set_goal(job_id, JobState.KILLED, NOW)
    first = of_job(storage, job_id)[0]

    storage.volumes.delete(first.volume_id, False, NOW)

    assert [1] == list(of_job(storage, job_id))
    storage.admission.kill_queued(job_id, NOW)
    remove(storage, job_id)
    assert {} == of_job(storage, job_id)


def test_unowned_volumes_that_were_never_made_go(storage: Storage) -> None:
    """The volume of a deleted job is deleted when it is known that it was never made."""
    job_id = a_database(storage, 1)
    launch(storage, job_id, {0: "h0"})
    volume = of_job(storage, job_id)[0]
    remove(storage, job_id)

    assert let_go(storage, volume, run=0)

    assert {} == of_job(storage, job_id)


def test_what_pods_wait_for(storage: Storage) -> None:
    """Pods wait for a lost volume, and for one whose creation is uncertain."""
    job_id = a_database(storage, 3)
    launch(storage, job_id, {0: "h0", 1: "h1", 2: "h2"})
    ids = [one.volume_id for one in of_job(storage, job_id).values()]

    storage.volumes.note({ids[0]: (LOST, "gone"), ids[1]: (INITIALIZED, "h1 is away")}, NOW)

    assert ids[:2] == [one.volume_id for one in storage.volumes.list_lost(job_id, 10)]
    assert 2 == storage.overview.list_lost_volumes()[1]


def test_offers_are_held_for_pods_with_volumes(storage: Storage) -> None:
    """The resources are reserved on the host of the volume, whatever host the pod requests."""
    job_id = a_database(storage)
    launch(storage, job_id, {0: "h0", 1: "h1"})
    report(storage, job_id, [0, 1], R)

    found = storage.host_pods.coming_back(job_id, [0, 1])

    assert [(0, "h0", 0), (1, "h1", 0)] == [(one.instance_id, one.hostname, one.resources.disk_mib) for one in found]


def test_residents_say_whose_volume_is_there(storage: Storage) -> None:
    """Residents with a volume are marked, so that a drain leaves them."""
    job_id = a_database(storage)
    launch(storage, job_id, {0: "h0", 1: "h1"})
    (resident,) = storage.host_pods.hosted_pods(["h0"], "east")[Hostname("h0")]

    assert (0, True) == (resident.instance_id, resident.has_volume)


def test_a_volume_in_use_is_refused_and_given_up(storage: Storage) -> None:
    """A pod that waits for the volume may be released from it. The next launch takes another volume."""
    job_id = a_database(storage, 1)
    launch(storage, job_id, {0: "h0"})
    volume = of_job(storage, job_id)[0]
    report(storage, job_id, [0], R)
    with pytest.raises(Aborted, match="is RUNNING on host h0"):
        storage.volumes.delete(volume.volume_id, True, NOW)
    rerun(storage, job_id)
    with pytest.raises(Aborted, match="give the volume up"):
        storage.volumes.delete(volume.volume_id, False, NOW)

    assert DELETED is storage.volumes.delete(volume.volume_id, True, NOW).goal

    assert DELETED is storage.volumes.delete(volume.volume_id, False, NOW).goal  # again
    assert "" == storage.pods.ready_gangs(job_id, 1)[0].desired_host
    assert {0} == launch(storage, job_id, {0: "h1"}, run=2)
    assert {"h0", "h1"} == {one.host for one in storage.volumes.page(cluster="east")}
    storage.volumes.delete_destroyed([one.volume_id for one in storage.volumes.page(cluster="east")])
    assert ["h1"] == [one.host for one in storage.volumes.page(cluster="east")]
    with pytest.raises(NotFound):
        storage.volumes.delete(volume.volume_id, True, NOW)


def test_volumes_outlive_their_job(storage: Storage) -> None:
    """A volume without a job has no pod, and may be deleted."""
    job_id = a_database(storage, 1)
    launch(storage, job_id, {0: "h0"})
    volume = of_job(storage, job_id)[0]
    assert [volume.volume_id] == list(storage.volumes.pods_of([volume]))
    remove(storage, job_id)

    assert {} == storage.volumes.pods_of([volume])
    assert [volume] == storage.volumes.page(job_id=job_id)
    assert DELETED is storage.volumes.delete(volume.volume_id, False, NOW).goal


def remove(storage: Storage, job_id: JobId) -> None:
    """Delete the job and its pods."""
    storage.updates.abort_active(job_id, NOW)
    storage.jobs.set_goal(job_id, JobState.KILLED, NOW)
    killed = storage.host_pods.mark_killing(job_id, 10, cluster="east")
    report(storage, job_id, [pod.instance_id for pod, *_ in killed], K)
    settle_all(storage, job_id)
    storage.jobs.delete(job_id)


def test_a_job_that_is_made_again_has_the_volumes_of_its_id(storage: Storage) -> None:
    """The new job requires the same volumes, goes to their hosts, and its pool pays for them."""
    job_id = a_database(storage, 1)
    launch(storage, job_id, {0: "h0"})
    volume = of_job(storage, job_id)[0]
    remove(storage, job_id)
    with pytest.raises(InvalidArgument, match=r"of instance 0 has 500 MB at data, and the configuration asks for 400"):
        a_database(storage, 1, job_id, size_mb=400)
    assert None is storage.jobs.get(job_id)

    a_database(storage, 2, job_id, pool="other")

    assert [replace(volume, respool_id="other")] == storage.volumes.page(job_id=job_id)
    assert {1} == launch(storage, job_id, {0: "h1", 1: "h1"})
    assert {0} == launch(storage, job_id, {0: "h0"})
    assert [(0, "h0"), (1, "h1")] == [(instance, one.host) for instance, one in of_job(storage, job_id).items()]


def test_a_state_is_noted_once(storage: Storage) -> None:
    """A state is stored once, with the time of its change."""
    job_id = a_database(storage, 1)
    launch(storage, job_id, {0: "h0"})
    volume_id = of_job(storage, job_id)[0].volume_id

    for now_ns in (NOW + 1, NOW + 2):
        storage.volumes.note({volume_id: (LOST, "its host burns")}, now_ns)

    found = of_job(storage, job_id)[0]
    assert (LOST, "its host burns", NOW + 1) == (found.state, found.note, found.changed_ns)


def test_a_note_changes_without_the_state(storage: Storage) -> None:
    """A LOST volume keeps its time while its note changes. Its host has an event of each change of the state."""
    job_id = a_database(storage, 1)
    launch(storage, job_id, {0: "h0"})
    volume_id = of_job(storage, job_id)[0].volume_id
    storage.volumes.note({volume_id: (LOST, "its host burns")}, NOW + 1)

    storage.volumes.note({volume_id: (LOST, "its host is back without it")}, NOW + 2)

    found = of_job(storage, job_id)[0]
    assert (LOST, "its host is back without it", NOW + 1) == (found.state, found.note, found.changed_ns)
    storage.volumes.note({volume_id: (CREATED, "")}, NOW + 3)
    found = of_job(storage, job_id)[0]
    assert (CREATED, "", NOW + 3) == (found.state, found.note, found.changed_ns)
    assert [
        f"Volume {volume_id} of {found.pod_name} is there again after 0 s",
        f"Volume {volume_id} of {found.pod_name} is lost: its host burns",
    ] == [event.text for event in storage.host_events.page("h0")]


@pytest.mark.parametrize("size_mb", [400, 0])
def test_an_update_keeps_the_volume(storage: Storage, size_mb: int) -> None:
    """The size of a volume cannot change, and pods that have a volume keep it."""
    job_id = a_database(storage)
    launch(storage, job_id, {0: "h0", 1: "h1"})
    config = config_of(size_mb=size_mb)
    if not size_mb:
        config.defaultConfig.ClearField("volume")

    with pytest.raises(InvalidArgument, match=r"of instance 0 has 500 MB at data, and the configuration asks for"):
        update(storage, job_id, config)

    config = config_of()
    config.defaultConfig.command.value = "v2"
    update(storage, job_id, config)


def test_two_launches_at_once_take_one_volume(storage: Storage) -> None:
    """One of two host managers that both claim to lead is refused."""
    job_id = a_database(storage, 1)
    taken: list[set[int]] = []
    threads = [
        threading.Thread(target=lambda host=host: taken.append(launch(storage, job_id, {0: host})))
        for host in ("h0", "h1")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [set(), {0}] == sorted(taken, key=len)
    assert 1 == len(of_job(storage, job_id))
