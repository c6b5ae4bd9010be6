"""Commands in the container of a running task: the sessions of an agent, and the command line with it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from cli.task.exec import Session
from peloton.api.agent_sessions import AgentSession
from peloton.api.mesos_access import OPEN
from peloton.errors import NotFound, Unavailable
from services.lab.mesos.agents import sessions as agent_sessions
from services.lab.mesos.agents.containers import ProcessRuntime
from services.lab.mesos.agents.sessions import STATUSES_MAX
from services.lab.mesos.http.recordio import RecordError, Records
from services.lab.mesos.server import Minicluster
from services.lab.shared.http.cross_site import Guard
from services.lab.shared.http.server import HttpServer, Response, plain
from tests.unit.lab.mesos.conftest import Start
from tests.unit.lab.mesos.scheduler import WAIT_S, Scheduler, request

pytestmark = pytest.mark.slow

Input = tuple[int, int]


@pytest.fixture
def pipe() -> Iterator[Input]:
    """Return the input of a session: the end that it reads, and the end that the test writes."""
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            continue


async def running(start: Start, command: str = "exec sleep 600") -> tuple[Minicluster, Scheduler, tuple[str, str], str]:
    """Start a task and return (its cluster, its scheduler, the address of its agent, the id of its container)."""
    cluster, scheduler = await start()
    await scheduler.launch("t", command)
    await scheduler.status("t", "TASK_RUNNING")
    (agent,) = cluster.master.registry.by_host.values()
    (container_id,) = runtime_of(cluster).containers
    return cluster, scheduler, ("127.0.0.1", str(agent.port)), container_id


def runtime_of(cluster: Minicluster) -> ProcessRuntime:
    (agent,) = cluster.master.registry.by_host.values()
    assert isinstance(agent.runtime, ProcessRuntime)
    return agent.runtime


async def until(cluster: Minicluster, live: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while len(runtime_of(cluster).sessions.live) != live:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(("script", "code"), [("true", 0), ("exit 7", 7), ("kill -TERM $$", 128 + 15)])
async def test_a_command_ends_with_its_code(start: Start, script: str, code: int) -> None:
    """The code is 128 and the number of the signal when one ended the command."""
    _, _, address, container_id = await running(start)
    assert code == await asyncio.to_thread(Session(*address, container_id, ["sh", "-c", script]).run)


async def test_a_command_runs_in_the_sandbox_with_the_environment_of_the_task(
    start: Start, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Output and errors are separate; the input of the command is empty if the session has none."""
    cluster, _, address, container_id = await running(start)
    script = "pwd -P; echo $MESOS_TASK_ID; cat; head -c 300000 /dev/zero | tr '\\0' x; echo oops >&2"

    assert 0 == await asyncio.to_thread(Session(*address, container_id, ["sh", "-c", script]).run)

    out, err = capsysbinary.readouterr()
    folder = next(iter(runtime_of(cluster).containers.values())).directory
    assert folder is not None
    assert f"{folder.resolve()}\nt\n".encode() + b"x" * 300_000 == out
    assert b"oops\n" == err


