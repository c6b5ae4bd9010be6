"""The api identifies callers and decides by the table, before a request reaches a servicer."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from peloton import files
from peloton.access.caller import CallerKind
from peloton.access.tokens import RANDOM_BYTES, make_token
from peloton.api.private import (
    bulk_reads_pb2,
    bulk_reads_pb2_grpc,
    processes_pb2,
    processes_pb2_grpc,
    publisher_pb2,
    publisher_pb2_grpc,
)
from peloton.api.v0.access import access_pb2, access_pb2_grpc
from peloton.api.v0.history import history_pb2, history_pb2_grpc
from peloton.api.v0.job import job_pb2
from peloton.api.v0.lookup import lookup_pb2, lookup_pb2_grpc
from peloton.api.v0.migration import migration_pb2, migration_pb2_grpc
from peloton.api.v0.overview import overview_pb2
from peloton.api.v0.peloton_pb2 import JobID, VolumeID
from peloton.api.v0.short_names.job_pb2_grpc import JobManagerStub
from peloton.api.v0.table import table_pb2, table_pb2_grpc
from peloton.api.v0.volume.svc import volume_svc_pb2
from peloton.api.v0.volume.svc.volume_svc_pb2_grpc import VolumeServiceStub
from peloton.api.v1alpha.admin.svc import admin_svc_pb2, admin_svc_pb2_grpc
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2, stateless_svc_pb2_grpc
from peloton.api.v1alpha.watch.svc import watch_svc_pb2, watch_svc_pb2_grpc
from peloton.model.ids import ROOT_POOL_ID, JobId, RespoolId
from peloton.model.migration import MigrationSpec
from peloton.model.resources import UNLIMITED
from peloton.model.times import NS_PER_S
from peloton.model.volume import VolumeRecord, VolumeSpec
from services.access import gate
from services.access.access import Access, Authenticators, SignInPlace
from services.access.basic import BasicUsers
from services.access.bindings import BindingsFile
from services.access.compose import find_certified
from services.access.quotas import Quotas
from services.access.role_token import RoleToken, TokenTransport
from services.access.tokens import Tokens
from services.api.server import start
from services.api.visible_problems import list_visible
from services.storage.pods.host_pods import LaunchRow
from services.storage.storage import Storage
from services.tls.transport import PLAINTEXT
from tests.simulation.pool_changes import config_of
from tests.unit.api_service.conftest import pool
from tests.unit.api_service.fakes import OneSandbox, RecordedWakes
from tests.unit.api_service.services import spec
from tests.unit.api_service.story import LEAF

BINDINGS = """
[[binding]]
role = "reader"
subjects = ["user:rita"]
pools = ["/eng"]

[[binding]]
role = "submitter"
subjects = ["group:maps"]
pools = ["/eng/maps"]

[[binding]]
role = "submitter"
subjects = ["user:otto"]
pools = ["/ads"]

[[binding]]
role = "admin"
subjects = ["user:ada"]

[[binding]]
role = "proxy"
subjects = ["user:web"]
"""
USERS = """
users:
- {username: old, password: secret, role: batch}
roles:
- {role: batch, accept: ["peloton.api.v0.job.JobManager:*"], reject: ["peloton.api.v0.job.JobManager:Delete"]}
"""
ROLE_SECRET = "r" * 40
Metadata = Sequence[tuple[str, str]]


class Cluster:
    """An api that asks for credentials."""

    def __init__(self, folder: Path, port: int, tokens: dict[str, str]) -> None:
        self.folder, self.port, self.tokens = folder, port, tokens
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
        self.jobs: Any = JobManagerStub(self.channel)
        self.access: Any = access_pb2_grpc.AccessServiceStub(self.channel)
        self.admin: Any = admin_svc_pb2_grpc.AdminServiceStub(self.channel)

    def of(self, name: str) -> Metadata:
        return (("authorization", f"Bearer {self.tokens[name]}"),)


async def code_of(call: Awaitable[Any]) -> tuple[str, str]:
    """Return the code and the text of a call's refusal; OK without one."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code().name, error.details() or ""
    return "OK", ""


def job(pool: str = LEAF) -> job_pb2.CreateRequest:
    request = job_pb2.CreateRequest()
    request.config.name = "j"
    request.config.instanceCount = 1
    request.config.respoolID.value = pool
    request.config.defaultConfig.command.value = "true"
    return request


