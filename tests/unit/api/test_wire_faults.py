"""Faults of malformed requests name the field."""

from __future__ import annotations

import pytest
from google.protobuf.message import Message

from peloton.api.v0.job import job_pb2
from peloton.api.v0.peloton_pb2 import JobID
from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2
from peloton.api.wire_faults import SEARCHED_BYTES_MAX, message_of
from peloton.errors import InvalidArgument


def test_a_sound_message_is_read() -> None:
    """A valid message is read unchanged."""
    sent = job_pb2.CreateRequest(id=JobID(value="a"), config=job_pb2.JobConfig(name="b"))

    assert message_of(job_pb2.CreateRequest, sent.SerializeToString()) == sent


def field(number: int, value: bytes) -> bytes:
    assert number < 16
    assert len(value) < 128
    return bytes([number << 3 | 2, len(value)]) + value


CONFIG = 2
NAME, OWNER = (job_pb2.JobConfig.DESCRIPTOR.fields_by_name[name].number for name in ("name", "owningTeam"))
SOUND_ID = field(1, field(1, b"a"))
BROKEN = {
    "text that is none": (field(CONFIG, field(OWNER, b"\xff\xfe")), "config.owningTeam"),
    "a length beyond the end": (field(CONFIG, bytes([OWNER << 3 | 2, 100])), "config.owningTeam"),
    "a number that does not end": (field(CONFIG, bytes([OWNER << 3]) + b"\xff" * 10), "config.owningTeam"),
    "half a number": (field(CONFIG, bytes([OWNER << 3 | 5, 1, 2])), "config.owningTeam"),
    "a type that does not exist": (field(CONFIG, bytes([OWNER << 3 | 7])), "config.owningTeam"),
    "a tag that does not end": (SOUND_ID + b"\xff" * 10, ""),
    "after sound fields": (SOUND_ID + field(CONFIG, field(OWNER, b"b") + field(NAME, b"\xff")), "config.name"),
}  # fmt: skip


@pytest.mark.parametrize(("raw", "path"), BROKEN.values(), ids=BROKEN.keys())
def test_the_field_that_cannot_be_read_is_named(raw: bytes, path: str) -> None:
    """The error has the field's path from the request."""
    with pytest.raises(InvalidArgument, match=r"^bytes that are no peloton\.api\.v0\.job\.CreateRequest") as caught:
        message_of(job_pb2.CreateRequest, raw)

    assert path in caught.value.message


def test_in_a_large_message_no_field_is_searched_for() -> None:
    """The error of a large message names no field, since the search would take long."""
    raw = field(1, field(1, b"a")) * SEARCHED_BYTES_MAX + b"\xff"

    with pytest.raises(InvalidArgument, match=r"^bytes that are no peloton.api.v0.job.CreateRequest: "):
        message_of(job_pb2.CreateRequest, raw)


def lacking() -> dict[str, tuple[Message, str]]:
    one, many, after_map = job_pb2.CreateRequest(), task_pb2.TaskConfig(), stateless_svc_pb2.CreateJobRequest()
    first, second = (after_map.spec.instance_spec[99].init_containers.add() for _ in range(2))
    first.resource.extended.update({"": 0, "\0": 100_001})  # from it protobuf's own search read a wrong address
    second.container.SetInParent()
    one.config.instanceConfig[3].container.SetInParent()
    for _ in range(5):
        many.container.volumes.add()
    return {
        "one": (one, "CreateRequest lacks required fields: config.instanceConfig[3].container.type"),
        "after a map": (
            after_map,
            "CreateJobRequest lacks required fields: spec.instance_spec[99].init_containers[1].container.type",
        ),
        "many": (
            many,
            "TaskConfig lacks required fields: container.type, container.volumes[0].mode, "
            "container.volumes[0].container_path and 8 more",
        ),
    }


@pytest.mark.parametrize(("message", "text"), lacking().values(), ids=lacking().keys())
def test_required_fields_are_missed(message: Message, text: str) -> None:
    """Required fields at any depth are checked; the error names three of the missing ones."""
    with pytest.raises(InvalidArgument) as caught:
        message_of(type(message), message.SerializePartialToString())

    assert caught.value.message == text


def test_texts_of_mesos_are_text() -> None:
    """Mesos strings that are not UTF-8 are refused at any depth, since proto2 would return them as bytes."""
    sent = job_pb2.CreateRequest()
    sent.config.instanceConfig[3].command.environment.variables.add(name="sound", value="~~")
    raw = sent.SerializeToString().replace(b"~~", b"\xff\xfe")

    with pytest.raises(
        InvalidArgument,
        match=r"^config\.instanceConfig\.command\.environment\.variables\.value of CreateRequest is not UTF-8$",
    ):
        message_of(job_pb2.CreateRequest, raw)
