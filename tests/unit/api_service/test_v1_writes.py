"""v1alpha JobService over real storage: writing calls and their signals."""

from __future__ import annotations

from typing import Any

import grpc

from peloton.api.v1alpha import peloton_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.model.job import JobState, JobType
from peloton.model.pod import PodState
from peloton.model.update import UpdateSpec, UpdateState, UpdateType
from services.storage.storage import Storage
from tests.conformance.storage.services import turn
from tests.unit.api_service.fakes import OneSandbox, RecordedWakes
from tests.unit.api_service.services import ID, create, ranges, service_config, spec, version
from tests.unit.api_service.story import JOB, expect_refusal
from tests.unit.api_service.story import create as create_v0


def current(storage: Storage) -> tuple[UpdateType, UpdateState, UpdateSpec]:
    job = storage.jobs.get(JOB)
    assert job is not None
    update = storage.updates.get(job.update_id)
    assert update is not None
    return update.type, update.state, update.spec


async def test_create(v1: Any, storage: Storage, wakes: RecordedWakes) -> None:
    """A service is stored with the update that creates its instances, and both workflows are started."""
    create_spec = stateless_pb2.CreateSpec(
        batch_size=2,
        max_instance_retries=3,
        max_tolerable_instance_failures=1,
        start_paused=True,
        pulse_seconds=9,
        progress_deadline_seconds=45,
    )
    opaque = peloton_pb2.OpaqueData(data="mine")
    seen = await create(v1, spec(), create_spec=create_spec, opaque_data=opaque)

    job = storage.jobs.get(JOB)
    assert job is not None
    assert (seen, job.type, job.goal) == ("1-1-1", JobType.SERVICE, JobState.RUNNING)
    update = storage.updates.get(job.update_id)
    assert update is not None
    assert update.spec == UpdateSpec(2, False, 3, 1, True, pulse_s=9, progress_deadline_s=45)
    assert (update.state, update.opaque_data, update.added) == (UpdateState.PAUSED, "mine", frozenset({0, 1, 2}))
    assert wakes.started == [JOB]
    assert storage.configs.job_spec(JOB) == spec().SerializeToString()


async def test_create_a_pod_of_several_containers(v1: Any, storage: Storage, hosts: OneSandbox) -> None:
    """A pod of several containers is accepted where a cluster is Kubernetes, stored, and returned in both forms."""
    hosts.cluster_kinds = frozenset({"kubernetes", "mesos"})
    wanted = spec()
    wanted.default_spec.containers.add(name="proxy", image="proxy:1").entrypoint.value = "proxy"
    wanted.default_spec.init_containers.add(name="setup", image="setup:1").entrypoint.value = "make"

    await create(v1, wanted)

    answer = await v1.GetJob(svc.GetJobRequest(job_id=peloton_pb2.JobID(value=JOB)))
    reported = answer.job_info.spec.default_spec
    assert ["", "proxy"] == [container.name for container in reported.containers]
    assert "proxy:1" == reported.containers[1].container.mesos.image.docker.name
    assert "make" == reported.init_containers[0].command.value
    config = storage.configs.job_config(JOB)
    assert config is not None
    assert ["proxy"] == [other.name for other in config.defaultConfig.otherContainers]


async def test_create_chooses_an_id(v1: Any) -> None:
    """A creation without an id generates one."""
    response = await v1.CreateJob(svc.CreateJobRequest(spec=spec()))

    assert len(response.job_id.value) == 36


async def test_create_again(v1: Any, wakes: RecordedWakes) -> None:
    """A repeated creation is refused, and starts the workflows if they are missing."""
    await create(v1, spec())

    assert await expect_refusal(create(v1, spec())) == (
        grpc.StatusCode.ALREADY_EXISTS,
        f"failed to create job in db: code:already-exists message:job {JOB} already exists",
    )
    assert wakes.started == [JOB, JOB]


async def test_create_without_temporal(v1: Any, storage: Storage, wakes: RecordedWakes) -> None:
    """The job is stored during an outage of Temporal, and the error says that repeating the call is safe."""
    wakes.is_down = True
    code, text = await expect_refusal(create(v1, spec()))

    assert code == grpc.StatusCode.UNAVAILABLE
    assert f"job {JOB} is stored" in str(text)
    assert storage.jobs.get(JOB) is not None


async def test_strict_updates_reach_the_job(v1: Any, storage: Storage) -> None:
    """The stricter setting is the job's own."""
    wanted = spec()
    wanted.sla.maximum_unavailable_instances, wanted.sla.strict_updates = 1, True
    await create(v1, wanted)
    job = storage.jobs.get(JOB)

    assert job is not None
    assert (job.sla.maximum_unavailable_instances, job.sla.strict_updates) == (1, True)


async def test_replace(v1: Any, storage: Storage, wakes: RecordedWakes, running_service: str) -> None:
    """A new spec creates a new configuration, update and version."""
    update_spec = stateless_pb2.UpdateSpec(
        batch_size=1, rollback_on_failure=True, max_tolerable_instance_failures=2, start_pods=True
    )
    request = svc.ReplaceJobRequest(
        job_id=ID, version=version(running_service), spec=spec(image="web:2"), update_spec=update_spec
    )
    response = await v1.ReplaceJob(request)

    assert response.version.value == "2-1-2"
    assert current(storage) == (
        UpdateType.UPDATE,
        UpdateState.INITIALIZED,
        UpdateSpec(1, True, 0, 2, False, False, True),
    )
    assert wakes.changed == [JOB]
    assert stateless_pb2.JobSpec.FromString(storage.configs.job_spec(JOB)).default_spec.containers[0].image == "web:2"


