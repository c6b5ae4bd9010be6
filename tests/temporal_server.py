"""A Temporal dev server for tests, in memory. It ends with the process that starts it, however that ends."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from services.lab.local.temporal_server import starts_workflows, temporal_binary
from services.lab.shared.processes import die_with_parent
from tests.ports import free_ports
from tests.waiting import timeout_s


@contextmanager
def temporal_server(options: Sequence[str] = (), attributes: Sequence[str] = (), port: int = 0) -> Iterator[str]:
    """Yield the address of a server that starts workflows, on a free port unless one is given. ``attributes`` are
    search attributes of the type keyword."""
    address = f"127.0.0.1:{port or free_ports(1)[0]}"
    command = [temporal_binary(), "server", "start-dev", "--ip", "127.0.0.1", "--log-level", "error", "--headless"]
    command += ["--port", address.rpartition(":")[2], *(f"--search-attribute={name}=Keyword" for name in attributes)]
    with subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL, preexec_fn=die_with_parent) as server:
        try:
            began_s = time.monotonic()
            while not starts_workflows(address):
                assert server.poll() is None, f"Temporal ended with {server.returncode}: {command}"
                assert time.monotonic() < began_s + timeout_s(), f"Temporal does not come up at {address}"
                time.sleep(0.1)
            yield address
        finally:
            server.terminate()
