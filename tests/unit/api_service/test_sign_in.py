"""Sign-in to the pages: sessions, credentials in headers, and that no viewer sees what was read for another."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import grpc
import grpc.aio
import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from peloton import files
from peloton.access.caller import CallerKind
from peloton.access.tokens import RANDOM_BYTES, make_token
from peloton.api.v0.access import access_pb2
from peloton.errors import PelotonError, ResourceExhausted, Unavailable
from peloton.issuer import Flow
from peloton.lifecycle.backoff import Backoff
from services.access import ended_sessions
from services.access.access import Access, Authenticators
from services.access.bindings import BindingsFile
from services.access.compose import find_certified
from services.access.forwarded import FORWARDED
from services.access.oidc import Oidc, OidcConfig
from services.access.role_token import RoleToken, TokenTransport
from services.access.tokens import Tokens
from services.api.server import start
from services.audit.recorder import AuditMode, Recorder
from services.aurorabridge.app import create_app as create_bridge
from services.aurorabridge.backend import Backend
from services.aurorabridge.methods import METHODS
from services.secrets.keyring import Keyring, KeyringFile, write_keyring
from services.secrets.payload_codec import EncryptingCodec
from services.storage.audit.audit_log import AuditFilter
from services.storage.ended_sessions import EndedSessions
from services.storage.storage import Storage
from services.tls.transport import PLAINTEXT
from services.web import live, sign_outs, terminal, viewer_checks
from services.web.app import WebSettings, create_app
from services.web.live import Hub, Topic
from services.web.log_files import LogFile, LogFiles
from services.web.oidc import OidcClient
from services.web.sessions import Sessions
from services.web.sign_in import SESSION, SignInSettings
from services.web.sign_outs import SignOuts
from services.web.viewer import Viewer
from services.web.viewer_checks import Shares, ViewerChecks
from tests.unit.api_service.fakes import OneSandbox, RecordedWakes
from tests.unit.api_service.story import LEAF, UNKNOWN

BINDINGS = """
[[binding]]
role = "reader"
subjects = ["user:rita", "user:ann@x.org"]
pools = ["/"]

