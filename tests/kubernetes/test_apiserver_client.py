"""The driver's client of an apiserver, against a real one."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from services.hostmgr.kubernetes.apiserver import watch
from services.hostmgr.kubernetes.apiserver.access import Access, read_access
from services.hostmgr.kubernetes.apiserver.watch import Reflector
from services.hostmgr.kubernetes.apiserver.wire import ANSWER_TIMEOUT_S, Answer, ApiServer, Json, Refused, Request
from services.hostmgr.kubernetes.session import Session
from tests.kubernetes.fixtures import REAL_KUBERNETES, running_control_plane
from tests.nightly import NIGHTLY

pytestmark = REAL_KUBERNETES
TIMEOUT_S = 180.0
NAMESPACE = "apiserver-client"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
PODS_OF_NO_NODE = 700


@pytest.fixture(scope="module")
def api(kubernetes: Path) -> Iterator[ApiServer]:
    api = ApiServer(read_access(str(kubernetes)))
    made = api.ask(Request("POST", "/api/v1/namespaces", orjson.dumps({"metadata": {"name": NAMESPACE}})))
    assert made.status == 201, made.message
    yield api
    api.ask(Request("DELETE", f"/api/v1/namespaces/{NAMESPACE}"))
    api.close()


class Recorder:
    def __init__(self) -> None:
        self.said: queue.Queue[tuple[str, Any]] = queue.Queue()

    def on_replace(self, objects: Sequence[Json]) -> None:
        self.said.put(("replaced", sorted(one["metadata"]["name"] for one in objects)))

    def on_change(self, kind: str, object: Json) -> None:
        self.said.put((kind, object["metadata"]["name"]))

    def on_lost(self, why: str) -> None:
        self.said.put(("lost", why))

    def until(self, kind: str) -> Any:
        """Return the value of the next record of this kind."""
        while True:
            found, value = self.said.get(timeout=TIMEOUT_S)
            if found == kind:
                return value


def create(name: str) -> Request:
    container = {"name": "main", "image": "busybox"}
    spec = {"schedulerName": "peloton", "containers": [container]}
    return Request("POST", PODS, orjson.dumps({"metadata": {"name": name}, "spec": spec}))


def test_many_creates_then_a_list_in_pages_then_changes(api: ApiServer) -> None:
    """Every pod is created once, a repeated create is a conflict, and a reflector sees them all, and later changes."""
    names = [f"pod-{number:04}" for number in range(PODS_OF_NO_NODE)]
    answers = api.ask_all([create(name) for name in names])
    assert {201} == {a.status if isinstance(a, Answer) else a for a in answers}
    again = api.ask(create(names[0]))
    assert (409, "AlreadyExists") == (again.status, again.reason)

    recorder = Recorder()
    reflector = Reflector(api, PODS, recorder)
    reflector.start()
    try:
        assert names == recorder.until("replaced")
        assert api.ask(Request("DELETE", f"{PODS}/{names[0]}")).is_ok
        assert names[0] == recorder.until("DELETED")
    finally:
        reflector.stop()


class Interrupted(ApiServer):
    """Client that runs a function between the first two pages of a list."""

    def __init__(self, access: Access, act: Callable[[], None]) -> None:
        super().__init__(access)
        self.statuses: list[int] = []
        """Status codes of the pages."""
        self._act, self._has_acted = act, False

    def ask(self, request: Request, timeout_s: float = ANSWER_TIMEOUT_S) -> Answer:
        if "continue=" in request.path and not self._has_acted:
            self._has_acted = True
            self._act()
        answer = super().ask(request, timeout_s)
        if "limit=" in request.path:
            self.statuses.append(answer.status)
        return answer


def test_a_list_that_expires_between_two_pages_begins_again(
    control_plane: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An expired list begins again, with objects created meanwhile. Apiservers do not cache Events: each page of them
    is read from etcd, which is compacted.
    """
    monkeypatch.setattr(watch, "PAGE_OBJECTS", 1)
    path = "/api/v1/namespaces/default/events"

    def create(name: str) -> int:
        body = {"metadata": {"name": name}, "involvedObject": {"namespace": "default"}, "reason": "Expiry"}
        made = interrupted.ask(Request("POST", path, orjson.dumps(body)))
        assert made.status == 201, made.message
        return int(made.json()["metadata"]["resourceVersion"])

    access = read_access(str(control_plane.kubeconfig))
    interrupted = Interrupted(access, lambda: control_plane.forget_before(create("third")))
    recorder = Recorder()
    reflector = Reflector(interrupted, f"{path}?fieldSelector=reason%3DExpiry", recorder)
    try:
        for name in ("first", "second"):
            create(name)
        reflector.start()
        assert ["first", "second", "third"] == recorder.until("replaced")
        assert [200, 410, 200, 200, 200] == interrupted.statuses
    finally:
        reflector.stop()
        interrupted.close()


def test_the_last_session_is_the_only_one(api: ApiServer) -> None:
    """The older session ends with the name of the new holder of its lease."""
    reported: queue.Queue[str] = queue.Queue()
    older, newer = (Session(api, NAMESPACE, "local", reported.put) for _ in range(2))
    try:
        older.begin()
        assert older.is_held
        newer.begin()
        assert newer.holder == reported.get(timeout=TIMEOUT_S)
        assert [False, True] == [older.is_held, newer.is_held]
    finally:
        older.end()
        newer.end()


def test_refusals_say_why(control_plane: Any, api: ApiServer) -> None:
    """A refusal names the missing rights, or the missing account."""
    user = ApiServer(read_access(str(control_plane.user_kubeconfig)))
    try:
        refused = user.ask(Request("GET", PODS))
        assert (403, "Forbidden") == (refused.status, refused.reason)
        with pytest.raises(Refused, match='User "ordinary" cannot watch resource "pods"'):
            user.stream(f"{PODS}?watch=1")
    finally:
        user.close()


@NIGHTLY
def test_a_killed_apiserver_and_store_are_survived() -> None:
    """Changes during an outage of both are in the list that follows; the session remains valid."""
    with running_control_plane() as plane:
        api = ApiServer(read_access(str(plane.kubeconfig)))
        session = Session(api, "default", "local", pytest.fail)
        recorder = Recorder()
        reflector = Reflector(api, "/api/v1/configmaps?labelSelector=test", recorder)
        try:
            session.begin()
            reflector.start()
            assert [] == recorder.until("replaced")
            for part in ("kube-apiserver", "etcd"):
                plane.kill(part)
            assert recorder.until("lost")
            with pytest.raises(OSError):  # noqa: PT011 (whatever the system says of a port that nobody has)
                api.ask(Request("GET", "/readyz"))
            for part in ("etcd", "kube-apiserver"):
                plane.start(part)
            recorder.until("replaced")
            made = {"metadata": {"name": "later", "labels": {"test": "1"}}}
            assert api.ask(Request("POST", "/api/v1/namespaces/default/configmaps", orjson.dumps(made))).status == 201
            assert "later" == recorder.until("ADDED")
            assert session.is_held
        finally:
            reflector.stop()
            session.end()
            api.close()
