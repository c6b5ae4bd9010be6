"""Compartments: the part of the hosts that each workload may use, and each resource pool's entitlement in each part.

A compartment is a connected component of workloads and the host pools that serve them: pods of a compartment go nowhere
else, and no others come there. Each has a capacity of its own, which is divided among the pools by their usage and
demand there. A pool has one reservation and one limit over all compartments:

* the amounts that a pool holds in other compartments are taken off its limit;
* its reservation goes first to where its non-preemptible pods are, then to where it holds most, then to where its
  demand is greatest, and if it is STATIC the rest to where there is most; never more to a compartment than that has;
* reservations that are claimed in one compartment, and together are more than it has, are cut by their size.

Admission compares a gang with entitlement and capacity of its compartment, and with all other rules as ever. Licenses
belong to no host, and are divided once over all compartments.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from peloton.model.host import HostPoolCapacity
from peloton.model.host_pool import Workload
from peloton.model.resources import UNLIMITED, Resources
from peloton.scheduling.entitlement import Entitlement, Load, entitle
from peloton.scheduling.filling import fill, weigh
from peloton.scheduling.gangs import Usage
from peloton.scheduling.tree import CPU, Flags, Ints, PoolTree

AMOUNTS = ("total", "non_slack", "slack")
"""The columns of an entitlement."""
NO_HOST_POOL = "no host pool"
"""Name of the compartment of workloads that no host pool serves at this moment."""


@dataclass(frozen=True, slots=True)
class Compartment:
    host_pools: str  # the names of its host pools, separated by commas
    workloads: frozenset[Workload]
    capacity: Resources
    slack_cpu: int


def compartments(host_pools: Iterable[HostPoolCapacity]) -> tuple[Compartment, ...]:
    """Return the compartments, sorted by the names of their host pools; none where all workloads may use all hosts.

    Host pools that serve no workload belong to no compartment.
    """
    pools = sorted(host_pools, key=lambda pool: pool.name)
    if not pools:
        return ()
    groups: list[tuple[list[HostPoolCapacity], frozenset[Workload]]] = []
    for pool in (pool for pool in pools if pool.serves):
        joined = [group for group in groups if not group[1].isdisjoint(pool.serves)]
        groups = [group for group in groups if group not in joined]
        members = [member for group in joined for member in group[0]]
        groups.append(([*members, pool], pool.serves.union(*(group[1] for group in joined))))
    found = [_make_compartment(members, workloads) for members, workloads in groups]
    unserved = frozenset(work for work in Workload if work).difference(*(one.workloads for one in found))
    if unserved:
        found.append(Compartment(NO_HOST_POOL, unserved, Resources(), 0))
    if len(found) == 1 and len(groups[0][0]) == len(pools):
        return ()
    return tuple(sorted(found, key=lambda one: one.host_pools))


def _make_compartment(members: Sequence[HostPoolCapacity], workloads: frozenset[Workload]) -> Compartment:
    noun = "host pool" if len(members) == 1 else "host pools"
    names = ", ".join(sorted(pool.name for pool in members))
    up = sum((pool.up for pool in members), Resources())
    return Compartment(f"{noun} {names}", workloads, up, sum(pool.slack_cpu_milli for pool in members))


def part_of(found: Sequence[Compartment]) -> dict[Workload, int]:
    """Return the compartment of each workload; empty where there are no compartments.

    Workload ANY counts in the first compartment, for no pod of it is ever queued.
    """
    if not found:
        return {}
    return {Workload.ANY: 0} | {work: part for part, one in enumerate(found) for work in one.workloads}


@dataclass(frozen=True, eq=False)
class CompartmentLoad:
    """The demand for a compartment: own amounts ``[P,R]`` of gangs in queues."""

    compartment: Compartment
    demand: Ints
    slack_demand: Ints


def entitle_each(
    tree: PoolTree, loads: Sequence[CompartmentLoad], whole: Load, usage: Usage, total: Ints
) -> Entitlement:
    """Divide each compartment among the pools, by the load there; licenses once, by the ``whole`` load.

    ``total`` ``[R]`` is the capacity of all compartments together.
    """
    parts = _entitle_parts(tree, loads, usage.parts)
    columns = [sum(getattr(part, name) for part in parts) for name in AMOUNTS]
    if not tree.licenses:
        return Entitlement(*columns, parts=tuple(parts))
    once, is_license = entitle(tree, whole, total, 0), np.isin(np.arange(len(tree.kinds)), tree.licenses)
    columns = [np.where(is_license, getattr(once, name), sums) for name, sums in zip(AMOUNTS, columns, strict=True)]
    bounded = (_bound_only(part, ~is_license) for part in parts)
    return Entitlement(*columns, parts=tuple(bounded), licenses=_bound_only(once, is_license))


def _bound_only(one: Entitlement, kinds: Flags) -> Entitlement:
    """Return the entitlement with no bound on other kinds than these ``[R]``."""
    columns = (np.where(kinds, getattr(one, name), UNLIMITED) for name in AMOUNTS)
    return Entitlement(*columns, host_pools=one.host_pools)


def _entitle_parts(tree: PoolTree, loads: Sequence[CompartmentLoad], usage: Sequence[Usage]) -> list[Entitlement]:
    capacity = np.array([load.compartment.capacity.row(tree.kinds) for load in loads], np.int64)  # [C,R]
    held = np.stack([own.physical(tree) for own in usage])  # [C,P,R]
    elsewhere = held.sum(axis=0) - held
    limit = np.where(tree.limit < UNLIMITED, np.maximum(tree.limit - elsewhere, held), UNLIMITED)
    reservation = _divide_reservations(tree, loads, usage, capacity, held)
    slack_limit = _split(tree.slack_limit, _slack_wants(tree, loads, usage))
    parts = []
    for at, (load, own) in enumerate(zip(loads, usage, strict=True)):
        slack = slack_limit[at]
        slack[0] = tree.slack_limit[0]
        part = replace(tree, reservation=reservation[at], limit=limit[at], slack_limit=slack)
        wants = Load(load.demand, load.slack_demand, own.non_slack, own.slack)
        allocated = entitle(part, wants, capacity[at], load.compartment.slack_cpu)
        parts.append(replace(allocated, host_pools=load.compartment.host_pools))
    return parts


def _divide_reservations(
    tree: PoolTree, loads: Sequence[CompartmentLoad], usage: Sequence[Usage], capacity: Ints, held: Ints
) -> Ints:
    """Return the guaranteed amount of each pool in each compartment, ``[C,P,R]``."""
    ceiling = capacity[:, None, :]
    fixed = np.stack([tree.roll_up(own.non_preemptible) for own in usage])
    wanted = np.stack([tree.roll_up(_physical(load.demand, load.slack_demand)) for load in loads])
    layers = [np.minimum(layer, ceiling) for layer in (fixed, held, held + np.minimum(wanted, tree.limit))]
    layers.append(np.where(tree.static, np.broadcast_to(ceiling, held.shape), 0))
    found = _split(tree.reservation, layers)
    for level in reversed(tree.levels):  # a parent guarantees first the guarantees of its children
        children = np.add.reduceat(found[:, level.begin : level.end], level.starts, axis=1)
        above = [children, *(layer[:, level.parents] for layer in layers)]
        found[:, level.parents] = _split(tree.reservation[level.parents], above)
    found[:, 0] = capacity  # the root is entitled to all of it
    for level in tree.levels:
        at = slice(level.begin, level.end)
        weights = weigh(level.starts, level.group, tree.reservation[at])
        for part in found:
            part[at] = fill(weights, part[level.parents], part[at])
    return found


def _physical(own: Ints, slack: Ints) -> Ints:
    amounts = own + slack
    amounts[:, CPU] = own[:, CPU]
    return amounts


def _slack_wants(tree: PoolTree, loads: Sequence[CompartmentLoad], usage: Sequence[Usage]) -> list[Ints]:
    held = np.stack([tree.roll_up(own.slack) for own in usage])
    wanted = np.stack([tree.roll_up(load.slack_demand) for load in loads])
    return [held, held + wanted]


def _split(amounts: Ints, layers: Sequence[Ints]) -> Ints:
    """Split the amounts of pools ``[P,R]`` over compartments, ``[C,P,R]``.

    Each compartment receives up to its amount in the first of ``layers``, then in the second and so on; where the
    amounts do not suffice, a layer is cut in proportion.
    """
    given = np.zeros_like(layers[0])
    count, pools, _ = given.shape
    segments = np.arange(pools)
    starts, group = segments * count, np.repeat(segments, count)
    for layer in layers:
        left = amounts - given.sum(axis=0)
        want = np.ascontiguousarray(np.maximum(layer - given, 0).transpose(1, 0, 2)).reshape(pools * count, -1)
        given += fill(weigh(starts, group, want), left, want).reshape(pools, count, -1).transpose(1, 0, 2)
    return given
