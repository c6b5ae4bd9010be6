"""JSON over HTTP: every method is callable, errors are Connect's, and requests have bounds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import grpc
import orjson
import pytest
from google.protobuf import json_format
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from peloton.api.service_names import SERVED
from peloton.api.v0.job import job_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2
from peloton.errors import ResourceExhausted
from services.web import bodies, gateway
from services.web.api import Api
from services.web.faults import HTTP_STATUSES
from services.web.gateway import Gateway, methods
from tests.nightly import examples
from tests.unit.web.conftest import World
from tests.unit.web.messages import messages
from tests.unit.web.viewing import answer_of

METHODS = methods()
GET = "peloton.api.job.JobManager/Get"
LINES = "application/x-ndjson"


# Every method.


def test_every_service_that_is_served_can_be_called() -> None:
    """The gateway has exactly the services of role api, under all their names."""
    assert {path.partition("/")[0] for path in METHODS} == set(SERVED)


def test_an_empty_request_reaches_its_method(world: World) -> None:
    """``{}`` is a request without fields, and an answer without fields is ``{}``."""
    expected, found = {}, {}
    for path, method in METHODS.items():
        script = world.script()
        content, kind = (b"{}\n", LINES) if method.takes_stream else (b"{}", "application/json")

        response = world.post(path, content, content_type=kind)

        expected[path] = (200, path, [b""], b'{"result":{}}\n' if method.gives_stream else b"{}")
        found[path] = (response.status_code, script.path, script.requests, response.content)
    assert expected == found


@given(data=st.data(), path=st.sampled_from(sorted(METHODS)), has_own_names=st.booleans())
@settings(max_examples=examples(400), deadline=None, suppress_health_check=list(HealthCheck))
def test_any_message_passes_unchanged(world: World, data: st.DataObject, path: str, has_own_names: bool) -> None:
    """Every field of a request arrives, in either spelling of its keys, and every field of the answer is returned."""
    method = METHODS[path]
    request = data.draw(messages(method.request.DESCRIPTOR))
    answer = data.draw(messages(method.answer.DESCRIPTOR))
    script = world.script(answers=[answer.SerializeToString()])
    content = json_format.MessageToJson(request, indent=None, preserving_proto_field_name=has_own_names)

    response = world.post(path, content, content_type=LINES if method.takes_stream else "application/json")

    assert 200 == response.status_code, response.text
    assert same(method.request, script.requests[0]) == same(method.request, request.SerializeToString())
    body = orjson.loads(response.content)
    read = json_format.ParseDict(body["result"] if method.gives_stream else body, method.answer())
    assert same(method.answer, read.SerializeToString()) == same(method.answer, answer.SerializeToString())


def same(kind: Any, raw: bytes) -> bytes:
    """Return the canonical bytes of a message, since maps have no order on the wire."""
    canonical: bytes = kind.FromString(raw).SerializeToString(deterministic=True)
    return canonical


def test_keys_are_in_camel_case(world: World) -> None:
    """Keys are in camel case regardless of the .proto file, and 64-bit numbers are strings."""
    answer = stateless_svc_pb2.GetJobResponse()
    answer.job_info.status.revision.created_at = 2**60
    world.script(answers=[answer.SerializeToString()])

    body = world.post("peloton.api.v1alpha.job.stateless.svc.JobService/GetJob").json()

    assert {"jobInfo": {"status": {"revision": {"createdAt": "1152921504606846976"}}}} == body


def test_errors_of_the_v0_api_stay_in_the_answer(world: World) -> None:
    """Errors inside v0's answers are returned with status 200, as over gRPC."""
    answer = job_pb2.CreateResponse()
    answer.error.alreadyExists.message = "it is there"
    world.script(answers=[answer.SerializeToString()])

    response = world.post("peloton.api.job.JobManager/Create")

    assert (200, {"error": {"alreadyExists": {"message": "it is there"}}}) == (response.status_code, response.json())


# Errors.


@pytest.mark.parametrize("status", [status for status in grpc.StatusCode if status is not grpc.StatusCode.OK])
def test_a_status_becomes_the_code_and_status_of_connect(world: World, status: grpc.StatusCode) -> None:
    """Each status has its code and its HTTP status."""
    world.script(status=status, details="job 7: no")
    word = "canceled" if status is grpc.StatusCode.CANCELLED else status.name.lower()

    response = world.post(GET)

    assert HTTP_STATUSES[word] == response.status_code
    assert {"code": word, "message": "job 7: no"} == response.json()
    assert set(HTTP_STATUSES) == {s.name.lower().replace("cancelled", "canceled") for s in grpc.StatusCode} - {"ok"}


def test_a_busy_api_says_when_to_come_back(world: World) -> None:
    """The header has whole seconds, as HTTP requires."""
    world.script(status=grpc.StatusCode.RESOURCE_EXHAUSTED, details="too many jobs", retry_after_ms=1500)

    response = world.post(GET)

    assert (429, "2") == (response.status_code, response.headers["retry-after"])


