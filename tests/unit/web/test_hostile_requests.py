"""Malformed requests to the pages end with refusals, not with faults of the server."""

from __future__ import annotations

import random
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from services.web.app import WebSettings, create_app

REQUESTS = 400
PIECES = (
    *("Bearer ", "Basic ", "Basic \xff", "Basic /w==", "a" * 5_000, "%", "[", "]", "://", "\x80", "=", ";", ","),
    *("-1", "1e9", "nan", "9" * 400, "gzip", "application/json", "text/plain; charset=x", "multipart/form-data;"),
    *("bytes=0-", "bytes=-5,9-1", 'W/"', "http://127.0.0.1:5398", "http://[", "null", "peloton_session=AAAA"),
)
NAMES = (
    *("authorization", "username", "password", "cookie", "origin", "content-type", "content-encoding", "accept"),
    *("accept-encoding", "connect-timeout-ms", "grpc-timeout", "range", "if-none-match", "if-modified-since"),
    *("last-event-id", "peloton-on-behalf-of", "peloton-client-address", "peloton-role-token"),
)
JOB = "1b4e28ba-2fa1-11d2-883f-0016d3cca427"
PATHS = (
    *("/live?topic=", "/live?topic=%ff", "/settings.json", "/sign-in", "/sign-in?next=//x", "/sign-in/oidc"),
    *("/sign-in/callback?code=a&state=\xe9", "/sign-out", "/api/x/y", "/api/%00/%ff", "/codec/decode", "/codec/encode"),
    *("/api/peloton.api.v0.access.AccessService/SignOut", "/api/peloton.api.v0.bulk.BulkService/CreateJob"),
    *(
        "/assets/../x",
        "/assets/%2e%2e/",
        "/%00",
        f"/{'a' * 3_000}.json",
        "/a\x00.png",
        "/index.html.",
        f"/{'é' * 60}.x",
    ),
    *("/logs/x/0", f"/logs/{JOB}/{'9' * 20}", f"/logs/{JOB}/0?lines=nan&offset=-1&file=../../etc/passwd"),
)
BODIES = (b"", b"{}", b"[", b"\xff", b"[" * 5_000, b'{"a":' * 300, b"token=a&next=%ff", b"null", b"1e999")


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    app = create_app(WebSettings("127.0.0.1:1"))
    with TestClient(app, base_url="http://127.0.0.1:5398", raise_server_exceptions=False) as client:
        yield client


@pytest.mark.parametrize("seed", range(4))
def test_requests_by_chance(client: TestClient, seed: int) -> None:
    """No header, path or body causes an internal error."""
    chance = random.Random(seed)
    for _ in range(REQUESTS // 4):
        method, path = chance.choice(["GET", "POST", "POST", "PUT", "HEAD", "OPTIONS"]), chance.choice(PATHS)
        headers = {
            chance.choice(NAMES).encode(): "".join(chance.choices(PIECES, k=chance.randint(1, 3))).encode("latin-1")
            for _ in range(chance.randint(0, 4))
        }
        body = chance.choice(BODIES) if method != "GET" else None
        answer = client.request(method, quote(path, safe="/?=&%."), headers=headers, content=body)
        assert 500 != answer.status_code, (method, path, headers, body)


@pytest.mark.parametrize(
    ("path", "headers", "code"),
    [
        ("/settings.json", {b"authorization": b"Basic \xff"}, 401),
        ("/settings.json", {b"origin": b"http://["}, 403),
        (f"/{'a' * 3_000}.json", {}, 200),
    ],
    ids=["no base64", "no origin", "no name of a file"],
)
def test_requests_that_were_internal_errors(
    client: TestClient, path: str, headers: dict[bytes, bytes], code: int
) -> None:
    """The refusal is that of other malformed requests; an unknown path is a page, whose script says so."""
    assert code == client.get(path, headers=headers).status_code
