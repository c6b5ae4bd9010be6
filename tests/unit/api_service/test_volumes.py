"""The VolumeService of both versions."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio
import pytest

from peloton.api import convert
from peloton.api.convert import POD_STATE_NUMBERS
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.v0.volume import volume_pb2
from peloton.api.v0.volume.svc import volume_svc_pb2 as svc
from peloton.api.v0.volume.svc.volume_svc_pb2_grpc import VolumeServiceStub
from peloton.api.v1alpha import peloton_pb2 as v1_peloton_pb2
from peloton.api.v1alpha.pod.svc import pod_svc_pb2 as pod_svc
from peloton.api.v1alpha.volume import volume_pb2 as v1_volume_pb2
from peloton.api.v1alpha.volume.svc import volume_svc_pb2 as v1_svc
from peloton.api.v1alpha.volume.svc.volume_svc_pb2_grpc import VolumeServiceStub as VolumeServiceV1Stub
from peloton.model.ids import JobId
from peloton.model.pod import PodState
from peloton.model.volume import VolumeRecord, VolumeSpec, VolumeState
from services.api import volume_service
from services.storage.pods.host_pods import LaunchRow
from services.storage.storage import Storage
from services.storage.volumes import volumes as repository
from tests.unit.api_service.fakes import RecordedWakes
from tests.unit.api_service.story import ID, JOB, NOW_NS, expect_refusal

TIME = "2023-11-14T22:13:20Z"


@pytest.fixture
def v0(channel: grpc.aio.Channel) -> Any:
    return VolumeServiceStub(channel)


@pytest.fixture
def v1(channel: grpc.aio.Channel) -> Any:
    return VolumeServiceV1Stub(channel)


@pytest.fixture
def volumes(job: JobId, storage: Storage) -> list[VolumeRecord]:
    """Create the volumes of the instances 0 and 1, which are LAUNCHED on h1."""
    storage.admission.mark_pending(JOB, [(i, 1) for i in (0, 1)], 1)
    storage.admission.mark_ready([(JOB, 0, 2)])
    rows: list[LaunchRow] = [(i, 1, "h1", "agent-1", {}) for i in (0, 1)]
    storage.host_pods.mark_launched(JOB, rows, NOW_NS, "main", dict.fromkeys((0, 1), VolumeSpec("data", 500)))
    return sorted(storage.volumes.page(), key=lambda volume: volume.instance_id)


async def test_get(v0: Any, v1: Any, volumes: list[VolumeRecord], storage: Storage) -> None:
    """The answer has the volume and its pod."""
    first = volumes[0].volume_id
    storage.volumes.note({first: (VolumeState.LOST, "its host is gone")}, NOW_NS)

    answer = await v0.GetVolume(svc.GetVolumeRequest(id=peloton_pb2.VolumeID(value=first)))
    answer_v1 = await v1.GetVolume(v1_svc.GetVolumeRequest(volume_id=v1_peloton_pb2.VolumeID(value=first)))

    assert answer.result == volume_pb2.PersistentVolumeInfo(
        id=peloton_pb2.VolumeID(value=first), jobId=ID, instanceId=0, hostname="h1", state=volume_pb2.LOST,
        goalState=volume_pb2.CREATED, sizeMB=500, containerPath="data", createTime=TIME, updateTime=TIME,
        cluster="main", message="its host is gone", podName=f"{JOB}-0", podState="LAUNCHED",
        respoolID=volumes[0].respool_id,
    )  # fmt: skip
    assert answer_v1.result == v1_volume_pb2.PersistentVolumeInfo(
        volume_id=v1_peloton_pb2.VolumeID(value=first), pod_name=v1_peloton_pb2.PodName(value=f"{JOB}-0"),
        hostname="h1", state=v1_volume_pb2.VOLUME_STATE_LOST, desired_state=v1_volume_pb2.VOLUME_STATE_CREATED,
        size_mb=500, container_path="data", create_time=TIME, update_time=TIME, cluster="main",
        message="its host is gone",
    )  # fmt: skip


async def test_list(v0: Any, v1: Any, volumes: list[VolumeRecord]) -> None:
    """The list is of one job or of all, by ids."""
    ids = {volume.volume_id for volume in volumes}
    other = peloton_pb2.JobID(value="00000000-0000-4000-8000-000000000000")

    assert ids == set((await v0.ListVolumes(svc.ListVolumesRequest())).volumes)
    assert ids == set((await v0.ListVolumes(svc.ListVolumesRequest(jobId=ID))).volumes)
    assert ids == set((await v1.ListVolumes(v1_svc.ListVolumesRequest())).volumes)
    assert not (await v0.ListVolumes(svc.ListVolumesRequest(jobId=other))).volumes
    assert not (await v0.ListVolumes(svc.ListVolumesRequest(orphaned=True))).volumes


async def test_a_long_list_comes_in_pages(
    v0: Any, v1: Any, volumes: list[VolumeRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each page has the token of the next one."""
    for module in (repository, volume_service):
        monkeypatch.setattr(module, "VOLUMES_PER_PAGE", 1)
    ids = sorted(volume.volume_id for volume in volumes)

    first = await v0.ListVolumes(svc.ListVolumesRequest())
    second = await v1.ListVolumes(v1_svc.ListVolumesRequest(after=first.next))
    last = await v0.ListVolumes(svc.ListVolumesRequest(after=second.next))

    assert (ids, ids[1], {}) == ([*first.volumes, *second.volumes], second.next, dict(last.volumes))


