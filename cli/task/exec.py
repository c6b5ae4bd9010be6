"""``peloton task exec`` and ``pod exec``: a command beside a running task, with its input and output here."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import sys
import threading
import uuid
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

import click

from cli import agents
from cli.command import Command
from cli.errors import Failed
from cli.names import instance_argument
from cli.settings import Settings, pass_settings
from cli.task.logs import Sandbox, container_option, is_served
from cli.task.relayed_session import RelayedSession
from peloton.model.ids import PodName

SHELL = ("/bin/sh",)
PIECE_BYTES = 16 * 1024
EXIT_STATUS_TIMEOUT_S = 10.0
JSON_TYPE, RECORDIO_TYPE = "application/json", "application/recordio"
CONTEXT = {"allow_interspersed_args": False, "ignore_unknown_options": True}

Json = dict[str, Any]


def session_options(function: Callable[..., None]) -> Callable[..., None]:
    """Of every ``exec``; they stand before the task, because what follows it is the command."""
    for option in (
        instance_argument("COMMAND", many=True),
        container_option,
        click.option("--tty", "-t", is_flag=True, help="Give the command a terminal; needs one here."),
        click.option("--stdin", "-i", is_flag=True, help="Pass the input of this command on."),
    ):
        function = option(function)
    return function


@click.command("exec", cls=Command, context_settings=CONTEXT)
@session_options
@pass_settings
def exec_task(settings: Settings, pod: tuple[PodName, tuple[str, ...]], container: str, stdin: bool, tty: bool) -> None:
    """Run a command in the sandbox of a running task. Without a command: a shell, on a terminal with one.

    The command has the environment of the task and ends with it. Its exit code is that of this one; 128 and the number
    of the signal when one ended it. Options stand before JOB.

    \b
    Examples:
      peloton task exec JOB 0 ls -l
      peloton task exec -it JOB 0
      peloton task exec -i JOB 0 sort < names
      peloton task exec --container proxy JOB 0 ls -l
    """
    run_session(settings, *pod, container, stdin, tty)


def run_session(settings: Settings, pod: PodName, words: Sequence[str], container: str, stdin: bool, tty: bool) -> None:
    """Exits with the exit code of the command."""
    if not words and sys.stdin.isatty() and sys.stdout.isatty():
        stdin = tty = True
    if tty and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Failed("--tty needs a terminal for input and output: leave it out")
    listing = Sandbox(settings, pod.job_id, pod.instance_id).browse()
    argv = list(words or SHELL)
    session: Session | RelayedSession
    if not is_served(listing):
        session = RelayedSession(settings, pod, container, argv, stdin, tty)
    elif container:
        raise Failed(f"pod {pod} is on Mesos, where a pod has one container: leave --container out")
    elif not listing.containerId:
        raise Failed(f"pod {pod} does not run: it has no container for a session")
    else:
        session = Session(listing.hostname, listing.port, listing.containerId, argv, stdin, tty)
    with raw_terminal() if tty else nullcontext():
        exit_code = session.run()
    click.get_current_context().exit(exit_code)


@dataclass
class Session:
    """One command beside a task, on an agent of Mesos."""

    host: str
    port: str
    container_id: str
    argv: list[str]
    with_input: bool = False
    with_terminal: bool = False
    source: int = 0  # the descriptor of our input
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    _sending: threading.Lock = field(default_factory=threading.Lock)
    _input: http.client.HTTPConnection | None = None

    def run(self) -> int:
        """Until the command has ended; returns its exit code."""
        connection = self.connect()
        try:
            response = self.launch(connection)
            self.attach_input()
            for record in records(lambda: response.read1(PIECE_BYTES)):
                show(json.loads(record))
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Failed(f"the session with the agent at {self.address} broke off: {error!r}") from error
        finally:
            self.close_input()
            connection.close()
        return self.exit_code()

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def connect(self) -> http.client.HTTPConnection:
        return agents.connect(self.host, self.port)

    def launch(self, connection: http.client.HTTPConnection) -> http.client.HTTPResponse:
        command = {"shell": False, "value": self.argv[0], "arguments": self.argv}
        body: Json = {"container_id": self.container(), "command": command}
        if self.with_terminal:
            body["container"] = {"type": "MESOS", "tty_info": window_size()}
        response = call(connection, "LAUNCH_NESTED_CONTAINER_SESSION", body, RECORDIO_TYPE)
        if response.status != http.client.OK:
            raise Failed(f"the agent at {self.address} opens no session: {reason_of(response)}")
        assert connection.sock is not None
        connection.sock.settimeout(None)  # a command may be silent for long
        return response

    def container(self) -> Json:
        return {"value": self.id, "parent": {"value": self.container_id}}

    # input

    def attach_input(self) -> None:
        """Passes our input on, or ends the command's input at once."""
        connection = self._input = self.connect()
        connection.putrequest("POST", "/api/v1")
        for name, value in (
            ("Content-Type", RECORDIO_TYPE), ("Message-Content-Type", JSON_TYPE), ("Accept", JSON_TYPE),
            ("Transfer-Encoding", "chunked"), *agents.access().headers.items(),
        ):  # fmt: skip
            connection.putheader(name, value)
        connection.endheaders()
        self.send_record({"type": "CONTAINER_ID", "container_id": self.container()})
        if not self.with_input:
            self.send_data(b"")
            return
        if self.with_terminal:
            signal.signal(signal.SIGWINCH, lambda number, frame: self.send_control("TTY_INFO", tty_info=window_size()))
        threading.Thread(target=self.pump_input, daemon=True, name="input of the session").start()

    def pump_input(self) -> None:
        """Ends with our input, or when the session has."""
        with suppress(OSError):
            while data := os.read(self.source, PIECE_BYTES):
                self.send_data(data)
            self.send_data(b"")

    def send_data(self, data: bytes) -> None:
        body = {"type": "STDIN", "data": b64encode(data).decode()}
        self.send_record({"type": "PROCESS_IO", "process_io": {"type": "DATA", "data": body}})

    def send_control(self, kind: str, **content: Any) -> None:
        with suppress(OSError):
            control = {"type": kind, **content}
            self.send_record({"type": "PROCESS_IO", "process_io": {"type": "CONTROL", "control": control}})

    def send_record(self, body: Json) -> None:
        text = json.dumps({"type": "ATTACH_CONTAINER_INPUT", "attach_container_input": body}).encode()
        record = b"%d\n%s" % (len(text), text)
        with self._sending:
            if self._input is not None:
                self._input.send(b"%x\r\n%s\r\n" % (len(record), record))

    def close_input(self) -> None:
        with self._sending:
            if self._input is not None:
                self._input.close()
            self._input = None

    # end

    def exit_code(self) -> int:
        connection = agents.connect(self.host, self.port, EXIT_STATUS_TIMEOUT_S)
        try:
            response = call(connection, "WAIT_CONTAINER", {"container_id": self.container()}, JSON_TYPE)
            answer = json.loads(response.read()) if response.status == http.client.OK else {}
        except (OSError, http.client.HTTPException, ValueError):
            answer = {}
        finally:
            connection.close()
        status = answer.get("wait_container", {}).get("exit_status")
        if status is None:
            raise Failed(f"the agent at {self.address} does not say how the command ended")
        code = os.waitstatus_to_exitcode(int(status))
        return code if code >= 0 else 128 - code


