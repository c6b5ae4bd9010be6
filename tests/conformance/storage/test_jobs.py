"""Jobs, their configurations, and the creation of their pods."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from peloton.api.cluster_kinds import ON_KUBERNETES
from peloton.errors import Aborted, AlreadyExists, InvalidArgument, NotFound
from peloton.model.ids import JobId, new_job_id
from peloton.model.job import JobState, JobType
from peloton.model.pod import HealthState, PodState, ShapeRange
from peloton.model.resources import Resources
from services.storage.ranges import CHUNK_PODS
from services.storage.storage import Storage
from tests.conformance.storage import builders as world
from tests.conformance.storage.builders import NOW, F, I, K, S, everywhere
from tests.conformance.storage.interleaving import before_write


def test_a_stored_job_is_read_back_as_it_was(storage: Storage) -> None:
    """Every field of the record is stored."""
    config = world.a_config(3, priority=4, preemptible=True, maxRunningTime=60, maximumRunningInstances=2)
    job_id = world.create(storage, config)

    job = storage.jobs.get(job_id)

    assert job is not None
    assert ("train", JobType.BATCH, "maps", "pool", 3) == (
        job.name,
        job.type,
        job.owning_team,
        job.respool_id,
        job.instance_count,
    )
    assert (4, True, 60, 2) == (
        job.sla.priority,
        job.sla.preemptible,
        job.sla.max_running_time_s,
        job.sla.maximum_running_instances,
    )
    assert (JobState.INITIALIZED, JobState.SUCCEEDED, {I: 3}, NOW) == (
        job.state,
        job.goal,
        job.pod_counts,
        job.created_ns,
    )
    assert (("stage", "prod-eu"),) == job.labels
    assert [job] == storage.jobs.get_many([job_id, job_id, new_job_id()])
    assert [job_id] == storage.jobs.active_ids()


@everywhere
def test_an_id_is_used_once(storage: Storage) -> None:
    """A second job with the same id is refused, and the first stays as it was."""
    job_id = world.create(storage, world.a_config(1))

    with pytest.raises(AlreadyExists, match=job_id):
        world.create(storage, world.a_config(2), job_id)
    job = storage.jobs.get(job_id)
    assert job is not None
    assert 1 == job.instance_count


def test_unknown_jobs(storage: Storage) -> None:
    """Read of unknown jobs return an empty answer, or raise NotFound where there is none."""
    unknown = new_job_id()

    assert storage.jobs.get(unknown) is None
    assert storage.configs.job_config(unknown) is None
    assert storage.jobs.set_goal(unknown, JobState.KILLED, NOW) is None
    assert [] == storage.pods.set_goals(unknown, [(0, 1)], PodState.KILLED, NOW, "")
    assert [] == storage.pods.want_new_runs(unknown, [(0, 1)])
    assert [] == storage.admission.queueable(unknown, 1)
    assert [] == storage.pods.ready_gangs(unknown, 1)
    assert [] == storage.admission.kill_queued(unknown, NOW)
    assert [] == storage.host_pods.mark_killing(unknown, 1)
    assert [] == storage.configs.shapes_of([(unknown, 1, 0, 1)])[0]
    assert set() == storage.host_pods.mark_launched(unknown, [(0, 1, "", "", {})], NOW)
    storage.jobs.delete(unknown)
    for call in (lambda: storage.jobs.settle(unknown, NOW), lambda: storage.pods.create(unknown, lambda _: None)):
        with pytest.raises(NotFound, match=unknown):
            call()


def test_a_configuration_is_stored_in_pieces_and_read_whole(storage: Storage) -> None:
    """The default and each override are read back. Overrides are left out without ``overrides``."""
    config = world.a_config(4)
    config.instanceConfig[2].command.value = "special"
    job_id = world.create(storage, config)

    assert config == storage.configs.job_config(job_id, overrides=True)
    bare = storage.configs.job_config(job_id)
    assert bare is not None
    assert config.defaultConfig == bare.defaultConfig
    assert {} == dict(bare.instanceConfig)
    assert storage.configs.job_config(job_id, version=2) is None


def test_all_containers_of_a_pod_are_stored(storage: Storage) -> None:
    """All containers are read back as they were, count for the shape, and decide where the pod may run."""
    config = world.a_config(2)
    config.defaultConfig.otherContainers.add(name="proxy").resource.cpuLimit = 2
    config.instanceConfig[1].initContainers.add(name="setup").resource.cpuLimit = 9
    job_id = world.create(storage, config)

    assert config == storage.configs.job_config(job_id, overrides=True)
    shapes = [r.shape for r in storage.configs.shapes_of([(job_id, 1, 0, 2)])[0]]
    assert [3_500, 9_000] == [shape.resources.cpu_milli for shape in shapes]
    assert [ON_KUBERNETES] * 2 == [shape.constraint for shape in shapes]


def test_configurations_of_many_jobs_at_once(storage: Storage) -> None:
    """Configurations are returned by job and version, without their instances. Missing ones are left out."""
    jobs = [world.a_job(storage, count) for count in (2, 3)]
    storage.jobs.add_instances(jobs[1], world.a_config(5), 5, 1, NOW)
    keys = [(jobs[0], 1), (jobs[1], 1), (jobs[1], 2), (jobs[0], 2), (new_job_id(), 1)]

    found = storage.configs.job_configs(keys)

    assert found == {key: storage.configs.job_config(*key) for key in keys[:3]}
    assert sorted(config.instanceCount for config in found.values()) == [2, 3, 5]
    assert storage.configs.job_configs([]) == {}


def test_unknown_fields_of_a_configuration_survive(storage: Storage) -> None:
    """An unknown field of a newer client is returned."""
    config = world.a_config(1)
    config.MergeFromString(b"\xf2\x3f\x03new")  # field 1022, length-delimited
    config.instanceConfig[0].command.value = "special"

    stored = storage.configs.job_config(world.create(storage, config), overrides=True)

    assert stored is not None
    assert config.SerializeToString(deterministic=True) == stored.SerializeToString(deterministic=True)


def test_task_configs_are_merged(storage: Storage) -> None:
    """The configuration of an instance is the default merged with its override."""
    config = world.a_config(4)
    config.instanceConfig[2].command.value = "special"
    job_id = world.create(storage, config)

    configs = storage.configs.task_configs(job_id, 1, [0, 2])

    assert {0: "true", 2: "special"} == {i: task.command.value for i, task in configs.items()}
    assert 1.5 == configs[2].resource.cpuLimit
    assert {} == storage.configs.task_configs(job_id, 9, [0])


def test_instances_of_one_shape_are_one_range(storage: Storage) -> None:
    """Overrides that do not change the shape do not split ranges."""
    config = world.a_config(10)
    config.instanceConfig[3].resource.cpuLimit = 4
    config.instanceConfig[4].resource.cpuLimit = 4
    config.instanceConfig[7].command.value = "same shape"
    job_id = world.create(storage, config)

    ranges = storage.configs.shapes_of([(job_id, 1, 0, 10)])[0]

    assert [(0, 3), (3, 2), (5, 5)] == [(r.start, r.count) for r in ranges]
    assert [1500, 4000, 1500] == [r.shape.resources.cpu_milli for r in ranges]
    assert [(4, 1), (5, 1)] == [(r.start, r.count) for r in storage.configs.shapes_of([(job_id, 1, 4, 2)])[0]]
    assert [ShapeRange(8, 2, ranges[0].shape)] == storage.configs.shapes_of([(job_id, 1, 8, 2)])[0]
    alike = world.a_job(storage, 3)
    spans = [(job_id, 1, 0, 10), (alike, 1, 1, 2), (alike, 2, 0, 3), (new_job_id(), 1, 0, 1), (job_id, 1, 8, 2)]
    assert [storage.configs.shapes_of([span])[0] for span in spans] == storage.configs.shapes_of(spans)
    assert Resources(1500, 100, 0, 0) == ranges[0].shape.resources


def test_pods_are_created_with_what_their_configuration_says(storage: Storage) -> None:
    """Run 1 is INITIALIZED, with the retries and the health check of the instance's own configuration."""
    config = world.a_config(3, retries=2)
    config.instanceConfig[1].restartPolicy.maxFailures = 200
    config.instanceConfig[2].healthCheck.enabled = True
    job_id = world.create(storage, config)

    assert 3 == storage.pods.create(job_id, lambda _: None)

    assert [2, 100, 2] == [p.max_failures for p in world.pods(storage, job_id)]
    assert [HealthState.DISABLED, HealthState.DISABLED, HealthState.HEALTH_UNKNOWN] == [
        p.health for p in world.pods(storage, job_id)
    ]
    first = world.pod(storage, job_id)
    assert (1, 1, 0, I, S, 1, 1) == (
        first.run_id,
        first.desired_run_id,
        first.prev_run_id,
        first.state,
        first.goal,
        first.config_version,
        first.revision,
    )
    assert [I] == [event.state for event in storage.pods.events(job_id, 0)]


