"""Commands of terminals: on an agent of a minicluster, and by exchanges with a fake API in place of a host manager."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any, cast

import grpc
import grpc.aio
import pytest

from peloton.api.agent_sessions import AgentSession
from peloton.api.mesos_access import OPEN
from peloton.api.v1alpha.pod.svc import pod_svc_pb2
from peloton.errors import Unavailable
from services.web import commands
from services.web.api import Api
from services.web.commands import SHELL, AgentCommand, Command, RelayedCommand
from tests.unit.lab.mesos.conftest import Start, start  # noqa: F401 (a fixture)
from tests.unit.lab.mesos.test_sessions import running, until

WAIT_S = 60.0
Answer = pod_svc_pb2.ExchangeWithCommandResponse
POD = "91b1b8e5-2ba8-11e7-bc23-0242ac11000d-0"


async def output_until(command: Command, wanted: bytes) -> bytes:
    """Read the output up to a text; the test fails if the command ends before."""
    seen = b""
    async with asyncio.timeout(WAIT_S):
        async for data in command.outputs():
            seen += data
            if wanted in seen:
                return seen
    raise AssertionError(f"the command ended after {seen!r}")


async def test_a_shell_on_an_agent(start: Start) -> None:  # noqa: F811
    """The shell has a terminal of the page's current size, and ends with its exit code."""
    cluster, _, (host, port), container_id = await running(start)
    command = AgentCommand(AgentSession(OPEN, host, int(port), container_id, str(uuid.uuid4()), SHELL, (33, 77)))
    await command.open()
    outputs = command.outputs()
    seen = b""

    async def read_to(wanted: bytes) -> None:
        nonlocal seen
        async with asyncio.timeout(WAIT_S):
            while wanted not in seen:
                seen += await anext(outputs)

    await command.send(b"stty size; echo $TERM\r")
    await read_to(b"33 77\r\nxterm-256color")
    await command.resize((20, 50))
    await command.send(b"stty size\r")
    await read_to(b"20 50\r\n")
    await command.send(b"exit 5\r")
    async with asyncio.timeout(WAIT_S):
        assert not [data async for data in outputs if data is None]
        assert 5 == await command.exit_code()
    await command.close()
    await until(cluster, live=0)


async def test_a_shell_on_an_agent_ends_with_its_page(start: Start) -> None:  # noqa: F811
    """A silent command is ended, and its reader with it."""
    cluster, _, (host, port), container_id = await running(start)
    sleeps = ["sleep", "600"]
    command = AgentCommand(AgentSession(OPEN, host, int(port), container_id, str(uuid.uuid4()), sleeps, (24, 80)))
    await command.open()
    await until(cluster, live=1)
    reading = asyncio.create_task(anext(command.outputs()))
    await asyncio.sleep(0)

    await command.close()

    await until(cluster, live=0)
    with pytest.raises((Unavailable, StopAsyncIteration, asyncio.CancelledError)):
        await reading


class Relay:
    """An API that runs one command, which echoes its input in capitals and ends at "exit"."""

    def __init__(self) -> None:
        self.pods = self
        self.requests: list[pod_svc_pb2.ExchangeWithCommandRequest] = []
        self.faults: list[grpc.StatusCode] = []
        self.refuses_input = 0
        """So many exchanges in which the command has not taken yet what it was given."""

    async def ExchangeWithCommand(self, request: Any, timeout: float) -> Answer:
        self.requests.append(pod_svc_pb2.ExchangeWithCommandRequest.FromString(request.SerializeToString()))
        if self.faults:
            raise grpc.aio.AioRpcError(self.faults.pop(0), grpc.aio.Metadata(), grpc.aio.Metadata(), "away")
        if self.refuses_input:
            self.refuses_input -= 1
            assert not request.data, "the command does not want it yet"
            return Answer(wants_input=not self.refuses_input)
        if request.data == b"exit":
            return Answer(stdout=b"bye", exit_code=3)
        return Answer(stdout=request.data.upper(), wants_input=True)

    def command(self) -> RelayedCommand:
        return RelayedCommand(cast(Api, self), POD, "proxy", SHELL, (24, 80))


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "RETRY_PAUSE_S", 0.0)


async def test_a_shell_behind_the_api() -> None:
    """Exchanges are numbered; the next one carries a new size."""
    relay = Relay()
    command = relay.command()
    await command.open()
    reading = asyncio.create_task(output_until(command, b"bye"))
    await command.send(b"ls")
    await command.resize((40, 100))
    await command.send(b"exit")

    assert b"LSbye" == await reading
    first, *others = relay.requests
    assert ("proxy", [*SHELL], True, True) == (
        first.start.container,
        list(first.start.argv),
        first.start.has_input,
        first.start.has_terminal,
    )
    assert (24, 80) == (first.rows, first.columns)
    assert [(40, 100)] == [(each.rows, each.columns) for each in others if each.rows]
    assert [*range(len(relay.requests))] == [each.number for each in relay.requests]
    assert {POD} == {each.pod_name.value for each in relay.requests}
    assert 1 == len({each.session for each in relay.requests})


async def test_the_exit_code_behind_the_api() -> None:
    """A command that has ended receives no further exchange."""
    relay = Relay()
    command = relay.command()
    await command.open()
    await command.send(b"exit")

    assert b"bye" == b"".join([data async for data in command.outputs()])
    assert 3 == await command.exit_code()
    await command.close()
    assert not any(each.is_last for each in relay.requests)


async def test_input_waits_until_the_command_wants_it() -> None:
    """The second piece is not accepted before the first one, so that it stays in the page."""
    relay = Relay()
    relay.refuses_input = 4
    command = relay.command()
    await command.open()
    await command.send(b"one ")
    second = asyncio.create_task(command.send(b"two"))
    await asyncio.sleep(0)
    assert not second.done()

    assert b"ONE TWO" == await output_until(command, b"TWO")
    assert second.done()


async def test_an_exchange_is_repeated_while_peloton_is_away() -> None:
    """The repetition has the same number. The first exchange is not repeated, since it would run the command twice."""
    relay = Relay()
    command = relay.command()
    await command.open()
    relay.faults = [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED]
    await command.send(b"a")
    assert b"A" == await output_until(command, b"A")
    assert [0, 1, 1, 1] == [each.number for each in relay.requests]

    relay.faults = [grpc.StatusCode.UNAVAILABLE]
    with pytest.raises(grpc.aio.AioRpcError):
        await relay.command().open()
    assert 0 == relay.requests[-1].number


async def test_a_page_that_leaves_says_so_to_the_api() -> None:
    """The last exchange ends the command, which would otherwise run for another minute."""
    relay = Relay()
    command = relay.command()
    await command.open()
    await command.close()

    assert relay.requests[-1].is_last
