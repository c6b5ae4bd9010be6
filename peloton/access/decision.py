"""The decision whether a caller may call a method."""

from __future__ import annotations

from dataclasses import dataclass

from peloton.access.caller import CLUSTER, Caller, CallerKind, Role
from peloton.access.rules import MethodRule, Needs
from peloton.model.text import quote


@dataclass(frozen=True, slots=True)
class Decision:
    """An answer with its reason. ``pool`` is the one that was refused; empty: none in particular."""

    is_allowed: bool
    reason: str
    pool: str = ""


def decide(caller: Caller, rule: MethodRule, pools: tuple[str, ...] = ()) -> Decision:
    """Decide whether a caller may call a method for objects in all of ``pools``.

    Without pools, the objects do not exist, or the method finds those that the caller may read: the role anywhere is
    enough. A cluster-wide call has the root pool.
    """
    if rule.needs is Needs.NOTHING:
        return Decision(True, "the method is open to all")
    if caller.kind is CallerKind.ROLE:
        return Decision(True, f"{caller} is a process of Peloton")
    if rule.needs is Needs.PELOTON:
        return _refuse(caller, rule, "only processes of Peloton call it", "")
    if caller.methods is not None:
        listed = _decide_by_list(caller, rule)
        if listed is not None:
            return listed
    if not pools and caller.has_anywhere(rule.role):
        return Decision(True, f"{caller} has role {rule.role}")
    if not pools or not caller.has_anywhere(Role.READER):  # which pools there are is for readers
        return _refuse(caller, rule, f"it needs role {rule.role}", "")
    for pool in pools:
        if not caller.has(rule.role, pool):
            where = "on the cluster" if pool == CLUSTER else f"on pool {quote(pool)}"
            return _refuse(caller, rule, f"it needs role {rule.role} {where}", pool)
    return Decision(True, f"{caller} has role {rule.role} on {', '.join(pools)}")


def _decide_by_list(caller: Caller, rule: MethodRule) -> Decision | None:
    """Decide by the lists of methods of the original's file: what they accept counts in all pools."""
    assert caller.methods is not None
    if pattern := caller.methods.find_rejecting(rule.method):
        return _refuse(caller, rule, f"role {quote(caller.methods.role)} rejects {pattern}", "")
    if pattern := caller.methods.find_accepting(rule.method):
        return Decision(True, f"role {quote(caller.methods.role)} accepts {pattern}")
    return None


def _refuse(caller: Caller, rule: MethodRule, why: str, pool: str) -> Decision:
    has = ", ".join(map(str, caller.grants)) or "no role"
    if caller.methods is not None:
        has = f"role {quote(caller.methods.role)} of methods, and {has}"
    return Decision(False, f"{caller} may not call {rule.method}: {why}, and the caller has {has}", pool)


def is_enough_on_cluster(caller: Caller, rule: MethodRule) -> bool:
    """Return whether the caller may call the method for any object, so that no pool has to be found."""
    if rule.needs is Needs.NOTHING or caller.kind is CallerKind.ROLE:
        return True
    return caller.methods is None and rule.needs is Needs.ROLE and caller.has(rule.role, CLUSTER)
