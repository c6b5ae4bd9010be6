"""Shared parts of the commands of emulated clusters: their hosts, and the signal that ends them."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from services.lab.shared.hosts import DEFAULT_PORTS, HostSpec, load_hosts
from services.lab.shared.simulation.behaviour import TASK_VARIABLES
from services.lab.shared.simulation.description import load_simulation
from services.lab.shared.simulation.outcomes import Simulation
from services.lab.shared.yaml_rows import PORT_MAX, port_range

F = TypeVar("F", bound=Callable[..., Any])
GARBAGE = (100_000, 20, 50)
"""Thresholds of the garbage collector. With Python's defaults it scans long-lived hosts and pods again and again, for a
fifth of the CPU."""

FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path, resolve_path=True)


def read_ports(context: click.Context, parameter: click.Parameter, text: str) -> range:
    """Parse a range of ports; the callback of an option."""
    found = port_range(text)
    if found is None:
        raise click.BadParameter(f"want A-B with 1 <= A <= B <= {PORT_MAX}, got {text!r}")
    return range(found[0], found[1] + 1)


def host_options(hosts: str, host: str, tasks: str) -> Callable[[F], F]:
    """Add options of emulated hosts, which are called ``host`` and run ``tasks``; ``hosts``: the help of --hosts."""
    ports = f"{DEFAULT_PORTS.start}-{DEFAULT_PORTS.stop - 1}"
    seconds = click.FloatRange(min=0.0)
    options = (
        click.option("--hosts", type=FILE, help=hosts),
        click.option("--simulate", type=int, metavar="N", help=f"N {host}s whose {tasks} are no processes."),
        click.option("--simulation", type=FILE,
                     help=f"YAML of run times, failures, images and classes of simulated {host}s."),
        click.option("--task-variables", default=TASK_VARIABLES, metavar="NAME",
                     help=f"NAME_SECONDS and NAME_SHARE in the environment of {tasks} set their run time and use."),
        click.option("--prefix", default="", show_default=False,
                     help=f"Beginning of the names of {host}s that are not in a file."),
        click.option("--task-ports", default=ports, metavar="A-B", callback=read_ports,
                     help=f"Ports for {host}s that name none, in equal shares."),
        click.option("--image-download", default=0.0, type=seconds, metavar="SECONDS",
                     help=f"Seconds until an image is on a {host}."),
        click.option("--pass-env", multiple=True, metavar="NAME",
                     help=f"A variable of this environment that {tasks} get too."),
    )  # fmt: skip

    def add(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return add


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


def tune_garbage_collector() -> None:
    """Leave out of collections what the imports have made, and make them rare."""
    gc.freeze()
    gc.set_threshold(*GARBAGE)


def stop_event() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop
