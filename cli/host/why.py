"""``peloton host why``: whether a host takes pods, and the reasons against it."""

from __future__ import annotations

from collections.abc import Iterator

import click

from cli.command import Command
from cli.errors import Failed
from cli.host.drains import blocker_lines, state_name, waiting_text
from cli.host.state import is_unschedulable, state_of, state_words
from cli.output import print_for_programs, silent_clusters_text
from cli.params import HOSTNAME
from cli.settings import Settings, pass_settings
from cli.terminal import echo
from cli.wire import v0


@click.command(cls=Command)
@click.argument("host", type=HOSTNAME)
@pass_settings
def why(settings: Settings, host: str) -> None:
    """Show whether a host takes pods, and if not, why: its maintenance and what that waits for, why pods avoid it and
    until when, or for which pod it is reserved.

    \b
    Examples:
      peloton host why host1
    """
    answer = settings.client.hosts.QueryHosts(v0.host_svc.QueryHostsRequest(hostnames=[host]))
    found = [info for info in answer.host_infos if info.hostname == host]
    if not found:
        silent = f"; {silent_clusters_text(answer.silent_clusters)}" if answer.silent_clusters else ""
        raise Failed(f"unknown host {host}{silent}")
    info = found[0]
    if print_for_programs(settings, info, [host]):
        return
    drains = settings.client.maintenance.Query(v0.maintenance.QueryRequest(hostnames=[host])).hosts
    for line in reasons(info, list(drains)):
        echo(line)


def describe_extended(info: v0.host.HostInfo) -> str:
    """Return the free amounts of the host's extended resources; empty without any."""
    free, total = info.free.extended, info.capacity.extended
    return ", ".join(f"{name} {free.get(name, 0):g} of {total[name]:g}" for name in sorted(total))


def reasons(info: v0.host.HostInfo, drains: list[v0.maintenance.HostMaintenance]) -> Iterator[str]:
    """Yield the reasons, the state first."""
    name, state = info.hostname, state_of(info)
    where = f", in host pool {info.current_pool}" if info.current_pool else ""
    is_closed = is_unschedulable(info)
    takes = "takes no pods" if is_closed or state != "UP" else "takes pods"
    yield f"{name} is {state_words(info)}{where}: it {takes}"
    if info.HasField("capacity"):
        free, total = info.free, info.capacity
        amounts = f"cpu {free.cpu:g} of {total.cpu:g}, memory {free.memory_mib:g} of {total.memory_mib:g} MiB"
        amounts += f", disk {free.disk_mib:g} of {total.disk_mib:g} MiB, gpu {free.gpu:g} of {total.gpu:g}"
        yield f"Free: {', '.join(filter(None, (amounts, describe_extended(info))))}"
    if is_closed:
        yield f"Pods cannot go there: {info.avoided}"
    elif info.avoided:
        yield f"Pods go elsewhere while others could take them: it is avoided {info.avoided}"
    if info.reserved:
        yield f"It is reserved {info.reserved}. Others get what is free beyond that"
    if info.marked:
        yield f"It is marked {info.marked}; that keeps no pod from it"
    for drain in drains:
        goal = state_name(drain.goal_state)
        waits = waiting_text(drain, state, goal)
        yield f"It is on its way {goal}" + (f", and waits for {waits}" if waits else "")
        yield from blocker_lines(drain)
