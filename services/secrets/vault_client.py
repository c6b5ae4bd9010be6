"""HTTP API of HashiCorp Vault, and of OpenBao: key-value secrets of version 2, and sign-in by token, AppRole or
Kubernetes."""

from __future__ import annotations

import json
import ssl
import threading
import time
from base64 import b64decode, b64encode
from dataclasses import dataclass
from datetime import datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from peloton.errors import InvalidArgument, Unavailable
from peloton.files import read_authorities, read_text_file
from peloton.model.text import shorten

TOKEN, APPROLE, KUBERNETES = "token", "approle", "kubernetes"
ANSWER_BYTES_MAX = 16 * 2**20
CREDENTIAL_BYTES_MAX = 64 * 1024
RENEW_SHARE = 0.5
"""Share of a token's life after which another one is requested."""
_FORBIDDEN, _NOT_FOUND = 403, 404


@dataclass(frozen=True)
class VaultSettings:
    """``credential_file``: the token, the secret id of an AppRole, or the token of a service account."""

    address: str
    namespace: str
    mount: str
    auth: str
    auth_mount: str
    role: str
    credential_file: str
    ca_file: str
    timeout_s: float


class Answer(NamedTuple):
    status: int
    body: dict[str, Any]


class VaultClient:
    """A client. Any thread may call; each call opens a connection of its own."""

    def __init__(self, settings: VaultSettings) -> None:
        """Raises InvalidArgument for a file of authorities that is none."""
        self._settings = settings
        self._url = urlsplit(settings.address)
        self._tls = self._make_tls() if self._url.scheme == "https" else None
        self._lock = threading.Lock()
        self._token, self._renew_s = "", 0.0

    # -- key-value secrets

    def put(self, path: str, value: bytes) -> None:
        """Create a value; an existing one is not replaced. Raises Unavailable."""
        data = {"options": {"cas": 0}, "data": {"value": b64encode(value).decode()}}
        self._expect("POST", self._kv("data", path), data)

    def get(self, path: str) -> bytes:
        """Return a value. Raises Unavailable, also for a missing one."""
        answer = self._ask("GET", self._kv("data", path))
        if answer.status == _NOT_FOUND:
            raise Unavailable(f"{self} has no value at {self._settings.mount}/{path}: it was deleted there")
        try:
            return b64decode(self._accept(answer, path).body["data"]["data"]["value"], validate=True)
        except (KeyError, TypeError, ValueError):
            raise Unavailable(f"{self}: the value at {self._settings.mount}/{path} is not one of Peloton") from None

    def list(self, path: str) -> list[str]:
        """Return the names below a path; those of folders end with a slash."""
        answer = self._ask("LIST", self._kv("metadata", path))
        if answer.status == _NOT_FOUND:
            return []
        found = self._accept(answer, path).body.get("data") or {}
        return [str(name) for name in found.get("keys") or ()]

    def age_s(self, path: str) -> float:
        """Return how long ago a value was created, by the clock of this machine."""
        found = self._expect("GET", self._kv("metadata", path)).body
        created = datetime.fromisoformat(str(found["data"]["created_time"]))
        return time.time() - created.timestamp()

    def delete(self, path: str) -> None:
        """Delete a value with all its versions; one that is not there counts as deleted."""
        answer = self._ask("DELETE", self._kv("metadata", path))
        if answer.status != _NOT_FOUND:
            self._accept(answer, path)

    # -- requests

    def _kv(self, part: str, path: str) -> str:
        return f"{self._settings.mount}/{part}/{quote(path)}"

    def _expect(self, method: str, path: str, body: Any = None) -> Answer:
        return self._accept(self._ask(method, path, body), path)

    def _accept(self, answer: Answer, path: str) -> Answer:
        if answer.status >= 300:
            errors = answer.body.get("errors")
            reasons = " ".join("; ".join(map(str, errors)).split()) if isinstance(errors, list) else ""
            raise Unavailable(
                f"{self} answered {answer.status} ({shorten(reasons, 300) or 'no reason given'}) for {path}"
            )
        return answer

    def _ask(self, method: str, path: str, body: Any = None) -> Answer:
        """Send a request with a token, and once more with a new one where the token is refused. Raises Unavailable."""
        token = self._sign_in()
        answer = self._send(method, path, body, token)
        if answer.status == _FORBIDDEN:
            with self._lock:
                if self._token == token:
                    self._token = ""
            renewed = self._sign_in()
            if renewed != token:
                answer = self._send(method, path, body, renewed)
        return answer

    def _sign_in(self) -> str:
        """Return a token. Raises Unavailable."""
        settings = self._settings
        with self._lock:
            if settings.auth == TOKEN:
                return self._credential()
            if self._token and time.monotonic() < self._renew_s:
                return self._token
            key = "secret_id" if settings.auth == APPROLE else "jwt"
            role = "role_id" if settings.auth == APPROLE else "role"
            path = f"auth/{settings.auth_mount or settings.auth}/login"
            body = {role: settings.role, key: self._credential()}
            found = self._accept(self._send("POST", path, body, token=""), path).body.get("auth") or {}
            self._token = str(found.get("client_token", ""))
            if not self._token:
                raise Unavailable(f"{self}: the answer of {path} has no token")
            lasts_s = float(found.get("lease_duration") or 0)
            self._renew_s = time.monotonic() + (lasts_s * RENEW_SHARE if lasts_s else float("inf"))
            return self._token

    def _credential(self) -> str:
        file = self._settings.credential_file
        try:
            return read_text_file(file, "credential of Vault", CREDENTIAL_BYTES_MAX).strip()
        except OSError as error:
            raise Unavailable(f"credential of Vault {file} cannot be read: {error.strerror}") from None
        except InvalidArgument as error:
            raise Unavailable(error.message) from None

    def _send(self, method: str, path: str, body: Any, token: str) -> Answer:
        headers = {"X-Vault-Request": "true", "Content-Type": "application/json"}
        headers |= {"X-Vault-Token": token} if token else {}
        headers |= {"X-Vault-Namespace": self._settings.namespace} if self._settings.namespace else {}
        connection = self._connection()
        try:
            content = json.dumps(body).encode() if body is not None else None
            connection.request(method, f"{self._url.path.rstrip('/')}/v1/{path}", content, headers)
            response = connection.getresponse()
            answered = response.read(ANSWER_BYTES_MAX + 1)
        except (OSError, HTTPException) as error:
            raise Unavailable(f"{self} does not answer: {str(error) or type(error).__name__}") from None
        finally:
            connection.close()
        if len(answered) > ANSWER_BYTES_MAX:
            raise Unavailable(f"{self}: the answer for {path} has more than {ANSWER_BYTES_MAX:,} bytes")
        try:
            found = json.loads(answered) if answered else {}
        except ValueError:
            found = {}
        return Answer(response.status, found if isinstance(found, dict) else {})

    def _connection(self) -> HTTPConnection:
        host, timeout_s = self._url.hostname or "", self._settings.timeout_s
        if self._tls is None:
            return HTTPConnection(host, self._url.port, timeout=timeout_s)
        return HTTPSConnection(host, self._url.port, timeout=timeout_s, context=self._tls)

    def _make_tls(self) -> ssl.SSLContext:
        file = self._settings.ca_file
        try:
            return ssl.create_default_context(cadata=read_authorities(file) if file else None)
        except (OSError, InvalidArgument) as error:
            raise InvalidArgument(f"authorities of Vault {file}: {error}") from None

    def __str__(self) -> str:
        return f"Vault at {self._url.scheme}://{self._url.netloc.rpartition('@')[2]}"
