"""Command-line options of nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from services.lab.kubernetes.nodes.settings import PODS_MAX, NodeSettings
from services.lab.shared.commands import FILE, hosts_from, read_ports
from services.lab.shared.hosts import DEFAULT_PORTS, MAX_HOSTS, HostSpec, divide_ports
from services.lab.shared.simulation.behaviour import TASK_VARIABLES

F = TypeVar("F", bound=Callable[..., Any])
NODES = 3
OWN_PODS_MAX = 100_000


_OPTIONS = (
    click.option(
        "--nodes",
        default=NODES,
        type=click.IntRange(0, MAX_HOSTS),
        metavar="N",
        help="So many nodes whose pods are processes. 0: none, somebody else looks after the pods.",
    ),
    click.option("--hosts", type=FILE, help="YAML list of nodes: name, cpus, mem, disk, gpus, attributes (labels)."),
    click.option("--simulate", type=int, metavar="N", help="N nodes whose pods are no processes."),
    click.option("--simulation", type=FILE, help="YAML of run times, failures, images and classes of simulated nodes."),
    click.option(
        "--task-variables",
        default=TASK_VARIABLES,
        metavar="NAME",
        help="NAME_SECONDS and NAME_SHARE in a pod's environment say how long it is simulated and how much it uses.",
    ),
    click.option(
        "--prefix",
        default="",
        show_default=False,
        help="Beginning of the names of nodes that are not in a file.",
    ),
    click.option(
        "--max-pods", default=PODS_MAX, type=click.IntRange(1, OWN_PODS_MAX), metavar="N", help="Pods on one node."
    ),
    click.option(
        "--image-download",
        default=0.0,
        type=click.FloatRange(min=0.0),
        metavar="SECONDS",
        help="Seconds until an image is on a node.",
    ),
    click.option(
        "--task-ports",
        default=f"{DEFAULT_PORTS.start}-{DEFAULT_PORTS.stop - 1}",
        metavar="A-B",
        callback=read_ports,
        help="Ports for pods that are processes, in equal shares for nodes that name none.",
    ),
    click.option("--pass-env", multiple=True, metavar="NAME", help="A variable of this environment that pods get too."),
)


def node_options(command: F) -> F:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def nodes_from(options: dict[str, Any]) -> NodeSettings | None:
    """Return the settings of nodes; None without nodes. Raises click.UsageError."""

    def default(prefix: str, ports: range) -> tuple[HostSpec, ...]:
        shares = divide_ports(options["nodes"], among=ports)
        return tuple(HostSpec(f"{prefix}node-{index}", ports=dealt) for index, dealt in enumerate(shares))

    hosts, simulation = hosts_from(options, default)
    if not hosts:
        return None
    return NodeSettings(
        data_dir=options["data"],
        hosts=hosts,
        simulate=options["simulate"] is not None,
        simulation=simulation,
        task_variables=options["task_variables"],
        image_download_s=options["image_download"],
        pods_max=options["max_pods"],
        pass_env=options["pass_env"],
    )