@pytest.fixture
async def cluster(storage: Storage, tmp_path: Path) -> AsyncIterator[Cluster]:
    tokens, lines = {}, []
    for name, groups in (("rita", ()), ("mia", ("maps",)), ("otto", ()), ("ada", ()), ("web", ())):
        life_s = 1e6 if name == "mia" else 0.0
        tokens[name], row = make_token(name, CallerKind.USER, groups, life_s, time.time(), os.urandom(RANDOM_BYTES))
        lines.append(row.to_line())
    expired, row = make_token("rita", CallerKind.USER, (), 1.0, 1_000.0, os.urandom(RANDOM_BYTES))
    tokens["expired"] = expired
    (tmp_path / "tokens").write_text("\n".join([*lines, row.to_line()]))
    (tmp_path / "roles.toml").write_text(BINDINGS)
    (tmp_path / "users.yaml").write_text(USERS)
    transport = TokenTransport(PLAINTEXT, RoleToken(ROLE_SECRET))
    access = Access(
        Authenticators(
            tokens=Tokens(str(tmp_path / "tokens")),
            basic=BasicUsers(str(tmp_path / "users.yaml")),
            bindings=BindingsFile(str(tmp_path / "roles.toml")),
            certified=find_certified(transport),
            sign_in=SignInPlace("https://issuer.example", "cli"),
        )
    )
    server = await start(
        storage,
        RecordedWakes(),
        lambda _: None,
        "127.0.0.1:0",
        OneSandbox(),
        access=access,
        transport=transport,
        quotas=Quotas(submissions_per_minute=3),
    )
    cluster = Cluster(tmp_path, server.port, tokens)
    yield cluster
    await cluster.channel.close()
    await server.stop(0)


async def test_a_call_without_credentials_is_refused(cluster: Cluster) -> None:
    """A call without credentials is refused."""
    code, text = await code_of(cluster.jobs.Get(job_pb2.GetRequest()))
    assert ("UNAUTHENTICATED", True) == (code, "needs credentials" in text)


async def test_the_caller_learns_its_identity(cluster: Cluster) -> None:
    """Callers without credentials learn where to sign in, and others when theirs expire."""
    mia = await cluster.access.WhoAmI(access_pb2.WhoAmIRequest(), metadata=cluster.of("mia"))
    assert ("mia", "user", ["maps"], True) == (mia.name, mia.kind, list(mia.groups), mia.is_enforced)
    assert [("submitter", "/eng/maps")] == [(one.role, one.pool) for one in mia.grants]
    nobody = await cluster.access.WhoAmI(access_pb2.WhoAmIRequest())
    assert ("anonymous", [], "") == (nobody.kind, list(nobody.grants), nobody.expires_at)
    assert ("https://issuer.example", "cli") == (nobody.sign_in.issuer, nobody.sign_in.client_id)
    own = [(one.name, one.limit, one.rule) for one in mia.quotas]
    assert [("submissions_per_minute", 3, "PELOTON_QUOTA_SUBMISSIONS_PER_MINUTE")] == own
    assert 9e5 < datetime.fromisoformat(mia.expires_at).timestamp() - time.time() < 1e6


async def test_callers_end_sessions_of_their_own(cluster: Cluster) -> None:
    """A session is refused for the caller that has ended it, and for no other one."""

    async def who(name: str, session: str) -> tuple[str, str]:
        request = access_pb2.WhoAmIRequest(session=session)
        return await code_of(cluster.access.WhoAmI(request, metadata=cluster.of(name)))

    end = access_pb2.SignOutRequest(session="s1", expires_ns=time.time_ns() + 60 * NS_PER_S)
    await cluster.access.SignOut(end)  # anonymous: it has none
    assert "OK" == (await who("mia", "s1"))[0]
    await cluster.access.SignOut(end, metadata=cluster.of("mia"))
    assert ("UNAUTHENTICATED", True) == ((found := await who("mia", "s1"))[0], "the session has ended" in found[1])
    assert ["OK"] * 3 == [(await who(*asked))[0] for asked in (("mia", "s2"), ("rita", "s1"), ("mia", ""))]


