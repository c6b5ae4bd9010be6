"""Sessions: commands that run in a task's sandbox, with input and output on a connection.

This is the agent's part of LAUNCH_NESTED_CONTAINER_SESSION, ATTACH_CONTAINER_INPUT and WAIT_CONTAINER, like Mesos's I/O
switchboard. A session ends with its command, its connection or its task, whichever is first.
"""

from __future__ import annotations

import asyncio
from binascii import a2b_base64, b2a_base64
from collections import OrderedDict
from collections.abc import Callable

from services.lab.mesos.http.recordio import encode
from services.lab.mesos.resources import Json
from services.lab.shared.http.server import EventStream
from services.lab.shared.interactive import Interactive, Size
from services.lab.shared.processes import Command, Processes

SESSIONS_MAX = 16
"""Maximum number of sessions of one agent at a time."""
STATUSES_MAX = 100
"""Number of ended sessions whose exit statuses an agent keeps."""


class Refused(Exception):
    """Refusal of a session; the text is for the client."""


class Session:
    """Command and its connections."""

    def __init__(self, sessions: Sessions, session_id: str, parent_id: str) -> None:
        self.id = session_id
        self.parent_id = parent_id
        self.command: Interactive
        self.stream: EventStream
        self.resume_input: Callable[[], None] | None = None
        """Callback set while the client waits for the command to read."""
        self._sessions = sessions

    def output(self, name: str, data: bytes) -> None:
        body = {"type": name, "data": b2a_base64(data, newline=False).decode()}
        self.stream.send(encode({"type": "DATA", "data": body}))

    def unsent_bytes(self) -> int:
        return self.stream.unsent_bytes()

    def input_taken(self) -> None:
        if self.resume_input is not None:
            self.resume_input()
            self.resume_input = None

    def on_end(self, status: int) -> None:
        self._sessions.on_end(self, status)


class Sessions:
    """Sessions of one agent."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self.live: dict[str, Session] = {}
        self._statuses: OrderedDict[str, int] = OrderedDict()
        self._waiting: dict[str, list[Callable[[int], None]]] = {}

    def start(
        self,
        session_id: str,
        parent_id: str,
        command: Command,
        has_terminal: bool,
        open_stream: Callable[[], EventStream],
    ) -> None:
        """Start a command, whose terminal has no size until the input sets one. Raises Refused before the stream
        opens."""
        if session_id in self.live or session_id in self._statuses:
            raise Refused(f"Container {session_id} exists already")
        if len(self.live) >= SESSIONS_MAX:
            raise Refused(f"{SESSIONS_MAX} sessions are open on this agent, the most that it takes")
        session = Session(self, session_id, parent_id)
        try:
            session.command = Interactive(self._processes, command, (0, 0) if has_terminal else None, session)
        except (OSError, ValueError) as error:
            raise Refused(f"Failed to execute command: {error}") from error
        session.stream = open_stream()
        session.stream.on_close = session.command.kill
        self.live[session_id] = session
        session.command.start()

    def find(self, session_id: str) -> Session | None:
        return self.live.get(session_id)

    def take_input(self, session: Session, message: Json, client: asyncio.Transport) -> None:
        """Process one ProcessIO: data for the command (empty: the end of its input), a new terminal size, or a
        heartbeat."""
        command = session.command
        if message.get("type") == "DATA":
            data = a2b_base64(message.get("data", {}).get("data", ""))
            if data:
                command.write(data)
            else:
                command.end_input()
            if command.is_behind:
                client.pause_reading()
                session.resume_input = client.resume_reading
        terminal = message.get("control", {}).get("tty_info", {})
        if "window_size" in terminal:
            command.resize(_size(terminal))

    def wait(self, session_id: str, ended: Callable[[int], None]) -> bool:
        """Call ``ended`` with the exit status, at once if it is known; returns False for an unknown session."""
        if session_id in self._statuses:
            ended(self._statuses[session_id])
        elif session_id in self.live:
            self._waiting.setdefault(session_id, []).append(ended)
        else:
            return False
        return True

    def parent_ended(self, parent_id: str) -> None:
        for session in list(self.live.values()):
            if session.parent_id == parent_id:
                session.command.kill()

    def on_end(self, session: Session, status: int) -> None:
        """End a session whose command has ended and whose output is sent."""
        self.live.pop(session.id, None)
        self.keep_status(session.id, status)
        session.stream.finish()
        for ended in self._waiting.pop(session.id, ()):
            ended(status)

    def keep_status(self, session_id: str, status: int) -> None:
        self._statuses[session_id] = status
        while len(self._statuses) > STATUSES_MAX:
            self._statuses.popitem(last=False)

    def close(self) -> None:
        """Close all sessions when the agent stops; `Processes` kills the commands."""
        for session in list(self.live.values()):
            session.command.close()


def _size(terminal: Json) -> Size:
    """Return the size in a TTYInfo; 0 for missing values."""
    size = terminal.get("window_size") or {}
    rows, columns = (number if isinstance(number := size.get(key), int) else 0 for key in ("rows", "columns"))
    return rows, columns