async def test_replace_by_the_same_again(v1: Any, storage: Storage, running_service: str) -> None:
    """A repeat of the running update changes nothing; other opaque data is stored as a new version."""
    request = svc.ReplaceJobRequest(job_id=ID, version=version(running_service), spec=spec(image="web:2"))
    first = (await v1.ReplaceJob(request)).version
    turn(storage, JOB, starts=False)
    request.version.CopyFrom(first)
    again = (await v1.ReplaceJob(request)).version
    request.opaque_data.data = "mine"
    marked = (await v1.ReplaceJob(request)).version

    assert (first.value, again.value, marked.value) == ("2-1-2", "2-1-2", "2-1-3")
    assert len(storage.updates.of_job(JOB)) == 2


async def test_patch(v1: Any, storage: Storage, running_service: str) -> None:
    """The patch changes only its own fields."""
    patch = stateless_pb2.JobSpec(instance_count=4)
    patch.default_spec.containers.add(image="web:2")
    response = await v1.PatchJob(svc.PatchJobRequest(job_id=ID, version=version(running_service), spec=patch))
    stored = stateless_pb2.JobSpec.FromString(storage.configs.job_spec(JOB))

    expected = spec(4, "web:2")
    assert response.version.value == "2-1-2"
    assert stored == expected


async def test_patch_of_a_job_of_v0(v1: Any, jobs: Any, storage: Storage) -> None:
    """A job created through v0 is patched in its v1alpha form."""
    await create_v0(jobs, service_config())
    patch = stateless_pb2.JobSpec(description="serves maps")
    await v1.PatchJob(svc.PatchJobRequest(job_id=ID, version=version("1-1-1"), spec=patch))
    config = storage.configs.job_config(JOB)

    assert config is not None
    assert (config.description, config.defaultConfig.command.value) == ("serves maps", "serve")


async def test_restart(v1: Any, storage: Storage, wakes: RecordedWakes, running_service: str) -> None:
    """The restart is of the named instances that exist, or of all if none are named."""
    restart = stateless_pb2.RestartSpec(batch_size=1, ranges=ranges((1, 100)))
    response = await v1.RestartJob(
        svc.RestartJobRequest(job_id=ID, version=version(running_service), restart_spec=restart)
    )
    job = storage.jobs.get(JOB)

    assert job is not None
    update = storage.updates.get(job.update_id)
    assert update is not None
    assert (response.version.value, update.type) == ("2-1-2", UpdateType.RESTART)
    assert (update.updated, update.spec) == (frozenset({1, 2}), UpdateSpec(batch_size=1))
    assert wakes.changed == [JOB]


async def test_pause_resume_abort(v1: Any, storage: Storage, running_service: str) -> None:
    """Each call raises the workflow's part of the version; opaque data is replaced if it is given."""
    request = svc.ReplaceJobRequest(job_id=ID, version=version(running_service), spec=spec(image="web:2"))
    request.opaque_data.data = "first"
    seen = (await v1.ReplaceJob(request)).version
    paused = await v1.PauseJobWorkflow(svc.PauseJobWorkflowRequest(job_id=ID, version=seen))
    assert current(storage)[1] is UpdateState.PAUSED
    resume = svc.ResumeJobWorkflowRequest(job_id=ID, version=paused.version)
    resume.opaque_data.data = "second"
    resumed = await v1.ResumeJobWorkflow(resume)
    assert current(storage)[1] is UpdateState.INITIALIZED
    job = storage.jobs.get(JOB)
    assert job is not None
    update = storage.updates.get(job.update_id)
    assert update is not None
    aborted = await v1.AbortJobWorkflow(svc.AbortJobWorkflowRequest(job_id=ID, version=resumed.version))

    assert update.opaque_data == "second"
    assert current(storage)[1] is UpdateState.ABORTED
    assert [v.version.value for v in (paused, resumed, aborted)] == ["2-1-3", "2-1-4", "2-1-5"]


async def test_stop_and_start(v1: Any, storage: Storage, wakes: RecordedWakes, running_service: str) -> None:
    """The goals of the job and its pods change, and so does the state's part of the version."""
    stopped = await v1.StopJob(svc.StopJobRequest(job_id=ID, version=version(running_service)))
    goals = [pod.goal for pod in storage.pods.page(JOB)]
    started = await v1.StartJob(svc.StartJobRequest(job_id=ID, version=stopped.version))

    assert (stopped.version.value, started.version.value) == ("1-2-1", "1-3-1")
    assert set(goals) == {PodState.KILLED}
    assert {pod.goal for pod in storage.pods.page(JOB)} == {PodState.RUNNING}
    assert wakes.changed == [JOB, JOB]


async def test_delete(v1: Any, storage: Storage, wakes: RecordedWakes, running_service: str) -> None:
    """A forced deletion of a running service is executed by its workflow."""
    await v1.DeleteJob(svc.DeleteJobRequest(job_id=ID, version=version(running_service), force=True))
    job = storage.jobs.get(JOB)

    assert job is not None
    assert job.goal is JobState.DELETED
    assert wakes.changed == [JOB]


async def test_refresh(v1: Any, wakes: RecordedWakes, running_service: str) -> None:
    """Refresh signals the job's workflow."""
    await v1.RefreshJob(svc.RefreshJobRequest(job_id=ID))

    assert wakes.changed == [JOB]
