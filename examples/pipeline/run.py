"""Plays the story of README.md: a pipeline that succeeds, one whose last job fails, and one that is cancelled.

    python examples/pipeline/run.py                             # a cluster of its own
    python examples/pipeline/run.py --address localhost:5397    # of a `peloton up` on this machine

At the end it stops its processes and deletes its pool.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import signal
import subprocess
import sys
import time
import uuid
from contextlib import ExitStack
from pathlib import Path

from pipeline import PelotonJobs, Pipeline, PipelineWorkflow, Step
from temporalio.client import Client as Temporal
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ActivityError, ApplicationError, CancelledError
from temporalio.worker import Worker

from peloton.api.v0.overview import overview_pb2
from peloton.client import Client

sys.path.insert(0, str(Path(__file__).parents[1]))
from story import PELOTON, StoryEnded, own_cluster

FOLDER = Path(os.path.relpath(Path(__file__).parent))  # as you would type it
POOL = "/pipeline"
TASK_QUEUE = "pipeline"
TIMEOUT_S = 240.0


def steps(out: Path, load: str) -> list[Step]:
    """Return steps that make numbers, sum them up, and load them into the warehouse."""
    numbers, total = (shlex.quote(str(out / name)) for name in ("numbers", "total"))
    return [
        Step("extract", f"seq 1 10 > {numbers}", f"rm {numbers}"),
        Step("transform", f"awk '{{s += $1}} END {{print s}}' {numbers} > {total}", f"rm {total}"),
        Step("load", load.format(total=total, warehouse=shlex.quote(str(out / "warehouse")))),
    ]


async def play(address: str, temporal: Temporal, out: Path) -> None:
    worker = Worker(
        temporal, task_queue=TASK_QUEUE, workflows=[PipelineWorkflow], activities=[PelotonJobs(address).run_job]
    )
    async with worker, asyncio.timeout(TIMEOUT_S):
        say("a pipeline of three jobs")
        ran = await run(temporal, steps(out, "cp {total} {warehouse}"))
        print(f"   ran {', '.join(ran)}: the warehouse has {(out / 'warehouse').read_text().strip()}", flush=True)

        say("the same, but its last job fails")
        (out / "warehouse").unlink()
        try:
            await run(temporal, steps(out, "exit 3"))
        except WorkflowFailureError as failure:
            cause = failure.cause.cause if isinstance(failure.cause, ActivityError) else failure.cause
            text = cause.message if isinstance(cause, ApplicationError) else str(cause)
            print(f"   failed: {text.partition(':')[0]}", flush=True)
        else:
            raise StoryEnded("the pipeline succeeded although its last job fails")
        show_left(out)

        say("a pipeline that is cancelled while its second job runs")
        try:
            await run(temporal, [steps(out, "")[0], Step("transform", "sleep 1000")], cancelled_after=1)
        except WorkflowFailureError as failure:
            print(f"   {'cancelled' if isinstance(failure.cause, CancelledError) else failure.cause}", flush=True)
        show_left(out)


async def run(temporal: Temporal, work: list[Step], cancelled_after: int = 0) -> list[str]:
    """Return the jobs that ran. Raises WorkflowFailureError. A pipeline is cancelled after so many jobs, 0: never."""
    handle = await temporal.start_workflow(
        PipelineWorkflow.run, Pipeline(POOL, work), id=f"pipeline-{uuid.uuid4()}", task_queue=TASK_QUEUE
    )
    if cancelled_after:
        while True:
            if len(await handle.query(PipelineWorkflow.progress)) == cancelled_after:
                break
            await asyncio.sleep(0.2)
        await handle.cancel()
    try:
        return await handle.result()
    finally:
        print(f"   progress: {', '.join(await handle.query(PipelineWorkflow.progress))}", flush=True)


def show_left(out: Path) -> None:
    print(f"   left behind: {', '.join(sorted(os.listdir(out))) or 'nothing'}", flush=True)


def say(text: str) -> None:
    print(f"-- {text}", flush=True)


def peloton(address: str, *arguments: str) -> None:
    done = subprocess.run([*PELOTON, "--address", address, *arguments], capture_output=True, text=True)
    if done.returncode:
        raise StoryEnded(f"peloton {' '.join(arguments[:3])}: {done.stderr.strip()}")


def change_pool(address: str, verb: str, *arguments: str) -> None:
    """Create or delete the pool, with retries: a new cluster has no hosts at first, and a pool is busy until the
    resource manager has read the ends of its last pods.
    """
    deadline_s = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return peloton(address, "respool", verb, POOL, *arguments)
        except StoryEnded:
            if time.monotonic() > deadline_s:
                raise
        time.sleep(0.5)


async def story(address: str, out: Path) -> None:
    addresses = Client(address).overview.GetOverview(overview_pb2.GetOverviewRequest())
    temporal = await Temporal.connect(addresses.temporal_address, namespace=addresses.temporal_namespace)
    await play(address, temporal, out)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--address", metavar="HOST:PORT", help="of a running `peloton up`")
    parser.add_argument(
        "--out", metavar="FOLDER", type=Path, default=Path("data/pipeline"), help="for data and the log"
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    data = (options.out / "data").resolve()
    data.mkdir(parents=True, exist_ok=True)
    for old in data.iterdir():  # of the story before
        old.unlink()
    try:
        with ExitStack() as cleanup:
            address = options.address
            if not address:
                print("starting a cluster ...", flush=True)
                address = cleanup.enter_context(own_cluster(options.out / "up.log", "--no-web"))
            change_pool(address, "create", str(FOLDER / "pool.yaml"))
            cleanup.callback(change_pool, address, "delete")
            asyncio.run(story(address, data))
    except (StoryEnded, TimeoutError) as end:
        print(f"the story ended early: {end or 'it took too long'}", file=sys.stderr)
        return 1
    print("the story is over")
    return 0


if __name__ == "__main__":
    sys.exit(main())
