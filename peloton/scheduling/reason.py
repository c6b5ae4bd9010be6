"""Why a gang waits: the rule that binds, with its numbers."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from peloton.model.resources import UNLIMITED


class Rule(StrEnum):
    """Why a gang waits."""

    ENTITLEMENT = "entitlement"
    SLACK_ENTITLEMENT = "slack entitlement"
    RESERVATION = "reservation for non-preemptible pods"
    CONTROLLER_LIMIT = "controller limit"
    POOL_LIMIT = "pool limit"
    CLUSTER_CAPACITY = "cluster capacity"
    HEAD_OF_LINE = "head of line"
    PRIORITY = "priority"
    BATCH_BOUND = "batch bound"
    NO_CYCLE = "no cycle yet"
    HELD_BACK = "held back"


class Reason(NamedTuple):
    """The first rule that a gang fails, with the numbers. Amounts are in the small units of ``Resources``; for
    HELD_BACK ``left`` is in seconds, and ``bound`` the number of launches of a gang in vain."""

    rule: Rule
    pool_path: str = ""
    kind: str = ""
    wanted: int = 0
    left: int = 0
    bound: int = 0
    gang_size: int = 1
    job_id: str = ""  # of the gang ahead, for HEAD_OF_LINE and PRIORITY
    is_final: bool = False  # no wait helps: more than the pool may ever have

    def __str__(self) -> str:
        if self.rule is Rule.HEAD_OF_LINE:
            return f"waits behind job {self.job_id} in the queue of {self.pool_path}"
        if self.rule is Rule.PRIORITY:
            return f"waits behind job {self.job_id}, of higher priority, in the queue of {self.pool_path}"
        if self.rule in (Rule.BATCH_BOUND, Rule.NO_CYCLE):
            return "waits for the next admission cycle"
        if self.rule is Rule.HELD_BACK and self.gang_size == 1:
            return f"held back for {self.left} s because no host was found; others pass by"
        if self.rule is Rule.HELD_BACK:
            launches = f"{self.bound} launch{'' if self.bound == 1 else 'es'}"
            return f"gang of {self.gang_size}: held back for {self.left} s after {launches} in vain; others pass it by"
        wanted, left, bound = (shown_amount(self.kind, amount) for amount in (self.wanted, self.left, self.bound))
        who = f"gang of {self.gang_size}: " if self.gang_size > 1 else ""
        if self.is_final:
            return f"{who}{self.kind} {wanted} wanted, more than the {self.rule} of {self.pool_path}: {bound}"
        return f"{who}{self.kind} {wanted} wanted, {left} left of the {self.rule} of {self.pool_path}: {bound}"


def shown_amount(kind: str, amount: int) -> str:
    if amount >= UNLIMITED:
        return "unlimited"
    return f"{amount / 1000:g}" if kind in ("cpu", "gpu") else f"{amount} MiB"
