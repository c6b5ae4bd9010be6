"""The life of a Ray cluster, in the environment of Ray: the address of its head is the argument.

It prints a line "job ID" for each job that held its nodes, among lines of Ray.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable

import ray

TIMEOUT_S = 300.0


def live(address: str) -> None:
    @ray.remote(num_cpus=1, max_retries=5)  # type: ignore[untyped-decorator]
    def work(number: int) -> tuple[int, str, int]:
        time.sleep(0.5)
        return number, os.environ["RAY_CLOUD_INSTANCE_ID"], os.getppid()

    ray.init(address=address, log_to_driver=False)
    assert not workers()
    _, first, raylet = ray.get(work.remote(0), timeout=TIMEOUT_S)
    tasks = [work.remote(number) for number in range(40)]
    until(lambda: len(workers()) >= 2, "a second node")
    os.kill(raylet, signal.SIGKILL)
    results = ray.get(tasks, timeout=TIMEOUT_S)
    assert list(range(40)) == [number for number, *_ in results]
    until(lambda: not workers(), "the end of idle nodes")
    for job in sorted({node.rpartition("-")[0] for node in (first, *(node for _, node, _ in results))}):
        print("job", job)


def workers() -> list[str]:
    return [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]


def until(condition: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s, f"{what} not seen within {TIMEOUT_S:.0f} s"
        time.sleep(0.5)


if __name__ == "__main__":
    live(sys.argv[1])