@everywhere
def test_creation_continues_after_a_crash(storage: Storage) -> None:
    """Chunks are created whole or not at all. A second call creates the missing chunks, and a third nothing."""
    count = 2 * CHUNK_PODS + 7
    job_id = world.create(storage, world.a_config(count))

    def crash(_: int) -> None:
        raise RuntimeError("killed between two chunks")

    with pytest.raises(RuntimeError):
        storage.pods.create(job_id, crash)
    assert CHUNK_PODS == len(world.pods(storage, job_id))
    assert JobState.INITIALIZED == storage.jobs.settle(job_id, NOW).state
    progress: list[int] = []
    assert count == storage.pods.create(job_id, progress.append)
    assert [2 * CHUNK_PODS, count] == progress
    assert count == storage.pods.create(job_id, progress.append)
    assert list(range(count)) == [p.instance_id for p in world.pods(storage, job_id)]
    assert JobState.PENDING == storage.jobs.settle(job_id, NOW).state


@everywhere
def test_a_stopped_job_creates_its_pods_killed(storage: Storage) -> None:
    """Pods of a job whose goal is KILLED never run."""
    job_id = world.create(storage, world.a_config(3))
    storage.jobs.set_goal(job_id, JobState.KILLED, NOW)

    storage.pods.create(job_id, lambda _: None)

    assert [(K, K)] * 3 == [(p.state, p.goal) for p in world.pods(storage, job_id)]
    assert JobState.KILLED == storage.jobs.settle(job_id, NOW).state


