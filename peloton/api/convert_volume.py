"""Conversion of volumes to the wire of v0 and v1alpha."""

from __future__ import annotations

from peloton.api.convert_time import rfc3339
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.volume import volume_pb2
from peloton.api.v1alpha import peloton_pb2 as v1_peloton_pb2
from peloton.api.v1alpha.volume import volume_pb2 as v1_volume_pb2
from peloton.model.pod import PodRecord
from peloton.model.volume import VolumeRecord, VolumeState

VOLUME_STATE_NUMBERS: dict[VolumeState, int] = {s: volume_pb2.VolumeState.Value(s.value) for s in VolumeState}


def volume_info(volume: VolumeRecord, pod: PodRecord | None) -> volume_pb2.PersistentVolumeInfo:
    """Convert a volume. ``pod``: current pod of its instance, or None."""
    return volume_pb2.PersistentVolumeInfo(
        id=peloton_pb2.VolumeID(value=volume.volume_id),
        jobId=peloton_pb2.JobID(value=volume.job_id),
        instanceId=volume.instance_id,
        hostname=volume.host,
        state=VOLUME_STATE_NUMBERS[volume.state],  # type: ignore[arg-type]
        goalState=VOLUME_STATE_NUMBERS[volume.goal],  # type: ignore[arg-type]
        sizeMB=volume.size_mib,
        containerPath=volume.container_path,
        createTime=rfc3339(volume.created_ns),
        updateTime=rfc3339(volume.changed_ns),
        cluster=volume.cluster,
        message=volume.note,
        podName=volume.pod_name if pod is not None and volume.is_wanted else "",
        podState=pod.state.public.value if pod is not None and volume.is_wanted else "",
        respoolID=volume.respool_id,
    )


def v1_volume_info(volume: VolumeRecord, pod: PodRecord | None) -> v1_volume_pb2.PersistentVolumeInfo:
    return v1_volume_pb2.PersistentVolumeInfo(
        volume_id=v1_peloton_pb2.VolumeID(value=volume.volume_id),
        pod_name=v1_peloton_pb2.PodName(value=volume.pod_name),
        hostname=volume.host,
        state=VOLUME_STATE_NUMBERS[volume.state],  # type: ignore[arg-type]
        desired_state=VOLUME_STATE_NUMBERS[volume.goal],  # type: ignore[arg-type]
        size_mb=volume.size_mib,
        container_path=volume.container_path,
        create_time=rfc3339(volume.created_ns),
        update_time=rfc3339(volume.changed_ns),
        cluster=volume.cluster,
        message=volume.note,
        is_orphaned=pod is None or not volume.is_wanted,
    )
