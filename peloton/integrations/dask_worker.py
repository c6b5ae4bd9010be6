"""The program of a pod that is a worker of Dask.

Its text travels in the job's configuration, so that an image needs Dask only. A lost process is repeated by Peloton,
which takes the place of Dask's nanny.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import sys

from distributed import Worker

CONNECT_S = 60


async def serve(scheduler: str, threads: int, memory_bytes: int) -> None:
    """Work until the scheduler lets the worker go or ends; at SIGTERM, hand over what the worker holds and end."""
    # A new run may come before the scheduler has noticed the loss of the one before.
    name = f"{os.environ.get('PELOTON_INSTANCE_ID', '0')}-{secrets.token_hex(4)}"
    worker = Worker(scheduler, name=name, nthreads=threads, memory_limit=memory_bytes, death_timeout=CONNECT_S)
    await worker
    leaving: list[asyncio.Task[None]] = []

    def leave() -> None:
        leaving.append(asyncio.ensure_future(worker.close_gracefully(reason="the pod has to end")))

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, leave)
    await worker.finished()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
