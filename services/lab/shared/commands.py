"""Shared parts of the commands of emulated clusters: their hosts, and the signal that ends them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from services.lab.shared.hosts import HostSpec, load_hosts
from services.lab.shared.simulation.description import load_simulation
from services.lab.shared.simulation.outcomes import Simulation
from services.lab.shared.yaml_rows import PORT_MAX, port_range

FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path, resolve_path=True)


def read_ports(context: click.Context, parameter: click.Parameter, text: str) -> range:
    """Parse a range of ports; the callback of an option."""
    found = port_range(text)
    if found is None:
        raise click.BadParameter(f"want A-B with 1 <= A <= B <= {PORT_MAX}, got {text!r}")
    return range(found[0], found[1] + 1)


def hosts_from(
    options: dict[str, Any], default: Callable[[str, range], tuple[HostSpec, ...]]
) -> tuple[tuple[HostSpec, ...], Simulation]:
    """Return the hosts and the simulation of --simulate, --simulation, --hosts, --prefix and --task-ports.

    ``default`` makes the hosts of the last two. Raises click.UsageError when options exclude each other or a file is
    wrong.
    """
    file, count, prefix = options["simulation"], options["simulate"], options["prefix"]
    if file and count is None:
        raise click.UsageError("--simulation needs --simulate N")
    if options["hosts"] and count is not None:
        raise click.UsageError("--hosts and --simulate exclude each other: simulated hosts come from --simulation")
    try:
        simulation = load_simulation(file, count) if file else Simulation()
        if count is not None:
            return simulation.make_hosts(count, prefix), simulation
        ports = options["task_ports"]
        return load_hosts(options["hosts"], ports) if options["hosts"] else default(prefix, ports), simulation
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def stop_event() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop
