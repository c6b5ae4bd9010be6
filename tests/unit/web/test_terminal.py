"""Terminals of pages: both directions, bounds, and the end of a session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from typing import Any, cast

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import WebSocketRoute
from starlette.testclient import TestClient, WebSocketDenialResponse, WebSocketTestSession

from peloton.api.agent_sessions import Size
from peloton.api.mesos_access import OPEN
from peloton.api.v0.access import access_pb2
from peloton.api.v0.task import task_pb2
from peloton.errors import Unavailable
from services.web import terminal
from services.web.api import Api
from services.web.commands import SHELL, AgentCommand, Asked, RelayedCommand, argv_of, find_command
from services.web.guard import Guard
from services.web.terminal import Terminals
from services.web.viewer import Viewer
from tests.unit.web.viewing import code_text_reason

JOB = "91b1b8e5-2ba8-11e7-bc23-0242ac11000d"
SITE = "ws://127.0.0.1"
PATH = f"{SITE}/terminal/{JOB}/0"


class Echo:
    """A command that echoes its input, and ends at "exit"."""

    def __init__(self) -> None:
        self.sizes: list[Size] = []
        self.is_closed = self.is_slow = False
        self.greeting = b""
        self.fault: Unavailable | None = None
        self.written: asyncio.Queue[bytes] = asyncio.Queue()

    async def open(self) -> None:
        if self.fault is not None:
            raise self.fault

    async def outputs(self) -> AsyncGenerator[bytes, None]:
        if self.greeting:
            yield self.greeting
        while (data := await self.written.get()) != b"exit":
            yield data

    async def send(self, data: bytes) -> None:
        if self.is_slow:
            await asyncio.Event().wait()
        self.written.put_nowait(data)

    async def resize(self, size: Size) -> None:
        self.sizes.append(size)
        self.written.put_nowait(b"resized")

    async def exit_code(self) -> int:
        return 7

    async def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def echo(monkeypatch: pytest.MonkeyPatch) -> Echo:
    made = Echo()

    async def find(api: Api, agents: Any, asked: Asked) -> Echo:
        made.sizes.append(asked.size)
        return made

    monkeypatch.setattr(terminal, "find_command", find)
    return made


@pytest.fixture
def client(echo: Echo) -> Iterator[TestClient]:
    route = WebSocketRoute("/terminal/{job_id}/{instance:int}", Terminals(cast(Api, None), OPEN).serve)
    with TestClient(Starlette(routes=[route], middleware=[Middleware(Guard)])) as found:
        yield found


def problem_of(session: WebSocketTestSession) -> dict[str, str]:
    found: dict[str, str] = session.receive_json()["problem"]
    return found


def test_what_is_typed_is_written_and_the_exit_code_reported(client: TestClient, echo: Echo) -> None:
    """Bytes are unchanged; the acknowledged input makes way for more."""
    with client.websocket_connect(f"{PATH}?rows=40&columns=132") as session:
        assert {"open": True} == session.receive_json()
        session.send_bytes(b"caf\xc3\xa9\xff\x03")
        assert {"taken": 7} == session.receive_json()
        assert b"caf\xc3\xa9\xff\x03" == session.receive_bytes()
        session.send_json({"rows": 50, "columns": 99})
        assert b"resized" == session.receive_bytes()
        session.send_bytes(b"exit")
        assert {"taken": 4} == session.receive_json()
        assert {"exitCode": 7} == session.receive_json()
        assert "websocket.close" == session.receive()["type"]

    assert [(40, 132), (50, 99)] == echo.sizes
    assert echo.is_closed


def test_a_command_writes_no_further_than_the_page_has_drawn(
    client: TestClient, echo: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The window bounds the output under way; input is read nevertheless."""
    monkeypatch.setattr(terminal, "OUTPUT_WINDOW_BYTES", 4)
    echo.greeting = b"0123456789"
    with client.websocket_connect(PATH) as session:
        session.receive_json()
        assert b"0123" == session.receive_bytes()
        session.send_bytes(b"x")
        assert {"taken": 1} == session.receive_json()  # and no more output before it
        session.send_json({"taken": 3})
        assert b"456" == session.receive_bytes()
        session.send_json({"taken": 4})
        assert [b"789", b"x"] == [session.receive_bytes(), session.receive_bytes()]
        session.send_json({"taken": 5})
        assert "invalid_argument" == problem_of(session)["code"]  # only 4 were under way