async def test_input_is_passed_on_to_its_end(
    start: Start, pipe: Input, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """The input is larger than any buffer between."""
    _, _, address, container_id = await running(start)
    data = os.urandom(3_000_000)

    def feed() -> None:
        with os.fdopen(pipe[1], "wb") as file:
            file.write(data)

    writer = threading.Thread(target=feed)
    writer.start()
    session = Session(*address, container_id, ["sh", "-c", "sleep 0.2; cat"], with_input=True, source=pipe[0])
    assert 0 == await asyncio.to_thread(session.run)
    writer.join()
    assert data == capsysbinary.readouterr().out


async def test_a_terminal_is_the_controlling_one_and_has_our_size(
    start: Start, pipe: Input, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The terminal has no size until the input is attached, as on a real agent. Typed text is echoed; the end of input
    is that of a terminal.
    """
    monkeypatch.setattr("cli.task.exec.window_size", lambda: (33, 111))
    monkeypatch.setattr("cli.task.exec.signal.signal", lambda *_: None)  # only the main thread may
    _, _, address, container_id = await running(start)
    os.write(pipe[1], b"hello\n")
    script = "until stty size | grep -v '^0 0'; do sleep 0.02; done; read word < /dev/tty; echo got $word; exit 5"
    session = Session(*address, container_id, ["sh", "-c", script], with_input=True, with_terminal=True, source=pipe[0])
    assert 5 == await asyncio.to_thread(session.run)
    out = capsysbinary.readouterr().out
    assert [b"33 111", b"got hello"] == [line for line in out.split(b"\r\n") if line and line != b"hello"]


async def test_a_session_ends_with_its_task(start: Start) -> None:
    """The command of a session is killed with the container of its task."""
    cluster, scheduler, address, container_id = await running(start)
    session = asyncio.create_task(asyncio.to_thread(Session(*address, container_id, ["sleep", "600"]).run))
    await until(cluster, live=1)
    await scheduler.call("KILL", {"task_id": {"value": "t"}})
    assert 128 + 9 == await session


async def test_a_session_ends_with_its_connection(start: Start) -> None:
    """The command of a client that has gone is killed."""
    cluster, _, address, container_id = await running(start)
    session = await asyncio.to_thread(Session(*address, container_id, ["sleep", "600"]).open)
    await until(cluster, live=1)
    session.close()
    await until(cluster, live=0)


async def test_sessions_that_cannot_begin(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent gives the reason: no such container, no such program, too many at once."""
    monkeypatch.setattr(agent_sessions, "SESSIONS_MAX", 2)
    _, _, address, container_id = await running(start)

    async def refusal(parent_id: str, *argv: str) -> str:
        with pytest.raises(Unavailable) as failed:
            await asyncio.to_thread(Session(*address, parent_id, list(argv)).run)
        return failed.value.message.partition(": ")[2]

    expected = "HTTP 400 Container none cannot be found (or is already terminated)"
    assert expected == await refusal("none", "true")
    assert (await refusal(container_id, "/no/such")).startswith("HTTP 400 Failed to execute command: ")
    one = Session(*address, container_id, ["sleep", "600"])
    sessions = [await asyncio.to_thread(one.open) for _ in range(2)]
    expected = "HTTP 400 2 sessions are open on this agent, the most that it takes"
    assert expected == await refusal(container_id, "true")
    for session in sessions:
        session.close()


async def test_the_agent_keeps_a_bounded_number_of_exit_statuses(start: Start) -> None:
    """The statuses of older sessions are forgotten."""
    cluster, _, address, container_id = await running(start)
    first = await asyncio.to_thread(Session(*address, container_id, ["true"]).open)
    assert [] == await asyncio.to_thread(list, first.outputs())
    first.close()
    assert 0 == await asyncio.to_thread(first.exit_code)
    sessions = runtime_of(cluster).sessions
    for number in range(STATUSES_MAX):
        sessions.keep_status(f"other {number}", 0)
    with pytest.raises(NotFound, match="does not say how the command ended: HTTP 404 404 Not Found"):
        await asyncio.to_thread(first.exit_code)


@pytest.mark.parametrize(
    ("status", "text", "expected"),
    [
        (406, "Expecting 'Message-Accept' to be not set", "HTTP 406 Expecting 'Message-Accept' to be not set"),
        (200, '{"wait_container": {}}', "its answer has no exit_status (KeyError('exit_status'))"),
        (200, "[]", "its answer has no exit_status (TypeError"),
    ],
)
async def test_an_agent_that_gives_no_exit_status_is_quoted(status: int, text: str, expected: str) -> None:
    """The error has the HTTP status and the text of the answer."""
    async with serve_answer(plain(status, text)) as port:
        session = AgentSession(OPEN, "127.0.0.1", port, "parent", "session", ["true"])
        with pytest.raises(Unavailable) as failed:
            await asyncio.to_thread(session.exit_code)
    start = f"the agent at 127.0.0.1:{port} does not say how the command ended: "
    assert failed.value.message.startswith(start + expected)


@asynccontextmanager
async def serve_answer(answer: Response) -> AsyncIterator[int]:
    """Start an HTTP server that gives this answer to each request."""
    server = HttpServer(lambda request: answer, Guard("127.0.0.1"))
    await server.start("127.0.0.1", 0)
    try:
        yield server.port
    finally:
        await server.stop()


async def test_calls_of_the_agent_that_are_wrong(start: Start) -> None:
    """Each malformed call is answered, and the agent continues."""
    _, _, address, _ = await running(start)
    port = int(address[1])
    assert (501, "GET_STATE is not emulated") == await request(port, "POST", "/api/v1", {"type": "GET_STATE"})
    status, text = await request(port, "POST", "/slave(1)/api/v1", b"{")
    assert (400, True) == (status, text.startswith("Failed to parse body into JSON: "))
    status, text = await request(port, "POST", "/api/v1", {"type": "WAIT_CONTAINER"})
    assert (400, "Failed to validate agent::Call: WAIT_CONTAINER lacks 'container_id'") == (status, text)
    unknown = {"type": "WAIT_CONTAINER", "wait_container": {"container_id": {"value": "none"}}}
    assert 404 == (await request(port, "POST", "/api/v1", unknown))[0]
    headers = {"Message-Accept": "application/json"}
    for accept in ({}, {"Accept": "application/json"}, {"Accept": "*/*"}):
        expected = "Expecting 'Message-Accept' to be not set for non-streaming responses"
        assert (406, expected) == await request(port, "POST", "/api/v1", unknown, headers | accept)
    streaming = headers | {"Accept": "application/recordio"}
    assert 404 == (await request(port, "POST", "/api/v1", unknown, streaming))[0]
    headers = {"Content-Type": "application/recordio"}
    for body in (b"x\n", b"9999999999\n", b"2\n{}", b"4\n[1]\n"):
        status, text = await request(port, "POST", "/api/v1", body, headers)
        assert (400, True) == (status, text.startswith("Failed to parse ATTACH_CONTAINER_INPUT: ")), body
    assert 200 == (await request(port, "GET", "/health"))[0]


def test_records_are_cut_wherever_the_pieces_end() -> None:
    """Records are read from single bytes as well as from all at once."""
    records, whole = Records(10), b"3\nabc0\n5\n1\n2\n3"
    assert [b"abc", b"", b"1\n2\n3"] == list(Records(10).feed(whole))
    assert [b"abc", b"", b"1\n2\n3"] == [r for at in range(len(whole)) for r in records.feed(whole[at : at + 1])]
    with pytest.raises(RecordError, match="at most 10, got b'11'"):
        list(Records(10).feed(b"11\n"))
