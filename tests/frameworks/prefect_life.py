"""Lives of flow runs, in the environment of Prefect.

The argument is the address of Peloton's API.

The server of Prefect is at PREFECT_API_URL, and a worker of the work pool "cluster" runs. It prints the ids of the jobs
with the states in which they end.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from prefect import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.deployments import run_deployment
from prefect.states import Cancelling

from peloton.api.v0.peloton_pb2 import JobID
from peloton.api.v0.task import task_pb2
from peloton.client import Client

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "prefect"))
from squares import deploy  # type: ignore[import-not-found]

TIMEOUT_S = 240.0
LONG: dict[str, object] = {"count": 600, "pause_s": 0.5}


def live(address: str) -> None:
    deployment = deploy("cluster", address=address, cpu=0.2, memory_mib=512, grace_s=60)

    def start(parameters: dict[str, object], **job_variables: object) -> UUID:
        run = run_deployment(deployment, parameters=parameters, job_variables=job_variables, timeout=0)
        return UUID(str(run.id))

    with get_client(sync_client=True) as prefect, Client(address) as peloton:

        def read(run: UUID) -> FlowRun:
            return prefect.read_flow_run(run)

        def wait(run: UUID, state: str) -> str:
            until(lambda: read(run).state_name == state, f"{state} of the flow run", lambda: str(read(run).state))
            return str(read(run).infrastructure_pid)

        completed = start({"count": 3})
        print(wait(completed, "Completed"), "SUCCEEDED")

        killed = start(LONG)
        print(wait(killed, "Running"), "FAILED")
        for process in processes_of(killed):
            os.kill(process, signal.SIGKILL)
        wait(killed, "Crashed")

        moved = start(LONG)
        first = wait(moved, "Running")
        print(first, "KILLED")
        peloton.tasks.Stop(task_pb2.StopRequest(jobId=JobID(value=first)))  # SIGTERM, as by a preemption
        until(lambda: read(moved).infrastructure_pid != first, "another job", lambda: str(read(moved).state))
        second = wait(moved, "Running")
        prefect.set_flow_run_state(moved, Cancelling())
        wait(moved, "Cancelled")
        print(second, "SUCCEEDED")


def processes_of(run: UUID) -> list[int]:
    mark = f"PREFECT__FLOW_RUN_ID={run}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:  # it has ended, or is another user's
            continue
    return found


def until(condition: Callable[[], bool], what: str, seen: Callable[[], str]) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s, f"{what} not seen within {TIMEOUT_S:.0f} s, but {seen()}"
        time.sleep(0.5)


if __name__ == "__main__":
    live(sys.argv[1])
