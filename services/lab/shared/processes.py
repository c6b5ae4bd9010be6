"""Child processes that cannot outlive their emulation: own sessions, a parent-death signal, a watchdog, a sweep."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import logging
import os
import signal
import subprocess
import termios
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

log = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1
_CLOSE_S = 5.0
TASK_UMASK = 0o022
"""The umask of tasks, as on a host, whatever the umask of the emulation is."""
# Present in every child's environment, so that a sweep never hits a foreign process with a recycled pid.
MARK = "EMULATION_DATA"

# Reads "+ <pgid>" and "- <pgid>"; at end of input, when the emulation has died, it kills the groups that are left.
_WATCHDOG = """
trap '' INT TERM HUP
groups=' '
while read -r op pgid; do
  case "$op" in
    +) groups="$groups$pgid ";;
    -) groups="${groups%% $pgid *} ${groups#* $pgid }";;
  esac
done
for pgid in $groups; do kill -s KILL -- "-$pgid" 2>/dev/null; done
"""

_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """End the child with its parent, before exec, so that a supervisor that is killed leaves no process behind."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _take_terminal() -> None:
    die_with_parent()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


PASSED = ("HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER")
"""Variables of the emulation's own environment that its children inherit, along with LC_*.

Others may hold its user's passwords.
"""


def environment_of_children(more: Collection[str] = ()) -> dict[str, str]:
    """Return the variables that children inherit, including the names ``more``."""
    names = {*PASSED, *more}
    found = {key: value for key, value in os.environ.items() if key in names or key.startswith("LC_")}
    found.setdefault("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    return found


class Command(NamedTuple):
    """A command to run in a process: its folder, environment and user."""

    argv: Sequence[str]
    executable: str | None
    folder: Path
    environment: Mapping[str, str]
    user: str | None = None
    """The user name; None: the user of the emulation."""


class Processes:
    """Starts processes, reports their exit, and kills their groups; one per emulated cluster."""

    def __init__(self, data_dir: Path) -> None:
        self._data = str(data_dir)
        self._journal_path = data_dir / "process-groups"
        self._journal: IO[str] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watchdog: subprocess.Popen[str] | None = None
        self._running: dict[int, tuple[subprocess.Popen[bytes], int, Callable[[int], None]]] = {}
        self._closing: asyncio.Event | None = None
        # Idle processes read from this pipe. It is never written to; when the emulation dies it closes, and they end.
        self._lifeline: tuple[int, int] | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._sweep()
        self._lifeline = os.pipe()
        self._journal = self._journal_path.open("w", encoding="ascii")
        self._watchdog = subprocess.Popen(
            ["/bin/sh", "-c", _WATCHDOG],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
        )

    def _sweep(self) -> None:
        """Kill the processes of a predecessor that was killed."""
        if not self._journal_path.exists():
            return
        groups: set[int] = set()
        for line in self._journal_path.read_text(encoding="ascii").splitlines():
            op, _, pgid = line.partition(" ")
            if pgid.isdigit():
                (groups.add if op == "+" else groups.discard)(int(pgid))
        mark = f"{MARK}={self._data}".encode()
        for process in process_table():
            if process.session in groups:
                with contextlib.suppress(OSError):
                    if mark in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0"):
                        os.kill(process.pid, signal.SIGKILL)

    def _note(self, op: str, pgid: int) -> None:
        line = f"{op} {pgid}\n"
        if self._journal is not None:
            self._journal.write(line)
            self._journal.flush()
        if self._watchdog is not None and self._watchdog.stdin is not None:
            with contextlib.suppress(OSError):
                self._watchdog.stdin.write(line)
                self._watchdog.stdin.flush()

    def spawn(
        self,
        command: Command,
        *,
        stdout: IO[bytes] | int,
        stderr: IO[bytes] | int,
        on_exit: Callable[[int], None],
        stdin: int = subprocess.DEVNULL,
        has_terminal: bool = False,
    ) -> int:
        """Start in a session of its own; call `on_exit` with the wait status.

        With `has_terminal` stdin is a terminal, which becomes that of the session. Raises OSError when it cannot start.
        """
        process = subprocess.Popen(
            list(command.argv),
            executable=command.executable,
            cwd=command.folder,
            env={**command.environment, MARK: self._data},
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            # Safe: before exec the child makes system calls only, and needs no lock that a thread may hold.
            preexec_fn=_take_terminal if has_terminal else die_with_parent,
            user=command.user,
            umask=TASK_UMASK,
        )
        return self._watch(process, on_exit)

    def spawn_idle(self, name: str, argument: str, on_exit: Callable[[int], None]) -> int:
        """Start a process that does nothing, and shows this name and argument in process lists."""
        assert self._lifeline is not None
        process = subprocess.Popen(
            [name, "-c", "read _", argument],
            executable="/bin/sh",
            env={MARK: self._data},
            stdin=self._lifeline[0],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        return self._watch(process, on_exit)

    def _watch(self, process: subprocess.Popen[bytes], on_exit: Callable[[int], None]) -> int:
        assert self._loop is not None
        self._note("+", process.pid)
        fd = os.pidfd_open(process.pid)
        self._running[process.pid] = (process, fd, on_exit)
        self._loop.add_reader(fd, self._reap, process.pid)
        return process.pid

    def _reap(self, pid: int) -> None:
        process, fd, on_exit = self._running.pop(pid)
        assert self._loop is not None
        self._loop.remove_reader(fd)
        os.close(fd)
        # Kill the rest of the group with its leader, as a container is destroyed with its first process.
        kill_group(pid, signal.SIGKILL)
        code = process.wait()
        self._note("-", pid)
        status = -code if code < 0 else code << 8
        try:
            on_exit(status)
        except Exception:
            log.exception("exit of process %d", pid)
        if self._closing is not None and not self._running:
            self._closing.set()

    async def close(self) -> None:
        """Kill every group and wait until all are reaped."""
        if self._running:
            self._closing = asyncio.Event()
            for pid, (process, fd, _) in list(self._running.items()):
                self._running[pid] = (process, fd, lambda status: None)
                kill_group(pid, signal.SIGKILL)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    await self._closing.wait()
        if self._lifeline is not None:
            for fd in self._lifeline:
                os.close(fd)
            self._lifeline = None
        if self._watchdog is not None:
            if self._watchdog.stdin is not None:
                with contextlib.suppress(OSError):
                    self._watchdog.stdin.close()
            self._watchdog.wait()
            self._watchdog = None
        if self._journal is not None:
            self._journal.close()
            self._journal = None
            self._journal_path.unlink(missing_ok=True)


def exit_code_of(status: int) -> int:
    """Return the exit code of a wait status, as a shell does: 128 and the number of the signal."""
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


def kill_group(pgid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pgid, number)


class Process(NamedTuple):
    """One process as /proc shows it; cpu seconds include children that have ended and were waited for."""

    pid: int
    session: int
    resident: int
    user_s: float
    system_s: float


def process_table() -> list[Process]:
    """Return every process on the machine."""
    page, tick = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")
    rows = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        user, system = int(fields[11]) + int(fields[13]), int(fields[12]) + int(fields[14])
        rows.append(Process(int(name), int(fields[3]), int(fields[21]) * page, user / tick, system / tick))
    return rows
