"""Calls to a Mesos master and its agents outside the framework's stream."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import orjson

from peloton.api.mesos_access import DENIED, OPEN, MesosAccess
from services.hostmgr.mesos.wire import CONNECT_TIMEOUT_S

TIMEOUT_S = 10.0
STATISTICS_TIMEOUT_S = 3.0
FILE_TIMEOUT_S = 2.0
FLAGS_TIMEOUT_S = 2.0
LONG_TIMEOUT_S = 30.0
"""Timeout of the first byte of a long answer: a master that has just offered all its agents is slow."""
PIECE_BYTES = 1 << 20
_DONE = (200, 202)
Json = dict[str, Any]


class Denied(OSError):
    """The credentials were rejected."""


class Operator:
    """HTTP client of masters and agents. All methods raise OSError, also for an error status; Denied when that is 401
    or 403. Thread-safe."""

    def __init__(self, access: MesosAccess = OPEN, refusal: Callable[[], str] = str) -> None:
        """``refusal`` returns why this process may change nothing now, or ""."""
        self._access = access
        self._refusal = refusal

    def call(self, master: str, body: Json) -> Json:
        """Posts to the operator API of ``host:port``."""
        answer: Json = self._exchange(master, "POST", "/api/v1", orjson.dumps(body))
        return answer

    def answer_of(self, master: str, body: Json) -> Iterator[bytes]:
        """Yield the answer to a call in pieces, for long answers."""
        with self._open(master, "POST", "/api/v1", orjson.dumps(body), LONG_TIMEOUT_S) as response:
            while piece := response.read(PIECE_BYTES):
                yield piece

    def agent_state(self, address: str) -> Json:
        """Return the flags, frameworks and executors of an agent."""
        state: Json = self._exchange(address, "GET", "/state")
        return state

    def flags(self, address: str, process: str) -> Json:
        """Return the flags of an agent, by their names."""
        flags: Json = self._exchange(address, "GET", f"/{process}/flags", timeout_s=FLAGS_TIMEOUT_S)["flags"]
        return flags

    def browse(self, address: str, path: str) -> list[str]:
        """Return the paths of the files of a directory on an agent."""
        return [entry["path"] for entry in self._exchange(address, "GET", f"/files/browse?path={quote(path)}")]

    def end_of_file(self, address: str, path: str, limit_bytes: int) -> bytes:
        """Return the last bytes of a file on an agent."""
        url = f"/files/read?path={quote(path)}"
        size = int(self._exchange(address, "GET", f"{url}&offset=-1", timeout_s=FILE_TIMEOUT_S)["offset"])
        url = f"{url}&offset={max(0, size - limit_bytes)}"
        with self._open(address, "GET", url, None, FILE_TIMEOUT_S) as response:
            # A file need not be text, and agents pass its bytes on unchanged.
            text = response.read().decode("utf-8", "replace")
        return str(json.loads(text, strict=False)["data"]).encode()

    def statistics(self, address: str, process: str) -> list[Json]:
        """Return the resource use of each executor of an agent."""
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
            if body and (why := self._refusal()):
                raise ConnectionRefusedError(why)
            headers = {"Accept": "application/json"} | ({"Content-Type": "application/json"} if body else {})
            headers |= self._access.headers
            connection.request(method, path, body=body, headers=headers)
            response = connection.getresponse()
            if response.status not in _DONE:
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
        return self._access.connection(host.strip("[]"), int(port), CONNECT_TIMEOUT_S)


def container_of(state: Json, framework_id: str, executor_id: str) -> str:
    """Return from an agent's state the id of the container in which an executor runs; empty when it does not run."""
    executors = (row["executors"] for row in state.get("frameworks", ()) if row["id"] == framework_id)
    found = (row["container"] for rows in executors for row in rows if row["id"] == executor_id)
    return str(next(found, ""))


def stderr_path(framework_id: str, executor_id: str) -> str:
    """Return the virtual path under which agents serve an executor's stderr."""
    return f"/frameworks/{framework_id}/executors/{executor_id}/runs/latest/stderr"
