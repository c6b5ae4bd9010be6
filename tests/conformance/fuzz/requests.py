"""Requests that no sound client sends, drawn from a seed: extreme values in every field of every method, sound
requests with something wrong in them, and bytes that are no message."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from functools import partial
from random import Random
from typing import Any, cast

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message

from peloton.api.v0.job import job_pb2
from tests.unit.api_service.services import service_config, spec
from tests.unit.api_service.story import JOB

DEPTH_MAX = 8
"""The greatest depth of messages in messages that are drawn at random."""
CHAIN_MAX = 120
"""The greatest depth of constraints in constraints: more than may be read."""
KINDS = FieldDescriptor

MARK = "~~~"
"""A marker that some requests have replaced by bytes that are no text."""
INTEGERS = (
    *(0, 1, 2, 3, 5, 7, 99, 1000, 100_001, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1),
    *(-1, -(2**31), -(2**63)),
)
DOUBLES = (0.0, 0.1, 1.0, 2.5, -1.0, 100.0, 1e9, 1e300, -1e300, 5e-324, float("inf"), float("-inf"), float("nan"))
TEXTS = (
    *("", "a", "web", "root", "/", "/eng/maps", "/eng/maps/", "cpu", "memory", "h0", "h1", "nowhere", "\0", "a\0b"),
    *("é" * 3, "\U0001f600", "x" * 5_000, "-1", "0:3", "1-1-1", "1-1", "99-99-99", "%s%n", "' OR 1=1 --", "..", " "),
    *(MARK, "state", "creation_time", "job_1", "task_1", "\n"),
)
BYTES = (b"", b"\0", b"\xff" * 7, b"abc" * 100)
JOBS = (JOB, "91b1b8e5-2ba8-41e7-bc23-0242ac11000e", "00000000-0000-4000-8000-000000000000", "no-uuid")


def fields_of(message: Message) -> list[FieldDescriptor]:
    """Return the fields, by the class that the C implementation stands for."""
    return cast("list[FieldDescriptor]", list(message.DESCRIPTOR.fields))


class Maker:
    """Makes the request of one call."""

    def __init__(self, random: Random, pools: Sequence[str]) -> None:
        self._random = random
        self._pools = pools

    def request(self, method: MethodDescriptor) -> bytes:
        kind = message_factory.GetMessageClass(method.input_type)
        message = self._sound(method) or kind()
        roll = self._random.random()
        if roll < 0.6 or not message.ByteSize():
            self._fill(message, 0, self._random.choice((0.15, 0.4, 0.8)))
        for _ in range(self._random.randrange(4)):
            self._mutate(message)
        raw: bytes = message.SerializePartialToString()
        if self._random.random() < 0.2:
            raw = raw.replace(MARK.encode(), b"\xff\xfe\xfd")
        if self._random.random() < 0.15:
            raw = self._damage(raw)
        return gzip.compress(raw, 1) if self._random.random() < 0.02 else raw

    # -- sound requests to begin with

    def _sound(self, method: MethodDescriptor) -> Message | None:
        """A request that would be accepted, where one that is drawn at random would not come far."""
        message: Any = message_factory.GetMessageClass(method.input_type)()
        names = message.DESCRIPTOR.fields_by_name
        if self._random.random() < 0.2:
            return None
        for name in ("id", "jobId", "jobID", "job_id"):
            if name in names and names[name].message_type and names[name].message_type.name == "JobID":
                getattr(message, name).value = self._random.choice(JOBS)
        for name in ("config", "jobConfig"):
            if name in names and names[name].message_type.name == "JobConfig":
                self._job(getattr(message, name))
        if "spec" in names and names["spec"].message_type.name == "JobSpec":
            message.spec.CopyFrom(spec(self._random.choice((1, 3))))
        if "config" in names and names["config"].message_type.name == "ResourcePoolConfig":
            self._pool(message.config)
        if "spec" in names and names["spec"].message_type.name == "ResourcePoolSpec":
            self._pool(message.spec)
        if "start" in names and "commit" in names:
            getattr(self, "_" + self._random.choice(("start", "instances", "commit")))(message)
        return message if message.ByteSize() else None

    def _job(self, config: Any) -> None:
        config.CopyFrom(service_config(self._random.choice((1, 3))))
        config.type = self._random.choice((job_pb2.BATCH, job_pb2.SERVICE))
        config.respoolID.value = self._random.choice(self._pools)

    def _pool(self, config: Any) -> None:
        config.name = self._random.choice(("a", "b", "c"))
        config.parent.value = self._random.choice(("root", *self._pools))
        for kind in ("cpu", "memory"):
            config.resources.add(kind=kind, reservation=0, limit=1, share=1)

    def _start(self, message: Any) -> None:
        self._job(message.start.config)

    def _instances(self, message: Any) -> None:
        message.instances.configs.add(name="x")

    def _commit(self, message: Any) -> None:
        message.commit.config_count = self._random.choice((0, 1))

    # -- anything

    def _fill(self, message: Message, depth: int, share: float) -> None:
        for field in fields_of(message):
            if self._random.random() < (0.97 if field.is_required else share):
                self._set(message, field, depth)

    def _mutate(self, message: Message) -> None:
        """Give one field somewhere below another value, or none."""
        while True:
            fields = fields_of(message)
            if not fields:
                return
            below = [value for _, value in message.ListFields() if isinstance(value, Message)]
            if below and self._random.random() < 0.7:
                message = self._random.choice(below)
                continue
            field = self._random.choice(fields)
            if self._random.random() < 0.2:
                message.ClearField(field.name)
            else:
                self._set(message, field, 1)
            return

    def _set(self, message: Message, field: FieldDescriptor, depth: int) -> None:
        value: Any = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            self._set_entry(value, field.message_type, depth)
        elif field.is_repeated:
            for _ in range(self._random.randrange(4)):
                if field.message_type is None:
                    value.append(self._scalar(field))
                else:
                    self._below(value.add(), depth)
        elif field.message_type is not None:
            value.SetInParent()
            self._below(value, depth)
        else:
            setattr(message, field.name, self._scalar(field))

    def _set_entry(self, entries: Any, entry: Descriptor, depth: int) -> None:
        key, value = entry.fields_by_name["key"], entry.fields_by_name["value"]
        for _ in range(self._random.randrange(3)):
            if value.message_type is None:
                entries[self._scalar(key)] = self._scalar(value)
            else:
                self._below(entries[self._scalar(key)], depth)

    def _below(self, message: Any, depth: int) -> None:
        if message.DESCRIPTOR.name == "Constraint" and self._random.random() < 0.1:
            self._chain(message, self._random.randrange(CHAIN_MAX))
        elif depth < DEPTH_MAX:
            self._fill(message, depth + 1, 0.3)

    def _chain(self, constraint: Any, length: int) -> None:
        both = "andConstraint" if "andConstraint" in constraint.DESCRIPTOR.fields_by_name else "and_constraint"
        for _ in range(length):
            constraint.type = 2
            constraint = getattr(constraint, both).constraints.add()

    def _scalar(self, field: FieldDescriptor) -> Any:
        choose = self._random.choice
        if field.enum_type is not None:
            known = choose(field.enum_type.values).number
            if field.enum_type.is_closed:
                return known
            return choose((known, known, known, 99, -1, 2**31 - 1))
        if field.type == KINDS.TYPE_BOOL:
            return choose((True, False))
        if field.type in (KINDS.TYPE_DOUBLE, KINDS.TYPE_FLOAT):
            return choose(DOUBLES)
        if field.type == KINDS.TYPE_STRING:
            return self._text()
        if field.type == KINDS.TYPE_BYTES:
            return choose(BYTES)
        low, high = _RANGES[field.cpp_type]
        return choose([number for number in INTEGERS if low <= number <= high])

    def _text(self) -> str:
        job = self._random.choice(JOBS)
        instance, run = self._random.choice((0, 1, 2**31, 2**64)), self._random.choice((1, 2**63))
        known = (job, f"{job}-{instance}", f"{job}-{instance}-{run}", self._random.choice(self._pools))
        return self._random.choice(self._random.choice((TEXTS, known)))

    def _damage(self, raw: bytes) -> bytes:
        """The bytes cut, doubled, or with other bytes in them."""
        damaged = bytearray(raw)
        at = partial(self._random.randrange, len(damaged) + 1)
        match self._random.randrange(4):
            case 0:
                del damaged[at() :]
            case 1:
                damaged[at() : at()] = self._random.randbytes(self._random.randrange(8))
            case 2:
                damaged += damaged[at() :]
            case _:
                for _ in range(min(len(damaged), self._random.randrange(1, 5))):
                    damaged[self._random.randrange(len(damaged))] = self._random.randrange(256)
        return bytes(damaged)


_RANGES = {
    KINDS.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    KINDS.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    KINDS.CPPTYPE_UINT32: (0, 2**32 - 1),
    KINDS.CPPTYPE_UINT64: (0, 2**64 - 1),
}


def methods(services: Sequence[str]) -> Iterator[MethodDescriptor]:
    for name in services:
        yield from descriptor_pool.Default().FindServiceByName(name).methods