@pytest.mark.parametrize(
    ("session", "ahead_s", "fault"),
    [("s" * 65, 60, "has 65 characters, at most 64"), ("s", 9 * 86_400, "want at most 691,200")],
)
async def test_sessions_that_cannot_be_are_refused(cluster: Cluster, session: str, ahead_s: int, fault: str) -> None:
    """The size of what is kept of a session is bounded, and so is the time."""
    request = access_pb2.SignOutRequest(session=session, expires_ns=time.time_ns() + ahead_s * NS_PER_S)
    code, text = await code_of(cluster.access.SignOut(request, metadata=cluster.of("mia")))
    assert ("INVALID_ARGUMENT", True) == (code, fault in text), text


async def test_jobs_are_created_where_the_caller_has_the_role(cluster: Cluster) -> None:
    """Jobs are created where the caller has the role."""
    answers = [await code_of(cluster.jobs.Create(job(), metadata=cluster.of(name))) for name in ("rita", "otto")]
    assert ["PERMISSION_DENIED"] * 2 == [code for code, _ in answers]
    assert "it needs role submitter on pool '/eng/maps', and the caller has reader on /eng" in answers[0][1]
    made = await cluster.jobs.Create(job(), metadata=cluster.of("mia"))
    get = job_pb2.GetRequest(id=made.jobId)
    found = [(await code_of(cluster.jobs.Get(get, metadata=cluster.of(name))))[0] for name in ("rita", "mia", "otto")]
    assert ["OK", "OK", "PERMISSION_DENIED"] == found
    delete = job_pb2.DeleteRequest(id=made.jobId)
    assert "PERMISSION_DENIED" == (await code_of(cluster.jobs.Delete(delete, metadata=cluster.of("rita"))))[0]


async def test_only_administrators_lock_the_cluster(cluster: Cluster) -> None:
    """Administrators alone lock the cluster."""
    request = admin_svc_pb2.GetLockdownRequest()
    found = [
        (await code_of(cluster.admin.GetLockdown(request, metadata=cluster.of(name))))[0] for name in ("rita", "ada")
    ]
    assert ["OK", "OK"] == found
    lock = admin_svc_pb2.LockdownRequest()
    answers = {
        name: (await code_of(cluster.admin.Lockdown(lock, metadata=cluster.of(name))))[0] for name in ("rita", "ada")
    }
    assert "PERMISSION_DENIED" == answers["rita"]
    assert "PERMISSION_DENIED" != answers["ada"]


@pytest.mark.parametrize(
    "metadata",
    [
        [("authorization", "Bearer ptk_0000000000000000_secret")],
        [("authorization", "Bearer x")],
        [("authorization", "Basic eDp5")],
        [("authorization", "Bearer ptk_" + "x" * 5_000)],
        [("username", "old"), ("password", "wrong")],
        [("username", "unknown"), ("password", "secret")],
        [("username", "old")],
        [("peloton-on-behalf-of", "ada")],
        [("authorization", "Bearer a"), ("authorization", "Bearer b")],
    ],
)
async def test_invalid_credentials_are_refused_by_every_method(cluster: Cluster, metadata: Metadata) -> None:
    """Invalid credentials are refused by every method."""
    assert "UNAUTHENTICATED" == (await code_of(cluster.access.WhoAmI(access_pb2.WhoAmIRequest(), metadata=metadata)))[0]


async def test_an_expired_token_is_named_with_its_time(cluster: Cluster) -> None:
    """An expired token is named with its time."""
    code, text = await code_of(cluster.jobs.Get(job_pb2.GetRequest(), metadata=cluster.of("expired")))
    assert ("UNAUTHENTICATED", True) == (code, text.endswith("of rita has expired at 1970-01-01T00:16:41+00:00"))


async def test_clients_of_the_original_send_user_and_password(cluster: Cluster) -> None:
    """Clients of the original send user and password."""
    metadata = (("username", "old"), ("password", "secret"))
    made = await cluster.jobs.Create(job(), metadata=metadata)
    code, text = await code_of(cluster.jobs.Delete(job_pb2.DeleteRequest(id=made.jobId), metadata=metadata))
    assert ("PERMISSION_DENIED", True) == (code, "rejects peloton.api.job.JobManager/Delete" in text)


