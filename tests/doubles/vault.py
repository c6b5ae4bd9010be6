"""A Vault in memory: the documented answers of sign-in and of key-value secrets, version 2, and faults."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ROOT_TOKEN = "root"


class FakeVault:
    """``fault``: an HTTP status with which everything is answered. ``age``: how old new values seem."""

    def __init__(self, namespace: str = "") -> None:
        self.values: dict[str, dict[str, Any]] = {}
        self.created: dict[str, datetime] = {}
        self.tokens, self.logins = {ROOT_TOKEN}, 0
        self.namespace, self.fault, self.age = namespace, 0, timedelta()
        self.seen: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, method: str, path: str, token: str, body: Any) -> tuple[int, Any]:
        self.seen.append(f"{method} {path}")
        if self.fault:
            return self.fault, {"errors": ["Vault is sealed"]}
        if path in ("auth/approle/login", "auth/kubernetes/login"):
            if body not in ({"role_id": "peloton", "secret_id": "s3cret"}, {"role": "peloton", "jwt": "s3cret"}):
                return 400, {"errors": ["invalid role or secret ID"]}
            self.logins += 1
            self.tokens.add(f"token {self.logins}")
            return 200, {"auth": {"client_token": f"token {self.logins}", "lease_duration": 3600, "renewable": True}}
        if token not in self.tokens:
            return 403, {"errors": ["permission denied"]}
        return self._kv(method, path, body)

    def _kv(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        part, _, name = path.removeprefix("secret/").partition("/")
        if method == "LIST":
            below = [key.removeprefix(f"{name}/") for key in self.values if key.startswith(f"{name}/")]
            keys = sorted({key.partition("/")[0] + ("/" if "/" in key else "") for key in below})
            return (200, {"data": {"keys": keys}}) if keys else (404, {"errors": []})
        if method == "POST" and part == "data":
            if name in self.values and body["options"] == {"cas": 0}:
                return 400, {"errors": ["check-and-set parameter did not match the current version"]}
            self.values[name], self.created[name] = body["data"], datetime.now(UTC) - self.age
            return 200, {"data": {"version": 1}}
        if name not in self.values:
            return 404, {"errors": []}
        if method == "DELETE":
            del self.values[name]
            return 204, None
        if part == "metadata":
            return 200, {"data": {"created_time": self.created[name].isoformat().replace("+00:00", "123Z")}}
        return 200, {"data": {"data": self.values[name], "metadata": {"version": 1}}}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        vault = self

        class Handler(BaseHTTPRequestHandler):
            def handle_one(self) -> None:
                size = int(self.headers.get("Content-Length", 0))
                body = json.loads(self.rfile.read(size)) if size else None
                token, path = self.headers.get("X-Vault-Token", ""), self.path.removeprefix("/v1/")
                is_mine = self.headers.get("X-Vault-Namespace", "") == vault.namespace
                status, answer = (
                    vault.answer(self.command, path, token, body) if is_mine else (404, {"errors": ["no namespace"]})
                )
                content = json.dumps(answer).encode() if answer is not None else b""
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_DELETE = do_LIST = handle_one

            def log_message(self, format: str, *args: Any) -> None:
                """Keep quiet."""

        return Handler
