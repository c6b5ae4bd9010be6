"""Logs, usage, images and commands of pods that run as processes of emulated nodes."""

from __future__ import annotations

import asyncio
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from peloton.errors import Aborted, InvalidArgument, NotFound, ResourceExhausted, Unavailable
from peloton.model.host import Prefetched
from peloton.model.ids import Hostname, PodId
from services.hostmgr.driver import CommandStart, Exchange, ExchangeAnswer
from services.hostmgr.kubernetes.apiserver.access import read_access
from services.hostmgr.kubernetes.apiserver.wire import ApiServer, Request
from services.hostmgr.kubernetes.nodes.use import NodeUse
from services.hostmgr.kubernetes.output.command_sessions import (
    IDLE_S,
    INPUT_BYTES_MAX,
    SESSIONS_MAX,
    UNSENT_BYTES_MAX,
    CommandSessions,
)
from services.hostmgr.kubernetes.output.log_readers import LogReaders
from services.hostmgr.kubernetes.output.logs import PodLogs
from services.hostmgr.kubernetes.pods import image_pods
from services.hostmgr.kubernetes.pods.image_pods import ImagePods
from services.hostmgr.kubernetes.settings import KubernetesSettings
from services.lab.kubernetes.nodes.settings import NodeSettings
from services.lab.kubernetes.server import EmulatedKubernetes
from services.lab.kubernetes.settings import EmulatedKubernetesSettings
from services.lab.shared.hosts import HostSpec
from tests.unit.hostmgr.mesos.sockets import TIMEOUT_S

PODS = "/api/v1/namespaces/default/pods"
NODE = "node-0"
SETTINGS = KubernetesSettings("", cluster="west", namespace="default", priority_class="")


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """Return the API of a cluster with one node."""
    folder = tmp_path_factory.mktemp("emulated")
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def do(work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, loop).result(TIMEOUT_S)

    nodes = NodeSettings(folder / "nodes", (HostSpec(NODE, cpus=4, mem=2048),), image_download_s=0.1)
    server = EmulatedKubernetes(EmulatedKubernetesSettings(folder, token="secret", nodes=nodes))
    do(server.start())
    api = ApiServer(read_access(str(server.kubeconfig)))
    yield api
    api.close()
    do(server.stop())
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def run(api: ApiServer, command: str, image: str = "busybox:1") -> str:
    """Create a pod with a generated name, and return the name."""
    name = f"{uuid.uuid4()}-0-1"
    container = {"name": "main", "image": image, "command": ["/bin/sh", "-c", command]}
    spec = {"nodeName": NODE, "restartPolicy": "Never", "containers": [container]}
    made = api.ask(Request("POST", PODS, orjson.dumps({"metadata": {"name": name}, "spec": spec})))
    assert made.status == 201, made.message
    return name


