"""Malformed messages: each is an error of the protocol, in bounded time and memory, or a call that is well-formed."""

from __future__ import annotations

import random
import struct
import time
import tracemalloc
from collections import Counter
from typing import Any

import pytest
from thriftpy2.thrift import TType

from services.aurorabridge import bounds
from services.aurorabridge.bounds import DEPTH_MAX, MEMBERS_MAX, Malformed, scan
from services.aurorabridge.envelopes import Encoding, Fault, read_arguments, read_head, write_answer
from services.aurorabridge.json_structs import read_json
from services.aurorabridge.thrift import api
from tests.unit.aurorabridge.calling import ENCODINGS
from tests.unit.aurorabridge.test_transport import UPDATE

SEED = 20_261_127
INPUTS = 20_000
KINDS = {"bare": Encoding.BARE, "binary": Encoding.BINARY, "json": Encoding.JSON}
KEY = api.JobKey(role="r", environment="e", name="n")
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("startJobUpdate", {"request": UPDATE, "message": "why"}),
    ("killTasks", {"job": KEY, "instances": [0, 1, 2], "message": "why"}),
    ("getTasksWithoutConfigs", {"query": api.TaskQuery(jobKeys=[KEY, KEY], statuses=[2, 3], role="r")}),
    (
        "getJobUpdateDetails",
        {"key": api.JobUpdateKey(job=KEY, id="1"), "query": api.JobUpdateQuery(updateStatuses=[0])},
    ),
    ("getTierConfigs", {}),
]
INTERESTING = [struct.pack("!i", number) for number in (-1, 0, 1, 2**31 - 1, -(2**31), MEMBERS_MAX + 1, 2**16)]
TOKENS = [
    b"[",
    b"]",
    b"{",
    b"}",
    b",",
    b'"',
    b"null",
    b"-1",
    b"1e308",
    b"1e999",
    b"true",
    b'"rec"',
    b'"str"',
    b'"\\ud800"',
]


def mutate(chosen: random.Random, data: bytes, pieces: list[bytes]) -> bytes:
    """Return the message with some of its bytes overwritten, inserted, deleted, repeated or cut off."""
    changed = bytearray(data)
    for _ in range(chosen.choice((1, 1, 2, 4, 16))):
        at = chosen.randrange(len(changed) + 1)
        match chosen.randrange(6):
            case 0:
                changed[at : at + 1] = bytes([chosen.randrange(256)])
            case 1:
                piece = chosen.choice(pieces)
                changed[at : at + len(piece)] = piece
            case 2:
                changed[at:at] = chosen.choice(pieces)
            case 3:
                del changed[at : at + chosen.randrange(1, 9)]
            case 4:
                changed[at:at] = changed[max(0, at - 40) : at] * chosen.randrange(1, 20)
            case _:
                del changed[at:]
    return bytes(changed)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", KINDS)