def test_an_api_that_is_away_is_unavailable(world: World) -> None:
    """The error has the gateway's text followed by gRPC's."""

    async def call() -> Any:
        api = Api("127.0.0.1:1")
        try:
            return await answer_of(Gateway(api), GET, b"{}")
        finally:
            await api.close()

    status, _, body = world.run(call())

    assert 503 == status
    assert "unavailable" == json.loads(body)["code"]
    assert json.loads(body)["message"].startswith("the api does not answer: ")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "the body is no GetRequest: want an object"),
        (b"{", "Failed to load JSON"),
        (b"\xff{}", "not UTF-8: byte 0 of 3"),
        (b"[]", "the body is no GetRequest"),
        (b"null", "the body is no GetRequest"),
        (b"7", "the body is no GetRequest"),
        (b'"id"', "the body is no GetRequest"),
        (b'{"id":{"value":7}}', "parse id field: Failed to parse value field"),
        (b'{"id":{"value":"\\ud800"}}', "the body is no GetRequest"),
        (b'{"idd":{}}', 'no field named "idd"'),
        (b'{"id":{},"id":{}}', "duplicate key"),
        (b"[" * 100_000, "the body is no GetRequest"),
        (b'{"id":' + b"[" * 5_000 + b"]" * 5_000 + b"}", "the body is no GetRequest"),
        (b'{"id":' + b"9" * 10_000 + b"}", "the body is no GetRequest"),
    ],
    ids=range(14),
)
def test_what_is_no_request_is_refused(world: World, body: bytes, text: str) -> None:
    """The error describes the fault, and the method is not called."""
    script = world.script()

    response = world.post(GET, body)

    assert (400, "invalid_argument", []) == (response.status_code, response.json()["code"], script.requests)
    assert text in response.json()["message"]


@given(body=st.binary(max_size=30) | st.text(max_size=30).map(str.encode) | st.from_regex(rb'\{"(id|config)":.*\}'))
@settings(max_examples=examples(200), deadline=None, suppress_health_check=list(HealthCheck))
def test_no_body_breaks_the_gateway(world: World, body: bytes) -> None:
    """Any bytes are accepted or refused as the caller's fault."""
    world.script()

    assert world.post("peloton.api.job.JobManager/Create", body).status_code in (200, 400)


def test_messages_of_mesos_need_their_required_fields(world: World) -> None:
    """The error has the field's path."""
    body = b'{"config":{"defaultConfig":{"constraint":{},"container":{"type":"MESOS","volumes":[{}]}}}}'

    response = world.post("peloton.api.job.JobManager/Create", body)

    assert 400 == response.status_code
    assert "config.defaultConfig.container.volumes[0].container_path" in response.json()["message"]


@pytest.mark.parametrize("path", ["peloton.api.job.JobManager/Gett", "grpc.health.v1.Health/Check", "x/y"])
def test_a_method_that_is_not_served_is_not_found(world: World, path: str) -> None:
    """Methods of role api's other services are not found either."""
    response = world.post(path)

    assert (404, "unimplemented") == (response.status_code, response.json()["code"])
    assert (GET in response.json()["message"]) == path.endswith("Gett")


@pytest.mark.parametrize(
    "kind", ["", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=ascii"]
)
def test_another_content_type_is_refused(world: World, kind: str) -> None:
    """Other content types are refused, so that a form of another site cannot send JSON."""
    script = world.script()

    response = world.post(GET, b"{}", content_type=kind)

    assert (415, "application/json", []) == (response.status_code, response.headers["accept-post"], script.requests)
    assert "want application/json" in response.json()["message"]


@pytest.mark.parametrize(
    "kind", ["application/json", "Application/JSON; charset=UTF-8", 'application/json;charset="utf-8"']
)
def test_the_content_type_may_say_utf_8(world: World, kind: str) -> None:
    """The charset UTF-8 is accepted, since browsers send it."""
    world.script()

    assert 200 == world.post(GET, b"{}", content_type=kind).status_code


def test_compressed_bodies_are_refused(world: World) -> None:
    """Compressed bodies are refused, since their size is unknown."""
    assert 415 == world.post(GET, b"{}", content_encoding="gzip").status_code


def test_another_version_of_connect_is_refused(world: World) -> None:
    """The only accepted version is 1."""
    world.script()

    assert [200, 400] == [world.post(GET, b"{}", connect_protocol_version=v).status_code for v in "12"]


# Bounds.


def test_a_call_has_a_deadline(world: World) -> None:
    """The deadline is the header's, or the default."""
    seen = []
    for headers in ({}, {"connect_timeout_ms": "600000"}):
        script = world.script()
        assert 200 == world.post(GET, b"{}", **headers).status_code
        seen.append(script.time_remaining_s)

    own, asked = seen
    assert own is not None
    assert asked is not None
    assert own < 2 * gateway.TIMEOUT_S < 300 < asked  # the server's clock is another one


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "x", "", "600001", "1" * 11, "\xb3"])
def test_a_deadline_out_of_bounds_is_refused(world: World, text: str) -> None:
    """The error has the bound."""
    response = world.post(GET, b"{}", connect_timeout_ms=text)

    assert 400 == response.status_code
    assert "want milliseconds from 1 to 600000" in response.json()["message"]


