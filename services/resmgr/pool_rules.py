"""The rules of the pool tree: the allowed changes, in the original API's order and words where it has some."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from peloton.api.config_bounds import (
    CONTROLLER_PERCENT_MAX,
    POOL_KINDS,
    POOL_NAME_MAX,
    SLACK_PERCENT_MAX,
    check_extended_name,
)
from peloton.api.convert_pool import UNITS, pool_spec, wire_amount
from peloton.api.v0.respool import respool_pb2 as pb
from peloton.errors import AlreadyExists, InvalidArgument, NotFound
from peloton.errors import Reason as ErrorReason
from peloton.lifecycle.reason_text import queue_text
from peloton.model.ids import ROOT_POOL_ID, RespoolId
from peloton.model.reason import Reason
from peloton.model.resources import EXTENDED_KINDS_MAX, RESOURCE_KINDS, UNLIMITED, is_license
from peloton.model.respool import PoolResource, PoolSpec
from peloton.model.text import MULTI_LINE, control_character_fault, quote, shorten
from peloton.scheduling.admission import Ledger
from peloton.scheduling.entitlement import Entitlement
from peloton.scheduling.gangs import GangRun, Usage
from peloton.scheduling.tree import Ints, PoolTree, build_tree, list_kinds
from services.resmgr.state import ResmgrState

NOT_FOUND = "resource pool not found"


class PoolNameTaken(AlreadyExists):
    """The error that a sibling already has this name."""


# -- conversion -----------------------------------------------------------------------------------------------------


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
    _check_kinds([*(pool for pool in configs.values() if pool.respool_id != pool_id), spec])
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
        if kind not in POOL_KINDS and (fault := check_extended_name(kind)):
            raise InvalidArgument(f"resource pool config has {fault}")
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
            if kind not in POOL_KINDS and name != "share" and not value.is_integer():
                raise InvalidArgument(f"resource {kind}, {name} {number(value)} is not a whole number")
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
        least = 1 / UNITS.get(resource.kind, 1)
        for name, value in (("reservation", resource.reservation), ("limit", resource.limit)):
            if 0 < value < least:
                amount = f"{name} {number(value)} is less than {number(least)}, the smallest amount"
                raise InvalidArgument(f"resource {resource.kind}, {amount}")


def _bounds_of(state: ResmgrState, pool_id: RespoolId, kind: str) -> tuple[int, int]:
    """Return reservation and limit of a pool.

    For the root both are the capacity of all hosts, up or not: a pool that fits the cluster stays valid while some
    hosts are in maintenance. Licenses belong to no host: pools below the root may have any number.
    """
    if pool_id == ROOT_POOL_ID:
        amount = UNLIMITED if is_license(kind) else dict(state.registered.items()).get(kind, 0)
        return amount, amount
    own = state.pools[pool_id].resource(kind)
    return own.reservation, own.limit


def _check_kinds(pools: list[PoolSpec]) -> None:
    """Refuse more kinds of extended resources than the pools may have together."""
    found = list_kinds(pools)[len(RESOURCE_KINDS) :]
    if len(found) > EXTENDED_KINDS_MAX:
        raise InvalidArgument(
            f"resource pools would have {len(found)} extended resources, at most {EXTENDED_KINDS_MAX} are allowed: "
            f"{', '.join(found)}"
        )


def _resources_in_wire_order(spec: PoolSpec) -> Iterator[PoolResource]:
    yield from (spec.resource(kind) for kind in POOL_KINDS)
    yield from spec.extras


def _amount(kind: str, amount: int) -> str:
    return number(wire_amount(kind, amount))


def _present_reservation(state: ResmgrState, spec: PoolSpec, kind: str) -> int:
    """Return the reservation that a pool below the root already has.

    It may be sent again although hosts were lost since, but not raised.
    """
    is_known = spec.parent_id == ROOT_POOL_ID and spec.respool_id in state.pools
    return state.pools[spec.respool_id].resource(kind).reservation if is_known else 0


def _check_limits(state: ResmgrState, spec: PoolSpec) -> None:
    """Keep a limit below that of the parent.

    The root's limit is the present capacity, which an autoscaler changes, and no rule: ``beyond_hosts`` warns instead.
    """
    if spec.parent_id == ROOT_POOL_ID:
        return
    for r in _resources_in_wire_order(spec):
        _, limit = _bounds_of(state, spec.parent_id, r.kind)
        if r.limit > limit:
            mine, theirs = _amount(r.kind, r.limit), _amount(r.kind, limit)
            above = state.path_of(spec.parent_id)
            raise InvalidArgument(
                f"resource {r.kind}, limit {mine} exceeds parent limit {theirs} (the parent is {above})"
            )


def _check_reservations(state: ResmgrState, spec: PoolSpec, siblings: list[PoolSpec]) -> None:
    for r in _resources_in_wire_order(spec):
        reserved, _ = _bounds_of(state, spec.parent_id, r.kind)
        total = r.reservation + sum(sibling.resource(r.kind).reservation for sibling in siblings)
        if total > reserved and r.reservation > _present_reservation(state, spec, r.kind):
            mine, theirs = _amount(r.kind, total), _amount(r.kind, reserved)
            rest = _amount(r.kind, total - r.reservation)
            raise InvalidArgument(
                f"Aggregated child reservation {mine} of kind `{r.kind}` exceed parent `{spec.parent_id}` "
                f"reservations {theirs} (the parent is {state.path_of(spec.parent_id)}, its other children have {rest})"
            )


def beyond_hosts(state: ResmgrState, spec: PoolSpec) -> list[str]:
    """Return warnings about amounts of a pool that exceed the capacity of the hosts that are up."""
    assert state.capacity is not None
    texts = []
    hosts = dict(state.capacity.items())
    for r in spec.resources:
        up = hosts.get(r.kind, 0)
        if is_license(r.kind) or not up < r.limit < UNLIMITED:
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
        some = [f"{kind} {_amount(kind, n)}" for kind, n in zip(state.tree.kinds, amounts.tolist(), strict=True) if n]
        return ", ".join(some) or "nothing"

    held, wanted = accounts.non_slack[row] + accounts.slack[row], accounts.demand[row] + accounts.slack_demand[row]
    return f"its pods hold {shown(held)}, and wait for {shown(wanted)}"


def _check_queued(state: ResmgrState, spec: PoolSpec) -> None:
    """Keep waiting gangs admissible, and non-preemptible pods within the reservation. The original has no such
    rules."""
    row = state.tree.row.get(spec.respool_id)
    if row is None:
        return
    changed = [*_others(state, spec), spec]
    kinds = list_kinds(changed, state.tree.kinds)  # the order of the needs of waiting runs
    before, after = _final_check(state, state.tree), _final_check(state, build_tree(changed, kinds))
    for pool_id, queues in state.waiting.pools.items():
        at = state.tree.row.get(pool_id)
        if at is None or (at != row and row not in state.tree.ancestors[at]):
            continue
        for run in {_sort(run): run for queue in queues.values() for run in queue}.values():
            refusal = after(pool_id, run)
            if refusal is not None and before(pool_id, run) is None:
                job = f"job {run.job_id} waits in {state.tree.paths[at]}"
                raise InvalidArgument(f"{job}, and could never be admitted then: {queue_text(refusal)}")
    for column, kind in enumerate(state.tree.kinds):
        held, own = int(state.accounts.non_preemptible[row, column]), spec.resource(kind).reservation
        if state.preempts and own < held and own < int(state.tree.reservation[row, column]):
            mine, theirs = _amount(kind, own), _amount(kind, held)
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
    return lambda pool_id, run: ledger.first_refusal(run, ledger.bounds(tree.row[pool_id], run), is_final=True)


def _check_children(spec: PoolSpec, children: list[PoolSpec]) -> None:
    """Keep a parent's limit and reservation above those of its children. The original has no such rule."""
    kinds = dict.fromkeys([*POOL_KINDS, *(r.kind for pool in (spec, *children) for r in pool.extras)])
    for r in map(spec.resource, kinds):
        for child in children:
            limit = child.resource(r.kind).limit
            if r.limit < limit:
                mine, theirs = _amount(r.kind, r.limit), _amount(r.kind, limit)
                raise InvalidArgument(f"resource {r.kind}, limit {mine} is less than {theirs} of child {child.name}")
        total = sum(child.resource(r.kind).reservation for child in children)
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
