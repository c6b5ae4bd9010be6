"""v1alpha AdminService: locks and unlocks components."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from peloton.api.v1alpha.admin.svc import admin_svc_pb2 as svc
from peloton.errors import InvalidArgument
from services.api.calls import Calls
from services.api.servicer import write
from services.api.v1.lockdown import Locks


class AdminService:
    """Service that is never locked itself."""

    def __init__(self, locks: Locks, calls: Calls) -> None:
        self._locks = locks
        self._calls = calls

    @write
    async def Lockdown(self, request: svc.LockdownRequest, context: Any) -> svc.LockdownResponse:
        done = await self._set(request.components, True, "fail to lockdown some components")
        return svc.LockdownResponse(successes=done)

    @write
    async def RemoveLockdown(self, request: svc.RemoveLockdownRequest, context: Any) -> svc.RemoveLockdownResponse:
        done = await self._set(request.components, False, "fail to remove lockdown for some components")
        return svc.RemoveLockdownResponse(successes=done)

    async def GetLockdown(self, request: svc.GetLockdownRequest, context: Any) -> svc.GetLockdownResponse:
        locked = await self._locks.all()
        return svc.GetLockdownResponse(components=sorted(map(svc.Component.Value, locked)))

    async def _set(self, components: Iterable[int], locked: bool, failure: str) -> list[Any]:
        """Lock or unlock the known components, even if others are unknown."""
        wanted = list(dict.fromkeys(components))
        unknown = [number for number in wanted if number not in svc.Component.values()]
        known = [number for number in wanted if number in svc.Component.values()]
        for number in known:
            await self._locks.set(svc.Component.Name(number), locked)  # type: ignore[arg-type]
        if unknown:
            texts = ", ".join(f"unknown component: {number}" for number in unknown)
            raise InvalidArgument(f"{failure}: {texts}")
        return known
