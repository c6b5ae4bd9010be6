"""Client of the Kafka REST proxy over real connections, and the JSON of events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from peloton.errors import InvalidArgument
from services.aurorabridge.events import proxy as module
from services.aurorabridge.events.event import encode_event
from services.aurorabridge.events.proxy import Proxy, ProxyUrl
from services.aurorabridge.thrift import api
from tests.unit.aurorabridge.event_doubles import JOB, KEY, OK, pod, serving

CHUNKED = b"HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
CLOSING = b"HTTP/1.1 202 Accepted\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


async def test_request_of_a_post() -> None:
    """Each event is one POST with the headers that the original sends, over one connection."""
    async with serving() as server:
        proxy = Proxy(ProxyUrl(server.url))
        assert [200, 200] == [await proxy.post(b"{}"), await proxy.post(b'{"a":1}')]
        proxy.close()

    (head, first), (_, second) = server.requests
    lines = head.decode().split("\r\n")
    assert "POST /topics/tasks?x=1 HTTP/1.1" == lines[0]
    assert {"Producer-Type: reliable", "Content-Type: application/vnd.kafka.binary.v1"} <= set(lines)
    assert (b"{}", b'{"a":1}', 1) == (first, second, server.connections)


@pytest.mark.parametrize(("answer", "status"), [(CHUNKED, 503), (CLOSING, 202)])
async def test_status_of_an_answer(answer: bytes, status: int) -> None:
    """The status is that of the answer, whatever its body, and the next POST connects again where it must."""
    async with serving() as server:
        server.answer = answer
        proxy = Proxy(ProxyUrl(server.url))
        assert [status, status] == [await proxy.post(b"1"), await proxy.post(b"2")]
        proxy.close()
    assert (2 if answer is CLOSING else 1) == server.connections


@pytest.mark.parametrize(
    "answer",
    [b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\nshort"],
    ids=["no HTTP", "too long"],
)
async def test_answers_that_are_none(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bad answers are connection errors, after which the next POST works."""
    monkeypatch.setattr(module, "ANSWER_BYTES_MAX", 60)
    async with serving() as server:
        server.answer = answer
        proxy = Proxy(ProxyUrl(server.url))
        with pytest.raises(ConnectionError):
            await proxy.post(b"1")
        server.answer = OK
        assert 200 == await proxy.post(b"2")
        proxy.close()


async def test_proxy_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A POST ends after its timeout, and no proxy is an OSError."""
    monkeypatch.setattr(module, "TIMEOUT_S", 0.05)
    async with serving() as server:
        server.answer = b""
        proxy = Proxy(ProxyUrl(server.url))
        with pytest.raises(TimeoutError):
            await proxy.post(b"1")
        url = server.url
    with pytest.raises(ConnectionRefusedError):
        await Proxy(ProxyUrl(url)).post(b"1")


@pytest.mark.parametrize("url", ["kafka:8082", "ftp://kafka/topics/x", "http://", "http://kafka:x/"])
def test_address_that_is_no_url(url: str) -> None:
    """An address that no POST could reach is refused with its form."""
    with pytest.raises(InvalidArgument, match=r"want http\(s\)://HOST:PORT/PATH"):
        ProxyUrl(url)


def event(task: Any, **status: Any) -> dict[str, Any]:
    wire = pod(3, run=2, **status)
    wire.status.prev_pod_id.value = f"{JOB}-3-1"
    value: dict[str, Any] = orjson.loads(encode_event(wire, task))
    return value


def test_event_of_a_pod() -> None:
    """An event has the new state twice, enums by name, and leaves absent fields out."""
    task = api.TaskConfig(
        job=KEY,
        resources=[api.Resource(numCpus=1.5), api.Resource(ramMb=64)],
        metadata=[api.Metadata(key="a", value="b")],
    )

    assert {
        "task": {
            "assignedTask": {
                "taskId": f"{JOB}-3-2",
                "slaveHost": "h1",
                "task": {
                    "job": {"role": "web", "environment": "prod", "name": "shop"},
                    "resources": [{"numCpus": 1.5}, {"ramMb": 64}],
                    "metadata": [{"key": "a", "value": "b"}],
                },
                "assignedPorts": {},
                "instanceId": 3,
            },
            "status": "LOST",
            "taskEvents": [
                {"timestamp": 1_700_000_000_000, "status": "LOST", "message": "host away", "scheduler": "peloton"}
            ],
            "ancestorId": f"{JOB}-3-1",
        },
        "oldState": "LOST",
    } == event(task, state="LOST", host="h1", message="host away")


CONTAINERS: list[tuple[Callable[[], Any], dict[str, Any]]] = [
    (
        lambda: api.Container(
            mesos=api.MesosContainer(
                image=api.Image(docker=api.DockerImage(name="web", tag="7")),
                volumes=[api.Volume(containerPath="/d", hostPath="/h", mode=api.Mode.RO)],
            )
        ),
        {
            "setField": "MESOS",
            "value": {
                "image": {"docker": {"name": "web", "tag": "7"}},
                "volumes": [{"containerPath": "/d", "hostPath": "/h", "mode": "RO"}],
            },
        },
    ),
    (
        lambda: api.Container(docker=api.DockerContainer(image="web:7")),
        {"setField": "DOCKER", "value": {"image": "web:7"}},
    ),
]


@pytest.mark.parametrize(("container", "expected"), CONTAINERS, ids=["mesos", "docker"])
def test_container_of_an_event(container: Callable[[], Any], expected: dict[str, Any]) -> None:
    """A container names the member that is set, as consumers of Aurora's webhooks know it."""
    task = api.TaskConfig(job=KEY, container=container())
    assert expected == event(task)["task"]["assignedTask"]["task"]["container"]


def test_ports_of_an_event() -> None:
    """Ports are those that the pod has on its host."""
    wire = pod(0)
    wire.status.containers_status.add(ports={"http": 31_000})
    value = orjson.loads(encode_event(wire, api.TaskConfig(job=KEY)))
    assert {"http": 31_000} == value["task"]["assignedTask"]["assignedPorts"]
