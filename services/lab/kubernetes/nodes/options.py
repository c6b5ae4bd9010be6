"""Command-line options of nodes."""

from __future__ import annotations

from typing import Any

import click

from services.lab.kubernetes.nodes.settings import PODS_MAX, NodeSettings
from services.lab.shared.commands import F, host_options, hosts_from
from services.lab.shared.hosts import MAX_HOSTS, HostSpec, divide_ports

NODES = 3
OWN_PODS_MAX = 100_000


def node_options(command: F) -> F:
    hosts = "YAML list of nodes: name, cpus, mem, disk, gpus, extended, attributes (labels)."
    pods = click.IntRange(1, OWN_PODS_MAX)
    command = click.option("--max-pods", default=PODS_MAX, type=pods, metavar="N", help="Pods on one node.")(command)
    command = host_options(hosts, "node", "pods")(command)
    return click.option(
        "--nodes",
        default=NODES,
        type=click.IntRange(0, MAX_HOSTS),
        metavar="N",
        help="The number of nodes whose pods are processes; 0: none, another client runs the pods.",
    )(command)


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
