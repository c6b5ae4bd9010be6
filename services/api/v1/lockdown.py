"""v1alpha AdminService, and the interceptor that turns calls away while reads or writes are locked down.

What is locked is stored, so it holds in every process and outlives each of them. Locks on Kill, Launch and
GoalStateEngine are for the processes that do these things.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Protocol

import grpc
import grpc.aio

from peloton.api.service_names import JOB_MANAGER, TASK_MANAGER
from peloton.api.v1alpha.admin.svc import admin_svc_pb2 as svc
from peloton.errors import PelotonError
from services.api.calls import Calls

LOCKED_AGE_MAX_S = 1.0
"""Another process's lock-down is known here after this time at the latest."""

READS = ("Get", "Query", "List", "Browse")
WRITES = (
    "Create",
    "Delete",
    "Start",
    "Stop",
    "Restart",
    "Refresh",
    "Update",
    "Pause",
    "Resume",
    "Rollback",
    "Abort",
    "Replace",
    "Patch",
)
WATCH_SERVICE = "peloton.api.v1alpha.watch.svc.WatchService"
LOCKABLE = frozenset(
    {
        *JOB_MANAGER,
        *TASK_MANAGER,
        "peloton.api.v0.update.svc.UpdateService",
        "peloton.api.v0.volume.svc.VolumeService",
        "peloton.api.v1alpha.job.stateless.svc.JobService",
        "peloton.api.v1alpha.pod.svc.PodService",
        WATCH_SERVICE,
    }
)
"""The services of jobs. Pools and hosts can be seen and managed while jobs are locked down."""


class Lockdowns(Protocol):
    """Where locks are kept, by the name of the component."""

    def lockdowns(self) -> set[str]: ...

    def set_lockdown(self, component: str, locked: bool) -> None: ...


class Locks:
    """What is locked, read at most once in LOCKED_AGE_MAX_S."""

    def __init__(self, stored: Lockdowns, calls: Calls, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._stored = stored
        self._calls = calls
        self._clock_s = clock_s
        self._locked: frozenset[str] = frozenset()
        self._read_at_s = -LOCKED_AGE_MAX_S

    async def refusal(self, method: str) -> str:
        """Why ``/service/Method`` is turned away, or ""."""
        kind = _kind(method)
        if not kind or kind not in await self._known():
            return ""
        return f"All {kind.lower()} APIs are locked down"

    async def set(self, component: str, locked: bool) -> None:
        await self._calls.run(self._stored.set_lockdown, component, locked)
        self._read_at_s = -LOCKED_AGE_MAX_S

    async def _known(self) -> frozenset[str]:
        now_s = self._clock_s()
        if now_s - self._read_at_s >= LOCKED_AGE_MAX_S:
            self._read_at_s = now_s  # before the call: others use what was known meanwhile
            self._locked = frozenset(await self._calls.run(self._stored.lockdowns))
        return self._locked


def _kind(method: str) -> str:
    service, _, name = method.removeprefix("/").rpartition("/")
    if service not in LOCKABLE:
        return ""
    if service == WATCH_SERVICE or name.startswith(READS):
        return "Read"
    return "Write" if name.startswith(WRITES) else ""


class LockdownGate(grpc.aio.ServerInterceptor):
    """Inside ErrorsToStatus, which tells the refusal."""

    def __init__(self, locks: Locks) -> None:
        self._locks = locks

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        handler = await continuation(handler_call_details)
        if handler is None or not _kind(handler_call_details.method):
            return handler
        refusal = await self._locks.refusal(handler_call_details.method)
        return handler if not refusal else _refusing(handler, refusal)


def _refusing(handler: Any, text: str) -> Any:
    async def answer(request: Any, context: Any) -> None:
        raise PelotonError(text)

    async def stream(request: Any, context: Any) -> Any:
        raise PelotonError(text)
        yield

    is_stream = handler.unary_stream is not None
    make: Any = grpc.unary_stream_rpc_method_handler if is_stream else grpc.unary_unary_rpc_method_handler
    return make(stream if is_stream else answer, handler.request_deserializer, handler.response_serializer)


class AdminService:
    """Never locked itself."""

    def __init__(self, locks: Locks, calls: Calls) -> None:
        self._locks = locks
        self._calls = calls

    async def Lockdown(self, request: svc.LockdownRequest, context: Any) -> svc.LockdownResponse:
        work = partial(self._set, request.components, True, "fail to lockdown some components")
        return svc.LockdownResponse(successes=await self._calls.write(request.ByteSize(), work))

    async def RemoveLockdown(self, request: svc.RemoveLockdownRequest, context: Any) -> svc.RemoveLockdownResponse:
        work = partial(self._set, request.components, False, "fail to remove lockdown for some components")
        return svc.RemoveLockdownResponse(successes=await self._calls.write(request.ByteSize(), work))

    async def _set(self, components: Iterable[int], locked: bool, failure: str) -> list[Any]:
        """Those that exist are set, whatever the others are."""
        wanted = list(dict.fromkeys(components))
        unknown = [number for number in wanted if number not in svc.Component.values()]
        known = [number for number in wanted if number in svc.Component.values()]
        for number in known:
            await self._locks.set(svc.Component.Name(number), locked)  # type: ignore[arg-type]
        if unknown:
            texts = ", ".join(f"unknown component: {number}" for number in unknown)
            raise PelotonError(f"{failure}: {texts}")
        return known
