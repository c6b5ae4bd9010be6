"""The life of a cluster of Dask, in the environment of Dask: the API's address is the argument.

It prints the ids of its jobs. It ends with a failed assertion if a result is wrong.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable

from distributed import Client, wait

from peloton.integrations.dask import PelotonCluster
from peloton.integrations.instances import InstanceSpec

TIMEOUT_S = 120.0
SPEC = InstanceSpec(cpu=0.2, memory_mib=256, disk_mib=16)


def live(address: str) -> None:
    def square_slowly(number: int) -> int:
        time.sleep(0.1)
        return number * number

    with PelotonCluster(address, "/science", spec=SPEC) as cluster, Client(cluster) as client:
        cluster.scale(3)
        client.wait_for_workers(3, TIMEOUT_S)
        print(cluster.job_id)

        squares = client.map(square_slowly, range(100))
        killed = process_of_one(client)
        os.kill(killed, signal.SIGKILL)
        assert sum(number * number for number in range(100)) == sum(client.gather(squares))
        until(lambda: len(cluster.observed) == 3 and killed not in client.run(os.getpid).values(), "a new worker")

        held = client.map(lambda number: number + 1, range(50))
        wait(held)
        os.kill(process_of_one(client), signal.SIGTERM)  # as a preemption does
        assert sum(range(1, 51)) == sum(client.gather(held))
        until(lambda: len(cluster.observed) == 2, "the end of this worker")

        cluster.scale(1)
        until(lambda: len(cluster.observed) == 1, "one worker")
        cluster.adapt(minimum=0, maximum=4, interval="500ms", wait_count=2)
        more = client.map(square_slowly, range(1000, 1200))
        until(lambda: len(cluster.observed) == 4, "four workers")
        assert sum(number * number for number in range(1000, 1200)) == sum(client.gather(more))
        del squares, held, more
        until(lambda: not cluster.plan, "the end of idle workers")
        assert 7 == client.submit(lambda: 7).result(TIMEOUT_S)
        print(cluster.job_id)


def process_of_one(client: Client) -> int:
    return int(min(client.run(os.getpid).values()))


def until(condition: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s, f"{what} not seen within {TIMEOUT_S:.0f} s"
        time.sleep(0.2)


if __name__ == "__main__":
    live(sys.argv[1])
