"""``peloton host``: the machines of the cluster."""

from __future__ import annotations

import click

from cli.command import Group
from cli.host.advice import advice
from cli.host.drain import drain
from cli.host.events import events
from cli.host.maintenance import maintenance
from cli.host.pool import pool
from cli.host.rebalance import rebalance
from cli.host.state import HOST_STATE_PREFIX, UNSCHEDULABLE, is_unschedulable, state_words
from cli.host.why import describe_extended, why
from cli.output import Table, print_list, rows_wanted, say_more, silent_clusters_text
from cli.params import StatesType, limit_option
from cli.settings import Settings, pass_settings
from cli.terminal import echo
from cli.wire import v0
from peloton.model.host import CLUSTER_KIND_LABEL, HostState

TABLE: Table[v0.host.HostInfo] = Table(
    ("Hostname", lambda info: info.hostname),
    ("IP", lambda info: info.ip),
    ("State", lambda info: state_words(info)),
    ("HostPool", lambda info: info.current_pool),
    ("CPUs free", lambda info: amount(info, f"{info.free.cpu:g}/{info.capacity.cpu:g}")),
    ("MiB free", lambda info: amount(info, f"{info.free.memory_mib:.0f}/{info.capacity.memory_mib:.0f}")),
    ("GPUs free", lambda info: amount(info, f"{info.free.gpu:g}/{info.capacity.gpu:g}")),
    ("Slack CPUs", lambda info: amount(info, f"{info.slack_held_cpu:g}/{info.slack_cpu:g}")),
    ("CPUs used", lambda info: amount(info, f"{info.used.cpu:.2f}" if info.HasField("used") else "")),
    ("MiB used", lambda info: amount(info, f"{info.used.memory_mib:.0f}" if info.HasField("used") else "")),
    ("Cluster", lambda info: info.cluster),
    ("Kind", lambda info: next((label.value for label in info.labels if label.key == CLUSTER_KIND_LABEL), "")),
    whole=["Hostname", "IP", "State", "CPUs free", "MiB free", "GPUs free"],
    spare=["HostPool", "Slack CPUs", "CPUs used", "MiB used", "Kind", "Cluster", "GPUs free", "IP"],
    nothing="No hosts found",
    name=lambda info: info.hostname,
)
HOST_STATES = StatesType(HostState, prefix=HOST_STATE_PREFIX)


@click.group(cls=Group)
def host() -> None:
    """Show the hosts of the cluster, and maintain them."""


host.add_command(advice)
host.add_command(drain)
host.add_command(events)
host.add_command(maintenance)
host.add_command(pool)
host.add_command(rebalance)
host.add_command(why)


@host.command()
@click.option("--states", "-s", type=HOST_STATES, default="", help="Any of these states; all if absent.")
@limit_option
@pass_settings
def query(settings: Settings, states: tuple[str, ...], limit: int | None) -> None:
    """List hosts with their states, free and total cores and MiB, the slack cores that revocable pods hold, and the
    latest measured usage of hosts that are measured. Also `host list`.

    \b
    Examples:
      peloton host query
      peloton host query -s DRAINING,DOWN
    """
    wanted = [v0.host.HostState.Value(f"{HOST_STATE_PREFIX}{state}") for state in states]
    response = settings.client.hosts.QueryHosts(v0.host_svc.QueryHostsRequest(host_states=wanted))
    hosts = sorted(response.host_infos, key=lambda info: info.hostname)
    shown = hosts[: rows_wanted(settings, limit)]
    del response.host_infos[:]
    response.host_infos.extend(shown)
    print_list(settings, response, TABLE, shown)
    for info in shown:
        if info.avoided and not settings.is_for_programs:
            echo(f"{info.hostname} is {UNSCHEDULABLE if is_unschedulable(info) else 'avoided'}: {info.avoided}")
        if info.reserved and not settings.is_for_programs:
            echo(f"{info.hostname} is reserved {info.reserved}")
        if info.marked and not settings.is_for_programs:
            echo(f"{info.hostname} is marked {info.marked}")
        if (text := describe_extended(info)) and not settings.is_for_programs:
            echo(f"{info.hostname} has free {text}")
    if len(shown) < len(hosts):
        say_more(len(shown), len(hosts))
    if response.silent_clusters:
        echo(silent_clusters_text(response.silent_clusters), err=True)


def amount(info: v0.host.HostInfo, text: str) -> str:
    """Return the cell of an amount: empty without data, as for a DOWN host; a dash if nothing is offered."""
    if info.HasField("capacity"):
        return text
    return "-" if is_unschedulable(info) else ""


host.add_command(query, "list")