def test_a_deadline_that_passes_is_reported(world: World) -> None:
    """The error has Connect's status."""
    world.script(holds=True)

    response = world.post(GET, b"{}", connect_timeout_ms="1")

    assert (504, "deadline_exceeded") == (response.status_code, response.json()["code"])


def test_a_body_that_is_too_large_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The body is not read to its end, and its bytes are released."""
    monkeypatch.setattr(bodies, "BODY_BYTES_MAX", 1_000)
    script = world.script()

    async def endless() -> Any:
        while True:
            yield b" " * 400

    response = world.post(GET, endless())

    assert (413, "resource_exhausted", []) == (response.status_code, response.json()["code"], script.requests)
    assert 200 == world.post(GET, b" " * 998 + b"{}").status_code


async def test_bodies_that_do_not_end_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest body that is being read frees its memory and its place for the next one."""
    monkeypatch.setattr(bodies, "BODIES_BYTES_MAX", 1_000)
    monkeypatch.setattr(bodies, "READERS_MAX", 2)
    kept, never = bodies.Bodies(), asyncio.Event()

    class Endless:
        async def stream(self) -> AsyncIterator[bytes]:
            yield b"x" * 600
            await never.wait()

    class Short:
        async def stream(self) -> AsyncIterator[bytes]:
            yield b"y" * 600

    async def read(request: Any) -> bytes:
        with kept.memory() as memory:
            return await memory.body(request)

    held = []
    for _ in range(3):
        held.append(asyncio.create_task(read(Endless())))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert b"y" * 600 == await read(Short())
    for task in held:
        with pytest.raises(ResourceExhausted, match="bodies that are being read reach their bound"):
            await task
    assert 0 == kept._held_bytes


def test_all_bodies_together_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body above the bound of all bodies is refused with a retry time."""
    monkeypatch.setattr(bodies, "BODIES_BYTES_MAX", 1_000)
    script = world.script(holds=True)

    async def both() -> tuple[int, Any]:
        first = asyncio.create_task(answer_of(world.gateway, GET, b" " * 600 + b"{}"))
        while not script.requests:
            await asyncio.sleep(0)
        second = await answer_of(world.gateway, GET, b" " * 600 + b"{}")
        first.cancel()
        await asyncio.wait({first})
        return second[0], second[1]

    status, headers = world.run(both())

    assert (429, "1") == (status, headers["retry-after"])
    world.script()
    assert 200 == world.post(GET, b" " * 600 + b"{}").status_code


def test_an_answer_that_is_too_large_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the size and the bound."""
    monkeypatch.setattr(gateway, "ANSWER_BYTES_MAX", 10)
    answer = job_pb2.GetResponse()
    answer.jobInfo.id.value = "8" * 10
    world.script(answers=[answer.SerializeToString()])

    response = world.post(GET)

    assert (413, "resource_exhausted") == (response.status_code, response.json()["code"])
    assert "the answer has 16 bytes, the bound is 10" in response.json()["message"]


def test_calls_in_progress_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """One call above the bound is refused, with the reason and the time of a retry in the details."""
    monkeypatch.setattr(gateway, "CALLS_MAX", 0)

    response = world.post(GET)

    assert (429, "1") == (response.status_code, response.headers["retry-after"])
    reason, retry = [detail["debug"] for detail in response.json()["details"]]
    assert ("OVERLOADED", "1s") == (reason["reason"], retry["retryDelay"])


def test_a_body_that_stalls_is_given_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call whose body stalls is ended."""
    monkeypatch.setattr(bodies, "READ_S_MAX", 0.01)

    async def stalls() -> Any:
        yield b"{"
        await asyncio.Event().wait()

    response = world.post(GET, stalls())

    assert (408, "deadline_exceeded") == (response.status_code, response.json()["code"])


def test_large_messages_pass(world: World) -> None:
    """Large messages are converted outside the loop."""
    request, answer = job_pb2.GetRequest(), job_pb2.GetResponse()
    request.id.value = "7" * 100_000
    answer.jobInfo.id.value = "8" * 100_000
    script = world.script(answers=[answer.SerializeToString()])

    response = world.post(GET, json_format.MessageToJson(request))

    assert [request.SerializeToString()] == script.requests
    assert json_format.MessageToDict(answer) == response.json()
