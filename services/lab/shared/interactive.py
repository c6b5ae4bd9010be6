"""An interactive command: its input and output are pipes or a terminal that this process holds."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import signal
import struct
import termios
from typing import Protocol

from services.lab.shared.processes import Command, Processes, kill_group

PIECE_BYTES = 16 * 1024
UNSENT_BYTES_MAX = 1024 * 1024
"""Limit of the output that the client has not read yet; beyond it the command waits."""
UNSENT_PAUSE_S = 0.05
UNREAD_BYTES_MAX = 256 * 1024
"""Limit of the input that the command has not read yet; beyond it the client waits."""
DRAIN_S = 1.0
"""Seconds for which output is read after the command's end: processes that it left behind may hold it open."""
Size = tuple[int, int]
"""Rows and columns of a terminal."""
STDOUT, STDERR = "STDOUT", "STDERR"


class Client(Protocol):
    """The user of the command, who has its output and end reported."""

    def output(self, name: str, data: bytes) -> None:
        """Take output. ``name``: STDOUT or STDERR; a terminal has the former alone."""
        ...

    def unsent_bytes(self) -> int:
        """Return how many bytes of the output have not been sent."""
        ...

    def input_taken(self) -> None:
        """Report that the command has read all input that was written, or has ended."""
        ...

    def on_end(self, status: int) -> None:
        """Report the end, after all output. ``status`` is as ``wait`` returns it."""
        ...


class Interactive:
    def __init__(self, processes: Processes, command: Command, terminal: Size | None, client: Client) -> None:
        """Start the command; ``terminal`` None stands for pipes. Raises OSError or ValueError when it cannot start."""
        self._client = client
        self._is_terminal = terminal is not None
        self._unwritten = bytearray()
        self._input_ends = False
        self._is_over = False
        self.status: int | None = None
        ours, theirs = _terminal_pair(terminal) if terminal is not None else _pipes()
        try:
            self.pid = processes.spawn(
                command,
                stdin=theirs[0],
                stdout=theirs[1],
                stderr=theirs[2],
                has_terminal=self._is_terminal,
                on_exit=self._handle_exit,
            )
        except (OSError, ValueError):
            for descriptor in set(ours):
                os.close(descriptor)
            raise
        finally:
            for descriptor in set(theirs):
                os.close(descriptor)
        self._input: int | None = ours[0]
        self._outputs = {ours[1]: STDOUT} if self._is_terminal else {ours[1]: STDOUT, ours[2]: STDERR}
        for descriptor in set(ours):
            os.set_blocking(descriptor, False)

    def start(self) -> None:
        """Begin to give output."""
        for descriptor in self._outputs:
            asyncio.get_running_loop().add_reader(descriptor, self._read, descriptor)

    # Output

    def _read(self, descriptor: int) -> None:
        loop = asyncio.get_running_loop()
        if self._client.unsent_bytes() > UNSENT_BYTES_MAX:
            loop.remove_reader(descriptor)
            loop.call_later(UNSENT_PAUSE_S, self._read_again, descriptor)
            return
        try:
            data = os.read(descriptor, PIECE_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno != errno.EIO:  # a terminal reports this once its last user has closed it
                raise
            data = b""
        if data:
            self._client.output(self._outputs[descriptor], data)
            return
        self._close_output(descriptor)
        self._finish()

    def _read_again(self, descriptor: int) -> None:
        if descriptor in self._outputs:
            asyncio.get_running_loop().add_reader(descriptor, self._read, descriptor)

    def _close_output(self, descriptor: int) -> None:
        asyncio.get_running_loop().remove_reader(descriptor)
        del self._outputs[descriptor]
        if descriptor != self._input:
            os.close(descriptor)

    # Input

    @property
    def is_behind(self) -> bool:
        """Return whether more input waits than the client should send."""
        return len(self._unwritten) > UNREAD_BYTES_MAX

    def write(self, data: bytes) -> None:
        self._unwritten += data
        self._write()

    def end_input(self) -> None:
        self._input_ends = True
        self._write()

    def resize(self, size: Size) -> None:
        if self._is_terminal and self._input is not None:
            _set_window_size(self._input, size)

    def _write(self) -> None:
        if self._input is None:
            return
        loop = asyncio.get_running_loop()
        loop.remove_writer(self._input)
        try:
            while self._unwritten:
                del self._unwritten[: os.write(self._input, self._unwritten[:PIECE_BYTES])]
        except BlockingIOError:
            loop.add_writer(self._input, self._write)
            return
        except OSError:  # the command no longer reads
            self._unwritten.clear()
        self._client.input_taken()
        if self._input_ends:
            self._close_input()

    def _close_input(self) -> None:
        if self._input is None:
            return
        if self._is_terminal and self.status is None:
            with contextlib.suppress(OSError):
                os.write(self._input, b"\x04")  # a terminal stays open; this is its end of input
            return
        asyncio.get_running_loop().remove_writer(self._input)
        if self._input not in self._outputs:
            os.close(self._input)
            self._input = None

    # End

    def kill(self) -> None:
        if self.status is None:
            kill_group(self.pid, signal.SIGKILL)

    def _handle_exit(self, status: int) -> None:
        self.status = status
        self._close_input()
        self._finish()
        asyncio.get_running_loop().call_later(DRAIN_S, self._give_up_output)

    def _give_up_output(self) -> None:
        if self._outputs:
            for descriptor in list(self._outputs):
                self._close_output(descriptor)
            self._finish()

    def _finish(self) -> None:
        """Report the end once the command has ended and all its output is read."""
        if self.status is None or self._outputs or self._is_over:
            return
        self._is_over = True
        self._close_input()
        if self._input is not None:
            os.close(self._input)
            self._input = None
        self._client.input_taken()
        self._client.on_end(self.status)

    def close(self) -> None:
        """Close input and output at once; `Processes` kills the command."""
        self.status = 0 if self.status is None else self.status
        self._give_up_output()


def _pipes() -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Return (our ends, the command's ends) of stdin, stdout and stderr."""
    (in_read, in_write), (out_read, out_write), (err_read, err_write) = os.pipe(), os.pipe(), os.pipe()
    return (in_write, out_read, err_read), (in_read, out_write, err_write)


def _terminal_pair(size: Size) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    ours, theirs = os.openpty()
    _set_window_size(ours, size)
    return (ours, ours, ours), (theirs, theirs, theirs)


def _set_window_size(descriptor: int, size: Size) -> None:
    rows, columns = (number if 0 <= number < 2**16 else 0 for number in size)
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