def wait(is_so: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(int(TIMEOUT_S / 0.02)):
        if is_so():
            return
        pause.wait(0.02)
    raise AssertionError("timed out")


def test_a_log_is_followed_to_the_end_of_its_container(api: ApiServer, tmp_path: Path) -> None:
    """Output is delivered while the container runs, and the end after it has ended."""
    go_on = tmp_path / "go-on"
    pod = run(api, f"echo one; while [ ! -e {go_on} ]; do sleep 0.05; done; echo two >&2; exit 3")
    logs = PodLogs(api, "default")
    readers = LogReaders(logs)
    wait(lambda: logs.files(pod) == ("stdout",))
    text, is_end = b"", False
    while b"one\n" not in text:
        text += readers.read(pod, "stdout", len(text), follow=True).data
    go_on.touch()
    while not is_end:
        data, is_end = readers.read(pod, "stdout", len(text), follow=True)
        text += data
    readers.close()

    assert b"one\ntwo\n" == text
    assert (b"two\n", True) == readers.read(pod, "stdout", 4, follow=False)
    assert b"two\n" == logs.tail(pod, 4)


def test_what_pods_of_a_node_use(api: ApiServer) -> None:
    """Usage has the ids of the pods; processor time grows."""
    pod = run(api, "while true; do :; done")
    use = NodeUse(api, "default", lambda node: ())

    def read_used_s() -> float:
        [found] = [one.cpu_s for one in use.samples_of(NODE) if one.pod_id == PodId.parse(pod)] or [0.0]
        return found

    wait(lambda: read_used_s() > 0.1)
    api.ask(Request("DELETE", f"{PODS}/{pod}?gracePeriodSeconds=0"))


def test_an_image_is_there_before_its_pod(api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod that ends at once fetches the image and is deleted; a repeated request creates one pod. The next pod finds
    the image. An image that never arrives is given up, even by a successor.
    """
    monkeypatch.setattr(image_pods, "POLL_S", 0.0)
    images = ImagePods(api, SETTINGS)
    labelled = f"{PODS}?labelSelector=peloton.io%2Fimage-of%3Dwest"

    def pods() -> list[str]:
        return [pod["spec"]["containers"][0]["image"] for pod in api.ask(Request("GET", labelled)).json()["items"]]

    def page() -> dict[str, Any]:
        found: dict[str, Any] = api.ask(Request("GET", "/emulation/nodes")).json()["images"]
        return found

    def none_is_left() -> bool:
        images.run_periodic()
        return not pods()

    wanted = {"ahead:2": [Hostname(NODE)], "absent:1": [Hostname(NODE)]}
    assert [Prefetched(2)] * 2 == [images.prefetch(wanted) for _ in range(2)]
    wait(lambda: "ahead:2" in page()["hosts"].get(NODE, {"present": ()})["present"])  # no node is listed at first

    def one_is_left() -> bool:
        images.run_periodic()
        return ["absent:1"] == pods()

    wait(one_is_left)
    before = page()["counts"]
    pod = run(api, "true", image="ahead:2")
    wait(lambda: api.ask(Request("GET", f"{PODS}/{pod}")).json()["status"].get("phase") == "Succeeded")
    assert (before["hits"] + 1, before["misses"]) == (page()["counts"]["hits"], page()["counts"]["misses"])
    monkeypatch.setattr(image_pods, "DEADLINE_S", 0)
    images = ImagePods(api, SETTINGS)
    wait(none_is_left)


def test_images_beyond_the_bound_come_with_their_pods(api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """An apiserver that rejects such a pod is named in the error."""
    monkeypatch.setattr(image_pods, "PODS_MAX", 1)
    assert Prefetched(0) == ImagePods(api, SETTINGS).prefetch({"web:2": [Hostname(NODE)]})

    monkeypatch.setattr(image_pods, "PODS_MAX", 9)
    with pytest.raises(Unavailable, match=r"image prefetch by pods: .*namespaces .*gone.* not found"):
        ImagePods(api, replace(SETTINGS, namespace="gone")).prefetch({"web:2": [Hostname(NODE)]})


class Caller:
    """The client of one session with a command; it keeps the output."""

    def __init__(self, sessions: CommandSessions, pod: str, *argv: str, has_terminal: bool = False) -> None:
        self.sessions, self.pod = sessions, pod
        self.name = str(uuid.uuid4())
        self.start = CommandStart("", argv, has_input=True, has_terminal=has_terminal)
        self.number = -1
        self.stdout = self.stderr = b""
        self.exit_code: int | None = None

    def exchange(self, **content: Any) -> ExchangeAnswer:
        """Make the next exchange."""
        self.number += 1
        start = None if self.number else self.start
        answer = self.repeat(start=start, **content)
        self.stdout += answer.stdout
        self.stderr += answer.stderr
        self.exit_code = answer.exit_code
        return answer

    def repeat(self, **content: Any) -> ExchangeAnswer:
        """Repeat the last exchange."""
        return self.sessions.exchange(self.pod, Exchange(self.name, self.number, **content))

    def until(self, is_so: Callable[[], bool]) -> None:
        """Exchange without input until a condition holds."""

        def is_so_now() -> bool:
            if not is_so():
                self.exchange()
            return is_so()

        wait(is_so_now)


@pytest.fixture
def sessions(api: ApiServer) -> Iterator[CommandSessions]:
    sessions = CommandSessions(api, PodLogs(api, "default"))
    yield sessions
    sessions.close()


@pytest.fixture(scope="module")
def sleeper(api: ApiServer) -> str:
    """Return the name of a running pod."""
    pod = run(api, "sleep 1000")
    logs = PodLogs(api, "default")
    wait(lambda: logs.files(pod) == ("stdout",))
    return pod


def test_a_command_and_its_exit_code(sessions: CommandSessions, sleeper: str) -> None:
    """The outputs are separate, and the input has an end."""
    caller = Caller(sessions, sleeper, "sh", "-c", "echo err >&2; cat; exit 3")
    caller.exchange()
    caller.exchange(data=b"typed ")
    caller.exchange(data=b"text", ends_input=True)
    caller.until(lambda: caller.exit_code is not None)

    assert (b"typed text", b"err\n", 3) == (caller.stdout, caller.stderr, caller.exit_code)


def test_what_is_repeated_is_not_typed_twice(sessions: CommandSessions, sleeper: str) -> None:
    """A repeated exchange has the first answer, even the first and the last exchange; none may be skipped."""
    caller = Caller(sessions, sleeper, "cat")
    first = caller.exchange()
    assert first == caller.repeat(start=caller.start)
    said = caller.exchange(data=b"once")
    assert said == caller.repeat(data=b"once")
    with pytest.raises(InvalidArgument, match="exchange 3 follows 1: want 2"):
        sessions.exchange(sleeper, Exchange(caller.name, 3))
    caller.exchange(ends_input=True)
    caller.until(lambda: caller.exit_code is not None)
    assert (b"once", 0, 0) == (caller.stdout, caller.exit_code, caller.repeat().exit_code)
    caller.number += 1
    with pytest.raises(Aborted, match="is over"):
        caller.repeat()


def test_a_terminal(sessions: CommandSessions, sleeper: str) -> None:
    """The terminal has the size of the caller's, and follows its changes."""
    caller = Caller(sessions, sleeper, "sh", has_terminal=True)
    caller.exchange(terminal=(91, 17))
    caller.exchange(data=b"stty size; echo fi''rst\n")
    caller.until(lambda: b"first" in caller.stdout)
    caller.exchange(terminal=(92, 18))
    caller.exchange(data=b"stty size; exit 5\n")
    caller.until(lambda: caller.exit_code is not None)

    assert 5 == caller.exit_code
    sizes = re.findall(rb"\d+ \d+", caller.stdout)  # a prompt may stand before each
    assert [b"17 91", b"18 92"] == sizes


def test_a_command_that_reads_slowly(sessions: CommandSessions, sleeper: str, tmp_path: Path) -> None:
    """The caller has to wait, and no input is lost."""
    go_on = tmp_path / "go-on"
    caller = Caller(sessions, sleeper, "sh", "-c", f"while [ ! -e {go_on} ]; do sleep 0.05; done; wc -c")
    wants_input = caller.exchange().wants_input
    given = 0
    while wants_input and given < 256 * INPUT_BYTES_MAX:
        wants_input = caller.exchange(data=b"x" * INPUT_BYTES_MAX).wants_input
        given += INPUT_BYTES_MAX
    assert not wants_input
    go_on.touch()
    wait(lambda: caller.exchange().wants_input)
    caller.exchange(ends_input=True)
    caller.until(lambda: caller.exit_code is not None)

    assert UNSENT_BYTES_MAX < given == int(caller.stdout)


def test_idle_sessions(api: ApiServer, sleeper: str) -> None:
    """A session ends after its idle time, and when its caller ends it."""
    now_s = 0.0
    sessions = CommandSessions(api, PodLogs(api, "default"), lambda: now_s)
    forgotten, left = Caller(sessions, sleeper, "cat"), Caller(sessions, sleeper, "cat")
    forgotten.exchange()
    left.exchange()
    left.repeat(is_last=True)
    left.number += 1
    with pytest.raises(Aborted, match="is over"):
        left.repeat()
    now_s = IDLE_S + 1
    sessions.close_idle()
    forgotten.number += 1
    with pytest.raises(NotFound, match=f"pod {sleeper} has no session {forgotten.name}"):
        forgotten.repeat()


def test_no_more_sessions_than_may_be(sessions: CommandSessions, sleeper: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions that have ended do not count for the limit."""
    monkeypatch.setattr("services.hostmgr.kubernetes.output.command_sessions.SESSIONS_MAX", 2)
    assert SESSIONS_MAX > 2
    callers = [Caller(sessions, sleeper, "cat") for _ in range(3)]
    callers[0].exchange()
    callers[1].exchange()
    with pytest.raises(ResourceExhausted, match="2 commands run"):
        callers[2].exchange()
    callers[0].repeat(is_last=True)
    callers[2].number = -1
    assert callers[2].exchange().exit_code is None


def check_refusal(caller: Caller, content: dict[str, Any]) -> None:
    """Wait for the rejection, which may come a little later."""
    caller.repeat(**content)
    caller.until(lambda: False)


@pytest.mark.parametrize(
    ("pod", "content", "error", "text"),
    [
        (
            "gone",
            {"start": CommandStart("", ("ls",), False, False)},
            NotFound,
            "pod gone is not in the cluster any more",
        ),
        ("", {"start": CommandStart("", ("/no/such",), False, False)}, Aborted, "/no/such"),
        ("", {"start": CommandStart("no", ("ls",), False, False)}, Aborted, "no"),
        ("", {"start": CommandStart("", (), False, False)}, InvalidArgument, "at least one word"),
        ("", {}, InvalidArgument, "number 0, names the command"),
        ("", {"data": b"x" * (INPUT_BYTES_MAX + 1)}, InvalidArgument, "65537 bytes"),
    ],
)
def test_commands_that_are_refused(
    sessions: CommandSessions, sleeper: str, pod: str, content: dict[str, Any], error: type[Exception], text: str
) -> None:
    """The error says whose fault the rejection is; a repeated call has the same error."""
    caller = Caller(sessions, pod or sleeper)
    caller.number = 0
    with pytest.raises(error, match=text):
        check_refusal(caller, content)
    with pytest.raises(error, match=text):
        caller.repeat(**({} if caller.number else content))
