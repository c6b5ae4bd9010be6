"""Questions to a Mesos master and its agents outside the framework's stream."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import orjson

from services.hostmgr.mesos.access import DENIED, OPEN, MesosAccess
from services.hostmgr.mesos.wire import CONNECT_TIMEOUT_S

TIMEOUT_S = 10.0
STATISTICS_TIMEOUT_S = 3.0
LONG_TIMEOUT_S = 30.0
"""For the beginning of a long answer, from a master that has just made offers of all its agents."""
PIECE_BYTES = 1 << 20
Json = dict[str, Any]


class Denied(OSError):
    """Our credentials are refused."""


class Operator:
    """All methods raise OSError, also for an error status; Denied when that is 401 or 403. Thread-safe."""

    def __init__(self, access: MesosAccess = OPEN) -> None:
        self._access = access

    def call(self, master: str, body: Json) -> Json:
        """POST to the operator API of ``host:port``."""
        answer: Json = self._exchange(master, "POST", "/api/v1", orjson.dumps(body))
        return answer

    def answer_of(self, master: str, body: Json) -> Iterator[bytes]:
        """The answer to a call in pieces, for those that are long."""
        with self._open(master, "POST", "/api/v1", orjson.dumps(body), LONG_TIMEOUT_S) as response:
            while piece := response.read(PIECE_BYTES):
                yield piece

    def agent_work_dir(self, address: str) -> str:
        state = self._exchange(address, "GET", "/state")
        return str(state["flags"]["work_dir"])

    def browse(self, address: str, path: str) -> list[str]:
        """Paths of the files of a directory on an agent."""
        return [entry["path"] for entry in self._exchange(address, "GET", f"/files/browse?path={quote(path)}")]

    def statistics(self, address: str, process: str) -> list[Json]:
        """What each executor of an agent uses."""
        path = f"/{process}/monitor/statistics"
        rows: list[Json] = self._exchange(address, "GET", path, timeout_s=STATISTICS_TIMEOUT_S)
        return rows

    def _exchange(
        self, address: str, method: str, path: str, body: bytes | None = None, timeout_s: float = TIMEOUT_S
    ) -> Any:
        with self._open(address, method, path, body, timeout_s) as response:
            text = response.read()
        return orjson.loads(text) if text else {}

    @contextmanager
    def _open(
        self, address: str, method: str, path: str, body: bytes | None, timeout_s: float
    ) -> Iterator[http.client.HTTPResponse]:
        connection = self._connection(address)
        try:
            connection.connect()
            connection.sock.settimeout(timeout_s)
            headers = {"Accept": "application/json"} | ({"Content-Type": "application/json"} if body else {})
            if authorization := self._access.authorization:
                headers["Authorization"] = authorization
            connection.request(method, path, body=body, headers=headers)
            response = connection.getresponse()
            if response.status != 200:
                text = response.read()[:200].decode(errors="replace")
                kind = Denied if response.status in DENIED else OSError
                raise kind(f"{method} {path} at {address}: HTTP {response.status} {text}")
            yield response
        except http.client.HTTPException as error:
            raise OSError(f"{method} {path} at {address}: {error!r}") from error
        finally:
            connection.close()

    def _connection(self, address: str) -> http.client.HTTPConnection:
        host, _, port = address.rpartition(":")
        where = host.strip("[]"), int(port)
        if self._access.tls is None:
            return http.client.HTTPConnection(*where, timeout=CONNECT_TIMEOUT_S)
        return http.client.HTTPSConnection(*where, timeout=CONNECT_TIMEOUT_S, context=self._access.tls)
