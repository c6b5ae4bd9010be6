"""A real OIDC provider, Dex: people sign in by its codes, by a browser, and to the pages, and the api knows them.

Dex is built once from Go modules, whose versions ``tests/unit/access/dex/go.mod`` has, into ``~/.cache/peloton/dex``.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPCookieProcessor, HTTPRedirectHandler, OpenerDirector, Request, build_opener

import httpx2
import pytest
from click.testing import CliRunner, Result

from cli import access as commands
from cli.main import peloton
from peloton.client.credentials import TokenFile
from peloton.client.sign_in import DeviceCode
from peloton.client.token_files import credentials_file, read_sign_in, write_sign_in
from peloton.errors import Unauthenticated
from peloton.issuer import make_fetch
from services.access.access import Access, Authenticators, SignInPlace
from services.access.bindings import BindingsFile
from services.access.compose import find_certified
from services.access.oidc import Oidc, OidcConfig
from services.access.role_token import RoleToken, TokenTransport
from services.api.server import start
from services.storage.storage import Storage
from services.tls.transport import PLAINTEXT
from services.web.app import WebSettings, create_app
from services.web.oidc import OidcClient
from services.web.sign_in import SignInSettings
from tests.nightly import NIGHTLY
from tests.ports import free_ports
from tests.present import require
from tests.unit.api_service.fakes import OneSandbox, RecordedWakes
from tests.waiting import timeout_s

pytestmark = NIGHTLY
MODULE = Path(__file__).parents[1] / "access" / "dex"
PACKAGE = "github.com/dexidp/dex"
BUILD_S = 900
PAGES = "http://127.0.0.1"
"""Address of the pages, which are called without a connection."""
USER, GROUP = "kilgore@kilgore.trout", "authors"
"""The one user of Dex's connector for tests."""
BINDINGS = f"""
[[binding]]
role = "reader"
subjects = ["group:{GROUP}"]
pools = ["/"]
"""
CONFIG = """
issuer: {issuer}
storage: {{type: memory}}
web: {{http: "{address}"}}
frontend: {{dir: "{web}"}}
oauth2: {{skipApprovalScreen: true}}
connectors: [{{type: mockCallback, id: mock, name: Example}}]
staticClients:
- {{id: peloton, name: Peloton, secret: not-secret, redirectURIs: ["{pages}/sign-in/callback"]}}
- {{id: peloton-cli, name: Commands of Peloton, public: true}}
"""


