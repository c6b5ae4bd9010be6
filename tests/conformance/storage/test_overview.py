"""Counts over all jobs and pods, for people who watch the whole installation."""

from __future__ import annotations

import pytest

from peloton.errors import NotFound
from peloton.lifecycle.problems import NAMED_MAX
from peloton.model.host_pool import Workload
from peloton.model.ids import Hostname, new_job_id
from peloton.model.job import JobState, JobType
from peloton.model.maintenance import Blocker, DrainProgress, MaintenanceRequest
from peloton.model.pod import PodState
from peloton.model.resources import Resources
from peloton.model.update import UpdateSpec, UpdateState
from peloton.model.volume import VolumeState
from services.storage.overview import Counts
from services.storage.pods.host_pods import LaunchRow
from services.storage.storage import Storage
from tests.conformance.storage import builders as world
from tests.conformance.storage.builders import NOW, SECOND, K, R, S
from tests.conformance.storage.services import a_service, roll, service_config, update
from tests.conformance.storage.test_volumes import a_database, launch, of_job


def test_jobs_and_pods_by_state(storage: Storage) -> None:
    """Ended jobs count and their pods do not. Jobs that are being deleted count nowhere."""
    assert Counts() == storage.overview.counts()
    world.a_running_job(storage, 3)
    world.a_running_job(storage, 3)
    mixed = world.a_running_job(storage, 4)
    world.report(storage, mixed, [0, 1], S)
    storage.jobs.settle(mixed, NOW)
    ended = world.a_running_job(storage, 2)
    world.report(storage, ended, [0, 1], S)
    storage.jobs.settle(ended, NOW)
    gone = world.a_running_job(storage, 2)
    world.report(storage, gone, [0, 1], S)
    storage.jobs.settle(gone, NOW)
    storage.jobs.delete(gone)

    found = storage.overview.counts()

    assert {JobState.RUNNING: 3, JobState.SUCCEEDED: 1} == dict(found.jobs)
    assert {PodState.RUNNING: 8, PodState.SUCCEEDED: 2} == dict(found.pods)


def test_pods_by_host(storage: Storage) -> None:
    """The count covers pods that may be on a host of the cluster."""
    job_id = world.a_job(storage, 4)
    world.admit(storage, job_id)
    for cluster, instances in (("a", (0, 1, 2)), ("b", (3,))):
        rows: list[LaunchRow] = [(i, 1, f"host{i // 2}", "agent", {}) for i in instances]
        storage.host_pods.mark_launched(job_id, rows, NOW, cluster)
    world.report(storage, job_id, [2], S)

    assert {"host0": 2, "host1": 1} == storage.overview.pods_by_host("a")
    assert {"host1": 1} == storage.overview.pods_by_host("b")
    storage.host_pods.apply_status([], "a")
    assert {} == storage.overview.pods_by_host("c")


def test_the_pods_on_a_host(storage: Storage) -> None:
    """Each pod comes with its resources, its job, and whether it leaves. The number is bounded."""
    batch = world.a_running_job(storage, 4, priority=7, preemptible=True)
    service = a_service(storage, 3)
    storage.pods.set_goals(batch, [(3, 1)], K, NOW, "stop")

    found = {(pod.pod_id.job_id, pod.pod_id.instance_id): pod for pod in storage.overview.pods_on("host0", 100)}

    assert {(batch, 0), (batch, 3), (service, 0)} == found.keys()
    first, last, web = found[batch, 0], found[batch, 3], found[service, 0]
    assert (JobType.BATCH, "train", "pool", 7, Workload.SHARED) == (
        first.job_type, first.job_name, first.respool_id, first.priority, first.workload
    )  # fmt: skip
    assert (R, NOW, Resources.of(1.5, 100)) == (first.state, first.started_ns, first.asked)
    assert (True, False, False) == (first.is_preemptible, first.is_revocable, first.has_volume)
    assert (False, True) == (first.is_leaving, last.is_leaving)
    assert (JobType.SERVICE, Workload.STATELESS) == (web.job_type, web.workload)
    assert 2 == len(storage.overview.pods_on("host0", 2))
    assert [] == storage.overview.pods_on("host9", 100)