async def test_a_proxy_calls_on_behalf_of_a_user(cluster: Cluster) -> None:
    """A proxy calls on behalf of a user."""
    behalf = ("peloton-on-behalf-of", "mia%20m"), ("peloton-on-behalf-of-groups", "maps,x")
    who = await cluster.access.WhoAmI(access_pb2.WhoAmIRequest(), metadata=(*cluster.of("web"), *behalf))
    assert ("mia m", ["maps", "x"], "web") == (who.name, list(who.groups), who.via)
    role = (("peloton-role-token", ROLE_SECRET), *behalf)
    assert "mia m" == (await cluster.access.WhoAmI(access_pb2.WhoAmIRequest(), metadata=role)).name
    refused = await code_of(cluster.access.WhoAmI(access_pb2.WhoAmIRequest(), metadata=(*cluster.of("ada"), *behalf)))
    assert ("PERMISSION_DENIED", 'user "ada" may not call on behalf of others: it needs role proxy') == refused


async def test_the_caller_asks_what_it_may_do(cluster: Cluster) -> None:
    """The caller asks what it may do."""

    async def can(name: str, method: str, pool: str = "") -> bool:
        request = access_pb2.CanIRequest(method=method, pool=pool)
        return bool((await cluster.access.CanI(request, metadata=cluster.of(name))).is_allowed)

    assert [True, False] == [await can(name, "JobManager/Create", "/eng/maps") for name in ("mia", "rita")]
    assert [True, False] == [await can("rita", "reader", pool) for pool in ("/eng/maps/", "/ads")]
    several = access_pb2.CanIRequest(method="GetJob")
    assert "INVALID_ARGUMENT" == (await code_of(cluster.access.CanI(several, metadata=cluster.of("mia"))))[0]
    unknown = access_pb2.CanIRequest(method="Fly")
    assert "NOT_FOUND" == (await code_of(cluster.access.CanI(unknown, metadata=cluster.of("mia"))))[0]


async def test_too_many_failures_of_a_peer_are_refused(cluster: Cluster) -> None:
    """Too many failures of a peer are refused."""
    bad = (("authorization", "Bearer x"),)
    await cluster.access.WhoAmI(access_pb2.WhoAmIRequest(), metadata=cluster.of("mia"))
    codes = [(await code_of(cluster.access.WhoAmI(access_pb2.WhoAmIRequest(), metadata=bad)))[0] for _ in range(40)]
    assert "RESOURCE_EXHAUSTED" in codes[20:]
    assert "OK" == (await code_of(cluster.access.WhoAmI(access_pb2.WhoAmIRequest(), metadata=cluster.of("mia"))))[0]


async def test_private_calls_need_a_process_of_peloton(cluster: Cluster) -> None:
    """Administrators cannot make them, and the channel of a process carries the secret."""
    request = publisher_pb2.LeaseRequest(owner="x", ttl_s=1)
    lease: Any = publisher_pb2_grpc.EventPublisherStub(cluster.channel)
    assert "PERMISSION_DENIED" == (await code_of(lease.Lease(request, metadata=cluster.of("ada"))))[0]
    report = processes_pb2.AnnounceRequest(process="h:1", role="web")
    reports: Any = processes_pb2_grpc.ProcessesStub(cluster.channel)
    assert "PERMISSION_DENIED" == (await code_of(reports.Announce(report, metadata=cluster.of("ada"))))[0]
    transport = TokenTransport(PLAINTEXT, RoleToken(ROLE_SECRET))
    async with transport.open_async(f"127.0.0.1:{cluster.port}", ()) as channel:
        own: Any = publisher_pb2_grpc.EventPublisherStub(channel)
        await processes_pb2_grpc.ProcessesStub(channel).Announce(report)
        assert (await own.Lease(request)).holds
        assert "role" == (await access_pb2_grpc.AccessServiceStub(channel).WhoAmI(access_pb2.WhoAmIRequest())).kind
    with transport.open(f"127.0.0.1:{cluster.port}", ()) as blocking:
        stub: Any = access_pb2_grpc.AccessServiceStub(blocking)
        assert "role" == (await asyncio.to_thread(stub.WhoAmI, access_pb2.WhoAmIRequest())).kind


