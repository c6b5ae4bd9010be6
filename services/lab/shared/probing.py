"""Probes of a running task: by a command, or by HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
from collections.abc import Mapping

from services.lab.shared.processes import Command, Processes, exit_code_of, kill_group


async def run(processes: Processes, command: Command) -> int:
    """Run the command and return its exit code; a cancelled call kills it.

    Raises OSError or ValueError when it cannot start.
    """
    done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    pid = processes.spawn(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        on_exit=lambda status: None if done.done() else done.set_result(status),
    )
    try:
        return exit_code_of(await done)
    except asyncio.CancelledError:
        kill_group(pid, signal.SIGKILL)
        raise


async def http_status(host: str, port: int, path: str, headers: Mapping[str, str]) -> int | None:
    """Return the status of a GET; None if the answer is not HTTP. Raises OSError."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        lines = "".join(f"{name}: {value}\r\n" for name, value in {"Connection": "close", **headers}.items())
        writer.write(f"GET {path} HTTP/1.1\r\n{lines}\r\n".encode())
        await writer.drain()
        words = (await reader.readline()).split()
        return int(words[1]) if len(words) > 1 and words[1].isdigit() else None
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
