"""``peloton host pool``: partitions the hosts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from cli.command import Group
from cli.host.maintenance import show_drains
from cli.host.mover import mover
from cli.output import Table, print_for_programs, print_list, print_outcome
from cli.params import COUNT, COUNT_FROM_1, HOSTNAME, pieces, together
from cli.settings import Settings, pass_settings
from cli.terminal import echo
from cli.wire import v0
from peloton.errors import InvalidArgument, NotFound
from peloton.model.host_pool import Workload

if TYPE_CHECKING:
    from peloton.api.v0.host import host_pb2
    from peloton.api.v0.maintenance import maintenance_pb2

POOLS: Table[v0.host.HostPoolInfo] = Table(
    ("Host pool", lambda pool: pool.name),
    ("Hosts", lambda pool: len(pool.hosts)),
    ("Minimum", lambda pool: pool.minimum),
    ("Serves", lambda pool: ", ".join(pool.serves)),
    ("CPU", lambda pool: f"{pool.factors.cpu:g}"),
    ("Memory", lambda pool: f"{pool.factors.memory:g}"),
    ("Disk", lambda pool: f"{pool.factors.disk:g}"),
    whole=["Host pool", "Hosts"],
    nothing="No host pools found",
    name=lambda pool: pool.name,
)
HOSTS: Table[v0.host.HostInfo] = Table(
    ("Hostname", lambda info: info.hostname),
    ("State", lambda info: v0.host.HostState.Name(info.state).removeprefix("HOST_STATE_")),
    ("Moves to", lambda info: info.desired_pool if info.desired_pool != info.current_pool else ""),
    ("CPUs free", lambda info: f"{info.free.cpu:g}/{info.capacity.cpu:g}" if info.HasField("capacity") else ""),
    ("MiB free",
     lambda info: f"{info.free.memory_mib:.0f}/{info.capacity.memory_mib:.0f}" if info.HasField("capacity") else ""),
    ("Cluster", lambda info: info.cluster),
    whole=["Hostname", "State"],
    nothing="No hosts in this host pool",
    name=lambda info: info.hostname,
)  # fmt: skip
POOL = click.argument("pool", metavar="HOST_POOL")
FACTOR = click.FloatRange(1.0, 10.0)
SETTINGS = together(
    click.option(
        "--serves",
        metavar="WORKLOAD,...",
        help=f"The workloads whose pods go to its hosts: {', '.join(work for work in Workload if work)}.",
    ),
    click.option("--cpu", type=FACTOR, help="The overcommit of cpus: 1.6 announces 16 cpus of a host that has 10."),
    click.option("--memory", type=FACTOR, help="The overcommit of memory."),
    click.option("--disk", type=FACTOR, help="The overcommit of disk."),
    click.option("--minimum", type=COUNT, help="The number of hosts that the mover keeps in it; 0 at first."),
)


@click.group("pool", cls=Group)
def pool() -> None:
    """Partition the hosts into host pools.

    A host is in one host pool. A host pool serves workloads: batch (jobs that are not preemptible), shared (preemptible
    batch jobs), stateless (services), stateful and gpu; their pods go to its hosts only. The host pool `default` also
    serves what no other does.
    """


pool.add_command(mover)


@pool.command("list")
@pass_settings
def list_(settings: Settings) -> None:
    """List host pools: their number of hosts, their workloads, and the factors by which they overcommit resources.

    \b
    Example:
      peloton host pool list
    """
    response = settings.client.hosts.ListHostPools(v0.host_svc.ListHostPoolsRequest())
    print_list(settings, response, POOLS, response.pools)


@pool.command()
@POOL
@pass_settings
def show(settings: Settings, pool: str) -> None:
    """Show the hosts of a host pool, with free and announced cores and MiB.

    \b
    Example:
      peloton host pool show batch
    """
    found = read_pool(settings, pool)
    response = settings.client.hosts.QueryHosts(v0.host_svc.QueryHostsRequest())
    mine = sorted((info for info in response.host_infos if info.current_pool == pool), key=lambda info: info.hostname)
    del response.host_infos[:]
    response.host_infos.extend(mine)
    if not settings.is_for_programs:
        cpu, memory, disk = _factors(found)
        echo(f"Host pool {pool} serves {', '.join(found.serves) or 'nothing'}")
        echo(f"Overcommit factors: cpu {cpu}, memory {memory}, disk {disk}")
        free, whole = ([sum(amounts) for amounts in zip(*each, strict=True)] for each in _amounts(mine))
        if mine:
            echo(f"Free and announced: {free[0]:g} of {whole[0]:g} cpus, {free[1]:.0f} of {whole[1]:.0f} MiB")
    print_list(settings, response, HOSTS, mine)


@pool.command()
@POOL
@SETTINGS
@pass_settings
def create(settings: Settings, /, pool: str, serves: str | None, minimum: int | None, **factors: float | None) -> None:
    """Create a host pool. Without --serves it serves the workload that its name names, if it does.

    \b
    Examples:
      peloton host pool create stateless
      peloton host pool create batch --serves batch,shared --cpu 1.6
    """
    request = v0.host_svc.CreateHostPoolRequest(
        name=pool, serves=pieces(serves or ""), factors=v0.host.HostPoolFactors(**factors), minimum=minimum or 0
    )
    response = settings.client.hosts.CreateHostPool(request)
    print_outcome(settings, response, f'Created host pool "{pool}".', [pool])


@pool.command()
@POOL
@SETTINGS
@pass_settings
def update(settings: Settings, /, pool: str, serves: str | None, minimum: int | None, **factors: float | None) -> None:
    """Change the workloads and factors of a host pool; absent options change nothing. Pods on its hosts stay.

    \b
    Examples:
      peloton host pool update batch --cpu 1.2
      peloton host pool update batch --serves batch,shared,gpu
      peloton host pool update spare --serves ""
      peloton host pool update batch --minimum 10
    """
    request = v0.host_svc.UpdateHostPoolRequest(
        name=pool,
        sets_serves=serves is not None,
        serves=pieces(serves or ""),
        factors=v0.host.HostPoolFactors(**factors),
        minimum=minimum,
    )
    response = settings.client.hosts.UpdateHostPool(request)
    cpu_now, memory_now, disk_now = _factors(response.pool)
    served = ", ".join(response.pool.serves) or "nothing by itself"
    text = f'Host pool "{pool}" serves {served}; factors: cpu {cpu_now}, memory {memory_now}, disk {disk_now}.'
    if response.pool.minimum:
        text += f" Minimum: {response.pool.minimum} hosts."
    print_outcome(settings, response, text, [pool])


@pool.command()
@POOL
@pass_settings
def delete(settings: Settings, pool: str) -> None:
    """Delete a host pool. Its hosts go to the host pool `default` at once; pods there stay.

    \b
    Example:
      peloton host pool delete batch
    """
    response = settings.client.hosts.DeleteHostPool(v0.host_svc.DeleteHostPoolRequest(name=pool))
    print_outcome(settings, response, f'Deleted host pool "{pool}".', [pool])


@pool.command()
@click.argument("hosts", metavar="HOST...", type=HOSTNAME, nargs=-1, required=True)
@click.option("--to", "destination", metavar="HOST_POOL", required=True, help="The host pool to move them to.")
@click.option("--from", "source", metavar="HOST_POOL", help="Refuse it unless the hosts are in this host pool.")
@click.option("--drain", is_flag=True, help="Drain each host first, as the SLA of the services on it allows.")
@click.option("--at-most", type=COUNT_FROM_1, help="With --drain: start while at most N hosts are unavailable.")
@click.option("--watch", is_flag=True, help="Show the drains until every host has moved.")
@pass_settings
def move(
    settings: Settings,
    hosts: Sequence[str],
    destination: str,
    source: str | None,
    drain: bool,
    at_most: int | None,
    watch: bool,
) -> None:
    """Move hosts to a host pool at once. Their pods stay until they end; new pods are those of the host pool.

    With --drain pods leave first, as for maintenance: batch pods go back to their queue, pods of services leave as the
    SLA of their job allows, and the number of unavailable hosts is bounded. `peloton host maintenance status` shows
    such moves, `cancel` ends them.

    \b
    Examples:
      peloton host pool move host1 host2 --to stateless
      peloton host pool move host1 --to default --from batch
      peloton host pool move host1 host2 --to stateless --drain --watch
      peloton host pool move host1 host2 --to stateless --drain --at-most 5
    """
    if drain or watch or at_most:
        moves = v0.maintenance.MoveRequest(hostnames=hosts, host_pool=destination, at_most=at_most or 0)
        _move_drained(settings, moves, source, watch)
        return
    sources = dict.fromkeys(hosts, source) if source is not None else _host_pools_of(settings, hosts)
    for host in dict.fromkeys(hosts):
        request = v0.host_svc.ChangeHostPoolRequest(
            hostname=host, sourcePool=sources[host], destinationPool=destination
        )
        response = settings.client.hosts.ChangeHostPool(request)
        text = f'Host "{host}" is in host pool "{destination}".'
        print_outcome(settings, response, text, [host], lines=len(hosts) > 1)


def _amounts(hosts: Sequence[host_pb2.HostInfo]) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """Return cpus and MiB of each host: free, and announced."""
    free = [(info.free.cpu, info.free.memory_mib) for info in hosts]
    return free, [(info.capacity.cpu, info.capacity.memory_mib) for info in hosts]


def _move_drained(settings: Settings, request: maintenance_pb2.MoveRequest, source: str | None, watch: bool) -> None:
    hosts = list(dict.fromkeys(request.hostnames))
    if source is not None:
        for host, pool in _host_pools_of(settings, hosts).items():
            if pool != source:
                raise InvalidArgument(f'host "{host}" is in host pool "{pool}", not in "{source}"')
    answer = settings.client.maintenance.Move(request)
    if not print_for_programs(settings, answer, hosts, watch):
        moving = {host.hostname: host for host in answer.hosts}
        for host in hosts:
            waits = moving[host].waiting_for if host in moving else ""
            text = f'Host "{host}" moves to host pool "{request.host_pool}"'
            echo(f"{text} and waits for {waits}" if waits else text + ".")
    if not watch:
        return
    show_drains(settings, hosts, answer.hosts)
    if not settings.is_for_programs:
        for host, pool in _host_pools_of(settings, hosts).items():
            echo(f'Host "{host}" is in host pool "{pool}".')


def _host_pools_of(settings: Settings, hosts: Iterable[str]) -> dict[str, str]:
    response = settings.client.hosts.ListHostPools(v0.host_svc.ListHostPoolsRequest())
    found = {host: one.name for one in response.pools for host in one.hosts}
    if unknown := [host for host in hosts if host not in found]:
        raise NotFound(f'Pool for host "{unknown[0]}" not found')
    return {host: found[host] for host in hosts}


def read_pool(settings: Settings, name: str) -> host_pb2.HostPoolInfo:
    response = settings.client.hosts.ListHostPools(v0.host_svc.ListHostPoolsRequest())
    for one in response.pools:
        if one.name == name:
            return one
    raise NotFound(f"host pool {name} not found")


def _factors(info: host_pb2.HostPoolInfo) -> tuple[str, str, str]:
    factors = info.factors
    return f"{factors.cpu:g}", f"{factors.memory:g}", f"{factors.disk:g}"
