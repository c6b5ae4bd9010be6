"""``peloton demo``: the whole system in a minute, on this machine, leaving nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.command import Command
from peloton.errors import PelotonError

if TYPE_CHECKING:
    from services.local.cluster import LocalCluster

EXAMPLES = Path(__file__).parent.parent / "examples" / "tutorial"
JOB_ID = "00000000-0000-4000-8000-000000000001"


@click.command(cls=Command)
@click.option("--keep", is_flag=True, help="Keep the cluster running afterwards, until Ctrl-C.")
def demo(keep: bool) -> None:
    """Start a local cluster, run a ten instance job on it, show what became of it, and clean up."""
    sys.exit(asyncio.run(_demo(keep)))


async def _demo(keep: bool) -> int:
    from services.local.cluster import LocalCluster, LocalSettings

    say("Starting Peloton: Temporal, three hosts, and the roles api, worker, resmgr and hostmgr ...")
    started_s = time.monotonic()
    cluster = LocalCluster(LocalSettings(port=0), report=lambda part, line: None)
    try:
        async with cluster:
            say(f"Ready after {time.monotonic() - started_s:.1f} s.\n")
            succeeded = await _run_job(cluster)
            if keep:
                say("The cluster runs until Ctrl-C.")
                await asyncio.Event().wait()
    except asyncio.CancelledError:
        say("Interrupted; everything is stopped.")
        return 130
    except PelotonError as error:
        say(f"The demo failed: {error}")
        return 1
    return 0 if succeeded else 1


def say(text: str) -> None:
    click.echo(text)


async def _run_job(cluster: LocalCluster) -> bool:
    """Drive the command line as a user would: every step is a command that is shown."""
    pool, job = str(EXAMPLES / "pool.yaml"), str(EXAMPLES / "hello.yaml")
    steps = (
        ["respool", "create", "/tutorial", pool],
        ["job", "create", "/tutorial", job, "--jobID", JOB_ID, "--watch"],
        ["task", "list", JOB_ID],
        ["task", "logs", JOB_ID, "7"],
        ["host", "query"],
    )
    for step in steps:
        if not await _cli(cluster, step):
            return False
    say("To look around for longer, run `peloton up` and, in another terminal:")
    say("  .venv/bin/peloton respool create /tutorial examples/tutorial/pool.yaml")
    say("  .venv/bin/peloton job create /tutorial examples/tutorial/hello.yaml --watch")
    say("  .venv/bin/peloton job query;  .venv/bin/peloton task list JOB;  .venv/bin/peloton task logs JOB 0 -f")
    say("  .venv/bin/peloton local status    (and stop, start, restart: failure drills)")
    say(f"The Temporal Web UI shows each job's workflow: {cluster.ui_url} while the cluster runs.")
    return True


async def _cli(cluster: LocalCluster, arguments: list[str]) -> bool:
    """One command as a process of its own, as a user would start it; returns whether it succeeded."""
    shown = " ".join(argument.replace(f"{EXAMPLES.parent.parent}/", "") for argument in arguments)
    say(click.style(f"$ peloton {shown}", bold=True))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "cli.main", "--address", cluster.address, *arguments
    )
    try:
        code = await process.wait()
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        raise
    say("")
    return code == 0