def test_volumes_that_are_lost(storage: Storage) -> None:
    """The answer has a few lost volumes, the latest first, and their number. Volumes that have to be deleted are left
    out."""
    count = NAMED_MAX + 2
    job_id = a_database(storage, count)
    launch(storage, job_id, {instance: f"host{instance}" for instance in range(count)})
    volumes = of_job(storage, job_id)
    assert ([], 0) == storage.overview.list_lost_volumes()
    storage.volumes.note({one.volume_id: (VolumeState.LOST, "gone") for one in volumes.values()}, NOW)
    storage.volumes.note({volumes[3].volume_id: (VolumeState.CREATED, "")}, NOW)
    storage.volumes.note({volumes[3].volume_id: (VolumeState.LOST, "again")}, NOW + SECOND)

    found, total = storage.overview.list_lost_volumes()

    assert (count, NAMED_MAX, volumes[3].volume_id) == (total, len(found), found[0].volume_id)
    assert ("again", "host3") == (found[0].note, found[0].host)


def test_updates_that_failed_or_stand_still(storage: Storage) -> None:
    """A failed or stalled update is listed until another update follows."""
    job_id, other = a_service(storage, 4), a_service(storage, 4)
    update(storage, job_id, service_config(4, "v2"), UpdateSpec(2, max_failure_instances=1, max_instance_attempts=1))
    update(storage, other, service_config(4, "v2"), UpdateSpec(start_paused=True))
    assert ([], 0) == storage.overview.stuck_updates()
    roll(storage, job_id, broken_version=2)

    ((name, failed),), total = storage.overview.stuck_updates()

    assert ("train", job_id, UpdateState.FAILED, 1) == (name, failed.job_id, failed.state, total)
    update(storage, job_id, service_config(4, "v3"))
    assert ([], 0) == storage.overview.stuck_updates()


def test_updates_that_went_back(storage: Storage) -> None:
    """Updates that rolled back are listed with their number of failures."""
    job_id = a_service(storage, 4)
    spec = UpdateSpec(2, rollback_on_failure=True, max_failure_instances=1, max_instance_attempts=1)
    update(storage, job_id, service_config(4, "v2"), spec)
    roll(storage, job_id, broken_version=2)

    ((_, back),), total = storage.overview.stuck_updates()

    assert (job_id, UpdateState.ROLLED_BACK, 2, 1) == (back.job_id, back.state, back.prev_config_version, total)


def test_hosts_that_drain(storage: Storage) -> None:
    """The answer contains draining hosts with the numbers of the last round, without hosts that wait for their turn or
    are in another cluster."""
    for cluster, names in (("west", ["h1", "h2"]), ("east", ["h3"])):
        wanted = [MaintenanceRequest(Hostname(name), "10.0.0.1", deadline_s=60) for name in names]
        storage.maintenance.request(cluster, wanted, 1, NOW)
    (first,) = storage.overview.drains("west")
    progress = DrainProgress(2, 1, (Blocker(new_job_id(), 1, "no"),), "the SLA of 1 job")

    storage.maintenance.note_drain(first, progress, NOW)

    assert [("h1", progress, NOW)] == [
        (one.hostname, one.progress, one.drained_from_ns) for one in storage.overview.drains("west")
    ]


def test_names_of_jobs(storage: Storage) -> None:
    """An unknown job has no name. A call without ids makes no query."""
    job_id = world.create(storage, world.a_config())

    assert {job_id: "train"} == storage.overview.job_names([job_id, new_job_id(), job_id])
    assert {} == storage.overview.job_names([])


def test_leases(storage: Storage) -> None:
    """The answer includes leases that have expired."""
    storage.leases.acquire("resmgr", "me", "10.0.0.1:1", 5.0, 100.0)
    storage.leases.acquire("hostmgr/west", "me", "10.0.0.1:2", 5.0, 50.0)

    assert [("hostmgr/west", "10.0.0.1:2", 55.0), ("resmgr", "10.0.0.1:1", 105.0)] == [
        (lease.role, lease.address, lease.expires_s) for lease in storage.overview.leases()
    ]


def test_what_pods_on_hosts_ask_for(storage: Storage) -> None:
    """The resources are listed by instance: the named instances, or the first ones. An unknown job is reported."""
    job_id = world.a_running_job(storage, 4)
    world.report(storage, job_id, [1], S)

    found = storage.overview.asking(job_id, (), 100)
    assert [0, 2, 3] == [pod.pod_id.instance_id for pod in found]
    assert {Resources.of(1.5, 100)} == {pod.asked for pod in found}
    assert all(pod.hostname and pod.pod_id.run_id == 1 for pod in found)
    assert [0, 2] == [pod.pod_id.instance_id for pod in storage.overview.asking(job_id, (), 2)]
    assert [3] == [pod.pod_id.instance_id for pod in storage.overview.asking(job_id, (1, 3, 9), 100)]
    with pytest.raises(NotFound):
        storage.overview.asking(new_job_id(), (), 1)