def test_mutated_messages_are_refused_or_well_formed(name: str) -> None:
    """No input of the fuzzer has another effect than an error of the protocol or a struct that can be written again."""
    chosen = random.Random(f"{SEED} {name}")
    used, pieces = ENCODINGS[name], TOKENS if name == "json" else INTERESTING
    bodies = [(method, used.write(method, **arguments)) for method, arguments in CALLS]
    statuses = Counter[int]()
    slowest_s = 0.0
    tracemalloc.start()
    for _ in range(INPUTS // len(KINDS) + 1):
        method, body = chosen.choice(bodies)
        body = mutate(chosen, body, pieces)
        began_s = time.thread_time()
        try:
            head = read_head(KINDS[name], f"AuroraSchedulerManager::{method}", body)
            found, _ = read_arguments(head)
        except Fault as fault:
            statuses[fault.status] += 1
        else:
            again = used.write(head.method, **vars(found))
            read_arguments(read_head(KINDS[name], f"AuroraSchedulerManager::{method}", again))
            write_answer(head, api.Response(responseCode=1))
            statuses[200] += 1
        slowest_s = max(slowest_s, time.thread_time() - began_s)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert {200, 400} <= {*statuses} <= {200, 400, 501}
    assert min(statuses[200], statuses[400]) > INPUTS // len(KINDS) // 100, statuses
    assert slowest_s < 2, "of cpu, for messages of at most some KB"
    assert most_bytes < 32 * 2**20


def list_of(kind: int, size: int) -> bytes:
    return struct.pack("!bi", kind, size)


def field(kind: int, number: int, value: bytes) -> bytes:
    return struct.pack("!bh", kind, number) + value


def text(value: bytes) -> bytes:
    return struct.pack("!i", len(value)) + value


STOP = b"\0"
UNION = field(TType.STRUCT, 1, STOP) + field(TType.STRUCT, 2, field(TType.I32, 1, b"\0\0\0\1") + STOP) + STOP
MALFORMED = {
    "empty": (api.JobKey, b"", "the message ends after 0 bytes"),
    "cut off": (api.JobKey, field(TType.STRING, 1, struct.pack("!i", 5) + b"ab"), "in the middle of a value"),
    "negative string": (api.JobKey, field(TType.STRING, 1, b"\xff" * 4), "a string claims -1 bytes"),
    "long string": (api.JobKey, field(TType.STRING, 1, b"\x7f" + b"\xff" * 3), "a string claims 2,147,483,647 bytes"),
    "no UTF-8": (api.JobKey, field(TType.STRING, 1, text(b"\xff")) + STOP, "a string is not UTF-8"),
    "other type": (api.JobKey, field(TType.I32, 1, b"\0\0\0\1") + STOP, "JobKey.role is i32, want str"),
    "no type": (api.JobKey, field(9, 1, b"") + STOP, "JobKey.role is type 9, want str"),
    "no type, unknown field": (api.JobKey, field(9, 99, b"") + STOP, "there is no type 9"),
    "large list": (
        api.TaskQuery, field(TType.SET, 7, list_of(TType.I32, 2**31 - 1)), "a container claims 2,147,483,647 members"
    ),
    "large list of an unknown field": (
        api.JobKey, field(TType.LIST, 99, list_of(TType.BOOL, 2**31 - 1)), "a container claims 2,147,483,647 members"
    ),
    "negative list": (api.TaskQuery, field(TType.SET, 7, list_of(TType.I32, -1)), "a container claims -1 members"),
    "short list": (api.TaskQuery, field(TType.SET, 7, list_of(TType.I32, 9)) + STOP, "in the middle of a value"),
    "other members": (
        api.TaskQuery, field(TType.SET, 7, list_of(TType.I64, 1) + b"\0" * 8) + STOP,
        "a container has members of type 10, want i32",
    ),
    "large map": (
        api.TaskConfig, field(TType.MAP, 22, struct.pack("!bbi", 11, 11, 2**31 - 1)), "claims 2,147,483,647 members"
    ),
    "other keys": (
        api.TaskConfig, field(TType.MAP, 22, struct.pack("!bbi", 8, 11, 1) + b"\0" * 8), "members of type 8, want str"
    ),
    "not finite": (api.TaskConfig, field(TType.DOUBLE, 8, struct.pack("!d", float("nan"))) + STOP, "is not finite"),
    "two members": (
        api.TaskConstraint, UNION, "union TaskConstraint has 2 members (value, limit), want one"
    ),
    "no member": (api.Container, STOP, "union Container has 0 members (), want one"),
    "one member twice": (
        api.Resource, field(TType.I64, 2, b"\0" * 8) * 2 + STOP, "union Resource has 2 members (ramMb, ramMb), want one"
    ),
    "no first": (api.Range, field(TType.I32, 2, b"\0\0\0\1") + STOP, "Range has no first"),
    "no limit": (api.LimitConstraint, STOP, "LimitConstraint has no limit"),
    "deep structs": (api.JobKey, field(TType.STRUCT, 99, b"") * 100, f"nested deeper than {DEPTH_MAX}"),
    "deep lists": (
        api.JobKey, field(TType.LIST, 99, list_of(TType.LIST, 1) * 100), f"nested deeper than {DEPTH_MAX}"
    ),
}  # fmt: skip


@pytest.mark.timeout(30)
@pytest.mark.parametrize(("kind", "data", "why"), MALFORMED.values(), ids=[*MALFORMED])
def test_malformed_structs_are_refused_with_their_fault(kind: Any, data: bytes, why: str) -> None:
    """The text names what is wrong; nothing is decoded."""
    with pytest.raises(Malformed) as refused:
        scan(data, 0, kind)

    assert why in str(refused.value)


JSON = {
    "no object": (api.JobKey, [], "JobKey is an array in JSON"),
    "no cell": (api.JobKey, {"1": "x"}, "JobKey.role is a string in JSON"),
    "two types": (api.JobKey, {"1": {"str": "x", "i32": 1}}, "JobKey.role is an object in JSON"),
    "other type": (api.JobKey, {"1": {"i32": 1}}, "JobKey.role is 'i32', want str"),
    "other value": (api.JobKey, {"1": {"str": 1}}, "a number in JSON is no value of type str"),
    "null": (api.JobKey, {"1": {"str": None}}, "null in JSON is no value of type str"),
    "large number": (api.Range, {"1": {"i32": 2**31}}, "a number in JSON is no value of type i32"),
    "fraction": (api.Range, {"1": {"i32": 1.5}}, "no value of type i32"),
    "truth": (api.TaskConfig, {"7": {"tf": 2}}, "no value of type tf"),
    "other size": (api.TaskQuery, {"7": {"set": ["i32", 3, 1]}}, "is not [type, size, member...]"),
    "other members": (api.TaskQuery, {"7": {"set": ["str", 1, "x"]}}, "has members of type 'str', want i32"),
    "list for a set": (api.TaskQuery, {"7": {"lst": ["i32", 1, 1]}}, "TaskQuery.instanceIds is 'lst', want set"),
    "no map": (api.TaskConfig, {"22": {"map": ["str", "str", 1, []]}}, "a map in JSON is not"),
    "two members": (
        api.TaskConstraint, {"1": {"rec": {}}, "2": {"rec": {"1": {"i32": 1}}}},
        "union TaskConstraint has 2 members (value, limit), want one",
    ),
    "no key": (api.Metadata, {"2": {"str": "x"}}, "Metadata has no key"),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "tree", "why"), JSON.values(), ids=[*JSON])