async def test_delete(v0: Any, v1: Any, volumes: list[VolumeRecord], storage: Storage, wakes: RecordedWakes) -> None:
    """The deletion of a used volume is refused, even with giveUp; later the volume's goal is DELETED and its job is
    signalled."""
    ids = [volume.volume_id for volume in volumes]
    request = svc.DeleteVolumeRequest(id=peloton_pb2.VolumeID(value=ids[0]), giveUp=True)
    code, text = await expect_refusal(v0.DeleteVolume(request))
    assert (grpc.StatusCode.ABORTED, True) == (code, f"pod {JOB}-0-1 is LAUNCHED on host h1" in (text or ""))
    killed = POD_STATE_NUMBERS[PodState.KILLED]
    storage.db.write(lambda conn: conn.exec_driver_sql(f"update pod set state = {killed}, goal = {killed}"))

    await v0.DeleteVolume(svc.DeleteVolumeRequest(id=peloton_pb2.VolumeID(value=ids[0])))
    await v1.DeleteVolume(v1_svc.DeleteVolumeRequest(volume_id=v1_peloton_pb2.VolumeID(value=ids[1])))

    assert {VolumeState.DELETED} == {volume.goal for volume in storage.volumes.page()}
    assert [JOB, JOB] == wakes.changed[-2:]


async def test_orphans(v0: Any, v1: Any, volumes: list[VolumeRecord], storage: Storage) -> None:
    """Volumes of a deleted job are listed, and marked as orphaned."""
    storage.db.write(lambda conn: conn.exec_driver_sql("delete from pod"))

    answer = await v0.ListVolumes(svc.ListVolumesRequest(orphaned=True))
    answer_v1 = await v1.ListVolumes(v1_svc.ListVolumesRequest(orphaned=True))

    assert {volume.volume_id for volume in volumes} == set(answer.volumes) == set(answer_v1.volumes)
    assert {""} == {one.podName for one in answer.volumes.values()}
    assert {True} == {one.is_orphaned for one in answer_v1.volumes.values()}


@pytest.mark.parametrize("method", ["GetVolume", "DeleteVolume"])
async def test_faults(v0: Any, method: str) -> None:
    """A malformed id and an unknown one are refused."""
    request = getattr(svc, f"{method}Request")
    unknown = "00000000-0000-4000-8000-000000000000"

    for text, code, reported in (
        ("x", grpc.StatusCode.INVALID_ARGUMENT, "volume id must be a UUID, not 'x'"),
        (unknown, grpc.StatusCode.NOT_FOUND, f"volume {unknown} not found"),
    ):
        assert (code, reported) == await expect_refusal(
            getattr(v0, method)(request(id=peloton_pb2.VolumeID(value=text)))
        )
    assert (
        grpc.StatusCode.INVALID_ARGUMENT
        is (await expect_refusal(v0.ListVolumes(svc.ListVolumesRequest(jobId=peloton_pb2.JobID(value="x")))))[0]
    )


async def test_tasks_and_pods_name_their_volumes(tasks: Any, pods: Any, config: Any, storage: Storage) -> None:
    """An instance with a volume has its id; an instance that was never launched has none."""
    wanted = config(2, type=job_pb2.SERVICE)
    wanted.defaultConfig.volume.containerPath, wanted.defaultConfig.volume.sizeMB = "data", 500
    storage.jobs.create(convert.new_job_record(JOB, wanted, NOW_NS), wanted, NOW_NS)
    storage.pods.create(JOB, lambda _: None)
    storage.admission.mark_pending(JOB, [(0, 1)], 1)
    storage.admission.mark_ready([(JOB, 0, 1)])
    rows: list[LaunchRow] = [(0, 1, "h1", "agent-1", {})]
    storage.host_pods.mark_launched(JOB, rows, NOW_NS, "main", {0: VolumeSpec("data", 500)})
    [volume] = storage.volumes.page()

    listed = (await tasks.List(task_pb2.ListRequest(jobId=ID))).result.value
    name = v1_peloton_pb2.PodName(value=f"{JOB}-0")
    pod = await pods.GetPod(pod_svc.GetPodRequest(pod_name=name))

    assert [volume.volume_id, ""] == [listed[instance].runtime.volumeID.value for instance in (0, 1)]
    assert volume.volume_id == pod.current.status.volume_id.value
