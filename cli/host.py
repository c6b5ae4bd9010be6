"""``peloton host``: the machines of the cluster."""

from __future__ import annotations

import click

from cli.command import Group
from cli.host_maintenance import maintenance
from cli.output import as_json, print_table
from cli.params import StatesType
from cli.settings import Settings, pass_settings
from peloton.model.host import HostState

HOST_STATE_PREFIX = "HOST_STATE_"
HOST_STATES = StatesType(HostState, prefix=HOST_STATE_PREFIX)


@click.group(cls=Group)
def host() -> None:
    """Look at the hosts of the cluster, and maintain them."""


host.add_command(maintenance)


@host.command()
@click.option("--states", "-s", type=HOST_STATES, default="", help="Any of these states; all if absent.")
@pass_settings
def query(settings: Settings, states: tuple[str, ...]) -> None:
    """List hosts and their states.

    \b
    Examples:
      peloton host query
      peloton host query -s DRAINING,DOWN
    """
    from peloton.api.v0.host import host_pb2
    from peloton.api.v0.host.svc import host_svc_pb2

    wanted = [host_pb2.HostState.Value(f"{HOST_STATE_PREFIX}{state}") for state in states]
    response = settings.client.hosts.QueryHosts(host_svc_pb2.QueryHostsRequest(host_states=wanted))
    if settings.json:
        click.echo(as_json(response))
        return
    rows = [
        (
            info.hostname,
            info.ip,
            host_pb2.HostState.Name(info.state).removeprefix(HOST_STATE_PREFIX),
            info.current_pool,
        )
        for info in sorted(response.host_infos, key=lambda info: info.hostname)
    ]
    if rows:
        print_table(("Hostname", "IP", "State", "HostPool"), rows)
    else:
        click.echo("No hosts found")
