"""Operations of several calls, written once for both clients.

An operation is a generator: it yields the steps that a client has to do, and gets their results. So it has no calls of
its own, and a client has no logic.
"""

from __future__ import annotations

import http.client
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import grpc
from google.protobuf.message import Message

from peloton.api.mesos_access import MesosAccess
from peloton.client.repeats import Outage, Repeats, RetryPolicy, is_away

FETCH_TIMEOUT_S = 20.0
FETCH_BYTES_MAX = 16 * 2**20
CHUNK_BYTES = 2**20


@dataclass(frozen=True)
class Call:
    """A call whose result is its answer, or the list of all answers of a stream. ``service`` is an attribute of the
    client.
    """

    service: str
    method: str
    request: Message
    is_stream: bool = False


@dataclass(frozen=True)
class Sleep:
    seconds: float


@dataclass(frozen=True)
class Fetch:
    """A GET of HTTP, whose result is the body: its last FETCH_BYTES_MAX bytes, if it has more."""

    host: str
    port: int
    url: str


Step: TypeAlias = Call | Sleep | Fetch
T = TypeVar("T")
Steps: TypeAlias = Generator[Step, Any, T]


def fetch(step: Fetch, agents: MesosAccess) -> bytes:
    """Return the body. Raises OSError."""
    connection = agents.connection(step.host, step.port, FETCH_TIMEOUT_S)
    try:
        connection.request("GET", step.url, headers=agents.headers)
        response = connection.getresponse()
        if response.status != http.client.OK:
            raise OSError(f"http://{step.host}:{step.port}{step.url}: {response.status} {response.reason}")
        body = bytearray()
        while chunk := response.read(CHUNK_BYTES):
            body += chunk
            del body[:-FETCH_BYTES_MAX]
        return bytes(body)
    except http.client.HTTPException as error:
        raise OSError(f"http://{step.host}:{step.port}{step.url}: {error!r}") from error
    finally:
        connection.close()


def list_all(policy: RetryPolicy, call: Call) -> Steps[list[Any]]:
    """Return all answers of a stream that ends; one that breaks off is read again."""
    repeats = Repeats(policy, is_safe=True)
    while True:
        try:
            answers: list[Any] = yield call
        except grpc.RpcError as error:
            wait_s = repeats.next_wait_s(error)
            if wait_s is None:
                raise
        else:
            return answers
        yield Sleep(wait_s)


def persist(outage: Outage, call: Call) -> Steps[Any]:
    """Return the answer of a read, which is repeated while no server answers, or none in time."""
    while True:
        try:
            answer = yield call
        except grpc.RpcError as error:
            wait_s = outage.next_wait_s() if is_away(error) else None
            if wait_s is None:
                raise
        else:
            outage.end()
            return answer
        yield Sleep(wait_s)