async def test_lists_have_only_what_the_caller_may_read(cluster: Cluster, storage: Storage) -> None:
    """A pool whose path is unknown filters nothing in v1alpha, and shows no more for that."""
    other = RespoolId("77777777-7777-7777-7777-777777777777")
    storage.pools.put(other, config_of(pool(other, ROOT_POOL_ID, "ads", UNLIMITED)))
    made = {}
    for respool_id in (LEAF, other):
        made[respool_id] = (await cluster.jobs.Create(job(respool_id), metadata=cluster.of("ada"))).jobId.value
    table: Any = table_pb2_grpc.JobTableServiceStub(cluster.channel)
    lookup: Any = lookup_pb2_grpc.LookupServiceStub(cluster.channel)
    services: Any = stateless_svc_pb2_grpc.JobServiceStub(cluster.channel)
    v1_query = stateless_svc_pb2.QueryJobsRequest()
    v1_query.spec.respool.value = "/eng/typo"
    v0_query = job_pb2.QueryRequest()
    v0_query.spec.SetInParent()

    async def list_all(name: str) -> list[set[str]]:
        metadata = cluster.of(name)
        rows = await table.ListJobs(table_pb2.ListJobsRequest(), metadata=metadata)
        found = await lookup.FindJobs(lookup_pb2.FindJobsRequest(text="j", begins=True), metadata=metadata)
        v0 = await cluster.jobs.Query(v0_query, metadata=metadata)
        stream = services.ListJobs(stateless_svc_pb2.ListJobsRequest(), metadata=metadata)
        return [
            {row.id.value for row in rows.jobs},
            {one.id.value for one in found.jobs},
            {one.id.value for one in v0.records},
            {one.job_id.value async for answer in stream for one in answer.jobs},
        ]

    assert [{made[LEAF], made[other]}] * 4 == await list_all("ada")
    assert [{made[LEAF]}] * 4 == await list_all("rita")
    assert [{made[other]}] * 4 == await list_all("otto")
    v1 = await services.QueryJobs(v1_query, metadata=cluster.of("rita"))
    assert {made[LEAF]} >= {one.job_id.value for one in v1.records}
    wanted = table_pb2.ListJobsRequest(filter=table_pb2.JobFilter(pool="/ads"))
    code, text = await code_of(table.ListJobs(wanted, metadata=cluster.of("rita")))
    assert ("PERMISSION_DENIED", True) == (code, "on pool '/ads'" in text)


async def test_bulk_reads_of_the_bridge_show_what_its_client_may_read(cluster: Cluster, storage: Storage) -> None:
    """The bridge passes the credentials of its client on: jobs of other pools are left out, also a newer one of the
    same name, and their pods are refused."""
    other = RespoolId("77777777-7777-7777-7777-777777777777")
    storage.pools.put(other, config_of(pool(other, ROOT_POOL_ID, "ads", UNLIMITED)))
    services: Any = stateless_svc_pb2_grpc.JobServiceStub(cluster.channel)
    made = {}
    for respool_id in (LEAF, other):
        wanted = spec(1)
        wanted.respool_id.value = respool_id
        request = stateless_svc_pb2.CreateJobRequest(spec=wanted)
        made[respool_id] = (await services.CreateJob(request, metadata=cluster.of("ada"))).job_id.value
    transport = TokenTransport(PLAINTEXT, RoleToken(ROLE_SECRET))
    async with transport.open_async(f"127.0.0.1:{cluster.port}", ()) as channel:
        stub: Any = bulk_reads_pb2_grpc.BulkReadsStub(channel)

        async def read(names: Sequence[str], name: str) -> list[str]:
            call = stub.ListJobs(bulk_reads_pb2.ListJobsRequest(names=names), metadata=cluster.of(name))
            return [found.job_id async for batch in call for found in batch.jobs]

        for names in ((), ("web",)):
            assert [made[LEAF]] == await read(names, "rita")
            assert [made[other]] == await read(names, "otto")
        assert sorted(made.values()) == sorted(await read((), "ada"))
        pods = stub.ListPods(bulk_reads_pb2.ListPodsRequest(job_ids=[made[other]]), metadata=cluster.of("rita"))
        assert "PERMISSION_DENIED" == (await code_of(pods.read()))[0]


async def test_an_empty_path_in_a_list_stands_for_all_pools(cluster: Cluster) -> None:
    """Usage of all pools is not read by way of a list that names a pool of the caller as well."""
    history: Any = history_pb2_grpc.HistoryServiceStub(cluster.channel)
    wanted = {"own": ["/eng"], "and all": ["/eng", ""], "all": [""], "slashes": ["/eng", "//"]}
    codes = {
        name: (await code_of(history.GetUsage(history_pb2.GetUsageRequest(paths=paths), metadata=cluster.of("rita"))))[
            0
        ]
        for name, paths in wanted.items()
    }
    assert {**dict.fromkeys(wanted, "PERMISSION_DENIED"), "own": "OK"} == codes