def build() -> tuple[Path, str]:
    """Return the program and the folder of its pages. Skips where Go or its modules are not available."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("Dex is built with Go, which is not installed")
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "peloton" / "dex"
    shutil.copytree(MODULE, folder, dirs_exist_ok=True)
    program = folder / "bin"
    command = [go, "build", "-mod=mod", "-o", str(program), f"{PACKAGE}/cmd/dex"]
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=BUILD_S, check=False)
    if built.returncode:
        pytest.skip(f"Dex cannot be built: {built.stderr[-500:]}")
    listing = [go, "list", "-mod=mod", "-m", "-f", "{{.Dir}}", PACKAGE]
    found = subprocess.run(listing, cwd=folder, capture_output=True, text=True, timeout=60, check=True)
    return program, f"{found.stdout.strip()}/web"


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    program, web = build()
    folder, address = tmp_path_factory.mktemp("dex"), f"127.0.0.1:{free_ports(1)[0]}"
    issuer = f"http://{address}/dex"
    config = CONFIG.format(issuer=issuer, address=address, web=web, pages=PAGES)
    (folder / "config.yaml").write_text(config)
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([program, "serve", folder / "config.yaml"], stdout=log, stderr=log)
    try:
        deadline_s = time.monotonic() + timeout_s()
        while not _answers(issuer):
            assert time.monotonic() < deadline_s, (folder / "log").read_text()
            time.sleep(0.05)
        yield issuer
    finally:
        process.kill()
        process.wait()


def _answers(issuer: str) -> bool:
    try:
        return bool(make_fetch()(f"{issuer}/.well-known/openid-configuration"))
    except OSError:
        return False


class _UntilPages(HTTPRedirectHandler):
    """Follows redirects until one leads to the pages."""

    def redirect_request(self, request: Request, *args: Any) -> Request | None:
        new_url = str(args[-1])
        return None if new_url.startswith(f"{PAGES}/") else super().redirect_request(request, *args)


def new_browser() -> OpenerDirector:
    return build_opener(HTTPCookieProcessor(CookieJar()), _UntilPages())


def visit(address: str, form: dict[str, str] | None = None) -> None:
    """Sign the user in by following an address to its end, as a browser does."""
    data = urlencode(form).encode() if form is not None else None
    with new_browser().open(address, data, timeout=30) as answer:
        answer.read()


def type_code(code: DeviceCode) -> None:
    visit(f"{code.address.rpartition('/device')[0]}/device/auth/verify_code", {"user_code": code.user_code})


def visit_in_background(address: str) -> None:
    threading.Thread(target=visit, args=(address,), daemon=True).start()


@dataclass(frozen=True)
class Cluster:
    """An api and its pages, at which users of Dex may read."""

    address: str
    oidc: Oidc
    pages: httpx2.AsyncClient

    async def run(self, *words: str) -> Result:
        """Run a command in a thread, while the api answers."""
        environment = {"PELOTON_ADDRESS": self.address}
        return await asyncio.to_thread(CliRunner().invoke, peloton, words, prog_name="peloton", env=environment)


@pytest.fixture
async def cluster(
    issuer: str, storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Cluster]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "roles.toml").write_text(BINDINGS)
    transport = TokenTransport(PLAINTEXT, RoleToken("r" * 40))
    oidc = Oidc(OidcConfig(issuer, "peloton", login_client="peloton-cli"), make_fetch())
    by = Authenticators(
        oidc=oidc,
        bindings=BindingsFile(str(tmp_path / "roles.toml")),
        certified=find_certified(transport),
        sign_in=SignInPlace(issuer, "peloton-cli"),
    )
    server = await start(
        storage, RecordedWakes(), lambda _: None, "127.0.0.1:0", OneSandbox(), access=Access(by), transport=transport
    )
    address = f"127.0.0.1:{server.port}"
    sign_in = SignInSettings(OidcClient(issuer, "peloton", "not-secret"))
    app = create_app(WebSettings(address, transport=transport, sign_in=sign_in))
    pages = httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=PAGES)
    yield Cluster(address, oidc, pages)
    await pages.aclose()
    await app.state.hub.close()
    await server.stop(0)


@pytest.mark.parametrize("browser", [False, True], ids=["code", "browser"])
async def test_commands_sign_in(cluster: Cluster, issuer: str, browser: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The token names user and groups, is renewed, and is refused when it was changed or is for another cluster."""
    monkeypatch.setattr("webbrowser.open", visit_in_background)
    monkeypatch.setattr(commands, "_show_code", type_code)
    said = await cluster.run("login", *(["--browser"] if browser else []))
    assert f"user {USER} at {cluster.address}" in said.stdout, said.output
    shown = (await cluster.run("whoami")).stdout
    assert (True, True, True) == (f"groups: {GROUP}" in shown, f"issuer: {issuer}" in shown, "is renewed" in shown)

    path = credentials_file(cluster.address)
    token = path.read_text().strip()
    for audience, sent in (("peloton-cli", f"{token[:-4]}AAAA"), ("other", token)):
        with pytest.raises(Unauthenticated):
            await Oidc(OidcConfig(issuer, audience), make_fetch()).authenticate(sent)

    write_sign_in(path, replace(require(read_sign_in(path)), renew_at_s=0.0))
    await asyncio.to_thread(TokenFile(path))
    assert token != path.read_text().strip()
    assert f"user {USER}" in (await cluster.run("whoami")).stdout
    assert "reader on /" in (await cluster.run("can-i", "reader")).stdout
    await cluster.run("logout")
    assert "anonymous" in (await cluster.run("whoami")).stdout


async def test_viewers_of_the_pages_sign_in(cluster: Cluster) -> None:
    """The code flow with PKCE and a secret ends with a session of the user."""
    began = await cluster.pages.get("/sign-in/oidc?next=/pools")

    def follow() -> str:
        with pytest.raises(HTTPError) as stopped:
            new_browser().open(began.headers["location"], timeout=30)
        stopped.value.close()
        return str(stopped.value.headers["location"])

    back = await asyncio.to_thread(follow)
    assert "/sign-in/callback" == urlsplit(back).path
    done = await cluster.pages.get(back)
    assert (303, "/pools") == (done.status_code, done.headers["location"]), done.text
    assert USER == (await cluster.pages.get("/settings.json")).json()["viewer"]
    assert 400 == (await cluster.pages.get(back)).status_code  # the flow has ended
