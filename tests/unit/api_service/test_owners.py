"""Jobs belong to the user who created them: shown, found, counted for quotas; events by hand name the user."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from peloton.access.caller import ANONYMOUS, Caller, CallerKind, Grant, Role
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.bulk import bulk_pb2, bulk_pb2_grpc
from peloton.api.v0.job import job_pb2
from peloton.api.v0.query import query_pb2
from peloton.api.v0.short_names.job_pb2_grpc import JobManagerStub
from peloton.api.v0.short_names.task_pb2_grpc import TaskManagerStub
from peloton.api.v0.table import table_pb2, table_pb2_grpc
from peloton.api.v0.task import task_pb2
from peloton.api.v0.update.svc import update_svc_pb2_grpc
from peloton.api.v1alpha.job.stateless.stateless_pb2 import WorkflowState
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2, stateless_svc_pb2_grpc
from peloton.model.ids import JobId, new_job_id
from peloton.model.pod import PodState, PodStatus
from peloton.model.update import UpdateAct
from services.access.access import Access, Authenticators
from services.access.quotas import Quotas, read_quotas_file
from services.api.server import start
from services.storage.jobs.search import JobQuery
from services.storage.storage import Storage
from tests.conformance.storage.services import roll
from tests.present import require
from tests.unit.api_service.fakes import OneSandbox, RecordedWakes
from tests.unit.api_service.services import spec
from tests.unit.api_service.story import Config, expect_refusal

QUOTA = 10
BY_SETTING = "the rule is PELOTON_QUOTA_ACTIVE_PODS"
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
Metadata = tuple[tuple[str, str], ...]


def of(name: str) -> Metadata:
    return (("user", name),)


class NamedCallers(Access):
    """Takes the name of the user from a header. All may do everything."""

    def __init__(self) -> None:
        super().__init__(Authenticators())

    async def identify(self, context: Any) -> Caller:
        names = [str(value) for key, value in context.invocation_metadata() if key == "user"]
        grants = (Grant(Role.ADMIN),)
        groups = tuple(str(value) for key, value in context.invocation_metadata() if key == "group")
        user = Caller(names[0] if names else "", CallerKind.USER, groups, grants=grants)
        return user if names else replace(user, kind=ANONYMOUS.kind)


class Cluster:
    def __init__(self, channel: grpc.aio.Channel, config: Config, storage: Storage) -> None:
        self.jobs: Any = JobManagerStub(channel)
        self.tasks: Any = TaskManagerStub(channel)
        self.bulk: Any = bulk_pb2_grpc.BulkServiceStub(channel)
        self.table: Any = table_pb2_grpc.JobTableServiceStub(channel)
        self.services: Any = stateless_svc_pb2_grpc.JobServiceStub(channel)
        self.updates: Any = update_svc_pb2_grpc.UpdateServiceStub(channel)
        self.config, self.storage = config, storage

    async def create(self, user: str, count: int, job_id: str = "") -> JobId:
        wire = peloton_pb2.JobID(value=job_id or new_job_id())
        request = job_pb2.CreateRequest(id=wire, config=self.config(count))
        answer = await self.jobs.Create(request, metadata=of(user) if user else ())
        assert answer.jobId.value or answer.error.HasField("alreadyExists"), answer
        return JobId(wire.value)

    async def create_service(self, user: str, count: int) -> JobId:
        request = stateless_svc_pb2.CreateJobRequest(spec=spec(count))
        return JobId((await self.services.CreateJob(request, metadata=of(user))).job_id.value)

    async def grow(self, user: str, job_id: str, count: int) -> None:
        """Scale a service, whose update ends at once."""
        job = require(self.storage.jobs.get(JobId(job_id)))
        request = stateless_svc_pb2.ReplaceJobRequest(spec=spec(count))
        request.job_id.value, request.version.value = job_id, str(job.entity_version)
        await self.services.ReplaceJob(request, metadata=of(user))
        roll(self.storage, JobId(job_id))


RULES = """
[[quota]]
subjects = ["group:maps"]
active_pods = 20
submissions_per_minute = 1

