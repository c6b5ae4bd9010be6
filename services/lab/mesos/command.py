"""Command `minicluster`: converts options to settings, and runs a minicluster until a signal."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from typing import Any

import click

from services.lab.mesos.http.authentication import load_credentials
from services.lab.mesos.server import Minicluster
from services.lab.mesos.settings import DEFAULT_ISOLATION, MiniclusterSettings
from services.lab.shared.commands import FILE, FOLDER, host_options, hosts_from, stop_event, tune_garbage_collector
from services.lab.shared.hosts import default_hosts
from services.lab.shared.http.tls import tls_context
from services.lab.shared.yaml_rows import PORT_MAX

HELP = """Run an emulated Mesos: a master with its agents, in one process.

Frameworks talk to it through the v1 HTTP API of Mesos. Tasks are processes of this machine, or with --simulate entries
in a heap of timers. It runs until SIGTERM or SIGINT, and no process of its tasks outlives it. SIGUSR1 takes the master
away, as if it had died, and SIGUSR2 brings it back; agents and tasks run on meanwhile.

Drills that stop hosts or replace the master are HTTP calls below /minicluster. When the environment variable
MINICLUSTER_TOKEN is set, they need its value as bearer token.

\b
Three agents, tasks are processes:
  minicluster --data ./minicluster-data
\b
Hosts from a file:
  minicluster --hosts examples/hosts.yaml
\b
1,000 agents without processes, some of them slow or failing:
  minicluster --simulate 1000 --simulation examples/simulation.yaml
"""


NUMBER = click.FloatRange(min=0.0)


@click.command("minicluster", help=HELP, context_settings={"show_default": True, "max_content_width": 110})
@click.option(
    "--port", default=5050, type=click.IntRange(0, PORT_MAX), metavar="PORT", help="Port of the master, 0 for any."
)
@click.option("--host", default="127.0.0.1", metavar="ADDRESS", help="Address that master and agents listen on.")
@click.option(
    "--allow-host", multiple=True, metavar="NAME", help="A name that clients may call it by, besides localhost."
)
@click.option("--data", default="minicluster-data", type=FOLDER, help="Folder of the sandboxes.")
@host_options("YAML list of hosts. Without it there are three.", "host", "tasks")
@click.option(
    "--agent-timeout", default=75.0, type=NUMBER, metavar="SECONDS", help="Seconds until a lost agent is unreachable."
)
@click.option(
    "--slack-interval",
    default=15.0,
    type=NUMBER,
    metavar="SECONDS",
    help="Seconds between estimates of slack, 0 for none.",
)
@click.option("--enforce-disk-quota", is_flag=True, help="A task whose sandbox outgrows its disk fails.")
@click.option(
    "--isolation", default=DEFAULT_ISOLATION, metavar="NAMES", help="Isolators that the flags of the agents name."
)
@click.option(
    "--sandbox-retention", default=168.0, type=NUMBER, metavar="HOURS", help="How long sandboxes of ended runs stay."
)
@click.option(
    "--sandbox-disk", default=10_000, type=click.IntRange(min=0), metavar="MB", help="For sandboxes of ended runs."
)
@click.option("--credentials", type=FILE, help="Who may call, as JSON of Mesos's --credentials.")
@click.option("--tls-cert", type=FILE, help="Speak TLS with this certificate; its key is in the same file.")
@click.option("--tls-ca", type=FILE, help="Callers show certificates of this authority.")
def minicluster(**options: Any) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    settings = settings_from(options)
    try:
        asyncio.run(_serve(settings))
    except OSError as error:
        raise click.ClickException(str(error)) from error


def settings_of(arguments: list[str]) -> MiniclusterSettings:
    """Parse a command line. Raises click.UsageError."""
    return settings_from(minicluster.make_context("minicluster", list(arguments)).params)


def settings_from(options: dict[str, Any]) -> MiniclusterSettings:
    """Convert options. Raises click.UsageError when options exclude each other or a file is invalid."""
    if options["tls_ca"] and not options["tls_cert"]:
        raise click.UsageError("--tls-ca needs --tls-cert")
    hosts, simulation = hosts_from(options, default_hosts)
    try:
        return MiniclusterSettings(
            port=options["port"],
            host=options["host"],
            allowed_hosts=options["allow_host"],
            token=os.environ.get("MINICLUSTER_TOKEN", ""),
            data_dir=options["data"],
            hosts=hosts,
            simulate=options["simulate"] is not None,
            simulation=simulation,
            task_variables=options["task_variables"],
            agent_timeout_s=options["agent_timeout"],
            image_download_s=options["image_download"],
            sandbox_retention_s=options["sandbox_retention"] * 3600,
            sandbox_disk_mb=options["sandbox_disk"],
            enforce_disk_quota=options["enforce_disk_quota"],
            isolation=options["isolation"],
            slack_interval_s=options["slack_interval"] or None,
            pass_env=options["pass_env"],
            credentials=load_credentials(options["credentials"]) if options["credentials"] else {},
            tls=tls_context(options["tls_cert"], options["tls_ca"]) if options["tls_cert"] else None,
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error


async def _serve(settings: MiniclusterSettings) -> None:
    tune_garbage_collector()
    stop, loop = stop_event(), asyncio.get_running_loop()
    cluster = Minicluster(settings)
    returns: set[asyncio.Task[None]] = set()  # references, which the loop does not keep
    loop.add_signal_handler(signal.SIGUSR1, cluster.stop_master)
    loop.add_signal_handler(signal.SIGUSR2, lambda: returns.add(asyncio.create_task(cluster.start_master())))
    try:
        await cluster.start()
        click.echo(f"minicluster: {len(settings.hosts)} agents, master at {settings.host}:{cluster.port}")
        await stop.wait()
    finally:
        await cluster.stop()