def test_a_job_grows_under_a_new_version(storage: Storage) -> None:
    """Old pods keep their configuration, and new ones have the new one. Overrides are united. A repetition changes
    nothing."""
    config = world.a_config(2)
    config.instanceConfig[1].command.value = "old"
    job_id = world.create(storage, config)
    storage.pods.create(job_id, lambda _: None)
    storage.jobs.settle(job_id, NOW)
    grown = world.a_config(4, priority=9)
    grown.instanceConfig[3].command.value = "new"

    assert 2 == storage.jobs.add_instances(job_id, grown, 4, 1, NOW)
    assert 2 == storage.jobs.add_instances(job_id, grown, 4, 1, NOW)

    job = storage.jobs.get(job_id)
    assert job is not None
    assert (JobState.INITIALIZED, 4, 2, 9) == (job.state, job.instance_count, job.config_version, job.sla.priority)
    storage.pods.create(job_id, lambda _: None)
    assert [1, 1, 2, 2] == [p.config_version for p in world.pods(storage, job_id)]
    stored = storage.configs.job_config(job_id, overrides=True)
    assert stored is not None
    assert {1: "old", 3: "new"} == {i: task.command.value for i, task in stored.instanceConfig.items()}
    assert JobState.PENDING == world.settle_all(storage, job_id).state


