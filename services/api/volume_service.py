"""VolumeService of both versions: volumes of instances of services."""

from __future__ import annotations

import time
from typing import Any

from peloton.api.convert_volume import v1_volume_info, volume_info
from peloton.api.v0.volume.svc import volume_svc_pb2 as svc
from peloton.api.v1alpha.volume.svc import volume_svc_pb2 as v1_svc
from peloton.errors import InvalidArgument, NotFound, Reason
from peloton.model.ids import parse_job_id
from peloton.model.pod import PodRecord
from peloton.model.text import quote
from peloton.model.volume import VolumeRecord
from services.api.calls import check_wanted
from services.api.servicer import Servicer, write
from services.storage.volumes.volumes import VOLUMES_PER_PAGE

_Found = list[tuple[VolumeRecord, PodRecord | None]]
"""Volumes with the pods of their instances."""


class _Volumes(Servicer):
    async def _list(self, job_id: str, after: str, only_orphaned: bool) -> tuple[_Found, str]:
        """List volumes, with the id after which the next page begins."""
        wanted = _uuid("job id", job_id) if job_id else ""
        page = await self._calls.run(self._records.volumes.page, _uuid("after", after) if after else "", wanted)
        pods = await self._calls.run(self._records.volumes.pods_of, page)
        found: _Found = [(volume, pods.get(volume.volume_id)) for volume in page]
        if only_orphaned:
            found = [(volume, pod) for volume, pod in found if pod is None]
        return found, page[-1].volume_id if len(page) == VOLUMES_PER_PAGE else ""

    async def _get(self, volume_id: str) -> tuple[VolumeRecord, PodRecord | None]:
        volume = await self._calls.run(self._records.volumes.get, _uuid("volume id", volume_id))
        if volume is None:
            raise NotFound(f"volume {volume_id} not found").because(Reason.VOLUME_NOT_FOUND, volume=volume_id)
        pods = await self._calls.run(self._records.volumes.pods_of, [volume])
        return volume, pods.get(volume.volume_id)

    async def _delete(self, volume_id: str, gives_up: bool, context: Any) -> None:
        wanted = _uuid("volume id", volume_id)
        check_wanted(context)
        volume = await self._calls.run(self._records.volumes.delete, wanted, gives_up, time.time_ns())
        self._wake.wake(volume.job_id)  # a pod may be waiting for this


class VolumeService(_Volumes):
    """v0 VolumeService."""

    async def ListVolumes(self, request: svc.ListVolumesRequest, context: Any) -> svc.ListVolumesResponse:
        found, following = await self._list(request.jobId.value, request.after, request.orphaned)
        return svc.ListVolumesResponse(
            volumes={volume.volume_id: volume_info(volume, pod) for volume, pod in found}, next=following
        )

    async def GetVolume(self, request: svc.GetVolumeRequest, context: Any) -> svc.GetVolumeResponse:
        return svc.GetVolumeResponse(result=volume_info(*await self._get(request.id.value)))

    @write
    async def DeleteVolume(self, request: svc.DeleteVolumeRequest, context: Any) -> svc.DeleteVolumeResponse:
        await self._delete(request.id.value, request.giveUp, context)
        return svc.DeleteVolumeResponse()


class VolumeServiceV1(_Volumes):
    """v1alpha VolumeService."""

    async def ListVolumes(self, request: v1_svc.ListVolumesRequest, context: Any) -> v1_svc.ListVolumesResponse:
        found, following = await self._list(request.job_id.value, request.after, request.orphaned)
        return v1_svc.ListVolumesResponse(
            volumes={volume.volume_id: v1_volume_info(volume, pod) for volume, pod in found}, next=following
        )

    async def GetVolume(self, request: v1_svc.GetVolumeRequest, context: Any) -> v1_svc.GetVolumeResponse:
        return v1_svc.GetVolumeResponse(result=v1_volume_info(*await self._get(request.volume_id.value)))

    @write
    async def DeleteVolume(self, request: v1_svc.DeleteVolumeRequest, context: Any) -> v1_svc.DeleteVolumeResponse:
        await self._delete(request.volume_id.value, request.give_up, context)
        return v1_svc.DeleteVolumeResponse()


def _uuid(what: str, text: str) -> str:
    try:
        return parse_job_id(text)  # a UUID like a job's
    except ValueError:
        raise InvalidArgument(f"{what} must be a UUID, not {quote(text)}") from None