[[binding]]
role = "admin"
subjects = ["user:ada"]
"""
ORIGIN = {"origin": "http://127.0.0.1"}
LOCK = "/api/peloton.api.v1alpha.admin.svc.AdminService/Lockdown"
LOCKS = "/api/peloton.api.v1alpha.admin.svc.AdminService/GetLockdown"
KEY = ec.generate_private_key(ec.SECP256R1())
ISSUER = "http://localhost:9"
TEMPORAL_PAGES = "http://127.0.0.1:8233"


def document(_: str) -> bytes:
    """Answer for both documents of the issuer."""
    maker: Any = jwt.algorithms.ECAlgorithm
    row = {**json.loads(maker.to_jwk(KEY.public_key())), "kid": "one", "alg": "ES256", "use": "sig"}
    return json.dumps({"issuer": ISSUER, "jwks_uri": f"{ISSUER}/keys", "keys": [row]}).encode()


def sign(nonce: str, life_s: float = 600.0) -> str:
    claims = {"iss": ISSUER, "aud": "peloton", "sub": "1", "exp": time.time() + life_s, "email": "ann@x.org"}
    return jwt.encode({**claims, "email_verified": True, "nonce": nonce}, KEY, "ES256", headers={"kid": "one"})


class Issuer(OidcClient):
    """A client whose issuer knows one user."""

    def begin(self, callback: str) -> tuple[Flow, str]:
        return Flow("state", "verifier", "nonce"), f"{ISSUER}/authorize?redirect_uri={callback}&state=state"

    def finish(self, flow: Flow, code: str, callback: str) -> str:
        assert ("verifier", "the code", "http://127.0.0.1/sign-in/callback") == (flow.verifier, code, callback)
        return sign(flow.nonce)


class Pages:
    """The pages of an api that asks for credentials, and which role web may call as a process of Peloton."""

    def __init__(self, storage: Storage, app: Any, tokens: dict[str, str]) -> None:
        self.storage, self.tokens, self.hub = storage, tokens, app.state.hub
        self.bridge: httpx2.AsyncClient
        self.codec: EncryptingCodec
        self.other: Pages
        self.client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1")

    async def sign_in(self, name: str) -> None:
        form = {"token": self.tokens[name], "next": "/jobs"}
        answer = await self.client.post("/sign-in", data=form, headers=ORIGIN)
        assert (303, "/jobs") == (answer.status_code, answer.headers["location"])

    async def call(self, path: str, headers: dict[str, str] = ORIGIN) -> tuple[int, str]:
        answer = await self.client.post(path, json={"components": ["Kill"]} if path == LOCK else {}, headers=headers)
        return answer.status_code, answer.text


@pytest.fixture
async def pages(storage: Storage, tmp_path: Path) -> AsyncIterator[Pages]:
    tokens, lines = {}, []
    for name in ("rita", "ada"):
        tokens[name], row = make_token(name, CallerKind.USER, (), 0.0, time.time(), os.urandom(RANDOM_BYTES))
        lines.append(row.to_line())
    (tmp_path / "tokens").write_text("\n".join(lines))
    (tmp_path / "roles.toml").write_text(BINDINGS)
    transport = TokenTransport(PLAINTEXT, RoleToken("r" * 40))
    by = Authenticators(
        tokens=Tokens(str(tmp_path / "tokens")),
        oidc=Oidc(OidcConfig(ISSUER, "peloton"), document),
        bindings=BindingsFile(str(tmp_path / "roles.toml")),
        certified=find_certified(transport),
    )
    recorder = Recorder(storage.audit, AuditMode.REQUIRED)
    server = await start(
        storage, RecordedWakes(), lambda _: None, "127.0.0.1:0", OneSandbox(),
        access=Access(by), transport=transport, recorder=recorder,
    )  # fmt: skip
    (tmp_path / "session key").write_text("k" * 40)
    sign_in = SignInSettings(Issuer(ISSUER, "peloton"), str(tmp_path / "session key"))
    write_keyring(tmp_path / "keyring", Keyring("", {}).add("first", is_active=True), is_new=True)
    codec = EncryptingCodec(KeyringFile(str(tmp_path / "keyring")))
    settings = WebSettings(
        f"127.0.0.1:{server.port}",
        transport=transport,
        sign_in=sign_in,
        codec=codec,
        codec_origins=(TEMPORAL_PAGES,),
    )
    app, other = create_app(settings), create_app(settings)
    pages = Pages(storage, app, tokens)
    pages.other = Pages(storage, other, tokens)
    pages.codec = codec
    backend = Backend(f"127.0.0.1:{server.port}", transport=transport)
    bridge = httpx2.ASGITransport(create_bridge(backend, METHODS))
    pages.bridge = httpx2.AsyncClient(transport=bridge, base_url="http://127.0.0.1")
    yield pages
    await pages.bridge.aclose()
    await backend.close()
    for each in (pages, pages.other):
        await each.client.aclose()
        await each.hub.close()
    await server.stop(0)


async def test_nothing_is_shown_without_sign_in(pages: Pages) -> None:
    """Calls without a viewer would have the rights of role web, and are refused."""
    for path in ("/live?topic=overview", "/logs/1b4e28ba-2fa1-11d2-883f-0016d3cca427/0"):
        assert 401 == (await pages.client.get(path)).status_code
    assert 401 == (await pages.call(LOCKS))[0]
    info = (await pages.client.get("/settings.json")).json()
    assert (True, False, "") == (info["needsSignIn"], info["mayChange"], info["viewer"])
    assert 200 == (await pages.client.get("/sign-in")).status_code


async def test_a_session_has_the_rights_of_its_token(pages: Pages) -> None:
    """The api decides by the user, and its audit log has the sign-in and the refusal."""
    await pages.sign_in("rita")
    info = (await pages.client.get("/settings.json")).json()
    assert (False, False, "rita", True) == (
        info["needsSignIn"], info["mayChange"], info["viewer"], info["isSignedIn"],
    )  # fmt: skip
    assert 200 == (await pages.call(LOCKS))[0]
    code, text = await pages.call(LOCK)
    assert (403, True) == (code, "it needs role admin on the cluster" in text)

    await pages.sign_in("ada")
    assert 200 == (await pages.call(LOCK))[0]
    drafts = [entry.draft for entry in pages.storage.audit.page(AuditFilter(), limit=10)]
    done = [(one.caller, one.method.rpartition("/")[2], one.result) for one in drafts if one.caller != "peloton"]
    assert ("rita", "SignIn", "OK") in done
    assert [("ada", "SignIn", "OK"), ("ada", "Lockdown", "OK")] == done[-2:]


async def test_a_stream_is_sent_behind_the_token_of_a_role(pages: Pages) -> None:
    """All lines of an upload arrive, not the first one alone."""
    await pages.sign_in("ada")
    lines = [{"start": {"config": {"name": "j", "respoolID": {"value": LEAF}, "instanceCount": 1}}}, {"commit": {}}]
    body = "".join(f"{json.dumps(line)}\n" for line in lines)
    headers = {**ORIGIN, "content-type": "application/x-ndjson"}
    answer = await pages.client.post("/api/peloton.api.v0.bulk.BulkService/CreateJob", content=body, headers=headers)
    assert (200, True) == (answer.status_code, "ended without its commit" not in answer.text), answer.text


async def test_a_session_changes_something_from_its_own_pages_only(pages: Pages) -> None:
    """A call without an origin, or from another site, is refused."""
    await pages.sign_in("ada")
    assert 403 == (await pages.call(LOCK, {}))[0]
    assert 403 == (await pages.call(LOCK, {"origin": "http://evil.example"}))[0]
    form = {"token": pages.tokens["ada"]}
    assert 403 == (await pages.client.post("/sign-in", data=form)).status_code


async def test_the_cookie_is_closed_to_scripts_and_contains_no_token(pages: Pages) -> None:
    """The cookie is encrypted; a changed one, and one of another process, is nothing."""
    form = {"token": pages.tokens["rita"], "next": "//evil.example"}
    answer = await pages.client.post("/sign-in", data=form, headers=ORIGIN)
    cookie = answer.headers["set-cookie"].lower()
    assert ("/", True, True) == (answer.headers["location"], "httponly" in cookie, "samesite=lax" in cookie)
    assert pages.tokens["rita"].lower() not in cookie
    value = pages.client.cookies[SESSION]
    pages.client.cookies.clear()
    for bad in (f"A{value[1:]}", value[:-4], "x", Sessions().seal(SESSION, {"token": "x"}, time.time() + 60)):
        assert 401 == (await pages.call(LOCKS, {**ORIGIN, "cookie": f"{SESSION}={bad}"}))[0]


async def test_a_session_that_was_ended_stays_so(pages: Pages) -> None:
    """A copy of the cookie is refused after sign-out."""
    await pages.sign_in("rita")
    copy = pages.client.cookies[SESSION]
    assert 303 == (await pages.client.post("/sign-out", headers=ORIGIN)).status_code
    pages.client.cookies.clear()
    assert 401 == (await pages.call(LOCKS, {**ORIGIN, "cookie": f"{SESSION}={copy}"}))[0]


async def test_a_session_ends_at_all_processes(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the cookie that another process has verified is refused there after a while, a stream ends, and another
    session of the same token stays."""
    monkeypatch.setattr(viewer_checks, "SESSION_VERIFIED_S", 0.3)
    monkeypatch.setattr(viewer_checks, "RECHECK_S", 0.05)
    await pages.sign_in("rita")
    copy = {**ORIGIN, "cookie": f"{SESSION}={pages.client.cookies[SESSION]}"}
    await pages.other.sign_in("rita")
    second = {**ORIGIN, "cookie": f"{SESSION}={pages.other.client.cookies[SESSION]}"}
    pages.other.client.cookies.clear()
    assert [200, 200] == [(await pages.other.call(LOCKS, headers))[0] for headers in (copy, second)]
    stream = asyncio.create_task(pages.other.client.get("/live?topic=overview", headers=copy))
    done, _ = await asyncio.wait([stream], timeout=0.2)
    assert set() == done

    assert 303 == (await pages.client.post("/sign-out", headers=ORIGIN)).status_code

    assert 200 == (await asyncio.wait_for(stream, 60)).status_code
    async with asyncio.timeout(60):
        while (await pages.other.call(LOCKS, copy))[0] != 401:
            await asyncio.sleep(0.02)
    assert 200 == (await pages.other.call(LOCKS, second))[0]
    info = (await pages.other.client.get("/settings.json", headers=copy)).json()
    assert (True, "") == (info["needsSignIn"], info["viewer"])