def test_growth_is_refused_with_reasons(storage: Storage) -> None:
    """Another version, fewer instances and an ended job are refused, and nothing changes."""
    job_id = world.a_job(storage, 2)
    before = storage.jobs.get(job_id)

    with pytest.raises(Aborted, match="unexpected version"):
        storage.jobs.add_instances(job_id, world.a_config(3), 3, 7, NOW)
    with pytest.raises(InvalidArgument, match="can't be less"):
        storage.jobs.add_instances(job_id, world.a_config(1), 1, 1, NOW)
    assert before == storage.jobs.get(job_id)
    world.run(storage, job_id)
    world.report(storage, job_id, [0, 1], F)
    world.settle_all(storage, job_id)
    with pytest.raises(InvalidArgument, match="Job is in a terminal state:FAILED"):
        storage.jobs.add_instances(job_id, world.a_config(3), 3, 1, NOW)


def test_deletion_removes_all_rows_of_a_job(storage: Storage) -> None:
    """An ended job is deleted with pods, events and configurations. An active one is not. A second deletion changes
    nothing."""
    job_id, other = world.a_job(storage, 3), world.a_job(storage, 1)
    with pytest.raises(Aborted, match="Job is not in a terminal state: PENDING"):
        storage.jobs.delete(job_id)
    storage.jobs.set_goal(job_id, JobState.KILLED, NOW)
    world.settle_all(storage, job_id)

    storage.jobs.delete(job_id)
    storage.jobs.delete(job_id)

    assert storage.jobs.get(job_id) is None
    assert storage.configs.job_config(job_id, 1) is None
    assert ([], []) == (world.pods(storage, job_id), storage.pods.events(job_id, 0))
    assert 1 == len(world.pods(storage, other))


def create_ended_job(storage: Storage, count: int) -> JobId:
    job_id = world.a_job(storage, count)
    storage.jobs.set_goal(job_id, JobState.KILLED, NOW)
    world.settle_all(storage, job_id)
    return job_id


def test_an_interrupted_deletion_is_completed(
    storage: Storage, open_storage: Callable[[], Storage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job is invisible after a crash between two chunks, and its id can be used again once the rest is deleted."""
    monkeypatch.setattr("services.storage.jobs.jobs.CHUNK_PODS", 2)
    job_id = create_ended_job(storage, 6)

    def die() -> None:
        raise RuntimeError("killed")

    dying = open_storage()
    before_write(dying, 3, die, monkeypatch)
    with pytest.raises(RuntimeError, match="killed"):
        dying.jobs.delete(job_id)

    assert (None, [job_id]) == (storage.jobs.get(job_id), storage.jobs.half_deleted())
    storage.jobs.delete(job_id)
    assert ([], []) == (storage.jobs.half_deleted(), world.pods(storage, job_id))
    world.create(storage, world.a_config(2), job_id)


def test_a_late_deletion_does_not_delete_a_new_job(
    storage: Storage, open_storage: Callable[[], Storage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes delete a job, and the slower one does not touch a new job with the same id."""
    monkeypatch.setattr("services.storage.jobs.jobs.CHUNK_PODS", 2)
    job_id = create_ended_job(storage, 6)

    def again() -> None:
        storage.jobs.delete(job_id)
        world.create(storage, world.a_config(6), job_id)
        storage.pods.create(job_id, lambda _: None)

    late = open_storage()
    before_write(late, 3, again, monkeypatch)
    late.jobs.delete(job_id)

    assert storage.jobs.get(job_id) is not None
    assert list(range(6)) == [one.instance_id for one in world.pods(storage, job_id)]