def test_malformed_json_is_refused_with_its_fault(kind: Any, tree: Any, why: str) -> None:
    """The rules are those of the binary encoding."""
    with pytest.raises(Malformed) as refused:
        read_json(tree, kind)

    assert why in str(refused.value)


def test_unknown_fields_are_skipped() -> None:
    """A client of a later Aurora may send fields that the bridge does not know, in both encodings."""
    unknown = field(TType.MAP, 99, struct.pack("!bbi", 11, 15, 1) + text(b"k") + list_of(TType.STRUCT, 1) + STOP)
    data = unknown + field(TType.STRING, 3, text(b"n")) + STOP
    tree = {"99": {"map": ["str", "lst", 1, {"k": ["rec", 1, {}]}]}, "3": {"str": "n"}}

    assert len(data) == scan(data, 0, api.JobKey)[0]
    assert api.JobKey(name="n") == read_json(tree, api.JobKey)[0]


def test_a_message_has_a_bounded_number_of_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many small containers are as bad as a large one."""
    monkeypatch.setattr(bounds, "VALUES_MAX", 100)
    lists = field(TType.SET, 7, list_of(TType.I32, 30) + b"\0" * 120)
    tree = {"1": {"rec": {}}, "4": {"set": ["str", 101, *["x"] * 101]}}

    scan(lists * 3 + STOP, 0, api.TaskQuery)
    for read in (lambda: scan(lists * 4 + STOP, 0, api.TaskQuery), lambda: read_json(tree, api.TaskQuery)):
        with pytest.raises(Malformed, match="more than 100 values"):
            read()


def test_bytes_after_the_arguments_are_refused() -> None:
    """The library would leave them unread."""
    head = read_head(Encoding.BARE, "ReadOnlyScheduler::getTierConfigs", STOP * 3)

    with pytest.raises(Fault, match="getTierConfigs: 2 bytes follow the arguments"):
        read_arguments(head)


def test_json_has_a_bounded_number_of_values_before_it_is_parsed() -> None:
    """A body of empty arrays would take forty times its size when parsed."""
    with pytest.raises(Fault, match="the JSON has more than"):
        read_head(Encoding.JSON, "", b"[" + b"[]," * 2_000_000 + b"1]")
