"""Sessions: commands that run beside a task, in its sandbox, with their input and output on a connection.

The agent's part of LAUNCH_NESTED_CONTAINER_SESSION, ATTACH_CONTAINER_INPUT and WAIT_CONTAINER, as Mesos's I/O
switchboard does it. A session ends with its command, its connection or its task, whichever is first.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import signal
import struct
import termios
from binascii import a2b_base64, b2a_base64
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from services.emulation.http.server import EventStream
from services.emulation.processes import Command, Processes, kill_group
from services.minicluster.http.recordio import encode
from services.minicluster.resources import Json

SESSIONS_MAX = 16
"""Of one agent at a time."""
STATUSES_MAX = 100
"""Of ended sessions, whose exit statuses an agent keeps."""
PIECE_BYTES = 16 * 1024
UNSENT_BYTES_MAX = 1024 * 1024
"""Output that a client has not read yet; beyond it the command waits."""
UNSENT_PAUSE_S = 0.05
UNREAD_BYTES_MAX = 256 * 1024
"""Input that the command has not read yet; beyond it the client waits."""
DRAIN_S = 1.0
"""Processes that the command left behind may hold its output open: it is read for this long after its end."""


class Refused(Exception):
    """The session cannot begin; the text is for the client."""


@dataclass
class Session:
    """One command. ``input`` is our end of its input; ``outputs`` are those of its outputs: file descriptor -> name."""

    id: str
    parent_id: str
    pid: int
    is_terminal: bool
    stream: EventStream
    input: int | None
    outputs: dict[int, str]
    unwritten: bytearray = field(default_factory=bytearray)
    input_ends: bool = False
    resume_input: Callable[[], None] | None = None
    """Set while the client waits for the command to read."""
    status: int | None = None
    """As ``wait`` gives it, once the command has ended."""


class Sessions:
    """All sessions of one agent."""

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
        terminal: Json | None,
        open_stream: Callable[[], EventStream],
    ) -> None:
        """``terminal`` is a TTYInfo, None for pipes. Raises Refused before it opens the stream."""
        if session_id in self.live or session_id in self._statuses:
            raise Refused(f"Container {session_id} exists already")
        if len(self.live) >= SESSIONS_MAX:
            raise Refused(f"{SESSIONS_MAX} sessions are open on this agent, the most that it takes")
        ours, theirs = _terminal_pair(terminal) if terminal is not None else _pipes()
        try:
            pid = self._processes.spawn(
                command,
                stdin=theirs[0],
                stdout=theirs[1],
                stderr=theirs[2],
                has_terminal=terminal is not None,
                on_exit=lambda status: self._exited(session_id, status),
            )
        except (OSError, ValueError) as error:
            for descriptor in set(ours):
                os.close(descriptor)
            raise Refused(f"Failed to execute command: {error}") from error
        finally:
            for descriptor in set(theirs):
                os.close(descriptor)
        outputs = {ours[1]: "STDOUT"} if terminal is not None else {ours[1]: "STDOUT", ours[2]: "STDERR"}
        session = Session(session_id, parent_id, pid, terminal is not None, open_stream(), ours[0], outputs)
        session.stream.on_close = lambda: self._kill(session)
        self.live[session_id] = session
        for descriptor in set(ours):
            os.set_blocking(descriptor, False)
        for descriptor in outputs:
            asyncio.get_running_loop().add_reader(descriptor, self._read, session, descriptor)

    # output

    def _read(self, session: Session, descriptor: int) -> None:
        loop = asyncio.get_running_loop()
        if session.stream.unsent_bytes() > UNSENT_BYTES_MAX:
            loop.remove_reader(descriptor)
            loop.call_later(UNSENT_PAUSE_S, self._read_again, session, descriptor)
            return
        try:
            data = os.read(descriptor, PIECE_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno != errno.EIO:  # a terminal says so when its last user has closed it
                raise
            data = b""
        if data:
            body = {"type": session.outputs[descriptor], "data": b2a_base64(data, newline=False).decode()}
            session.stream.send(encode({"type": "DATA", "data": body}))
            return
        self._close_output(session, descriptor)
        self._finish(session)

    def _read_again(self, session: Session, descriptor: int) -> None:
        if descriptor in session.outputs:
            asyncio.get_running_loop().add_reader(descriptor, self._read, session, descriptor)

    def _close_output(self, session: Session, descriptor: int) -> None:
        asyncio.get_running_loop().remove_reader(descriptor)
        del session.outputs[descriptor]
        if descriptor != session.input:
            os.close(descriptor)

    # input

    def find(self, session_id: str) -> Session | None:
        return self.live.get(session_id)

    def take_input(self, session: Session, message: Json, client: asyncio.Transport) -> None:
        """One ProcessIO: data for the command (empty: the end of its input), a new terminal size, or a heartbeat."""
        if message.get("type") == "DATA":
            data = a2b_base64(message.get("data", {}).get("data", ""))
            session.unwritten += data
            session.input_ends |= not data
            self._write(session)
            if len(session.unwritten) > UNREAD_BYTES_MAX:
                client.pause_reading()
                session.resume_input = client.resume_reading
        size = message.get("control", {}).get("tty_info", {}).get("window_size")
        if size is not None and session.is_terminal and session.input is not None:
            _set_window_size(session.input, size)

    def _write(self, session: Session) -> None:
        if session.input is None:
            return
        loop = asyncio.get_running_loop()
        loop.remove_writer(session.input)
        try:
            while session.unwritten:
                del session.unwritten[: os.write(session.input, session.unwritten[:PIECE_BYTES])]
        except BlockingIOError:
            loop.add_writer(session.input, self._write, session)
            return
        except OSError:  # the command does not read any more
            session.unwritten.clear()
        if session.resume_input is not None:
            session.resume_input()
            session.resume_input = None
        if session.input_ends:
            self._close_input(session)

    def _close_input(self, session: Session) -> None:
        if session.input is None:
            return
        if session.is_terminal and session.status is None:
            with contextlib.suppress(OSError):
                os.write(session.input, b"\x04")  # a terminal stays open; this is its end of input
            return
        asyncio.get_running_loop().remove_writer(session.input)
        if session.input not in session.outputs:
            os.close(session.input)
            session.input = None

    # end

    def wait(self, session_id: str, ended: Callable[[int], None]) -> bool:
        """Calls ``ended`` with the exit status, at once if it is known. False: there is no such session."""
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
                self._kill(session)

    def _kill(self, session: Session) -> None:
        if session.status is None:
            kill_group(session.pid, signal.SIGKILL)

    def _exited(self, session_id: str, status: int) -> None:
        session = self.live[session_id]
        session.status = status
        self._close_input(session)
        self._finish(session)
        asyncio.get_running_loop().call_later(DRAIN_S, self._give_up_output, session)

    def _give_up_output(self, session: Session) -> None:
        if session.outputs:
            for descriptor in list(session.outputs):
                self._close_output(session, descriptor)
            self._finish(session)

    def _finish(self, session: Session) -> None:
        """Once the command has ended and all its output is read."""
        if session.status is None or session.outputs:
            return
        self._close_input(session)
        if session.input is not None:
            os.close(session.input)
            session.input = None
        if session.resume_input is not None:
            session.resume_input()
        self.live.pop(session.id, None)
        self.keep_status(session.id, session.status)
        session.stream.finish()
        for ended in self._waiting.pop(session.id, ()):
            ended(session.status)

    def keep_status(self, session_id: str, status: int) -> None:
        self._statuses[session_id] = status
        while len(self._statuses) > STATUSES_MAX:
            self._statuses.popitem(last=False)

    def close(self) -> None:
        """The agent stops; `Processes` kills the commands."""
        for session in list(self.live.values()):
            session.status = 0 if session.status is None else session.status
            self._give_up_output(session)


def _pipes() -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """(our ends, the command's ends) of stdin, stdout and stderr."""
    (in_read, in_write), (out_read, out_write), (err_read, err_write) = os.pipe(), os.pipe(), os.pipe()
    return (in_write, out_read, err_read), (in_read, out_write, err_write)


def _terminal_pair(info: Json) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    ours, theirs = os.openpty()
    if (size := info.get("window_size")) is not None:
        _set_window_size(ours, size)
    return (ours, ours, ours), (theirs, theirs, theirs)


def _set_window_size(descriptor: int, size: Json) -> None:
    rows, columns = (n if isinstance(n := size.get(key), int) and 0 <= n < 2**16 else 0 for key in ("rows", "columns"))
    packed = struct.pack("HHHH", rows, columns, 0, 0)
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, packed)