async def test_a_sign_out_that_the_api_does_not_know_says_so(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session has ended at this process, and the page says that others do not know of it, which is not tried again
    where the api refuses it."""
    await pages.sign_in("rita")
    copy = {**ORIGIN, "cookie": f"{SESSION}={pages.client.cookies[SESSION]}"}
    monkeypatch.setattr(ended_sessions, "AHEAD_S_MAX", 0)
    answer = await pages.client.post("/sign-out", headers=ORIGIN)
    assert (503, True, False) == (
        answer.status_code, "other web processes do not know of it" in answer.text, SESSION in pages.client.cookies,
    )  # fmt: skip
    assert "a copy of the session counts there: the session expires in" in answer.text
    assert [401, 200] == [(await each.call(LOCKS, copy))[0] for each in (pages, pages.other)]


async def test_a_sign_out_is_sent_again(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    """The api was not able to note it, and notes it later: the session ends at all processes, before it expires."""
    monkeypatch.setattr(viewer_checks, "SESSION_VERIFIED_S", 0.0)
    monkeypatch.setattr(sign_outs, "PAUSES", Backoff(0.05, 0.05))
    await pages.sign_in("rita")
    copy = {**ORIGIN, "cookie": f"{SESSION}={pages.client.cookies[SESSION]}"}
    put, tries = EndedSessions.put, []

    def fail_twice(self: EndedSessions, *args: Any) -> None:
        tries.append(args)
        if len(tries) <= 2:
            raise Unavailable("the database does not answer")
        put(self, *args)

    monkeypatch.setattr(EndedSessions, "put", fail_twice)
    answer = await pages.client.post("/sign-out", headers=ORIGIN)
    text = "other web processes do not know of it: it is sent again until the session expires"
    assert (503, True) == (answer.status_code, text in answer.text)
    assert 200 == (await pages.other.call(LOCKS, copy))[0]

    async with asyncio.timeout(60):
        while (await pages.other.call(LOCKS, copy))[0] != 401:
            await asyncio.sleep(0.02)

    assert 3 == len(tries)


async def test_sign_outs_that_are_sent_again_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """One beyond the bound is sent once; they end with the expiry of the session, and with the process."""
    monkeypatch.setattr(sign_outs, "REPEATED_MAX", 1)
    monkeypatch.setattr(sign_outs, "PAUSES", Backoff(0.05, 0.05))
    sent: list[str] = []

    class Access:
        async def SignOut(self, request: Any, timeout: float) -> None:
            sent.append(request.session)
            raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata())

    outs = SignOuts(SimpleNamespace(access=Access()))  # type: ignore[arg-type]
    first, second = (Viewer("ann", session=name, expires_s=time.time() + 3_600) for name in ("s1", "s2"))
    assert ["sent again" in await outs.end(one) for one in (first, second)] == [True, False]
    async with asyncio.timeout(60):
        while sent.count("s1") < 3:
            await asyncio.sleep(0.02)
        with monkeypatch.context() as later:
            later.setattr(Viewer, "has_expired", lambda viewer: True)
            while outs._repeating:
                await asyncio.sleep(0.02)
    assert 1 == sent.count("s2")

    await outs.end(Viewer("ann", session="s3", expires_s=time.time() + 3_600))
    await asyncio.wait_for(outs.close(), 60)
    assert set() == outs._repeating


async def test_a_copy_of_the_cookie_ends_no_made_up_sessions(pages: Pages) -> None:
    """The api keeps a bounded number of ended sessions of a user: with 1,000 of them that of the owner would stay."""
    await pages.sign_in("rita")
    call, body = "/api/peloton.api.v0.access.AccessService/SignOut", {"session": "made up", "expiresNs": "1"}
    refused = await pages.client.post(call, json=body, headers=ORIGIN)
    bearer = {"authorization": f"Bearer {pages.tokens['rita']}"}
    taken = await pages.client.post(call, json=body, headers=bearer)
    assert (403, 200) == (refused.status_code, taken.status_code)
    assert "a session of the pages ends by POST /sign-out" in refused.text


def test_each_session_of_a_token_is_verified_in_time() -> None:
    """A sign-out holds at all processes within 15 s: a second of them is for the answers of the api."""
    assert max(viewer_checks.SESSION_VERIFIED_S, viewer_checks.RECHECK_S, terminal.WATCH_S) <= 14.0


async def test_a_bad_token_opens_no_session(pages: Pages) -> None:
    """The page shows the reason of the api."""
    answer = await pages.client.post("/sign-in", data={"token": "<b>"}, headers=ORIGIN)
    assert (401, False) == (answer.status_code, SESSION in pages.client.cookies)
    assert "of no kind that this cluster accepts" in answer.text


async def test_viewers_sign_in_at_the_issuer(pages: Pages) -> None:
    """The code flow ends with a session of the user that the token names, until the token expires."""
    began = await pages.client.get("/sign-in/oidc?next=/pools")
    assert (303, True) == (began.status_code, began.headers["location"].startswith(f"{ISSUER}/authorize"))
    wrong = await pages.client.get("/sign-in/callback?code=x&state=other")
    assert 400 == wrong.status_code
    done = await pages.client.get("/sign-in/callback?code=the code&state=state")
    assert (303, "/pools") == (done.status_code, done.headers["location"])
    assert "ann@x.org" == (await pages.client.get("/settings.json")).json()["viewer"]


async def test_programs_bring_credentials_of_their_own(pages: Pages) -> None:
    """The gateway takes a token as the api does, and needs no origin then."""
    bearer = {"authorization": f"Bearer {pages.tokens['ada']}"}
    assert 200 == (await pages.call(LOCK, bearer))[0]
    basic = {"authorization": f"Basic {b64encode(b'ada:x').decode()}"}
    code, text = await pages.call(LOCK, basic)
    assert (401, True) == (code, "no user names and passwords" in text)
    assert 401 == (await pages.call(LOCK, {"authorization": "Basic %"}))[0]


async def test_passwords_cannot_be_tried_by_way_of_the_pages(pages: Pages) -> None:
    """Failures count for the address of the viewer, and a token of another viewer there is taken meanwhile."""

    async def call(authorization: str) -> int:
        return (await pages.call(LOCKS, {"authorization": authorization}))[0]

    codes = [await call(f"Basic {b64encode(f'ada:{number}'.encode()).decode()}") for number in range(40)]
    assert [401] * 20 == codes[:20]
    assert 429 in codes[20:]
    assert 200 == await call(f"Bearer {pages.tokens['ada']}")


async def test_clients_of_aurora_bring_credentials(pages: Pages) -> None:
    """The bridge asks for credentials where the api does, and takes no invalid ones."""
    codes = []
    for token in ("", "x", pages.tokens["rita"]):
        headers = {"authorization": f"Bearer {token}"} if token else {}
        answer = await pages.bridge.post("/api", content=b'[1,"getTierConfigs",1,0,{}]', headers=headers)
        codes.append(answer.status_code)
    assert [401, 401] == codes[:2]
    assert 401 != codes[2]
    malformed = [(b"authorization", b"Basic \xff")]
    assert (
        401 == (await pages.bridge.post("/api", content=b'[1,"getTierConfigs",1,0,{}]', headers=malformed)).status_code
    )


async def test_credentials_are_verified_before_they_take_a_place(pages: Pages) -> None:
    """Invalid ones are refused where data is pushed, too, so that they fill neither places nor topics."""
    paths = ("/live?topic=overview", f"/logs/{UNKNOWN.value}/0", "/api/peloton.api.job.JobManager/Query")
    for number, path in enumerate(paths):
        headers = {"authorization": f"Bearer ptk_{number}_no", **ORIGIN}
        method = pages.client.post if path.startswith("/api/") else pages.client.get
        assert 401 == (await method(path, headers=headers)).status_code
    assert {} == pages.hub._running


async def test_the_api_is_asked_once_for_a_while(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verified credentials are remembered, within a bound."""
    monkeypatch.setattr(viewer_checks, "VERIFIED_MAX", 2)
    asked: list[int] = []

    class Access:
        async def WhoAmI(self, _: Any, timeout: float) -> Any:
            asked.append(1)
            return access_pb2.WhoAmIResponse(name="ada", kind="user", is_enforced=True)

    checks = ViewerChecks(SimpleNamespace(access=Access()), lambda viewer: False)  # type: ignore[arg-type]
    for name in ("a", "a", "b", "c", "c", "a"):
        assert "user ada" == (await checks.verify(Viewer("", (("authorization", name),)))).identity
    assert 4 == len(asked)


def test_a_viewer_has_a_share_of_the_places() -> None:
    """A viewer that has as many as one may have is refused, and others are not."""
    shares = Shares("pages", 2)
    ann, bob = (Viewer("", (("authorization", name),), identity=f"user {name}") for name in ("ann", "bob"))
    refusal = pytest.raises(ResourceExhausted, match="user ann has 2 pages open")
    with shares.take(ann), shares.take(ann), shares.take(bob), refusal:
        shares.check(ann)
    shares.check(ann)


@pytest.mark.parametrize("how", ["signed out", "revoked", "expired"])
async def test_streams_of_a_viewer_end(pages: Pages, monkeypatch: pytest.MonkeyPatch, how: str, tmp_path: Path) -> None:
    """Live data, a log and a stream of the gateway end when the viewer signs out, the token is revoked, or the session
    expires."""
    monkeypatch.setattr(viewer_checks, "RECHECK_S", 0.05)
    monkeypatch.setattr(files, "CHECK_S", 0.0)

    async def has_not_ended(self: LogFiles, file: LogFile) -> bool:
        return False

    async def locate_nothing(self: LogFiles, file: LogFile) -> str:
        return "there is no stdout yet"

    monkeypatch.setattr(LogFiles, "has_ended", has_not_ended)
    monkeypatch.setattr(LogFiles, "locate", locate_nothing)
    await pages.sign_in("rita")
    watch = "/api/peloton.api.v1alpha.watch.svc.WatchService/Watch"
    running = [
        asyncio.create_task(call)
        for call in (
            pages.client.get("/live?topic=overview"),
            pages.client.get(f"/logs/{UNKNOWN.value}/0"),
            pages.client.post(watch, json={"podFilter": {}}, headers=ORIGIN),
        )
    ]
    done, _ = await asyncio.wait(running, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
    assert set() == done
    if how == "signed out":
        await pages.client.post("/sign-out", headers=ORIGIN)
    elif how == "revoked":
        (tmp_path / "tokens").write_text("")
    else:
        monkeypatch.setattr(Viewer, "has_expired", lambda viewer: True)
    async with asyncio.timeout(60):
        await asyncio.gather(*running, return_exceptions=True)


async def test_a_topic_is_shared_by_pages_with_the_same_credentials_only() -> None:
    """Each viewer gets what was read with its own credentials, also of a topic that is read for another."""
    reads: list[str] = []

    async def read(_: Any, argument: str) -> str:
        reads.append(FORWARDED.get()[0][1])
        return FORWARDED.get()[0][1]

    hub = Hub(None, {"t": Topic(read, period_s=0.01)})  # type: ignore[arg-type]

    async def first_frame(secret: str) -> bytes:
        stream = hub.stream(["t"], Viewer(secret, (("authorization", secret),)))
        async for frame in stream:
            if b"data" in frame and b"event: t" in frame:
                await stream.aclose()  # type: ignore[attr-defined]
                return frame
        return b""

    frames = await asyncio.gather(*(first_frame(secret) for secret in ("one", "two", "one")))
    assert [b"one", b"two", b"one"] == [frame.split(b'"')[3] for frame in frames]
    await hub.close()


async def test_a_stream_ends_with_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page whose session has expired gets nothing more."""
    monkeypatch.setattr(live, "BEAT_S", 0.01)

    async def read(_: Any, argument: str) -> int:
        return 1

    hub = Hub(None, {"t": Topic(read)})  # type: ignore[arg-type]
    viewer = Viewer("x", (("authorization", "x"),), "id", time.time() + 0.1)
    async with asyncio.timeout(60):
        assert [frame async for frame in hub.stream(["t"], viewer)]
    await hub.close()


def test_the_code_is_exchanged_with_its_verifier() -> None:
    """The client sends the challenge first, and the verifier with the code; a token of another flow is refused."""
    from http.server import BaseHTTPRequestHandler, HTTPServer

    posted: list[dict[str, list[str]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            at = f"http://127.0.0.1:{server.server_port}"
            self._answer({"issuer": at, "authorization_endpoint": f"{at}/auth", "token_endpoint": f"{at}/token"})

        def do_POST(self) -> None:
            posted.append(parse_qs(self.rfile.read(int(self.headers["content-length"])).decode()))
            if posted[-1]["code"] == ["odd"]:
                self._answer(["no object"])
            elif posted[-1]["code"] == ["moved"]:
                self.send_response(302)
                self.send_header("location", f"http://127.0.0.1:{server.server_port}/elsewhere")
                self.end_headers()
            else:
                self._answer({"id_token": sign("other" if len(posted) > 1 else nonce)})

        def _answer(self, value: object) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(value).encode())

        def log_message(self, format: str, *args: Any) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        client = OidcClient(f"http://127.0.0.1:{server.server_port}", "peloton", "secret")
        flow, address = client.begin("http://web/sign-in/callback")
        query, nonce = parse_qs(urlsplit(address).query), flow.nonce
        assert (["S256"], [flow.state], ["code"]) == (
            query["code_challenge_method"], query["state"], query["response_type"],
        )  # fmt: skip
        assert client.finish(flow, "c", "http://web/sign-in/callback").count(".") == 2
        assert ([flow.verifier], ["c"]) == (posted[0]["code_verifier"], posted[0]["code"])
        for code, fault in (("c", "another sign-in"), ("moved", "HTTP status 302"), ("odd", "no JSON object")):
            with pytest.raises(PelotonError, match=fault):
                client.finish(flow, code, "http://web/sign-in/callback")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
