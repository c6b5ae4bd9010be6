"""Hostile clients: every method without rights and with those of a reader, and inputs drawn from a seed.

Each call ends with a clear code and never INTERNAL, nothing is changed, and memory of identities stays within bounds.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import grpc.aio
import pytest
from google.protobuf.descriptor import FieldDescriptor

from peloton.access.rules import MethodRule, Needs
from peloton.api.service_names import SPELLINGS, list_methods, service_of
from services.access.failures import PEERS_MAX, Failures
from services.access.methods import make_rules, request_class
from services.api.private_calls import REFUSED
from tests.nightly import first_of
from tests.unit.api_service.test_access import ROLE_SECRET, Cluster, cluster  # noqa: F401, a fixture

pytestmark = pytest.mark.slow

BROKEN = ["", "Bearer", "bearer ", "Basic eDp5", "Bearer a.b.c", "Bearer ptk_", "ptk_a_b"]
REFUSALS = {"UNAUTHENTICATED", "PERMISSION_DENIED"}
NO_FAILURE = {"INTERNAL", "UNKNOWN", "DEADLINE_EXCEEDED"}
TEXTS = ["", "x", "/", "/eng", "//eng//maps/", "\x00", "'; --", "x" * 2_000, "00000000-0000-0000-0000-000000000000",
         "../../..", "ä" * 50, "-1", "{}", "%s%n"]  # fmt: skip
INPUTS = 3_000
SEEDS = first_of(range(1, 35))
"""All of them make more than 100,000 inputs."""


def open_methods() -> Iterator[tuple[str, MethodRule]]:
    """Yield the first name of each method of a servicer, with its rule."""
    firsts = {names[0] for names in SPELLINGS}
    rules = make_rules(REFUSED)
    for path, method in list_methods():
        if path.rpartition("/")[0] in firsts and not method.client_streaming:
            yield f"/{path}", rules[f"/{path}"]


async def code_of(channel: Any, path: str, raw: bytes, metadata: list[tuple[str, str]]) -> str:
    """Return the code of a call, whatever its kind."""
    service, _, name = path.removeprefix("/").rpartition("/")
    is_stream = service_of(service).methods_by_name[name].server_streaming
    try:
        if is_stream:
            call = channel.unary_stream(path)(raw, timeout=20, metadata=metadata)
            await call.read()
            call.cancel()
        else:
            await channel.unary_unary(path)(raw, timeout=20, metadata=metadata)
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return "OK"


async def test_every_method_refuses_a_call_without_credentials(cluster: Cluster) -> None:  # noqa: F811
    """Open methods are answered."""
    for path, rule in open_methods():
        code = await code_of(cluster.channel, path, b"", [])
        assert (code in REFUSALS) is (rule.needs is not Needs.NOTHING), (path, code)


async def test_a_reader_of_another_pool_changes_nothing(cluster: Cluster) -> None:  # noqa: F811
    """A method that needs more than a reader is refused, with a request that names nothing."""
    for path, rule in open_methods():
        if rule.needs is Needs.ROLE and rule.role != "reader":
            code = await code_of(cluster.channel, path, b"", list(cluster.of("rita")))
            assert "PERMISSION_DENIED" == code, path


def draw(rng: random.Random, message: Any, depth: int = 0) -> None:
    """Fill some fields of a message."""
    for field in message.DESCRIPTOR.fields:
        if rng.random() < 0.5 or depth > 3:
            continue
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            if field.message_type.GetOptions().map_entry:
                continue
            value = getattr(message, field.name)
            draw(rng, value.add() if field.is_repeated else value, depth + 1)
        elif field.type == FieldDescriptor.TYPE_STRING:
            text = rng.choice(TEXTS)
            if field.is_repeated:
                getattr(message, field.name).append(text)
            else:
                setattr(message, field.name, text)


def draw_metadata(rng: random.Random, cluster: Cluster) -> list[tuple[str, str]]:  # noqa: F811
    """Return headers with stolen, broken or mixed credentials; never those of an administrator or a process."""
    kinds = [
        [],
        list(cluster.of("rita")),
        list(cluster.of("otto")),
        list(cluster.of("expired")),
        [("authorization", f"Bearer {cluster.tokens['rita'][:-rng.randrange(1, 20)]}")],
        [("authorization", f"Bearer {rng.randbytes(rng.randrange(40)).hex()}")],
        [("authorization", rng.choice(BROKEN))],
        [("authorization", "Bearer " + "e30." * rng.randrange(1, 500))],
        [("username", rng.choice(["old", "x"])), ("password", rng.choice(["", "secret?", "x" * 200]))],
        [*cluster.of("rita"), ("peloton-on-behalf-of", "ada")],
        [("peloton-role-token", ROLE_SECRET[:-1]), ("peloton-on-behalf-of", "ada")],
        [("peloton-on-behalf-of-groups", "%00,%ff,maps")],
    ]  # fmt: skip
    return list(rng.choice(kinds))


@pytest.mark.parametrize("seed", SEEDS)
async def test_inputs_of_a_seed_end_with_a_clear_code(
    cluster: Cluster,  # noqa: F811
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each call ends with an answer or a refusal."""
    monkeypatch.setattr(Failures, "check", lambda self, peer: None)  # all come from one address
    rng, methods, codes = random.Random(seed), list(open_methods()), Counter[str]()
    for _ in range(INPUTS):
        path, rule = rng.choice(methods)
        request = request_class(path)()
        draw(rng, request)
        raw = request.SerializePartialToString() if rng.random() < 0.9 else rng.randbytes(rng.randrange(64))
        metadata = draw_metadata(rng, cluster)
        code = await code_of(cluster.channel, path, raw, metadata)
        codes[code] += 1
        assert code not in NO_FAILURE, (path, raw, metadata)
        if rule.needs is Needs.ROLE and rule.role in ("operator", "admin"):
            assert code in REFUSALS | {"INVALID_ARGUMENT"}, (path, raw, metadata, code)
    assert set(codes) & REFUSALS


def test_failures_of_many_peers_use_bounded_memory() -> None:
    """The peer that failed longest ago is forgotten first."""
    failures = Failures(lambda: 0.0)
    for number in range(3 * PEERS_MAX):
        failures.note(f"10.0.{number // 256}.{number % 256}")
    assert PEERS_MAX == len(failures._peers)
