"""A minimal client of an apiserver for tests, independent of the one under test: it adds no headers or fields, does not
retry, and keeps answers as they arrived.
"""

from __future__ import annotations

import base64
import http.client
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import orjson
import yaml

Json = dict[str, Any]
ANSWER_TIMEOUT_S = 90.0
"""Timeout, longer than the 60 s after which an apiserver ends a request by itself."""
JSON = "application/json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]  # names in lower case
    body: bytes

    def json(self) -> Json:
        found = orjson.loads(self.body)
        assert isinstance(found, dict), f"an object was expected: {self.body[:200]!r}"
        return found


@dataclass(frozen=True)
class Login:
    """Address of an apiserver, and the credentials for it."""

    server: str
    token: str = ""
    tls: ssl.SSLContext | None = None

    def with_token(self, token: str) -> Login:
        """Return a login as another user."""
        return Login(self.server, token, self.tls)


def login_of(kubeconfig: Path) -> Login:
    """Return the login of the current context; tokens and client certificates, in the file or in files of their own."""
    config = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    contexts = {entry["name"]: entry["context"] for entry in config["contexts"]}
    context = contexts[config["current-context"]]
    cluster = next(entry["cluster"] for entry in config["clusters"] if entry["name"] == context["cluster"])
    user = next(entry["user"] for entry in config["users"] if entry["name"] == context["user"])
    token = user.get("token") or (Path(user["tokenFile"]).read_text().strip() if "tokenFile" in user else "")
    if urlsplit(cluster["server"]).scheme == "http":
        return Login(cluster["server"], token)
    tls = ssl.create_default_context(cadata=_pem(kubeconfig, cluster, "certificate-authority"))
    if cluster.get("insecure-skip-tls-verify"):
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    if certificate := _pem(kubeconfig, user, "client-certificate"):
        pair = kubeconfig.with_name(f"{kubeconfig.name}.client.pem")  # the ssl module reads files only
        pair.touch(mode=0o600)
        pair.write_text(certificate + (_pem(kubeconfig, user, "client-key") or ""), encoding="utf-8")
        tls.load_cert_chain(pair)
        pair.unlink()
    return Login(cluster["server"], token, tls)


def _pem(kubeconfig: Path, owner: Json, name: str) -> str | None:
    if f"{name}-data" in owner:
        return base64.b64decode(owner[f"{name}-data"]).decode()
    return (kubeconfig.parent / owner[name]).read_text(encoding="utf-8") if name in owner else None


class Client:
    """Client with one connection at a time for each thread; opened when needed, closed by ``close``."""

    def __init__(self, login: Login) -> None:
        self.login = login
        self._own = threading.local()
        self._open: list[http.client.HTTPConnection] = []

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        while self._open:
            self._open.pop().close()
        self._own = threading.local()

    def ask(self, method: str, path: str, body: Any = None, content_type: str = JSON, *, accept: str = JSON) -> Reply:
        """Send a request. ``body`` is sent as JSON unless it is bytes. Raises OSError and HTTPException."""
        connection = getattr(self._own, "connection", None)
        if connection is None:
            connection = self._own.connection = self._connection(ANSWER_TIMEOUT_S)
            self._open.append(connection)
        try:
            connection.request(method, path, *self._content(body, content_type, accept))
            answer = connection.getresponse()
            headers = {name.lower(): value for name, value in answer.getheaders()}
            return Reply(answer.status, headers, answer.read())
        except BaseException:
            connection.close()  # http.client opens it again with the next request
            raise

    def watch(self, path: str) -> Watch:
        """Watch ``path``, with ``watch=1`` in its query."""
        connection = self._connection(None)
        try:
            connection.request("GET", path, *self._content(None))
            return Watch(connection, connection.getresponse())
        except BaseException:
            connection.close()
            raise

    def _connection(self, timeout_s: float | None) -> http.client.HTTPConnection:
        url = urlsplit(self.login.server)
        assert url.hostname is not None
        if self.login.tls is None:
            return http.client.HTTPConnection(url.hostname, url.port, timeout=timeout_s)
        return http.client.HTTPSConnection(url.hostname, url.port, timeout=timeout_s, context=self.login.tls)

    def _content(self, body: Any, content_type: str = JSON, accept: str = JSON) -> tuple[bytes | None, dict[str, str]]:
        headers = {"Accept": accept}
        if self.login.token:
            headers["Authorization"] = f"Bearer {self.login.token}"
        if body is None:
            return None, headers
        return (body if isinstance(body, bytes) else orjson.dumps(body)), {**headers, "Content-Type": content_type}


class Watch:
    """Stream of events; ends when the server ends it or, from any thread, with ``close``."""

    def __init__(self, connection: http.client.HTTPConnection, answer: http.client.HTTPResponse) -> None:
        self.status = answer.status
        self._connection, self._answer, self._socket = connection, answer, connection.sock
        self._closing = threading.Lock()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __iter__(self) -> Iterator[Json]:
        with suppress(OSError, ValueError, AttributeError, http.client.HTTPException):  # how a closed one ends
            while line := self._answer.readline():
                yield orjson.loads(line)

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(2)
        with self._closing:  # an answer is not closed by two threads at a time
            self._answer.close()
            self._connection.close()
