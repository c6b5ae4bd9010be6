"""The api notes changes and refusals in the audit log, with caller, object and result."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from peloton.access.audit import Draft, Verification
from peloton.access.caller import CallerKind
from peloton.access.tokens import RANDOM_BYTES, make_token
from peloton.api.v0.audit import audit_pb2, audit_pb2_grpc
from peloton.api.v0.job import job_pb2
from peloton.api.v0.short_names.job_pb2_grpc import JobManagerStub
from peloton.api.v1alpha.admin.svc import admin_svc_pb2, admin_svc_pb2_grpc
from services.access.access import Access, Authenticators, anonymous_with
from services.access.bindings import BindingsFile
from services.access.compose import find_certified
from services.access.role_token import RoleToken, TokenTransport
from services.access.tokens import Tokens
from services.api.server import ApiServer, start
from services.audit import recorder
from services.audit.recorder import AuditMode, Recorder
from services.storage.audit.audit_log import AuditFilter
from services.storage.storage import Storage
from services.tls.transport import PLAINTEXT
from tests.unit.api_service.fakes import OneSandbox, RecordedWakes
from tests.unit.api_service.test_access import BINDINGS, code_of, job

CREATE = "peloton.api.job.JobManager/Create"
Metadata = tuple[tuple[str, str], ...]

ROLE_SECRET = "r" * 40


class Cluster:
    def __init__(self, storage: Storage, server: ApiServer, tokens: dict[str, str]) -> None:
        self.storage, self.server, self.tokens = storage, server, tokens
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{server.port}")
        self.jobs: Any = JobManagerStub(self.channel)
        self.admin: Any = admin_svc_pb2_grpc.AdminServiceStub(self.channel)
        self.audit: Any = audit_pb2_grpc.AuditServiceStub(self.channel)

    def of(self, name: str) -> Metadata:
        return (("authorization", f"Bearer {self.tokens[name]}"),)

    async def drafts(self) -> list[Draft]:
        """Return what has been written once the api has stopped, without the entries about the log itself."""
        await self.server.stop(0)
        entries = self.storage.audit.page(AuditFilter())
        check = Verification()
        for entry in entries:
            check.add(entry)
        assert ("", []) == (check.fault, check.find_running())
        return [entry.draft for entry in entries if not entry.draft.method.startswith("audit/")]


@pytest.fixture
async def cluster(storage: Storage, tmp_path: Path) -> AsyncIterator[Cluster]:
    tokens, lines = {}, []
    for name, groups in (("rita", ()), ("mia", ("maps",)), ("ada", ()), ("web", ())):
        tokens[name], row = make_token(name, CallerKind.USER, groups, 0.0, time.time(), os.urandom(RANDOM_BYTES))
        lines.append(row.to_line())
    (tmp_path / "tokens").write_text("\n".join(lines))
    (tmp_path / "roles.toml").write_text(BINDINGS)
    transport = TokenTransport(PLAINTEXT, RoleToken(ROLE_SECRET))
    by = Authenticators(
        certified=find_certified(transport),
        tokens=Tokens(str(tmp_path / "tokens")),
        bindings=BindingsFile(str(tmp_path / "roles.toml")),
    )
    server = await start(
        storage, RecordedWakes(), lambda _: None, "127.0.0.1:0", OneSandbox(),
        access=Access(by), transport=transport, recorder=Recorder(storage.audit, AuditMode.REQUIRED),
    )  # fmt: skip
    cluster = Cluster(storage, server, tokens)
    yield cluster
    await cluster.channel.close()
    await server.stop(0)


async def test_changes_and_refusals_of_users_are_noted(cluster: Cluster) -> None:
    """Entries name caller, object and result; reads leave none."""
    made = await cluster.jobs.Create(job(), metadata=cluster.of("mia"))
    await code_of(cluster.jobs.Create(job(), metadata=cluster.of("rita")))
    await code_of(cluster.jobs.Get(job_pb2.GetRequest(id=made.jobId), metadata=cluster.of("rita")))
    lock = admin_svc_pb2.LockdownRequest(components=[admin_svc_pb2.Component.Value("Kill")])
    await cluster.admin.Lockdown(lock, metadata=cluster.of("ada"))

    create, refused, locked = await cluster.drafts()
    assert ("mia", "user", CREATE, "OK") == (create.caller, create.kind, create.method, create.result)
    assert f"job {made.jobId.value}, pool {job().config.respoolID.value}" == create.object
    assert (64, True, True) == (len(create.digest), bool(create.token_id), "127.0.0.1" in create.peer)
    assert ("rita", CREATE, "PERMISSION_DENIED") == (refused.caller, refused.method, refused.result)
    assert "it needs role submitter on pool '/eng/maps'" in refused.reason
    assert ("ada", "components Kill", "OK") == (locked.caller, locked.object, locked.result)


async def test_the_address_of_a_user_is_taken_from_roles_alone(cluster: Cluster) -> None:
    """The pages name the address of their viewer, with refused credentials as well; the same header of others is not
    believed."""
    client = ("peloton-client-address", "203.0.113.7")
    role = ("peloton-role-token", ROLE_SECRET)
    await cluster.jobs.Create(job(), metadata=(*cluster.of("mia"), client, role))
    await cluster.jobs.Create(job(), metadata=(*cluster.of("mia"), client))
    bad = ("authorization", "Bearer ptk_no")
    await code_of(cluster.jobs.Create(job(), metadata=(bad, client, role)))

    by_pages, by_itself, refused = await cluster.drafts()
    assert by_pages.peer.startswith("203.0.113.7 via ipv4:127.0.0.1:")
    assert by_itself.peer.startswith("ipv4:127.0.0.1:")
    assert ("UNAUTHENTICATED", True) == (refused.result, refused.peer.startswith("203.0.113.7 via "))


async def test_a_call_on_behalf_names_both(cluster: Cluster) -> None:
    """The entry names the user and the caller that called for it."""
    behalf = (("peloton-on-behalf-of", "mia"), ("peloton-on-behalf-of-groups", "maps"))
    await cluster.jobs.Create(job(), metadata=(*cluster.of("web"), *behalf))

    assert [("mia", "web")] == [(draft.caller, draft.via) for draft in await cluster.drafts()]


async def test_an_error_inside_of_an_answer_is_the_result(cluster: Cluster) -> None:
    """The v0 API has errors in answers with code OK."""
    await cluster.jobs.Create(job("no-such-pool"), metadata=cluster.of("ada"))

    assert ["invalidConfig"] == [draft.result for draft in await cluster.drafts()]


async def test_invalid_credentials_are_noted_without_them(cluster: Cluster) -> None:
    """The entry has no name, and nothing of the token."""
    secret = "ptk_0000000000000000_canary"
    await code_of(cluster.jobs.Get(job_pb2.GetRequest(), metadata=(("authorization", f"Bearer {secret}"),)))
    await code_of(cluster.jobs.Get(job_pb2.GetRequest()))

    drafts = await cluster.drafts()
    assert [("", "UNAUTHENTICATED")] * 2 == [(draft.caller, draft.result) for draft in drafts]
    assert "canary" not in str(drafts)


async def test_refusals_of_anonymous_callers_do_not_fill_the_log(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of entries is bounded where anonymous callers have a role, too; the others are counted."""
    monkeypatch.setattr(recorder, "UNIDENTIFIED_PER_S", 1)
    access = Access(Authenticators(anonymous=anonymous_with("reader")))
    server = await start(
        storage, RecordedWakes(), lambda _: None, "127.0.0.1:0", OneSandbox(),
        access=access, recorder=Recorder(storage.audit, AuditMode.REQUIRED, clock_ns=lambda: 10**9),
    )  # fmt: skip
    cluster = Cluster(storage, server, {})
    assert ["UNAUTHENTICATED"] * 5 == [(await code_of(cluster.jobs.Create(job())))[0] for _ in range(5)]
    assert [CREATE] == [draft.method for draft in await cluster.drafts()]
    await cluster.channel.close()


async def test_secrets_are_not_in_the_digest(cluster: Cluster) -> None:
    """Two requests that differ in their secrets have one digest."""
    for _ in range(2):
        request = job()
        request.config.name = "same"
        request.secrets.add(path="/s").value.data = os.urandom(8).hex().encode()
        await code_of(cluster.jobs.Create(request, metadata=cluster.of("ada")))

    assert 1 == len({draft.digest for draft in await cluster.drafts()})


async def test_administrators_read_the_log(cluster: Cluster) -> None:
    """The log is for administrators; entries are there when the answer of the call is."""
    await cluster.jobs.Create(job(), metadata=cluster.of("mia"))
    wanted = audit_pb2.AuditQueryRequest(method="JobManager/Create")

    answer = await cluster.audit.Query(wanted, metadata=cluster.of("ada"))
    assert ["mia"] == [entry.caller for entry in answer.entries]
    assert "PERMISSION_DENIED" == (await code_of(cluster.audit.Query(wanted, metadata=cluster.of("mia"))))[0]
    too_many = audit_pb2.AuditQueryRequest(limit=1_001)
    assert "INVALID_ARGUMENT" == (await code_of(cluster.audit.Query(too_many, metadata=cluster.of("ada"))))[0]