async def test_problems_of_jobs_are_those_that_the_caller_may_read(cluster: Cluster, storage: Storage) -> None:
    """Problems of hosts name jobs, and are for those who may read all."""
    made = (await cluster.jobs.Create(job(), metadata=cluster.of("ada"))).jobId.value
    subjects: tuple[tuple[Any, str], ...] = (
        (overview_pb2.SUBJECT_KIND_JOB, made),
        (overview_pb2.SUBJECT_KIND_JOB, ""),
        (overview_pb2.SUBJECT_KIND_POOL, "/eng/maps"),
        (overview_pb2.SUBJECT_KIND_HOST, "host1"),
        (overview_pb2.SUBJECT_KIND_ROLE, "resmgr"),
        (overview_pb2.SUBJECT_KIND_ROLE, "hostmgr/main"),
        (overview_pb2.SUBJECT_KIND_ROLE, "scheduled-job/nightly-2026-01-01T00:00:00Z"),
        (overview_pb2.SUBJECT_KIND_ROLE, "migration/11111111-1111-1111-1111-111111111111"),
    )
    found = [overview_pb2.Problem(subject_kind=kind, subject_id=name) for kind, name in subjects]
    assert [made, "/eng/maps", "resmgr", "hostmgr/main"] == [
        one.subject_id for one in list_visible(found, ("/eng",), storage)
    ]
    assert ["resmgr", "hostmgr/main"] == [one.subject_id for one in list_visible(found, ("/ads",), storage)]


async def test_a_watch_shows_only_what_the_caller_may_read(cluster: Cluster) -> None:
    """A reader of another pool is not informed of a new service; naming it is refused."""
    watches: Any = watch_svc_pb2_grpc.WatchServiceStub(cluster.channel)
    services: Any = stateless_svc_pb2_grpc.JobServiceStub(cluster.channel)
    request = watch_svc_pb2.WatchRequest()
    request.stateless_job_filter.SetInParent()
    watching = {name: watches.Watch(request, metadata=cluster.of(name)) for name in ("rita", "otto")}
    for call in watching.values():
        await call.read()
    create = stateless_svc_pb2.CreateJobRequest(spec=spec())
    made = await services.CreateJob(create, metadata=cluster.of("mia"))
    seen = await asyncio.wait_for(watching["rita"].read(), 30)
    assert made.job_id == seen.stateless_jobs[0].job_id
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(watching["otto"].read(), 0.5)
    request.stateless_job_filter.job_ids.add(value=made.job_id.value)
    refused = watches.Watch(request, metadata=cluster.of("otto"))
    assert "PERMISSION_DENIED" == (await code_of(refused.read()))[0]
    for call in watching.values():
        call.cancel()


