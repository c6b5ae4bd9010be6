"""A real OIDC provider, Dex: a user signs in, and its ID token names the user.

Dex is built once from Go modules, whose versions ``dex/go.mod`` has, into ``~/.cache/peloton/dex``.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlencode, urlsplit
from urllib.request import HTTPCookieProcessor, HTTPRedirectHandler, Request, build_opener

import pytest

from peloton.errors import Unauthenticated
from peloton.issuer import make_fetch
from services.access.oidc import Oidc, OidcConfig
from tests.nightly import NIGHTLY
from tests.ports import free_ports
from tests.waiting import timeout_s

pytestmark = NIGHTLY
MODULE = Path(__file__).parent / "dex"
PACKAGE = "github.com/dexidp/dex"
BUILD_S = 900
CALLBACK = "http://127.0.0.1:1/callback"
"""Address to which Dex sends the browser with the code; there is no server."""
CONFIG = """
issuer: {issuer}
storage: {{type: memory}}
web: {{http: "{address}"}}
frontend: {{dir: "{web}"}}
oauth2: {{skipApprovalScreen: true}}
connectors: [{{type: mockCallback, id: mock, name: Example}}]
staticClients: [{{id: peloton, name: Peloton, secret: not-secret, redirectURIs: ["{callback}"]}}]
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
    config = CONFIG.format(issuer=issuer, address=address, web=web, callback=CALLBACK)
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


class _UntilCallback(HTTPRedirectHandler):
    """Follows redirects until one leads to the callback."""

    def redirect_request(self, request: Request, *args: Any) -> Request | None:
        new_url = str(args[-1])
        return None if new_url.startswith(CALLBACK) else super().redirect_request(request, *args)


def sign_in(issuer: str) -> str:
    """Return the ID token of the user of Dex's connector for tests."""
    browser = build_opener(HTTPCookieProcessor(CookieJar()), _UntilCallback())
    query = {
        "client_id": "peloton", "redirect_uri": CALLBACK, "response_type": "code", "scope": "openid email groups",
        "state": "s",
    }  # fmt: skip
    with pytest.raises(HTTPError) as stopped:
        browser.open(f"{issuer}/auth?{urlencode(query)}", timeout=30)
    code = parse_qs(urlsplit(stopped.value.headers["Location"]).query)["code"][0]
    stopped.value.close()
    body = {"grant_type": "authorization_code", "code": code, "redirect_uri": CALLBACK}
    body |= {"client_id": "peloton", "client_secret": "not-secret"}
    with browser.open(f"{issuer}/token", urlencode(body).encode(), timeout=30) as answer:
        return str(json.load(answer)["id_token"])


async def test_a_token_of_a_real_provider_names_its_user(issuer: str) -> None:
    """A changed signature and another audience are refused."""
    token = await asyncio.to_thread(sign_in, issuer)
    caller, _ = await Oidc(OidcConfig(issuer, "peloton"), make_fetch()).authenticate(token)
    assert ("kilgore@kilgore.trout", issuer) == (caller.name, caller.issuer)
    for audience, sent in (("peloton", f"{token[:-4]}AAAA"), ("other", token)):
        with pytest.raises(Unauthenticated):
            await Oidc(OidcConfig(issuer, audience), make_fetch()).authenticate(sent)
