"""`python -m services.minicluster --port P --data DIR [--hosts FILE | --simulate N [--simulation FILE]]`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from pathlib import Path

from services.minicluster import authentication
from services.minicluster.hosts import DEFAULT_PORTS, PORT_MAX, default_hosts, load_hosts
from services.minicluster.server import Minicluster
from services.minicluster.settings import MiniclusterSettings
from services.minicluster.simulation import Simulation
from services.minicluster.simulation_file import load_simulation


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="minicluster", description="An emulated Mesos master with its agents.")
    parser.add_argument("--port", type=int, default=5050, help="port of the master, 0 for any (default 5050)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name by which clients ask for this host, beside localhost; may be repeated",
    )
    parser.add_argument("--data", type=Path, required=True, help="directory of the sandboxes")
    parser.add_argument("--agent-timeout", type=float, default=75.0, help="seconds until an agent is unreachable")
    parser.add_argument(
        "--slack-interval", type=float, default=15.0, help="seconds between estimates of slack, 0 for none (default 15)"
    )
    parser.add_argument(
        "--image-download", type=float, default=0.0, help="seconds until an image is on a host (default 0)"
    )
    parser.add_argument("--enforce-disk-quota", action="store_true", help="a pod whose sandbox outgrows its disk fails")
    parser.add_argument(
        "--sandbox-retention", type=float, default=168.0, metavar="HOURS", help="of runs that have ended (default 168)"
    )
    parser.add_argument(
        "--sandbox-disk", type=int, default=10_000, metavar="MB", help="for sandboxes of ended runs (default 10000)"
    )
    parser.add_argument("--prefix", default="", help="what names of hosts begin with (not of those in a file)")
    parser.add_argument(
        "--share", type=_share, default=(1, 1), metavar="I/N", help="the I-th of N miniclusters that share ports"
    )
    parser.add_argument(
        "--pod-ports", type=_ports, default=DEFAULT_PORTS, metavar="A-B", help="ports of hosts that name none"
    )
    parser.add_argument("--pass-env", action="append", default=[], metavar="NAME", help="a variable that pods get too")
    authentication.add_options(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--hosts", type=Path, help="YAML list of hosts")
    which.add_argument("--simulate", type=int, metavar="N", help="N agents without processes")
    parser.add_argument("--simulation", type=Path, help="YAML of run times, failures, images and classes of hosts")
    return parser


def settings_of(arguments: list[str]) -> MiniclusterSettings:
    """Exits with a clear text when the arguments or the hosts file are wrong."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.simulation and options.simulate is None:
        parser.error("--simulation needs --simulate N")
    simulation = Simulation()
    try:
        who_may_call = authentication.settings_of(options)
        if options.simulation:
            simulation = load_simulation(options.simulation, options.simulate)
        if options.simulate is not None:
            hosts = simulation.make_hosts(options.simulate, options.prefix)
        else:
            among = options.pod_ports
            hosts = (
                load_hosts(options.hosts, among)
                if options.hosts
                else default_hosts(options.prefix, options.share, among)
            )
    except ValueError as error:
        parser.error(str(error))
    return MiniclusterSettings(
        port=options.port,
        host=options.host,
        allowed_hosts=tuple(options.allow_host),
        token=os.environ.get("MINICLUSTER_TOKEN", ""),
        data_dir=options.data.resolve(),
        hosts=hosts,
        simulate=options.simulate is not None,
        simulation=simulation,
        agent_timeout_s=options.agent_timeout,
        image_download_s=max(options.image_download, 0.0),
        sandbox_retention_s=max(options.sandbox_retention, 0.0) * 3600,
        sandbox_disk_mb=max(options.sandbox_disk, 0),
        enforce_disk_quota=options.enforce_disk_quota,
        slack_interval_s=options.slack_interval if options.slack_interval > 0 else None,
        pass_env=tuple(options.pass_env),
        **who_may_call,
    )


def _ports(text: str) -> range:
    begin, _, end = text.partition("-")
    if not (begin.isdigit() and end.isdigit() and 0 < int(begin) <= int(end) <= PORT_MAX):
        raise argparse.ArgumentTypeError(f"want A-B with 1 <= A <= B <= {PORT_MAX}, got {text!r}")
    return range(int(begin), int(end) + 1)


def _share(text: str) -> tuple[int, int]:
    which, _, of = text.partition("/")
    if not (which.isdigit() and of.isdigit() and 0 < int(which) <= int(of)):
        raise argparse.ArgumentTypeError(f"want I/N with I from 1 to N, got {text!r}")
    return int(which), int(of)


async def run(settings: MiniclusterSettings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    cluster = Minicluster(settings)
    returns: set[asyncio.Task[None]] = set()  # the loop alone would not keep them
    loop.add_signal_handler(signal.SIGUSR1, cluster.stop_master)
    loop.add_signal_handler(signal.SIGUSR2, lambda: returns.add(asyncio.create_task(cluster.start_master())))
    try:
        await cluster.start()
        print(f"minicluster: {len(settings.hosts)} agents, master at {settings.host}:{cluster.port}", flush=True)
        await stop.wait()
    finally:
        await cluster.stop()


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    settings = settings_of(sys.argv[1:])
    try:
        asyncio.run(run(settings))
    except OSError as error:
        sys.exit(f"minicluster: {error}")


if __name__ == "__main__":
    main()
