"""Which part of the hosts each workload may use, and how much of each part a resource pool may use.

A compartment is a connected component of workloads and the host pools that serve them: pods of a compartment go nowhere
else, and no others come there. Each has a capacity of its own, which is dealt to the pools by what they hold and want
there. A pool has one reservation and one limit over all compartments:

* what a pool holds in other compartments is taken off its limit;
* its reservation goes first to where its non-preemptible pods are, then to where it holds most, then to where it wants
  most, and if it is STATIC the rest to where there is most; never more to a compartment than that has;
* reservations that are wanted in one compartment, and together are more than it has, are cut by their size.

Admission compares a gang with entitlement and capacity of its compartment, and with all other rules as ever.
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
from peloton.scheduling.tree import CPU, Ints, PoolTree

NO_HOST_POOL = "no host pool"
"""In place of their names, for workloads that no host pool serves at this moment."""


@dataclass(frozen=True, slots=True)
class Compartment:
    host_pools: str  # their names, with commas
    workloads: frozenset[Workload]
    capacity: Resources
    slack_cpu: int


def compartments(host_pools: Iterable[HostPoolCapacity]) -> tuple[Compartment, ...]:
    """By the names of their host pools; none where all workloads may use all hosts. What no workload may use is in
    none."""
    pools = sorted(host_pools, key=lambda pool: pool.name)
    if not pools:
        return ()
    groups: list[tuple[list[HostPoolCapacity], frozenset[Workload]]] = []
    for pool in (pool for pool in pools if pool.serves):
        joined = [group for group in groups if not group[1].isdisjoint(pool.serves)]
        groups = [group for group in groups if group not in joined]
        members = [member for group in joined for member in group[0]]
        groups.append(([*members, pool], pool.serves.union(*(group[1] for group in joined))))
    found = [_compartment(members, workloads) for members, workloads in groups]
    unserved = frozenset(work for work in Workload if work).difference(*(one.workloads for one in found))
    if unserved:
        found.append(Compartment(NO_HOST_POOL, unserved, Resources(), 0))
    if len(found) == 1 and len(groups[0][0]) == len(pools):
        return ()
    return tuple(sorted(found, key=lambda one: one.host_pools))


def _compartment(members: Sequence[HostPoolCapacity], workloads: frozenset[Workload]) -> Compartment:
    noun = "host pool" if len(members) == 1 else "host pools"
    names = ", ".join(sorted(pool.name for pool in members))
    up = sum((pool.up for pool in members), Resources())
    return Compartment(f"{noun} {names}", workloads, up, sum(pool.slack_cpu_milli for pool in members))


def part_of(found: Sequence[Compartment]) -> dict[Workload, int]:
    """The compartment of each workload; none where there are no compartments. What may go anywhere counts in the first:
    no such pod is queued."""
    if not found:
        return {}
    return {Workload.ANY: 0} | {work: part for part, one in enumerate(found) for work in one.workloads}


@dataclass(frozen=True, eq=False)
class CompartmentLoad:
    """What is wanted of a compartment: own amounts ``[P,R]`` of gangs in queues."""

    compartment: Compartment
    demand: Ints
    slack_demand: Ints


def entitle_each(tree: PoolTree, loads: Sequence[CompartmentLoad], usage: Sequence[Usage]) -> Entitlement:
    """Deal each compartment; ``usage``: what is held there."""
    capacity = np.array([tuple(load.compartment.capacity) for load in loads], np.int64)  # [C,R]
    held = np.stack([own.physical(tree) for own in usage])  # [C,P,R]
    elsewhere = held.sum(axis=0) - held
    limit = np.where(tree.limit < UNLIMITED, np.maximum(tree.limit - elsewhere, held), UNLIMITED)
    reservation = _reservations(tree, loads, usage, capacity, held)
    slack_limit = _split(tree.slack_limit, _slack_wants(tree, loads, usage))
    parts = []
    for at, (load, own) in enumerate(zip(loads, usage, strict=True)):
        slack = slack_limit[at]
        slack[0] = tree.slack_limit[0]
        part = replace(tree, reservation=reservation[at], limit=limit[at], slack_limit=slack)
        wants = Load(load.demand, load.slack_demand, own.non_slack, own.slack)
        dealt = entitle(part, wants, capacity[at], load.compartment.slack_cpu)
        parts.append(replace(dealt, host_pools=load.compartment.host_pools))
    columns = (sum(getattr(part, name) for part in parts) for name in ("total", "non_slack", "slack"))
    return Entitlement(*columns, parts=tuple(parts))


def _reservations(
    tree: PoolTree, loads: Sequence[CompartmentLoad], usage: Sequence[Usage], capacity: Ints, held: Ints
) -> Ints:
    """[C,P,R]: what is guaranteed to each pool in each compartment."""
    room = capacity[:, None, :]
    fixed = np.stack([tree.roll_up(own.non_preemptible) for own in usage])
    wanted = np.stack([tree.roll_up(_physical(load.demand, load.slack_demand)) for load in loads])
    layers = [np.minimum(layer, room) for layer in (fixed, held, held + np.minimum(wanted, tree.limit))]
    layers.append(np.where(tree.static, np.broadcast_to(room, held.shape), 0))
    found = _split(tree.reservation, layers)
    for level in reversed(tree.levels):  # a parent guarantees what its children are guaranteed, before anything else
        children = np.add.reduceat(found[:, level.begin : level.end], level.starts, axis=1)
        above = [children, *(layer[:, level.parents] for layer in layers)]
        found[:, level.parents] = _split(tree.reservation[level.parents], above)
    found[:, 0] = capacity  # all of which the root is dealt
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
    """``[P,R]`` amounts of pools over compartments, ``[C,P,R]``: each gets what it has in the first of ``layers``,
    then in the second, as far as it goes; what does not go round is cut in proportion."""
    given = np.zeros_like(layers[0])
    count, pools, _ = given.shape
    segments = np.arange(pools)
    starts, group = segments * count, np.repeat(segments, count)
    for layer in layers:
        left = amounts - given.sum(axis=0)
        want = np.ascontiguousarray(np.maximum(layer - given, 0).transpose(1, 0, 2)).reshape(pools * count, -1)
        given += fill(weigh(starts, group, want), left, want).reshape(pools, count, -1).transpose(1, 0, 2)
    return given
