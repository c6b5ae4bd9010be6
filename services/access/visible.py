"""Filters of lists and watches: they show the objects in pools that the caller may read."""

from __future__ import annotations

from collections.abc import Iterable

from peloton.access.caller import CLUSTER, Caller, CallerKind, Role, is_below
from peloton.model.respool import PoolSpec, pool_paths
from services.access.caller import CALLER

NO_POOL = frozenset({"-"})
"""Ids of pools that match no job."""


def readable_paths(caller: Caller) -> tuple[str, ...] | None:
    """Return the highest pools that the caller may read; None: all.

    A list of methods counts in all pools. A caller with roles as well sees their pools, since they may allow the call.
    """
    if caller.kind is CallerKind.ROLE or caller.has(Role.READER, CLUSTER):
        return None
    if caller.methods is not None and ("*" in caller.methods.accept or not caller.has_anywhere(Role.READER)):
        return None
    return caller.pools_with(Role.READER)


def visible_pools(specs: Iterable[PoolSpec]) -> frozenset[str] | None:
    """Return the ids of the pools that the caller of this request may read; None: all."""
    readable = readable_paths(CALLER.get())
    if readable is None:
        return None
    found = frozenset(str(pool) for pool, path in pool_paths(specs).items() if is_in(path, readable))
    return found or NO_POOL


def is_in(path: str, readable: Iterable[str] | None) -> bool:
    """Return whether a pool is one of these or lies below one; None stands for all."""
    return readable is None or any(is_below(path, above) for above in readable)


def join(wanted: frozenset[str] | None, visible: frozenset[str] | None) -> frozenset[str] | None:
    """Return the ids of the pools that are in both sets; None stands for all pools."""
    if wanted is None or visible is None:
        return visible if wanted is None else wanted
    return wanted & visible or NO_POOL