[[quota]]
subjects = ["user:eve"]
active_pods = 3
"""


@pytest.fixture
def quotas(request: pytest.FixtureRequest, tmp_path: Path) -> Quotas:
    """Quotas by the setting, or by the rules that a test gives, too."""
    if not hasattr(request, "param"):
        return Quotas(active_pods=QUOTA)
    (tmp_path / "quotas.toml").write_text(request.param)
    return Quotas(active_pods=QUOTA, file=read_quotas_file(str(tmp_path / "quotas.toml")))


@pytest.fixture
async def cluster(storage: Storage, config: Config, quotas: Quotas) -> AsyncIterator[Cluster]:
    async with serving(storage, config, quotas) as cluster:
        yield cluster


@asynccontextmanager
async def serving(storage: Storage, config: Config, quotas: Quotas) -> AsyncIterator[Cluster]:
    """Start an api over the storage."""
    server = await start(
        storage,
        RecordedWakes(),
        lambda _: None,
        "127.0.0.1:0",
        OneSandbox(),
        access=NamedCallers(),
        quotas=quotas,
    )
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield Cluster(channel, config, storage)
    await server.stop(0)


async def test_a_job_shows_its_creator(cluster: Cluster) -> None:
    """Each API shows it, and an update of another user does not change it."""
    batch, service = await cluster.create("ann", 2), await cluster.create_service("bob", 2)
    roll(cluster.storage, service)
    await cluster.grow("ann", service, 3)

    got = await cluster.jobs.Get(job_pb2.GetRequest(id=peloton_pb2.JobID(value=batch)), metadata=of("bob"))
    info = (await cluster.services.GetJob(read_of(service), metadata=of("ann"))).job_info
    rows = (await cluster.table.ListJobs(table_pb2.ListJobsRequest(), metadata=of("ann"))).jobs
    assert ("ann", "bob") == (got.jobInfo.creator, info.creator)
    assert {batch: "ann", service: "bob"} == {row.id.value: row.creator for row in rows}


async def test_jobs_are_found_by_their_creator(cluster: Cluster) -> None:
    """An anonymous caller leaves no name."""
    await cluster.create("ann", 1)
    bobs, unknown = await cluster.create("bob", 1), await cluster.create("", 1)

    found = await cluster.jobs.Query(
        job_pb2.QueryRequest(spec=job_pb2.QuerySpec(creator="bob", pagination=query_pb2.PaginationSpec())),
        metadata=of("ann"),
    )
    listed = await cluster.table.ListJobs(
        table_pb2.ListJobsRequest(filter=table_pb2.JobFilter(creator="bob")), metadata=of("ann")
    )
    got = await cluster.jobs.Get(job_pb2.GetRequest(id=peloton_pb2.JobID(value=unknown)), metadata=of("ann"))
    assert [(bobs, "bob")] == [(one.id.value, one.creator) for one in found.results]
    assert [bobs] == [row.id.value for row in listed.jobs]
    assert "" == got.jobInfo.creator


async def test_a_creation_beyond_the_quota_is_refused(cluster: Cluster) -> None:
    """The refusal names user and numbers, nothing is stored, and other users are admitted."""
    await cluster.create("ann", 7)

    refused = await expect_refusal(cluster.create("ann", 4))
    await cluster.create("ann", 3)
    await cluster.create("bob", QUOTA)

    text = "user ann has 7 active pods, and 4 more would exceed the quota of 10"
    assert (EXHAUSTED, f"{text}; {BY_SETTING}") == refused
    assert 10 == cluster.storage.search.pods_of_creator("ann")


async def test_a_repeated_creation_at_the_quota_finds_its_job(cluster: Cluster) -> None:
    """A client that has lost the answer learns that the job exists."""
    job_id = await cluster.create("ann", QUOTA)

    assert job_id == await cluster.create("ann", QUOTA, job_id)


async def test_creations_at_once_share_the_quota(cluster: Cluster) -> None:
    """Calls at the same time succeed until the quota is reached."""
    answers = await asyncio.gather(*(cluster.create("ann", 2) for _ in range(12)), return_exceptions=True)

    assert QUOTA // 2 == sum(isinstance(answer, str) for answer in answers)
    assert QUOTA == cluster.storage.search.pods_of_creator("ann")


async def test_streams_count(cluster: Cluster, config: Config) -> None:
    """A job that is created by a stream is refused at its commit."""
    start_of = bulk_pb2.CreateJobRequest()
    start_of.start.config.CopyFrom(config(QUOTA + 1))

    async def pieces() -> AsyncIterator[bulk_pb2.CreateJobRequest]:
        yield start_of
        yield bulk_pb2.CreateJobRequest(commit=bulk_pb2.Commit(config_count=0))

    refused = await expect_refusal(cluster.bulk.CreateJob(pieces(), metadata=of("ann")))

    assert (EXHAUSTED, "11 pods at once exceed the quota of user ann, 10 active pods; " + BY_SETTING) == refused


async def test_pods_that_have_succeeded_free_their_quota(cluster: Cluster) -> None:
    """A batch job counts with the pods that it still has; once it has ended, with none."""
    job_id = await cluster.create("ann", QUOTA)
    cluster.storage.pods.create(job_id, lambda _: None)
    finish(cluster.storage, job_id, 4)
    before = cluster.storage.search.pods_of_creator("ann")
    finish(cluster.storage, job_id, QUOTA)

    assert (6, 0) == (before, cluster.storage.search.pods_of_creator("ann"))


def finish(storage: Storage, job_id: JobId, count: int) -> None:
    """Let the first pods of a job succeed."""
    waiting = [pod.instance_id for pod in storage.pods.page(job_id, 0, count) if pod.state is PodState.INITIALIZED]
    storage.admission.mark_pending(job_id, [(i, 1) for i in waiting], 1)
    storage.admission.mark_ready([(job_id, i, 1) for i in waiting])
    storage.host_pods.mark_launched(job_id, [(i, 1, "h1", "agent-1", {}) for i in waiting], 1)
    pods = [pod for pod in storage.pods.page(job_id, 0, count) if pod.instance_id in waiting]
    statuses = [PodStatus(pod.pod_id, PodState.SUCCEEDED, 2, "h1", "agent-1", "") for pod in pods]
    storage.host_pods.apply_status(statuses, "main")
    storage.jobs.settle(job_id, 3)


async def test_growth_counts_for_the_creator(cluster: Cluster) -> None:
    """Another user who scales a job is refused with the name of its creator; shrinking is never refused."""
    service = await cluster.create_service("ann", 4)
    roll(cluster.storage, service)
    await cluster.create("ann", 5)

    code, text = await expect_refusal(cluster.grow("bob", service, 6))
    await cluster.grow("bob", service, 5)
    await cluster.grow("bob", service, 1)

    assert (EXHAUSTED, True) == (code, "user ann has 9 active pods, and 2 more would exceed the quota of 10" in text)


async def test_a_batch_job_grows_within_the_quota(cluster: Cluster, config: Config) -> None:
    """The creator may add instances up to the quota."""
    job_id = await cluster.create("ann", 8)
    request = job_pb2.UpdateRequest(id=peloton_pb2.JobID(value=job_id), config=config(11))

    refused = await expect_refusal(cluster.jobs.Update(request, metadata=of("ann")))
    request.config.CopyFrom(config(QUOTA))
    answer = await cluster.jobs.Update(request, metadata=of("ann"))

    assert (EXHAUSTED, "user ann has 8 active pods, and 3 more would exceed the quota of 10; " + BY_SETTING) == refused
    assert "added 2 instances" == answer.message


async def test_a_stopped_service_starts_within_the_quota(cluster: Cluster) -> None:
    """A stopped service counts for nothing, and a started one with all of its pods."""
    service = await cluster.create_service("ann", 6)
    roll(cluster.storage, service)
    cluster.storage.jobs.stop(service, 1)
    while not cluster.storage.jobs.settle(service, 2).is_finished:
        roll(cluster.storage, service)
    await cluster.create("ann", 5)

    for name in ("StartJob", "RestartJob"):
        job = require(cluster.storage.jobs.get(service))
        request = getattr(stateless_svc_pb2, f"{name}Request")()
        request.job_id.value, request.version.value = service, str(job.entity_version)
        code, text = await expect_refusal(getattr(cluster.services, name)(request, metadata=of("bob")))
        assert (EXHAUSTED, True) == (code, "user ann has 5 active pods, and 6 more" in text)


async def test_events_of_pods_name_who_stopped_them(cluster: Cluster) -> None:
    """The message of a pod that was stopped by hand ends with the user; an anonymous caller changes nothing."""
    job_id = await cluster.create("ann", 3)
    cluster.storage.pods.create(job_id, lambda _: None)
    cluster.storage.admission.mark_pending(job_id, [(i, 1) for i in range(3)], 1)
    one = task_pb2.InstanceRange(**{"from": 0, "to": 1})
    two = task_pb2.InstanceRange(**{"from": 1, "to": 2})
    wire = peloton_pb2.JobID(value=job_id)

    await cluster.tasks.Stop(task_pb2.StopRequest(jobId=wire, ranges=[one]), metadata=of("bob"))
    await cluster.tasks.Stop(task_pb2.StopRequest(jobId=wire, ranges=[two]))
    await cluster.tasks.Stop(task_pb2.StopRequest(jobId=wire), metadata=of("eve"))

    messages = [cluster.storage.pods.events(job_id, i, None, 1)[0].message for i in range(3)]
    text = "Task stop API request"
    assert [f"{text} by bob", text, f"{text} by eve"] == messages


@pytest.mark.parametrize("quotas", [RULES], indirect=True)
async def test_users_and_groups_have_quotas_of_their_own(cluster: Cluster) -> None:
    """The refusal names the rule; a member of a group keeps its rule when others scale the service."""

    async def create(user: Metadata, count: int) -> tuple[grpc.StatusCode | None, str]:
        request = stateless_svc_pb2.CreateJobRequest(spec=spec(count))
        try:
            await cluster.services.CreateJob(request, metadata=user)
        except grpc.aio.AioRpcError as error:
            return error.code(), str(error.details())
        return None, ""

    ann, eve = (*of("ann"), ("group", "maps")), of("eve")
    assert (None, "") == await create(ann, 15)
    second = await create(ann, 1)
    assert (EXHAUSTED, True) == (second[0], "which is the quota; the rule is group:maps: try again" in second[1])
    assert (EXHAUSTED, "4 pods at once exceed the quota of user eve, 3 active pods; the rule is user:eve") == (
        await create(eve, 4)
    )
    other = await create(of("bob"), QUOTA + 1)
    assert (EXHAUSTED, True) == (other[0], other[1].endswith("; the rule is PELOTON_QUOTA_ACTIVE_PODS"))
    service = cluster.storage.search.query_jobs(JobQuery(creator="ann"))[0][0].job_id
    roll(cluster.storage, service)

    await cluster.grow("bob", service, 20)
    code, text = await expect_refusal(cluster.grow("bob", service, 21))

    assert (EXHAUSTED, True) == (code, "user ann has 20 active pods, and 1 more would exceed the quota of 20" in text)


STUDENTS = """
[[quota]]
subjects = ["group:students"]
active_pods = 4
"""


@pytest.mark.parametrize("quotas", [STUDENTS], indirect=True)
@pytest.mark.parametrize("count", [0, 3])
async def test_the_groups_of_the_creator_count_at_each_api(cluster: Cluster, quotas: Quotas, count: int) -> None:
    """An api that has never seen the creator, such as one that was started again, refuses growth by others, too."""
    request = stateless_svc_pb2.CreateJobRequest(spec=spec(count))
    student = (*of("ann"), ("group", "students"))
    service = JobId((await cluster.services.CreateJob(request, metadata=student)).job_id.value)
    roll(cluster.storage, service)

    async with serving(cluster.storage, cluster.config, quotas) as other:
        await other.grow("bob", service, 4)
        code, text = await expect_refusal(other.grow("bob", service, 5))
        after = await expect_refusal(other.grow("ann", service, QUOTA + 1))

    assert (EXHAUSTED, True) == (code, text.endswith("exceed the quota of 4; the rule is group:students"))
    assert (EXHAUSTED, True) == (after[0], after[1].endswith(BY_SETTING)), "credentials of the creator itself decide"


async def test_pods_that_never_waited_name_who_stopped_them(cluster: Cluster) -> None:
    """An INITIALIZED pod ends at once: its one event has the user as well."""
    job_id = await cluster.create("ann", 3)
    cluster.storage.pods.create(job_id, lambda _: None)
    one = task_pb2.InstanceRange(**{"from": 0, "to": 1})
    two = task_pb2.InstanceRange(**{"from": 1, "to": 2})
    wire = peloton_pb2.JobID(value=job_id)

    await cluster.tasks.Stop(task_pb2.StopRequest(jobId=wire, ranges=[one]), metadata=of("bob"))
    await cluster.tasks.Stop(task_pb2.StopRequest(jobId=wire, ranges=[two]))
    await cluster.tasks.Stop(task_pb2.StopRequest(jobId=wire), metadata=of("eve"))

    events = [cluster.storage.pods.events(job_id, i, None, 1)[0] for i in range(3)]
    assert [PodState.KILLED] * 3 == [event.state for event in events]
    text = "Non-running task killed"
    assert [f"{text} by bob", text, f"{text} by eve"] == [event.message for event in events]


async def test_events_of_updates_name_who_requested_them(cluster: Cluster) -> None:
    """The start of an update, and a pause, have the user; what follows by itself has none."""
    service = await cluster.create_service("ann", 2)
    request = stateless_svc_pb2.PauseJobWorkflowRequest()
    job = require(cluster.storage.jobs.get(service))
    request.job_id.value, request.version.value = service, str(job.entity_version)
    await cluster.services.PauseJobWorkflow(request, metadata=of("bob"))
    cluster.storage.updates.steer(service, None, UpdateAct.RESUME, None, 9)
    roll(cluster.storage, service)

    events = (await cluster.services.GetJob(read_of(service), metadata=of("ann"))).workflow_info.events
    assert {"INITIALIZED": "ann", "PAUSED": "bob", "SUCCEEDED": ""}.items() <= {
        WorkflowState.Name(one.state).removeprefix("WORKFLOW_STATE_"): one.person for one in events
    }.items()


def read_of(job_id: str) -> stateless_svc_pb2.GetJobRequest:
    request = stateless_svc_pb2.GetJobRequest()
    request.job_id.value = job_id
    return request
