"""JSON over HTTP: calls that stream, to the viewer or from it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import grpc
import orjson
import pytest
from google.protobuf import json_format

from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2
from services.web import bodies, gateway
from services.web.gateway import Method, methods
from tests.unit.web.conftest import World
from tests.unit.web.viewing import answer_of

METHODS = methods()
GET = "peloton.api.job.JobManager/Get"
LIST_JOBS = "peloton.api.v1alpha.job.stateless.svc.JobService/ListJobs"
WATCH = "peloton.api.v1alpha.watch.svc.WatchService/Watch"
BULK = "peloton.api.v0.bulk.BulkService/CreateJob"
LINES = "application/x-ndjson"


def line_of(key: str, message: Any) -> bytes:
    return orjson.dumps({key: json_format.MessageToDict(message)}) + b"\n"


def test_a_stream_is_one_line_per_message(world: World) -> None:
    """The lines are in the order of the messages."""
    answers = [stateless_svc_pb2.ListJobsResponse(), stateless_svc_pb2.ListJobsResponse()]
    answers[0].jobs.add().name = "a"
    answers[1].jobs.add().name = "b"
    world.script(answers=[answer.SerializeToString() for answer in answers])

    response = world.post(LIST_JOBS)

    assert (200, LINES) == (response.status_code, response.headers["content-type"])
    assert b"".join(line_of("result", answer) for answer in answers) == response.content


def test_a_stream_that_fails_at_once_has_the_status_of_its_error(world: World) -> None:
    """The status is the error's if nothing was sent before."""
    world.script(answers=[], status=grpc.StatusCode.NOT_FOUND, details="no such job")

    response = world.post(LIST_JOBS)

    assert (404, {"code": "not_found", "message": "no such job"}) == (response.status_code, response.json())


def test_a_stream_that_fails_on_the_way_ends_with_its_error(world: World) -> None:
    """The error follows the messages that were sent before."""
    world.script(answers=[b"", b""], status=grpc.StatusCode.OUT_OF_RANGE, details="too old")

    response = world.post(WATCH)

    *results, error = [json.loads(line) for line in response.content.splitlines()]
    assert (200, [{"result": {}}] * 2) == (response.status_code, results)
    assert {"error": {"code": "out_of_range", "message": "too old"}} == error


def test_a_stream_ends_with_its_viewer(world: World, until: Callable[[asyncio.Event], None]) -> None:
    """The call to the api is cancelled when the viewer leaves, even without messages."""
    script = world.script(holds=True)
    gone = asyncio.Event()

    async def view() -> tuple[int, Any, bytes]:
        running = asyncio.create_task(answer_of(world.gateway, WATCH, b"{}", gone))
        while not script.requests:
            await asyncio.sleep(0)
        gone.set()
        return await asyncio.wait_for(running, 30)

    world.run(view())

    until(script.ended)


def test_a_quiet_stream_begins_nevertheless(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The response starts without a message, so that the viewer is connected; at the gateway's end the last line has
    the reason."""
    monkeypatch.setattr(gateway, "HEAD_AFTER_S", 0.01)
    world.script(answers=[], holds=True)
    begun = asyncio.Event()

    async def view() -> tuple[int, Any, bytes]:
        running = asyncio.create_task(answer_of(world.gateway, WATCH, b"{}", begun=begun))
        await asyncio.wait_for(begun.wait(), 30)
        world.gateway.close()
        return await asyncio.wait_for(running, 30)

    status, _, body = world.run(view())

    assert 200 == status
    assert {"error": {"code": "unavailable", "message": "role web stops: try again"}} == json.loads(body)


def test_streams_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """One stream above the bound is refused, and an ended one does not count."""
    monkeypatch.setattr(gateway, "STREAMS_MAX", 1)
    for _ in range(3):
        world.script()
        assert 200 == world.post(WATCH).status_code
    monkeypatch.setattr(gateway, "STREAMS_MAX", 0)

    assert (429, "10") == ((response := world.post(WATCH)).status_code, response.headers["retry-after"])


def test_lines_become_a_stream_of_requests(world: World) -> None:
    """Lines are joined across any chunks; empty ones are ignored."""
    script = world.script()
    lines = b'{"commit":{"configCount":1}}\n\n  \r\n{"commit":{"config_count":2}}\r\n{"commit":{}}'

    async def pieces() -> Any:
        for at in range(0, len(lines), 7):
            yield lines[at : at + 7]

    response = world.post(BULK, pieces(), content_type=LINES)

    assert 200 == response.status_code, response.text
    kind: Any = METHODS[BULK].request
    assert [1, 2, 0] == [kind.FromString(raw).commit.config_count for raw in script.requests]


@pytest.mark.parametrize(
    ("lines", "status"), [(b'{"commit":{}}\n{"x":1}\n', 400), (b"{}\n" + b" " * 2_000, 413), (b"[]", 400)]
)
def test_a_bad_line_ends_the_call(
    world: World, until: Callable[[asyncio.Event], None], monkeypatch: pytest.MonkeyPatch, lines: bytes, status: int
) -> None:
    """The api sees a cancelled stream, which stores nothing."""
    monkeypatch.setattr(bodies, "BODY_BYTES_MAX", 1_000)
    script = world.script()

    response = world.post(BULK, lines, content_type=LINES)

    assert status == response.status_code
    if script.requests:
        until(script.ended)


def test_a_refusal_before_the_end_of_the_lines_is_the_answer(world: World) -> None:
    """An early refusal is the answer, and the rest of the lines is not sent."""
    script = world.script(status=grpc.StatusCode.INVALID_ARGUMENT, details="out of order")

    async def endless() -> Any:
        while True:
            yield b"{}\n"
            await asyncio.sleep(0)

    response = world.post(BULK, endless(), content_type=LINES)

    assert (400, "out of order", 1) == (response.status_code, response.json()["message"], len(script.requests))


def test_no_method_streams_both_ways() -> None:
    """No method of the API streams in both directions, which the gateway does not support."""
    assert [] == [m.path for m in METHODS.values() if m.takes_stream and m.gives_stream]
    assert {BULK} == {m.path for m in METHODS.values() if m.takes_stream}
    assert isinstance(METHODS[GET], Method)
