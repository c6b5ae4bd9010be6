"""Clients that read one job, each over a connection of its own: ``python -m tests.bench.readers '{...}'``.

Only one of them unpacks its answers: the measurement is about the server.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Mapping
from typing import Any

import grpc
import grpc.aio

from peloton.api.limits import MESSAGE_SIZES
from peloton.api.service_names import JOB_MANAGER
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2

TIMEOUT_S = 60.0


async def read(order: Mapping[str, Any]) -> dict[str, Any]:
    """Read ``job`` at ``address`` by ``clients`` for ``seconds``; each pauses for ``pause_s`` after an answer."""
    found: list[tuple[float, int]] = []
    failures: list[str] = []
    until_s = time.monotonic() + order["seconds"]
    request = job_pb2.GetRequest(id=peloton_pb2.JobID(value=order["job"])).SerializeToString()

    async def ask(number: int) -> None:
        await asyncio.sleep(order["pause_s"] * number / order["clients"])
        # A connection of its own: channels with the same options would share one.
        options = (*MESSAGE_SIZES, ("grpc.use_local_subchannel_pool", 1))
        async with grpc.aio.insecure_channel(order["address"], options=options) as channel:
            get: Any = channel.unary_unary(f"/{JOB_MANAGER[0]}/Get")
            checks = number == 0
            while (began_s := time.monotonic()) < until_s:
                try:
                    answer: bytes = await get(request, timeout=TIMEOUT_S)
                except grpc.aio.AioRpcError as error:
                    failures.append(f"{error.code()}: {error.details()}")
                    continue
                found.append((time.monotonic() - began_s, len(answer)))
                if checks:
                    assert job_pb2.GetResponse.FromString(answer).HasField("jobInfo"), answer[:1_000]
                    checks = False
                await asyncio.sleep(order["pause_s"])

    began_s = time.monotonic()
    await asyncio.gather(*(ask(number) for number in range(order["clients"])))
    seconds = time.monotonic() - began_s
    times_s = sorted(took_s for took_s, _ in found)
    return {
        "gets": len(found),
        "gets_per_second": round(len(found) / seconds, 1),
        "answer_bytes": max((size for _, size in found), default=0),
        "failures": len(failures),
        "first_failure": failures[0] if failures else "",
        **{f"p{share}_ms": round(times_s[len(times_s) * share // 100] * 1000, 1) for share in (50, 99) if times_s},
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(read(json.loads(sys.argv[1])))), flush=True)