async def test_a_watch_ends_when_its_token_is_revoked(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal says that the token is unknown."""
    monkeypatch.setattr(gate, "RECHECK_S", 0.05)
    monkeypatch.setattr(files, "CHECK_S", 0.0)
    watches: Any = watch_svc_pb2_grpc.WatchServiceStub(cluster.channel)
    request = watch_svc_pb2.WatchRequest()
    request.pod_filter.SetInParent()
    call = watches.Watch(request, metadata=cluster.of("rita"))
    await call.read()
    kept = [line for line in (cluster.folder / "tokens").read_text().splitlines() if '"rita"' not in line]
    (cluster.folder / "new").write_text("\n".join(kept))
    (cluster.folder / "new").replace(cluster.folder / "tokens")
    code, text = await code_of(asyncio.wait_for(call.read(), 30))
    assert ("UNAUTHENTICATED", True) == (code, "was revoked" in text)


async def test_a_watch_ends_when_the_roles_of_its_caller_change(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watch shows what its caller might read at its beginning; clients resume it."""
    monkeypatch.setattr(gate, "RECHECK_S", 0.05)
    monkeypatch.setattr(files, "CHECK_S", 0.0)
    watches: Any = watch_svc_pb2_grpc.WatchServiceStub(cluster.channel)
    request = watch_svc_pb2.WatchRequest()
    request.pod_filter.SetInParent()
    call = watches.Watch(request, metadata=cluster.of("rita"))
    await call.read()
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(call.read(), 0.3)
    call = watches.Watch(request, metadata=cluster.of("rita"))
    await call.read()
    (cluster.folder / "new").write_text(BINDINGS.replace('pools = ["/eng"]', 'pools = ["/ads/rita"]'))
    (cluster.folder / "new").replace(cluster.folder / "roles.toml")
    code, text = await code_of(asyncio.wait_for(call.read(), 30))
    assert ("ABORTED", 'the roles of user "rita" have changed: watch again') == (code, text)


async def test_a_user_beyond_the_quota_is_refused_with_the_numbers(cluster: Cluster) -> None:
    """Another user is admitted."""
    answers = [await code_of(cluster.jobs.Create(job(), metadata=cluster.of("mia"))) for _ in range(4)]
    assert ["OK"] * 3 + ["RESOURCE_EXHAUSTED"] == [code for code, _ in answers]
    text = "user mia has created 3 jobs within a minute, which is the quota; the rule is PELOTON_QUOTA_SUBMISSIONS_PER_"
    assert answers[3][1].startswith(f"{text}MINUTE: try again in ")
    assert "OK" == (await code_of(cluster.jobs.Create(job(), metadata=cluster.of("ada"))))[0]


@pytest.fixture
def orphan(job: JobId, storage: Storage) -> VolumeRecord:
    """A volume of a deleted job of /eng/maps."""
    storage.admission.mark_pending(job, [(0, 1)], 1)
    storage.admission.mark_ready([(job, 0, 1)])
    row: LaunchRow = (0, 1, "h1", "agent-1", {})
    storage.host_pods.mark_launched(job, [row], 1, "main", {0: VolumeSpec("data", 500)})
    storage.db.write(lambda conn: [conn.exec_driver_sql(f"delete from {name}") for name in ("pod", "job")])
    return storage.volumes.page()[0]


async def test_volumes_of_a_deleted_job_stay_in_its_pool(
    cluster: Cluster, orphan: VolumeRecord, storage: Storage
) -> None:
    """A submitter of another pool neither reads nor deletes them, nor gets their data by a job of the same id."""
    ads = RespoolId("77777777-7777-7777-7777-777777777777")
    storage.pools.put(ads, config_of(pool(ads, ROOT_POOL_ID, "ads", UNLIMITED)))
    volumes: Any = VolumeServiceStub(cluster.channel)
    services: Any = stateless_svc_pb2_grpc.JobServiceStub(cluster.channel)
    volume_id, of_job = VolumeID(value=orphan.volume_id), JobID(value=orphan.job_id)
    again, service = job(ads), stateless_svc_pb2.CreateJobRequest(spec=spec(1))
    again.id.value = service.job_id.value = orphan.job_id
    service.spec.respool_id.value = ads

    def calls(name: str) -> list[Awaitable[Any]]:
        metadata = cluster.of(name)
        return [
            volumes.GetVolume(volume_svc_pb2.GetVolumeRequest(id=volume_id), metadata=metadata),
            volumes.ListVolumes(volume_svc_pb2.ListVolumesRequest(jobId=of_job), metadata=metadata),
            volumes.DeleteVolume(volume_svc_pb2.DeleteVolumeRequest(id=volume_id), metadata=metadata),
            cluster.jobs.Create(again, metadata=metadata),
            services.CreateJob(service, metadata=metadata),
        ]

    refused = [await code_of(call) for call in calls("otto")]

    assert [("PERMISSION_DENIED", True)] * 5 == [(code, "on pool '/eng/maps'" in text) for code, text in refused]
    assert ["OK"] * 3 == [(await code_of(call))[0] for call in calls("mia")[:3]]


async def test_a_migration_of_a_deleted_job_is_the_clusters(cluster: Cluster, job: JobId, storage: Storage) -> None:
    """The record has the name of the job, whose pool is not known any more."""
    moved = storage.migrations.request(storage.jobs.get(job), None, MigrationSpec("other", 1, 1, False))
    storage.db.write(lambda conn: conn.exec_driver_sql("delete from job"))
    stub: Any = migration_pb2_grpc.MigrationServiceStub(cluster.channel)
    request = migration_pb2.QueryRequest(id=moved.migration_id)

    found = [await code_of(stub.Query(request, metadata=cluster.of(name))) for name in ("otto", "mia", "ada")]

    assert ["PERMISSION_DENIED", "PERMISSION_DENIED", "OK"] == [code for code, _ in found]
