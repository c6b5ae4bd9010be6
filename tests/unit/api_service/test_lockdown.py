"""v1alpha AdminService: reads and writes are locked down in every process until an operator unlocks them."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio
import pytest

from peloton.api.service_names import JOB_MANAGER, JOB_SERVICE, POD_SERVICE, SERVED, UPDATE_SERVICE, WATCH_SERVICE
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.v0.update.svc import update_svc_pb2
from peloton.api.v1alpha.admin.svc import admin_svc_pb2 as svc
from peloton.api.v1alpha.admin.svc.admin_svc_pb2_grpc import AdminServiceStub
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2
from peloton.api.v1alpha.pod.svc import pod_svc_pb2
from peloton.api.v1alpha.watch.svc import watch_svc_pb2
from peloton.errors import Unavailable
from services.api.calls import Calls
from services.api.v1.lockdown import LOCKABLE, LOCKED_AGE_MAX_S, Locks
from services.storage.storage import Storage
from tests.unit.api_service.story import expect_refusal

Status = grpc.StatusCode
READS = (Status.UNAVAILABLE, "All read APIs are locked down")
WRITES = (Status.UNAVAILABLE, "All write APIs are locked down")


@pytest.fixture
def admin(channel: grpc.aio.Channel) -> Any:
    return AdminServiceStub(channel)


UNKNOWN: Any = 9


def lock(*components: svc.Component.ValueType) -> svc.LockdownRequest:
    return svc.LockdownRequest(components=components)


def unlock(*components: svc.Component.ValueType) -> svc.RemoveLockdownRequest:
    return svc.RemoveLockdownRequest(components=components)


async def call(channel: grpc.aio.Channel, service: str, method: str, request: Any) -> bytes:
    raw: Any = channel
    answer: bytes = await raw.unary_unary(f"/{service}/{method}")(request.SerializeToString())
    return answer


READ_CALLS: dict[str, tuple[str, str, Any]] = {
    "v0 get": (JOB_MANAGER[1], "Get", job_pb2.GetRequest()),
    "v0 query": (JOB_MANAGER[0], "Query", job_pb2.QueryRequest()),
    "v0 list of updates": (UPDATE_SERVICE[0], "ListUpdates", update_svc_pb2.ListUpdatesRequest()),
    "v1 get": (JOB_SERVICE[0], "GetJob", stateless_svc_pb2.GetJobRequest()),
    "v1 browse": (POD_SERVICE[0], "BrowsePodSandbox", pod_svc_pb2.BrowsePodSandboxRequest()),
    "cancel of a watch": (WATCH_SERVICE[0], "Cancel", watch_svc_pb2.CancelRequest()),
}
WRITE_CALLS: dict[str, tuple[str, str, Any]] = {
    "v0 create": (JOB_MANAGER[0], "Create", job_pb2.CreateRequest()),
    "v0 restart": ("peloton.api.task.TaskManager", "Restart", task_pb2.RestartRequest()),
    "v0 rollback": (UPDATE_SERVICE[0], "RollbackUpdate", update_svc_pb2.RollbackUpdateRequest()),
    "v1 patch": (JOB_SERVICE[0], "PatchJob", stateless_svc_pb2.PatchJobRequest()),
    "v1 resume": (JOB_SERVICE[0], "ResumeJobWorkflow", stateless_svc_pb2.ResumeJobWorkflowRequest()),
    "v1 pulse": (JOB_SERVICE[0], "PulseJobWorkflow", stateless_svc_pb2.PulseJobWorkflowRequest()),
    "v1 refresh": (POD_SERVICE[0], "RefreshPod", pod_svc_pb2.RefreshPodRequest()),
}


@pytest.mark.parametrize("name", READ_CALLS)
async def test_reads_are_locked(admin: Any, channel: grpc.aio.Channel, name: str) -> None:
    """Reads are refused; writes are not."""
    answer = await admin.Lockdown(lock(svc.Read))
    assert (list(answer.successes), list(answer.failures)) == ([svc.Read], [])

    assert await expect_refusal(call(channel, *READ_CALLS[name])) == READS
    await call(channel, *WRITE_CALLS["v0 create"])


@pytest.mark.parametrize("name", WRITE_CALLS)
async def test_writes_are_locked(admin: Any, channel: grpc.aio.Channel, name: str) -> None:
    """Writes are refused; reads are not."""
    await admin.Lockdown(lock(svc.Write))

    assert await expect_refusal(call(channel, *WRITE_CALLS[name])) == WRITES
    await call(channel, *READ_CALLS["v0 get"])


async def test_streams_are_locked(admin: Any, v1: Any, channel: grpc.aio.Channel) -> None:
    """Lists and watches are refused as well."""
    await admin.Lockdown(lock(svc.Read))
    raw: Any = channel

    assert await expect_refusal(v1.ListJobs(stateless_svc_pb2.ListJobsRequest()).read()) == READS
    assert await expect_refusal(raw.unary_stream(f"/{WATCH_SERVICE[0]}/Watch")(b"").read()) == READS


async def test_unlock(admin: Any, channel: grpc.aio.Channel) -> None:
    """All calls are accepted again; unlocking an unlocked component succeeds."""
    await admin.Lockdown(lock(svc.Read, svc.Write))
    answer = await admin.RemoveLockdown(unlock(svc.Read, svc.Write, svc.Kill))

    assert list(answer.successes) == [svc.Read, svc.Write, svc.Kill]
    await call(channel, *READ_CALLS["v0 get"])
    await call(channel, *WRITE_CALLS["v0 create"])


async def test_locks_are_stored(admin: Any, storage: Storage) -> None:
    """Storage has the locks under the names of the components, for the processes that launch and kill."""
    await admin.Lockdown(lock(svc.Kill, svc.Launch, svc.GoalStateEngine))

    assert storage.lockdowns.read_locked() == {"Kill", "Launch", "GoalStateEngine"}


async def test_the_call_of_the_original_locks_kills(admin: Any, channel: grpc.aio.Channel, storage: Storage) -> None:
    """The original's call locks Kill; request and answer are empty, and RemoveLockdown undoes it."""
    raw: Any = channel
    answer = await raw.unary_unary("/peloton.private.hostmgr.hostsvc.InternalHostService/DisableKillTasks")(b"")

    assert (b"", {"Kill"}) == (answer, storage.lockdowns.read_locked())
    await admin.RemoveLockdown(unlock(svc.Component.Kill))
    assert set() == storage.lockdowns.read_locked()


