"""Errors quote little of the rejected value: each text of each request is made long in turn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message

from peloton.api.service_names import SPELLINGS, service_of
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.model.ids import JobId
from tests.unit.api_service.story import JOB, Config, expect_refusal, wire

pytestmark = pytest.mark.slow

LONG = "n" * 20_000
HUGE = "n" * 5_000_000
DETAILS_MAX = 1_000
ANSWER_MAX = 3_000
DEPTH_MAX = 6
METHODS = [
    method
    for names in SPELLINGS
    for method in service_of(names[0]).methods
    if not method.client_streaming and not method.server_streaming
]
Path = tuple[FieldDescriptor, ...]


def text_fields(kind: Descriptor, above: Path = ()) -> Iterator[Path]:
    """Yield the path of each string below a message, without the strings of maps and of recursive messages."""
    if len(above) >= DEPTH_MAX or any(field.message_type is kind for field in above[:-1]):
        return
    for field in kind.fields:
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            yield from text_fields(field.message_type, (*above, field))
        elif field.type == FieldDescriptor.TYPE_STRING:
            yield (*above, field)


def put(message: Any, path: Path, text: str) -> None:
    """Set the field at the path, in the first element of lists."""
    *above, last = path
    for field in above:
        inner = getattr(message, field.name)
        message = (inner[0] if inner else inner.add()) if field.is_repeated else inner
    if last.is_repeated:
        getattr(message, last.name).append(text)
    else:
        setattr(message, last.name, text)


def request_of(method: MethodDescriptor, path: Path) -> Message:
    """Return a request about the job of the story whose text at the path is long."""
    request = message_factory.GetMessageClass(method.input_type)()
    for field in method.input_type.fields:
        if field.message_type is not None and field.message_type.name == "JobID" and not field.is_repeated:
            getattr(request, field.name).value = JOB
        if field.message_type is not None and field.message_type.name == "PodName" and not field.is_repeated:
            getattr(request, field.name).value = f"{JOB}-0"
    put(request, path, LONG)
    return request


@pytest.mark.parametrize("service", sorted({method.containing_service.full_name for method in METHODS}))
async def test_refusals_are_short(channel: grpc.aio.Channel, job: JobId, service: str) -> None:
    """The text of a status, or the answer with an error inside, is short; a successful answer may repeat its
    request."""
    assert job == JOB
    sizes: dict[str, int] = {}
    for method in METHODS:
        if method.containing_service.full_name != service:
            continue
        call: Any = channel.unary_unary(
            f"/{service}/{method.name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=message_factory.GetMessageClass(method.output_type).FromString,
        )
        for path in text_fields(method.input_type):
            name = ".".join([method.name, *(field.name for field in path)])
            try:
                answer: Any = await call(request_of(method, path))
            except grpc.aio.AioRpcError as error:
                sizes[name] = len(error.details() or "")
                continue
            for field, value in answer.ListFields():
                if field.name in ("error", "notFound", "outOfRange", "message"):
                    sizes[name] = len(str(value)) - (ANSWER_MAX - DETAILS_MAX)

    assert {} == {name: size for name, size in sizes.items() if size > DETAILS_MAX}


async def test_huge_names_of_jobs(channel: grpc.aio.Channel, jobs: Any, config: Config) -> None:
    """The refusals of 5 MB have the length."""
    long_name = await jobs.Create(job_pb2.CreateRequest(config=config(name=HUGE)))
    label = [peloton_pb2.Label(key=HUGE, value="x")]
    long_label = await jobs.Create(job_pb2.CreateRequest(config=config(labels=label)))
    pod = config()
    pod.defaultConfig.labels.add(key=HUGE + "\a", value="x")
    long_pod_label = await jobs.Create(job_pb2.CreateRequest(config=pod))
    quoted = f"'{'n' * 80}'... (5,000,00"

    assert "name has 5000000 characters, at most 4000 are allowed" == long_name.error.invalidConfig.message
    assert long_label.error.invalidConfig.message.startswith(f"label {quoted}0 characters) has 5000001 characters")
    assert long_pod_label.error.invalidConfig.message.startswith(
        f"Invalid config for instance 0, label {quoted}1 characters) contains \\x07 (U+0007) at 5000000: "
    )


async def test_huge_ids_and_queries(jobs: Any) -> None:
    """An invalid id and a search text are not repeated."""
    code, text = await expect_refusal(jobs.Get(job_pb2.GetRequest(id=wire(HUGE))))
    found = await jobs.Query(job_pb2.QueryRequest(spec=job_pb2.QuerySpec(keywords=[f"{HUGE}\0"])))

    assert (grpc.StatusCode.INVALID_ARGUMENT, "job id has 5,000,000 characters, at most 1,000: want a UUID") == (
        code,
        text,
    )
    assert f"'{'n' * 80}'... (5,000,001 characters) contains NUL, which no stored text does" == found.error.err.message