def test_a_page_that_types_too_far_ahead_is_ended(
    client: TestClient, echo: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session ends if the input exceeds the window of a command that does not read."""
    monkeypatch.setattr(terminal, "INPUT_WINDOW_BYTES", 8)
    echo.is_slow = True
    with client.websocket_connect(PATH) as session:
        session.receive_json()
        session.send_bytes(b"01234567")
        session.send_bytes(b"8")
        problem = problem_of(session)

    assert ("invalid_argument", "9 bytes were typed ahead, at most 8 are allowed") == (
        problem["code"],
        problem["message"],
    )
    assert echo.is_closed


def test_a_terminal_in_which_nothing_is_typed_is_ended(
    client: TestClient, echo: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session without input ends, even if there is output."""
    monkeypatch.setattr(terminal, "IDLE_S", 0.05)
    echo.greeting = b"busy"
    with client.websocket_connect(PATH) as session:
        session.receive_json()
        session.receive_bytes()
        assert "nothing was typed for" in problem_of(session)["message"]

    assert echo.is_closed


def test_no_more_terminals_are_open_than_may_be(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ended session does not count towards the bound."""
    monkeypatch.setattr(terminal, "SESSIONS_MAX", 1)
    with client.websocket_connect(PATH) as first:
        first.receive_json()
        with client.websocket_connect(PATH) as second:
            assert "1 terminals are open, as many as may be" in problem_of(second)["message"]
        first.send_bytes(b"exit")
        first.receive_json()
        first.receive_json()
    with client.websocket_connect(PATH) as third:
        assert {"open": True} == third.receive_json()


def test_a_page_that_leaves_ends_its_command(client: TestClient, echo: Echo) -> None:
    """The command ends with its page, since a session is never resumed."""
    with client.websocket_connect(PATH) as session:
        session.receive_json()

    assert echo.is_closed


def test_a_command_that_does_not_start_says_why(client: TestClient, echo: Echo) -> None:
    """The error is the agent's."""
    echo.fault = Unavailable("the agent opens no session")
    with client.websocket_connect(PATH) as session:
        problem = code_text_reason(problem_of(session))
    assert ("unavailable", "the agent opens no session", "TEMPORARILY_UNAVAILABLE") == problem


@pytest.mark.parametrize("path", [f"{SITE}/terminal/nosuch/0", f"{PATH}?rows=0&columns=80", f"{PATH}?rows=1&columns=x"])
def test_addresses_that_name_no_terminal_are_refused(path: str, client: TestClient) -> None:
    """The refusal is a message, which a page can read."""
    with client.websocket_connect(path) as session:
        assert "invalid_argument" == problem_of(session)["code"]


def test_a_terminal_ends_with_its_session(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal does not outlive the session of its viewer."""
    monkeypatch.setattr(terminal, "WATCH_S", 0.01)
    monkeypatch.setattr(terminal, "viewer_of", lambda socket: Viewer("rita", expires_s=1.0))
    with client.websocket_connect(PATH) as session:
        assert {"open": True} == session.receive_json()
        assert "unauthenticated" == problem_of(session)["code"]


@pytest.mark.parametrize(
    "headers", [{"origin": "https://evil.example"}, {"origin": "null"}, {"host": "evil.example"}], ids=str
)
def test_a_page_of_another_site_opens_no_terminal(headers: dict[str, str], client: TestClient) -> None:
    """A page of another origin is refused before the connection is accepted, like its requests."""
    with pytest.raises(WebSocketDenialResponse) as denied, client.websocket_connect(PATH, headers=headers):
        pass

    assert 403 == denied.value.status_code


def test_our_own_page_opens_one(client: TestClient) -> None:
    """A page is accepted if its origin is the host of the request."""
    with client.websocket_connect(PATH, headers={"origin": "http://127.0.0.1"}) as session:
        assert {"open": True} == session.receive_json()


def test_a_command_is_split_into_words() -> None:
    """An empty command is the default shell."""
    assert ["ls", "-l", "a b"] == list(argv_of("ls -l 'a b'"))
    assert SHELL == argv_of("  ")
    with pytest.raises(Exception, match="cannot be split"):
        argv_of("echo 'a")


class Listings:
    """An API that lists one sandbox."""

    def __init__(self, answer: task_pb2.BrowseSandboxResponse) -> None:
        self.tasks, self.access, self.answer = self, self, answer
        self.opened: list[str] = []

    async def BrowseSandbox(self, request: Any, timeout: float) -> task_pb2.BrowseSandboxResponse:
        return self.answer

    async def OpenTerminal(self, request: access_pb2.OpenTerminalRequest, timeout: float) -> None:
        self.opened.append(request.pod_name)


AGENT = {"hostname": "h1", "port": "5051"}
FOUND: list[tuple[dict[str, Any], str, object]] = [
    ({**AGENT, "containerId": "c1"}, "", AgentCommand),
    ({"paths": ["stdout"]}, "proxy", RelayedCommand),
    (AGENT, "", "does not run"),
    ({**AGENT, "containerId": "c1"}, "proxy", "one container"),
    ({"error": {"notRunning": {"message": "never ran"}}}, "", "never ran"),
]


@pytest.mark.parametrize(("listing", "container", "expected"), FOUND)
async def test_which_way_leads_to_a_pod(listing: dict[str, Any], container: str, expected: object) -> None:
    """Sessions use a Mesos agent directly, or else the API; a pod that does not run has no terminal."""
    api = cast(Api, Listings(task_pb2.BrowseSandboxResponse(**listing)))
    finding = find_command(api, OPEN, Asked(JOB, 0, container, "", (24, 80)))
    if isinstance(expected, str):
        with pytest.raises(Exception, match=expected):
            await finding
    else:
        assert expected is type(await finding)
