"""``peloton task exec`` and ``pod exec``: run a command in the container of a task, with local input and output."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass

import click

from cli import agents
from cli.command import Command
from cli.errors import Failed
from cli.names import instance_argument
from cli.settings import Settings, pass_settings
from cli.task.logs import Sandbox, container_option, is_served
from cli.task.relayed_session import RelayedSession
from cli.wire import v0
from peloton.api.agent_sessions import PIECE_BYTES, STDERR, AgentSession, Size
from peloton.api.limits import code_of
from peloton.model.ids import PodName

SHELL = ("/bin/sh",)
CONTEXT = {"allow_interspersed_args": False, "ignore_unknown_options": True}


def session_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of ``exec``, which stand before the task: the words after it are the command."""
    for option in (
        instance_argument("COMMAND", many=True),
        container_option,
        click.option("--tty", "-t", is_flag=True, help="Give the command a terminal; needs a local one."),
        click.option("--stdin", "-i", is_flag=True, help="Pass standard input to the command."),
    ):
        function = option(function)
    return function


@click.command("exec", cls=Command, context_settings=CONTEXT)
@session_options
@pass_settings
def exec_task(settings: Settings, pod: tuple[PodName, tuple[str, ...]], container: str, stdin: bool, tty: bool) -> None:
    """Run a command in the sandbox of a running task; without COMMAND, a shell.

    The command has the environment of the task, and ends with it at the latest. The exit code is that of the command,
    or 128 plus the number of the signal that ended it. Options stand before JOB.

    \b
    Examples:
      peloton task exec JOB 0 ls -l
      peloton task exec -it JOB 0
      peloton task exec -i JOB 0 sort < names
      peloton task exec --container proxy JOB 0 ls -l
    """
    run_session(settings, *pod, container, stdin, tty)


def run_session(settings: Settings, pod: PodName, words: Sequence[str], container: str, stdin: bool, tty: bool) -> None:
    """Run the command, and exit with its exit code."""
    if not words and sys.stdin.isatty() and sys.stdout.isatty():
        stdin = tty = True
    if tty and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Failed("--tty needs a terminal for input and output: omit it, or run the command on a terminal")
    listing = Sandbox(settings, pod.job_id, pod.instance_id).browse()
    argv = list(words or SHELL)
    session: Session | RelayedSession
    if not is_served(listing):
        session = RelayedSession(settings, pod, container, argv, stdin, tty)
    elif container:
        raise Failed(f"pod {pod} is on Mesos, where a pod has one container: omit --container")
    elif not listing.containerId:
        raise Failed(f"pod {pod} is not running: it has no container to run a command in")
    else:
        ask_permission(settings, pod)
        session = Session(listing.hostname, listing.port, listing.containerId, argv, stdin, tty)
    with raw_terminal() if tty else nullcontext():
        exit_code = session.run()
    click.get_current_context().exit(exit_code)


def ask_permission(settings: Settings, pod: PodName) -> None:
    """Ask the api, which notes it in the audit log, before a command runs at an agent of Mesos without its help."""
    import grpc

    try:
        settings.client.access.OpenTerminal(v0.access.OpenTerminalRequest(pod_name=str(pod)))
    except grpc.RpcError as error:
        if code_of(error) != "UNIMPLEMENTED":  # the api is older, and has no permissions
            raise


@dataclass
class Session:
    """One command in the container of a task on Mesos, with the input and output of this process."""

    host: str
    port: str
    container_id: str
    argv: list[str]
    with_input: bool = False
    with_terminal: bool = False
    source: int = 0  # descriptor of the local input

    def run(self) -> int:
        """Run the command, and return its exit code."""
        session = self.open()
        try:
            if self.with_terminal:
                signal.signal(signal.SIGWINCH, lambda number, frame: start_thread(resize, session))
            start_thread(self.pump_input, session)
            for name, data in session.outputs():
                show(name, data)
        finally:
            session.close()
        return session.exit_code()

    def open(self) -> AgentSession:
        terminal = window_size() if self.with_terminal else None
        session = AgentSession(
            agents.access(),
            self.host,
            int(self.port),
            self.container_id,
            session_id=str(uuid.uuid4()),
            argv=self.argv,
            terminal=terminal,
        )
        session.open()
        return session

    def pump_input(self, session: AgentSession) -> None:
        """Send the local input until it or the session ends; without one, close the input of the command at once."""
        with suppress(OSError):
            while self.with_input and (data := os.read(self.source, PIECE_BYTES)):
                session.send(data)
            session.end_input()


def start_thread(function: Callable[[AgentSession], None], session: AgentSession) -> None:
    """Run ``function`` in a daemon thread, so that output is read while input is sent."""
    threading.Thread(target=function, args=[session], daemon=True, name=function.__name__).start()


def resize(session: AgentSession) -> None:
    with suppress(OSError):
        session.resize(window_size())


def show(name: str, data: bytes) -> None:
    stream = sys.stderr.buffer if name == STDERR else sys.stdout.buffer
    stream.write(data)
    stream.flush()


def window_size() -> Size:
    columns, rows = shutil.get_terminal_size()
    return rows, columns


@contextmanager
def raw_terminal() -> Iterator[None]:
    """Set the terminal to raw mode, so that each key reaches the command, until the block ends."""
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setraw(sys.stdin, termios.TCSADRAIN)  # keys typed earlier go to the command
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
