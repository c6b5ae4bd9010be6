"""Validation of the state of hosts: every invariant that holds between two events.

Tests and simulations run it after each event. It computes from the entries what the state keeps as counts and sums.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from peloton.hosts.announced import NOTHING, Holder
from peloton.hosts.asked_amounts import AskedAmounts
from peloton.hosts.daemon_hosts import DaemonHosts
from peloton.hosts.host_resources import HostResources
from peloton.hosts.host_resources_table import HostResourcesTable
from peloton.hosts.host_table import HostTable
from peloton.hosts.pod_labels import PodLabelIndex
from peloton.hosts.registered_hosts import RegisteredHosts
from peloton.hosts.reservations import HostReservations
from peloton.hosts.resource_holds import HOLDS_MAX, ResourceHolds
from peloton.model.host_pool import HOST_POOL_LABEL
from peloton.model.ids import Hostname, PodId
from peloton.model.resources import Resources
from peloton.scheduling.rows import FREE, IDLE, LEASED, PORTS, READY, SLACK, SLOTS, STATE, TOTAL

Leases = Mapping[str, tuple[float, list[Hostname]]]


def find_faults(
    table: HostTable, leases: Leases, lease_of_job: Mapping[Holder, str], daemons: DaemonHosts
) -> Iterator[str]:
    """Yield each violated invariant as a sentence with its host or pod and the numbers."""
    yield from _check_announced(table.free_resources)
    for host in table.free_resources.hosts.values():
        yield from _check_amounts(table, host)
        yield from _check_row(table, host)
    yield from _check_leases(table.free_resources, leases, lease_of_job)
    yield from _check_sums(table)
    yield from _check_pools(table)
    yield from _check_holds(table.holds)
    yield from _check_reservations(table.reservations)
    yield from _check_requests(table.pooled.asked)
    yield from _check_labels(table.pod_labels)
    yield from _check_daemons(table, daemons)


def _compare(what: str, kept: Any, counted: Any) -> Iterator[str]:
    if kept != counted:
        yield f"{what}: {kept} are kept, {counted} are counted"


# Hosts with offers.


def _check_announced(table: HostResourcesTable) -> Iterator[str]:
    announced = {one: name for name, host in table.hosts.items() for one in host.free_resources}
    yield from _compare("offers and their hosts", {one: name for one, (name, _) in table._arrivals.items()}, announced)
    yield from _compare(
        "number of offers", table.resources_count, sum(len(h.free_resources) for h in table.hosts.values())
    )
    yield from _compare("hosts of the fleet", {*table.fleet.row_of}, {*table.hosts})
    yield from _compare("changes of a placement left in the fleet", table.fleet.mark, 0)
    going = {name: host.goes_ns for name, host in table.hosts.items() if host.goes_ns}
    yield from _compare("hosts that their cluster takes down", table.going, going)


def _check_amounts(table: HostTable, host: HostResources) -> Iterator[str]:
    """Check that free, held, reserved and claimed resources of a host are distinct parts of its capacity."""
    name, free = host.hostname, host.free
    counted = table.free_resources.keeping(host, host.kept, host.kept_pods)
    yield from _compare(f"free resources of {name}", free, counted.free)
    yield from _compare(f"revocable resources of {name}", host.revocable, counted.revocable)
    yield from _compare(f"pod slots of {name}", host.pod_slots, counted.pod_slots)
    if min(*free, *host.kept, host.pod_slots, host.kept_pods) < 0:
        yield f"{name} has negative amounts: {free} free, {host.kept} reserved for daemons"
    withheld, pod_count = table.sum_kept(host, frozenset())
    left = host.without(withheld, pod_count).free
    held, _ = table.holds.sum_held(name, frozenset())
    reserved = withheld - held
    after_holds = free.without(held)
    if after_holds - reserved != left or min(reserved) < 0:
        yield f"{name} has {free} free, of which {held} are held, {reserved} are reserved and {left} are left"


def _check_row(table: HostTable, host: HostResources) -> Iterator[str]:
    fleet, name = table.free_resources.fleet, host.hostname
    if name not in fleet.row_of:
        return
    rows = fleet.rows([name])
    state = LEASED if host.lease_id else READY if host.free_resources else IDLE
    counted = (*host.free, *table.capacity_of(name), host.revocable.cpu_milli, host.port_count, host.pod_slots, state)
    columns = chain(
        fleet.amounts(FREE, rows), fleet.amounts(TOTAL, rows), fleet.amounts([SLACK, PORTS, SLOTS, STATE], rows)
    )
    yield from _compare(f"row of {name}", tuple(int(column[0]) for column in columns), counted)


def _check_leases(table: HostResourcesTable, leases: Leases, lease_of_job: Mapping[Holder, str]) -> Iterator[str]:
    for name, host in table.hosts.items():
        if host.lease_id and name not in leases.get(host.lease_id, (0.0, ()))[1]:
            yield f"{name} has lease {host.lease_id}, which does not list it"
    for lease_id, (_, names) in leases.items():
        if len(names) != len({*names}):
            yield f"lease {lease_id} lists a host twice: {names}"
    shared = [lease_id for lease_id, count in Counter(lease_of_job.values()).items() if count > 1]
    yield from _compare("leases of several placements", shared, [])


# Registered hosts and their pools.


def _check_sums(table: HostTable) -> Iterator[str]:
    kept, counted = table.registered, RegisteredHosts()
    counted.replace(kept.by_name.values())
    yield from _compare("capacity of all hosts", kept.total, counted.total)
    yield from _compare("revocable cpu of all hosts", kept.revocable_cpu_milli, counted.revocable_cpu_milli)
    yield from _compare("hosts with revocable pods", {*kept.holders}, {*counted.holders})
    yield from _compare("kinds of hosts", +kept._kinds, +counted._kinds)
    yield from _compare("free resources of all hosts", +kept._free, +counted._free)
    yield from _compare("capacity of host pools", _without_empty(kept), _without_empty(counted))
    for name in kept.by_name.keys() & (table.withdrawn.keys() | table.name_taken.keys()):
        yield f"{name} is registered, and withdrawn or of another cluster"


def _without_empty(hosts: RegisteredHosts) -> dict[str, tuple[Resources, int]]:
    return {pool: sums for pool, sums in hosts._by_host_pool.items() if sums != (NOTHING, 0)}


def _check_pools(table: HostTable) -> Iterator[str]:
    pooled = table.pooled
    if not pooled.are_used:
        return
    known = {*table.registered.by_name, *table.withdrawn}
    yield from _compare("hosts with a host pool", {*pooled._hosts}, known)
    labels = {name: host.labels for name, host in table.registered.by_name.items()}
    for name, found in chain(
        labels.items(), ((name, host.labels) for name, host in table.free_resources.hosts.items())
    ):
        yield from _compare(f"host pool of {name}", found.get(HOST_POOL_LABEL), pooled.pool_of(name))
    for name, host in table.free_resources.hosts.items():
        asked, capacity = pooled.asked.on_host(name), table.capacity_of(name)
        left = capacity.without(asked)
        if not host.free.fits_in(left):
            yield f"{name} is filled twice: {host.free} of {capacity} are free, and its pods request {asked}"


# Pods.


def _check_holds(holds: ResourceHolds) -> Iterator[str]:
    counted: dict[Hostname, dict[Any, Resources]] = {}
    for key, (_, pod) in holds._holds.items():
        counted.setdefault(pod.hostname, {})[key] = pod.resources
    yield from _compare("holds by host", holds._on_host, counted)
    if len(holds._holds) > HOLDS_MAX:
        yield f"{len(holds._holds)} holds exceed {HOLDS_MAX}"


def _check_reservations(kept: HostReservations) -> Iterator[str]:
    by_host = {one.hostname: one for one in kept._by_job.values()}
    yield from _compare("reservations by host", kept._by_host, by_host)
    for what, times in (("ends", kept._until_s), ("requests", kept._asked_s)):
        yield from _compare(f"{what} of reservations", {*times}, {*kept._by_job})


def _check_requests(asked: AskedAmounts) -> Iterator[str]:
    counted: dict[Hostname, Resources] = {}
    for _, name, amounts in asked._pods.values():
        counted[name] = counted.get(name, NOTHING) + amounts
    kept = {name: amounts for name, amounts in asked._on_host.items() if amounts != NOTHING}
    yield from _compare(
        "requests of pods by host", kept, {n: amounts for n, amounts in counted.items() if amounts != NOTHING}
    )


def _check_labels(index: PodLabelIndex) -> Iterator[str]:
    fresh = PodLabelIndex()
    fresh.add(_list_labelled(index))
    yield from _compare("pods by label", index._counts, fresh._counts)
    yield from _compare("ports of pods", index._ports, fresh._ports)


def _list_labelled(index: PodLabelIndex) -> Iterable[Any]:
    return [(PodId(job, i, run), host, labels) for (job, i), (run, host, labels) in index._pods.items()]


def _check_daemons(table: HostTable, daemons: DaemonHosts) -> Iterator[str]:
    counted: dict[Hostname, dict[Any, int]] = {}
    for (job_id, _), (_, name) in daemons._pods.items():
        on_host = counted.setdefault(name, {})
        on_host[job_id] = on_host.get(job_id, 0) + 1
    yield from _compare("daemons by host", daemons._on_host, counted)
    yield from _compare("pods of daemons", daemons._pod_counts, Counter(job_id for job_id, _ in daemons._pods))
    yield from _compare("hosts with waiting daemons", table.free_resources.awaited, {*daemons._waits._pods})
    if table.registered._news:  # these hosts are evaluated before the next question about daemons
        return
    for name, host in table.free_resources.hosts.items():
        if name in table.registered.by_name:
            missing = daemons._missing_requests(host)
            yield from _compare(f"resources reserved for daemons on {name}", (host.kept, host.kept_pods), missing)
