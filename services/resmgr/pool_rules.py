"""The rules of the pool tree: the allowed changes, in the original API's order and words where it has some."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from peloton.api.config_bounds import CONTROLLER_PERCENT_MAX, POOL_KINDS, POOL_NAME_MAX, SLACK_PERCENT_MAX
from peloton.api.convert_pool import UNITS, pool_spec
from peloton.api.v0.respool import respool_pb2 as pb
from peloton.errors import AlreadyExists, InvalidArgument, NotFound
from peloton.errors import Reason as ErrorReason
from peloton.lifecycle.reason_text import queue_text
from peloton.model.ids import ROOT_POOL_ID, RespoolId
from peloton.model.reason import Reason
from peloton.model.resources import RESOURCE_KINDS, UNLIMITED
from peloton.model.respool import PoolResource, PoolSpec
from peloton.model.text import MULTI_LINE, control_character_fault, quote, shorten
from peloton.scheduling.admission import Ledger, first_refusal
from peloton.scheduling.entitlement import Entitlement
from peloton.scheduling.gangs import GangRun, Usage
from peloton.scheduling.tree import Ints, PoolTree, build_tree
from services.resmgr.state import ResmgrState

NOT_FOUND = "resource pool not found"


class PoolNameTaken(AlreadyExists):
    """The error that a sibling already has this name."""


# -- conversion -----------------------------------------------------------------------------------------------------


def wire_amount(kind: str, amount: int) -> float:
    return amount / UNITS[kind]


def with_defaults(config: pb.ResourcePoolConfig) -> pb.ResourcePoolConfig:
    """Return a copy with a policy and all kinds."""
    full = pb.ResourcePoolConfig()
    full.CopyFrom(config)
    if full.policy == pb.UNKNOWN:
        full.policy = pb.PriorityFIFO
    given = {resource.kind for resource in full.resources}
    full.resources.extend(pb.ResourceConfig(kind=kind, share=1) for kind in POOL_KINDS if kind not in given)
    return full


def number(value: float) -> str:
    """Format a number as the original API prints a double: without needless decimals."""
    return f"{value:.0f}" if abs(value) < 1e21 and value == int(value) else repr(value)


# -- validation -----------------------------------------------------------------------------------------------------


def check_config(
    state: ResmgrState, pool_id: RespoolId, config: pb.ResourcePoolConfig, configs: dict[RespoolId, PoolSpec]
) -> None:
    """Check every rule for a new or changed pool; ``config`` is complete, ``configs`` are all pools but the root.

    Raises InvalidArgument, or PoolNameTaken for a sibling's name.
    """
    if pool_id == ROOT_POOL_ID:
        raise InvalidArgument("cannot override root")
    check_values(config)
    parent_id = RespoolId(config.parent.value)
    if parent_id == pool_id:
        raise InvalidArgument(f"resource pool ID: {pool_id} and parent ID: {parent_id} cannot be same")
    if parent_id not in state.tree.row:
        raise InvalidArgument(f"resource pool parent ID: {shorten(parent_id)} not found")
    if pool_id in configs and configs[pool_id].parent_id != parent_id:
        actual = configs[pool_id].parent_id
        paths = f"{state.path_of(actual)} is the parent, not {state.path_of(parent_id)}"
        raise InvalidArgument(f"parent override not allowed, actual {actual}, override {parent_id} ({paths})")
    spec = pool_spec(pool_id, config)
    _check_limits(state, spec)
    siblings = [p for p in configs.values() if p.parent_id == parent_id and p.respool_id != pool_id]
    if any(sibling.name == spec.name for sibling in siblings):
        raise PoolNameTaken(f"resource pool:{shorten(spec.name)} already exists")
    _check_reservations(state, spec, siblings)
    if config.controllerLimit.maxPercent > CONTROLLER_PERCENT_MAX:
        raise InvalidArgument(f"controller limit, max percent cannot be more than {CONTROLLER_PERCENT_MAX}")
    _check_name(config.name)
    _check_amounts(config)
    _check_parent_is_idle(state, pool_id, parent_id)
    _check_children(spec, [p for p in configs.values() if p.parent_id == pool_id])
    _check_queued(state, spec)


def check_values(config: pb.ResourcePoolConfig) -> None:
    """Refuse values that are invalid whatever the other pools are. Raises InvalidArgument."""
    _check_texts(config)
    seen: set[str] = set()
    for resource in config.resources:
        kind = resource.kind
        if kind not in POOL_KINDS:
            raise InvalidArgument(
                f"resource pool config has unknown resource type {shorten(kind)} (there are {', '.join(POOL_KINDS)})"
            )
        if kind in seen:
            raise InvalidArgument(f"resource pool config has multiple configurations for resource type {kind}")
        seen.add(kind)
        for name, value in (
            ("reservation", resource.reservation),
            ("limit", resource.limit),
            ("share", resource.share),
        ):
            if not math.isfinite(value):
                raise InvalidArgument(f"resource {kind}, {name} {value} is not a finite number")
        for name, value in (("Reservation", resource.reservation), ("Share", resource.share)):
            if value < 0:
                raise InvalidArgument(
                    f"resource pool config resource values can not be negative {kind}: {name} {number(value)}"
                )
        if resource.limit < resource.reservation:
            reservation, limit = number(resource.reservation), number(resource.limit)
            raise InvalidArgument(f"resource {kind}, reservation {reservation} exceeds limit {limit}")
    percents = {"controllerLimit": config.controllerLimit.maxPercent, "slackLimit": config.slackLimit.maxPercent}
    for name, percent in percents.items():
        if not math.isfinite(percent):
            raise InvalidArgument(f"{name}, maxPercent {percent} is not a finite number")
        if percent > SLACK_PERCENT_MAX:
            raise InvalidArgument(f"{name}, maxPercent {number(percent)} is more than {SLACK_PERCENT_MAX}")


def _check_name(name: str) -> None:
    """Refuse names with which a pool could not be found by its path. The original has no such rule."""
    if len(name) > POOL_NAME_MAX:
        raise InvalidArgument(f"resource pool name has {len(name)} characters, at most {POOL_NAME_MAX} are allowed")
    if not name or "/" in name:
        raise InvalidArgument(f"resource pool name {quote(name)} must not be empty or contain '/'")


def _check_texts(config: pb.ResourcePoolConfig) -> None:
    """Refuse texts that would steer a terminal that shows them. Raises InvalidArgument."""
    texts = [("resource pool name", config.name, ""), ("owningTeam", config.owningTeam, "")]
    texts += [("ldapGroups", group, "") for group in config.ldapGroups]
    for field, text, allowed in (*texts, ("description", config.description, MULTI_LINE)):
        if fault := control_character_fault(field, text, allowed):
            raise InvalidArgument(fault)


def _check_amounts(config: pb.ResourcePoolConfig) -> None:
    """Refuse amounts so small that they would be stored as 0. The original has no such rule."""
    for resource in config.resources:
        least = 1 / UNITS[resource.kind]
        for name, value in (("reservation", resource.reservation), ("limit", resource.limit)):
            if 0 < value < least:
                amount = f"{name} {number(value)} is less than {number(least)}, the smallest amount"
                raise InvalidArgument(f"resource {resource.kind}, {amount}")


def _bounds_of(state: ResmgrState, pool_id: RespoolId) -> dict[str, tuple[int, int]]:
    """Return kind -> (reservation, limit) of a pool.

    For the root both are the capacity of all hosts, up or not: a pool that fits the cluster stays valid while some
    hosts are in maintenance.
    """
    if pool_id == ROOT_POOL_ID:
        return {kind: (amount, amount) for kind, amount in zip(RESOURCE_KINDS, state.registered, strict=True)}
    return {r.kind: (r.reservation, r.limit) for r in state.pools[pool_id].resources}


def _resources_in_wire_order(spec: PoolSpec) -> Iterator[PoolResource]:
    by_kind = {resource.kind: resource for resource in spec.resources}
    yield from (by_kind[kind] for kind in POOL_KINDS)


def _amount(kind: str, amount: int) -> str:
    return number(wire_amount(kind, amount))


def _present_reservations(state: ResmgrState, spec: PoolSpec) -> dict[str, int]:
    """Return kind -> reservation that a pool below the root already has.

    It may be sent again although hosts were lost since, but not raised.
    """
    is_known = spec.parent_id == ROOT_POOL_ID and spec.respool_id in state.pools
    bounds = _bounds_of(state, spec.respool_id).items() if is_known else ()
    return dict.fromkeys(RESOURCE_KINDS, 0) | {kind: reservation for kind, (reservation, _) in bounds}


def _check_limits(state: ResmgrState, spec: PoolSpec) -> None:
    """Keep a limit below that of the parent.

    The root's limit is the present capacity, which an autoscaler changes, and no rule: ``beyond_hosts`` warns instead.
    """
    if spec.parent_id == ROOT_POOL_ID:
        return
    parent = _bounds_of(state, spec.parent_id)
    for r in _resources_in_wire_order(spec):
        limit = parent[r.kind][1]
        if r.limit > limit:
            mine, theirs = _amount(r.kind, r.limit), _amount(r.kind, limit)
            above = state.path_of(spec.parent_id)
            raise InvalidArgument(
                f"resource {r.kind}, limit {mine} exceeds parent limit {theirs} (the parent is {above})"
            )


def _check_reservations(state: ResmgrState, spec: PoolSpec, siblings: list[PoolSpec]) -> None:
    parent, has = _bounds_of(state, spec.parent_id), _present_reservations(state, spec)
    for r in _resources_in_wire_order(spec):
        kind = RESOURCE_KINDS.index(r.kind)
        total = r.reservation + sum(sibling.resources[kind].reservation for sibling in siblings)
        if total > parent[r.kind][0] and r.reservation > has[r.kind]:
            mine, theirs = _amount(r.kind, total), _amount(r.kind, parent[r.kind][0])
            rest = _amount(r.kind, total - r.reservation)
            raise InvalidArgument(
                f"Aggregated child reservation {mine} of kind `{r.kind}` exceed parent `{spec.parent_id}` "
                f"reservations {theirs} (the parent is {state.path_of(spec.parent_id)}, its other children have {rest})"
            )


def beyond_hosts(state: ResmgrState, spec: PoolSpec) -> list[str]:
    """Return warnings about amounts of a pool that exceed the capacity of the hosts that are up."""
    assert state.capacity is not None
    texts = []
    for r, up in zip(spec.resources, state.capacity, strict=True):
        if not up < r.limit < UNLIMITED:
            continue
        limit, have = _amount(r.kind, r.limit), _amount(r.kind, up)
        both = f"reservation {_amount(r.kind, r.reservation)} and limit {limit} are"
        amounts = both if r.reservation > up else f"limit {limit} is"
        texts.append(f"resource {r.kind}, {amounts} more than {have}, which is what the hosts that are up have")
    return texts


def _check_parent_is_idle(state: ResmgrState, pool_id: RespoolId, parent_id: RespoolId) -> None:
    """Refuse children of a pool with gangs, which wait only in leaves. The original has no such rule."""
    row = state.tree.row[parent_id]
    if pool_id not in state.tree.row and parent_id != ROOT_POOL_ID and not state.accounts.is_idle(row):
        path = state.tree.paths[row]
        raise InvalidArgument(f"resource pool {path} cannot get child pools: {load_text(state, row)}")


def load_text(state: ResmgrState, row: int) -> str:
    """Return a text about the allocation and demand of a leaf."""
    accounts = state.accounts

    def shown(amounts: Ints) -> str:
        some = [f"{kind} {_amount(kind, n)}" for kind, n in zip(RESOURCE_KINDS, amounts.tolist(), strict=True) if n]
        return ", ".join(some) or "nothing"

    held, wanted = accounts.non_slack[row] + accounts.slack[row], accounts.demand[row] + accounts.slack_demand[row]
    return f"its pods hold {shown(held)}, and wait for {shown(wanted)}"


def _check_queued(state: ResmgrState, spec: PoolSpec) -> None:
    """Keep waiting gangs admissible, and non-preemptible pods within the reservation. The original has no such
    rules."""
    row = state.tree.row.get(spec.respool_id)
    if row is None:
        return
    before, after = _final_check(state, state.tree), _final_check(state, build_tree([*_others(state, spec), spec]))
    for pool_id, queues in state.waiting.pools.items():
        at = state.tree.row.get(pool_id)
        if at is None or (at != row and row not in state.tree.ancestors[at]):
            continue
        for run in {_sort(run): run for queue in queues.values() for run in queue}.values():
            refusal = after(pool_id, run)
            if refusal is not None and before(pool_id, run) is None:
                job = f"job {run.job_id} waits in {state.tree.paths[at]}"
                raise InvalidArgument(f"{job}, and could never be admitted then: {queue_text(refusal)}")
    for number, resource in enumerate(spec.resources):
        held = int(state.accounts.non_preemptible[row, number])
        own = resource.reservation
        if state.preempts and own < held and own < int(state.tree.reservation[row, number]):
            kind, mine, theirs = resource.kind, _amount(resource.kind, own), _amount(resource.kind, held)
            raise InvalidArgument(
                f"resource {kind}, reservation {mine} is less than {theirs} that non-preemptible pods hold"
            )


def _others(state: ResmgrState, spec: PoolSpec) -> Iterator[PoolSpec]:
    return (pool for pool in state.pools.values() if pool.respool_id != spec.respool_id)


def _sort(run: GangRun) -> tuple[object, ...]:
    return run.need, run.gang_size, run.preemptible, run.revocable, run.controller


def _final_check(state: ResmgrState, tree: PoolTree) -> Callable[[RespoolId, GangRun], Reason | None]:
    """Return a function that says why a gang could never be admitted in a tree; None when it could."""
    total = np.full_like(tree.limit, UNLIMITED)
    usage = Usage(*(np.zeros_like(tree.limit) for _ in range(4)))
    ledger = Ledger(tree, Entitlement(total, total, total), usage, state.preempts)
    return lambda pool_id, run: first_refusal(run, ledger.bounds(tree.row[pool_id], run), is_final=True)


def _check_children(spec: PoolSpec, children: list[PoolSpec]) -> None:
    """Keep a parent's limit and reservation above those of its children. The original has no such rule."""
    for r in _resources_in_wire_order(spec):
        kind = RESOURCE_KINDS.index(r.kind)
        for child in children:
            limit = child.resources[kind].limit
            if r.limit < limit:
                mine, theirs = _amount(r.kind, r.limit), _amount(r.kind, limit)
                raise InvalidArgument(f"resource {r.kind}, limit {mine} is less than {theirs} of child {child.name}")
        total = sum(child.resources[kind].reservation for child in children)
        if r.reservation < total:
            mine, theirs = _amount(r.kind, r.reservation), _amount(r.kind, total)
            raise InvalidArgument(f"resource {r.kind}, reservation {mine} is less than {theirs} of the child pools")


# -- paths ----------------------------------------------------------------------------------------------------------


def check_path(path: str | None) -> str:
    """Return the path; raise InvalidArgument with the original's text."""
    if path is None:
        raise InvalidArgument("path cannot be nil")
    if not path:
        raise InvalidArgument("path cannot be empty")
    if not path.startswith("/"):
        raise InvalidArgument("path should begin with /")
    return path


def find(state: ResmgrState, path: str) -> RespoolId:
    """Return the pool of a path; one trailing slash is tolerated. Raises NotFound."""
    wanted = path if path == "/" else path.removesuffix("/")
    try:
        return state.tree.ids[state.tree.paths.index(wanted)]
    except ValueError:
        raise NotFound(NOT_FOUND).because(ErrorReason.POOL_NOT_FOUND) from None
