"""The lease that says which process drives a cluster."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs

import orjson
import pytest

from services.hostmgr.kubernetes.apiserver.watch import IDENTITY
from services.hostmgr.kubernetes.apiserver.wire import Json
from services.hostmgr.kubernetes.session import Session
from services.hostmgr.kubernetes.settings import own_name
from tests.unit.hostmgr.kubernetes.scripted import Asked, answer, api_of, chunk_answer, run_scripted, status
from tests.unit.hostmgr.mesos.sockets import TIMEOUT_S, Server, chunk


class Leases:
    """One lease, compared and swapped, with watches of it."""

    def __init__(self) -> None:
        self.lease: Json | None = None
        self.version = 1
        self.conflicts = 0  # this many writes conflict with another writer
        self.changed = threading.Condition()
        self.over = False

    def serve(self, asked: Asked) -> Iterator[bytes]:
        with self.changed:
            if asked.path == IDENTITY:
                reply = answer(200, {"metadata": {"uid": "c"}})
            elif "watch=1" in asked.path:
                reply = chunk_answer()
            elif asked.method == "GET" and "?" in asked.path:
                items = [self.lease] if self.lease else []
                reply = answer(200, {"metadata": {"resourceVersion": str(self.version)}, "items": items})
            elif asked.method == "GET":
                reply = answer(200, self.lease) if self.lease else answer(404, status(404, "NotFound"))
            else:
                reply = self._write(asked)
        yield reply
        version = parse_qs(asked.path.partition("?")[2]).get("resourceVersion")
        seen = int(version[0]) if version else 0
        while "watch=1" in asked.path:
            with self.changed:
                while not self.over and self.version == seen:
                    self.changed.wait(TIMEOUT_S)
                seen = self.version
                line = orjson.dumps({"type": "MODIFIED" if self.lease else "DELETED", "object": self.shown})
            if self.over:
                return
            yield chunk(line + b"\n")

    def _write(self, asked: Asked) -> bytes:
        body = orjson.loads(asked.body)
        current = self.lease["metadata"]["resourceVersion"] if self.lease else None
        if self.conflicts or body["metadata"].get("resourceVersion") != current:
            self.conflicts = max(self.conflicts - 1, 0)
            return answer(409, status(409, "Conflict" if asked.method == "PUT" else "AlreadyExists"))
        self.put(body)
        return answer(200, body)

    def put(self, lease: Json | None) -> None:
        with self.changed:
            self.version += 1
            self.lease = lease
            if lease:
                lease["metadata"]["resourceVersion"] = str(self.version)
            self.changed.notify_all()

    @property
    def shown(self) -> Json:
        return self.lease or {"metadata": {"resourceVersion": str(self.version)}, "spec": {}}


@pytest.fixture
def leases() -> Iterator[Leases]:
    leases = Leases()
    yield leases
    leases.over = True


@pytest.fixture
def server(leases: Leases) -> Iterator[Server]:
    with run_scripted(leases.serve) as server:
        yield server
        with leases.changed:
            leases.over = True
            leases.changed.notify_all()


def test_a_session_takes_the_lease_over_at_once(leases: Leases, server: Server) -> None:
    """The lease is taken even from a live holder, which is notified once of its successor."""
    reported: queue.Queue[str] = queue.Queue()
    with api_of(server) as api:
        older, newer = (Session(api, "peloton", "local", reported.put) for _ in range(2))
        older.begin()
        assert older.is_held
        newer.begin()

        assert reported.get(timeout=TIMEOUT_S) == newer.holder
        assert [False, True] == [older.is_held, newer.is_held]
        assert leases.lease is not None
        spec: dict[str, Any] = leases.lease["spec"]
        assert (newer.holder, 1) == (spec["holderIdentity"], spec["leaseTransitions"])
        older.end()
        newer.end()
    assert reported.empty()


def test_a_lease_that_is_deleted_stays_ours(leases: Leases, server: Server) -> None:
    """No other process has the lease; the next one creates it again, and only then it is lost."""
    reported: queue.Queue[str] = queue.Queue()
    with api_of(server) as api:
        older, newer = (Session(api, "peloton", "local", reported.put) for _ in range(2))
        older.begin()
        leases.put(None)
        assert older.is_held
        newer.begin()
        assert reported.get(timeout=TIMEOUT_S) == newer.holder
        older.end()
        newer.end()


def test_writes_of_others_are_tried_again(leases: Leases, server: Server) -> None:
    """A lease is compared and swapped."""
    leases.conflicts = 3
    with api_of(server) as api:
        session = Session(api, "peloton", "local", pytest.fail)
        session.begin()
        assert session.is_held
        session.end()


def test_a_lease_that_never_becomes_ours_is_an_error(leases: Leases, server: Server) -> None:
    """The error has the name of the lease and the number of tries."""
    leases.conflicts = 100
    with api_of(server) as api, pytest.raises(OSError, match=r"lease peloton-local was not taken over: .* 10 times"):
        Session(api, "peloton", "local", pytest.fail).begin()


def test_without_the_namespace_the_apiserver_says_why() -> None:
    """The error has the message of the apiserver."""
    missing = answer(404, status(404, "NotFound", 'namespaces "peloton" not found'))
    with (
        run_scripted(lambda asked: [missing]) as server,
        api_of(server) as api,
        pytest.raises(OSError, match='HTTP 404: namespaces "peloton" not found'),
    ):
        Session(api, "peloton", "local", pytest.fail).begin()


@pytest.mark.parametrize(
    ("cluster", "name"),
    [
        ("local", "peloton-local"),
        ("a-1", "peloton-a-1"),
        ("East_1", "peloton-east-1-4ca73200"),
        ("a.b", "peloton-a-b-2e7336dc"),
    ],
)
def test_the_name_of_a_lease(cluster: str, name: str) -> None:
    """Characters that Kubernetes does not allow in names are replaced, and the names of such clusters stay distinct."""
    assert name == own_name(cluster)