async def test_what_is_locked_can_be_asked(admin: Any, storage: Storage) -> None:
    """The status is available while reads are locked, and includes recent locks of other processes."""
    await admin.Lockdown(lock(svc.Read))
    await admin.GetLockdown(svc.GetLockdownRequest())
    storage.lockdowns.set("GoalStateEngine", True)

    assert list((await admin.GetLockdown(svc.GetLockdownRequest())).components) == [svc.GoalStateEngine, svc.Read]


@pytest.mark.parametrize(
    ("method", "request_", "text"),
    [
        ("Lockdown", lock(UNKNOWN, svc.Kill), "fail to lockdown some components: unknown component: 9"),
        ("RemoveLockdown", unlock(UNKNOWN), "fail to remove lockdown for some components: unknown component: 9"),
    ],
)
async def test_unknown_components(admin: Any, storage: Storage, method: str, request_: Any, text: str) -> None:
    """The call fails; the existing components are locked nevertheless."""
    assert await expect_refusal(getattr(admin, method)(request_)) == (Status.INVALID_ARGUMENT, text)
    assert storage.lockdowns.read_locked() == ({"Kill"} if method == "Lockdown" else set())


def test_only_services_that_exist_are_lockable() -> None:
    """Every lockable service exists, and AdminService is not lockable."""
    assert set(SERVED) > LOCKABLE
    assert not any("Admin" in service for service in LOCKABLE)


class Clock:
    """Seconds that advance only when a test sets them."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


async def test_locks_of_other_processes(storage: Storage, calls: Calls) -> None:
    """A lock of another process applies once the cached locks are too old; until then storage is not read."""
    clock = Clock()
    locks = Locks(storage.lockdowns, calls, clock)
    await locks.check("Read")
    storage.lockdowns.set("Read", True)
    await locks.check("Read")
    clock.now_s = LOCKED_AGE_MAX_S

    with pytest.raises(Unavailable, match="All read APIs are locked down"):
        await locks.check("Read")
