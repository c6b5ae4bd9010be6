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
from cli.examples import EXAMPLES
from cli.terminal import echo, program
from peloton.errors import PelotonError

if TYPE_CHECKING:
    from services.lab.local.cluster import LocalCluster

TUTORIAL = EXAMPLES / "tutorial"


@click.command(cls=Command)
@click.option("--keep", is_flag=True, help="Keep the cluster running afterwards, until Ctrl-C.")
def demo(keep: bool) -> None:
    """Start a local cluster, run a job of ten instances on it, show its result, and clean up."""
    sys.exit(asyncio.run(_demo(keep)))


async def _demo(keep: bool) -> int:
    from services.lab.local.cluster import LocalCluster, LocalSettings

    say("Starting Peloton: Temporal, three hosts, and the roles api, worker, resmgr and hostmgr ...")
    started_s = time.monotonic()
    cluster = LocalCluster(LocalSettings(port=0, web=keep), report=lambda part, line: None)
    try:
        async with cluster:
            say(f"Ready after {time.monotonic() - started_s:.1f} s.\n")
            succeeded = await _run_job(cluster)
            if keep:
                say(f"The cluster runs until Ctrl-C, its API at {cluster.address}.")
                say(f"Its pages are at {cluster.web_url}/ for a browser.")
                say(f"The Temporal Web UI at {cluster.ui_url} shows each job's workflow.")
                await asyncio.Event().wait()
    except asyncio.CancelledError:
        say("Interrupted; everything is stopped.")
        return 130
    except PelotonError as error:
        say(f"The demo failed: {error}")
        return 1
    return 0 if succeeded else 1


def say(text: str, bold: bool = False) -> None:
    echo(text, bold=bold)


async def _run_job(cluster: LocalCluster) -> bool:
    """Drive the command line as a user would: every step is a command that is shown."""
    pool, job = str(TUTORIAL / "pool.yaml"), str(TUTORIAL / "hello.yaml")
    steps = (
        ["respool", "create", "/tutorial", pool],
        ["job", "create", "/tutorial", job, "--watch"],
        ["task", "list", "hello"],
        ["task", "logs", "hello", "7"],
        ["host", "query"],
    )
    for step in steps:
        if not await _cli(cluster, step):
            return False
    say_what_to_try()
    return True


def say_what_to_try() -> None:
    name = program()
    say(f"To look around for longer, run `{name} up` and, in another terminal:")
    if not Path("examples").exists():
        say(f"  {name} examples    (copies the files that the next commands name)")
    say(f"  {name} respool create /tutorial examples/tutorial/pool.yaml")
    say(f"  {name} job create /tutorial examples/tutorial/hello.yaml --watch")
    say(f"  {name} task list hello;  {name} task logs hello 7;  {name} job why hello")
    say(f"  {name} local status    (and stop, start, restart: failure drills)")


async def _cli(cluster: LocalCluster, arguments: list[str]) -> bool:
    """Run one command as a process of its own, as a user would start it; return whether it succeeded."""
    shown = " ".join(argument.replace(f"{EXAMPLES}/", "examples/") for argument in arguments)
    say(f"$ peloton {shown}", bold=True)
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