def call(connection: http.client.HTTPConnection, name: str, body: Json, accept: str) -> http.client.HTTPResponse:
    headers = {"Content-Type": JSON_TYPE, "Accept": accept, "Message-Accept": JSON_TYPE, **agents.access().headers}
    connection.request("POST", "/api/v1", json.dumps({"type": name, name.lower(): body}), headers)
    return connection.getresponse()


def reason_of(response: http.client.HTTPResponse) -> str:
    return f"{response.status} {response.read(500).decode('utf-8', 'replace')}".strip()


def records(read: Callable[[], bytes]) -> Iterator[bytes]:
    """What ``read`` brings, cut into records of RecordIO: their length, a newline, and so many bytes."""
    rest = b""
    while data := read():
        rest += data
        while b"\n" in rest:
            head, _, body = rest.partition(b"\n")
            if len(body) < int(head):
                break
            yield body[: int(head)]
            rest = body[int(head) :]


def show(message: Json) -> None:
    """Output of the command; other messages keep the connection alive."""
    if message.get("type") != "DATA":
        return
    stream = sys.stderr.buffer if message["data"]["type"] == "STDERR" else sys.stdout.buffer
    stream.write(b64decode(message["data"].get("data", "")))
    stream.flush()


def window_size() -> Json:
    columns, rows = shutil.get_terminal_size()
    return {"window_size": {"rows": rows, "columns": columns}}


@contextmanager
def raw_terminal() -> Iterator[None]:
    """Each key goes to the command as it is, until the block ends."""
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setraw(sys.stdin, termios.TCSADRAIN)  # what was typed already is for the command
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
