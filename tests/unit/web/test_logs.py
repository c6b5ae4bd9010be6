"""Logs that pages follow: from an agent, or through the API, to the end of a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import orjson
import pytest
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.testclient import TestClient

from peloton.api.mesos_access import OPEN
from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha.pod.svc import pod_svc_pb2
from services.web import logs
from services.web.api import Api
from services.web.log_files import LogFiles
from services.web.logs import Logs
from tests.unit.web.viewing import code_text_reason

JOB = "91b1b8e5-2ba8-11e7-bc23-0242ac11000d"
RUN = f"{JOB}-0-1"


class Pods:
    """One instance. ``states`` are returned in order, the last one repeatedly; ``whole`` is its stdout, in pieces of
    a few bytes."""

    def __init__(self) -> None:
        self.states = ["RUNNING", "SUCCEEDED"]
        self.run = RUN
        self.whole = b"caf\xc3\xa9\nbar\n"
        self.piece_bytes = 4
        self.paths = [[], ["stdout"]]
        self.refusal = task_pb2.BrowseSandboxResponse.Error()
        self.offsets: list[int] = []
        self.tasks = self.pods = self

    async def Get(self, request: task_pb2.GetRequest, timeout: float) -> task_pb2.GetResponse:
        answer = task_pb2.GetResponse()
        if request.instanceId:
            answer.outOfRange.instanceCount = 1
            return answer
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        answer.result.runtime.state = task_pb2.TaskState.Value(state)
        answer.result.runtime.mesosTaskId.value = self.run
        return answer

    async def BrowseSandbox(self, request: Any, timeout: float) -> task_pb2.BrowseSandboxResponse:
        paths = self.paths.pop(0) if len(self.paths) > 1 else self.paths[0]
        answer = task_pb2.BrowseSandboxResponse(paths=paths)
        if self.refusal.ListFields() and not paths:
            answer.error.CopyFrom(self.refusal)
        return answer

    async def GetPodFile(self, request: Any, timeout: float) -> pod_svc_pb2.GetPodFileResponse:
        self.offsets.append(request.offset)
        data = self.whole[request.offset : request.offset + self.piece_bytes]
        return pod_svc_pb2.GetPodFileResponse(data=data, is_end=request.offset + len(data) >= len(self.whole))


@pytest.fixture
def pods(monkeypatch: pytest.MonkeyPatch) -> Pods:
    monkeypatch.setattr(logs, "POLL_S", 0.0)
    return Pods()


@pytest.fixture
def client(pods: Pods) -> Iterator[TestClient]:
    route = Route("/logs/{job_id}/{instance:int}", Logs(LogFiles(cast(Api, pods), OPEN)).answer)
    with TestClient(Starlette(routes=[route])) as found:
        yield found


def frames(answer: Any) -> list[tuple[str, Any]]:
    """Return (event, value) of each message."""
    found = []
    for frame in answer.text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in frame.splitlines() if not line.startswith(":"))
        if "event" in fields:
            found.append((fields["event"], orjson.loads(fields["data"])))
    return found


def text_of(answer: Any) -> str:
    return "".join(value for event, value in frames(answer) if event == "text")


def test_a_log_is_followed_to_the_end_of_its_run(client: TestClient) -> None:
    """The stream begins once the file exists, and splits no character."""
    answer = client.get(f"/logs/{JOB}/0")

    events = [event for event, _ in frames(answer)]
    assert ("waiting", "begin", "end") == (events[0], events[1], events[-1])
    assert "café\nbar\n" == text_of(answer)
    assert ("end", {"run": RUN, "message": ""}) == frames(answer)[-1]
    assert "text/event-stream; charset=utf-8" == answer.headers["content-type"]


def test_a_browser_that_comes_back_resumes_where_it_was(client: TestClient, pods: Pods) -> None:
    """The id of a message is the offset after it, where the next connection continues."""
    ids = [line for line in client.get(f"/logs/{JOB}/0").text.splitlines() if line.startswith("id: ")]
    pods.offsets.clear()

    answer = client.get(f"/logs/{JOB}/0", headers={"last-event-id": "6"})

    assert f"id: {len(pods.whole)}" == ids[-1]
    assert ("bar\n", 6) == (text_of(answer), pods.offsets[0])


def test_of_a_long_log_the_end_is_shown(client: TestClient, pods: Pods, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long log starts near its end, and the page receives the offset."""
    monkeypatch.setattr(logs, "TAIL_BYTES", 4)
    answer = client.get(f"/logs/{JOB}/0")

    assert "bar\n" == text_of(answer)
    assert ("begin", {"run": RUN, "offset": len(pods.whole) - 4}) in frames(answer)


def test_the_end_of_an_older_run_is_not_waited_for(client: TestClient, pods: Pods) -> None:
    """The stream of an older run ends at once, since the instance has another run."""
    pods.states, pods.run, pods.paths = ["RUNNING"], f"{JOB}-0-2", [["stdout"]]

    assert ("end", {"run": RUN, "message": ""}) == frames(client.get(f"/logs/{JOB}/0?run={RUN}"))[-1]


def test_why_there_is_no_log(client: TestClient, pods: Pods) -> None:
    """The message is the API's."""
    pods.states, pods.paths = ["KILLED"], [[]]
    pods.refusal.notRunning.message = "never ran"

    found = frames(client.get(f"/logs/{JOB}/0"))
    assert [("waiting", {"message": "never ran"}), ("end", {"run": RUN, "message": "never ran"})] == found
    ((kind, problem),) = frames(client.get(f"/logs/{JOB}/1"))
    assert ("problem", "not_found", f"job {JOB} has no instance 1", "OBJECT_NOT_FOUND") == (
        kind,
        *code_text_reason(problem),
    )


@pytest.mark.parametrize("address", ["/logs/nosuch/0", f"/logs/{JOB}/0?file=../x", f"/logs/{JOB}/0?file=/etc/passwd"])
def test_what_is_refused(address: str, client: TestClient) -> None:
    """Malformed ids and files that are not logs are refused."""
    assert (400, "invalid_argument") == ((answer := client.get(address)).status_code, answer.json()["code"])


def test_no_more_are_followed_than_may_be(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal has the bound."""
    monkeypatch.setattr(logs, "VIEWERS_MAX", 0)

    assert "0 logs are followed" in client.get(f"/logs/{JOB}/0").json()["message"]
