"""Topic of the volumes of all services."""

from __future__ import annotations

from typing import Any

from google.protobuf.json_format import MessageToDict

from peloton.api.v0.volume import volume_pb2
from peloton.api.v0.volume.svc import volume_svc_pb2
from services.web.api import TIMEOUT_S, Api

LIMIT = 500


async def read(api: Api, _: str) -> Any:
    """Return at most LIMIT ``volumes``, by job and instance, and ``hasMore``."""
    found: list[volume_pb2.PersistentVolumeInfo] = []
    request = volume_svc_pb2.ListVolumesRequest()
    while True:
        page = await api.volumes.ListVolumes(request, timeout=TIMEOUT_S)
        found += page.volumes.values()
        request.after = page.next
        if not page.next or len(found) >= LIMIT:
            break
    found.sort(key=lambda one: (one.jobId.value, one.instanceId, one.createTime, one.id.value))
    shown = [MessageToDict(one) for one in found[:LIMIT]]
    return {"volumes": shown, "hasMore": bool(page.next) or len(found) > LIMIT}
