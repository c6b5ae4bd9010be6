"""The words of preemption: what is held, what a pool decides by, and an eviction with its grounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from peloton.scheduling.admission import GangRun, Usage
from peloton.scheduling.reason import Rule, shown_amount


@dataclass(frozen=True, slots=True)
class HeldRun:
    """Admitted gangs of pool row ``pool``. Of a gang some members of which have ended, ``run.need`` is of the rest.

    ``is_launched``: a host knows them; else they are READY.
    """

    pool: int
    run: GangRun
    is_launched: bool


class PreemptionPolicy(Protocol):
    """What a pool decides by; see POLICIES."""

    def order(self, held: HeldRun) -> tuple[int, ...]:
        """Sort key: who goes first."""
        ...

    def may_evict(self, waiting: GangRun, held: GangRun) -> bool:
        """Whether one gang may evict another of the same pool; must be a strict order, else they would take turns."""
        ...


class PriorityFifo:
    """Revocable first, READY before launched, the lowest priority first, and of equals who came last."""

    def order(self, held: HeldRun) -> tuple[int, ...]:
        run = held.run
        return (not run.revocable, held.is_launched, run.priority, -run.queue_seq, -run.start)

    def may_evict(self, waiting: GangRun, held: GangRun) -> bool:
        return held.priority < waiting.priority


DEFAULT_POLICY = "PriorityFIFO"
POLICIES: dict[str, PreemptionPolicy] = {DEFAULT_POLICY: PriorityFifo()}
"""By the name that a pool's configuration gives its ``policy``. A new one goes here, and into the .proto's enum."""


@dataclass(frozen=True, slots=True)
class Grounds:
    """Why gangs are evicted and for whom. Amounts are in the small units of ``Resources``.

    Between pools ``held`` is what the victim's pool holds and ``bound`` its entitlement; inside a pool ``held`` is what
    is used of the rule's ``bound``.
    """

    rule: Rule
    pool_path: str  # of the victim
    for_pool: str
    for_job: str
    kind: str
    wanted: int
    held: int
    bound: int
    priority: int = 0  # of the waiting gang
    own_priority: int = 0

    @property
    def is_inside(self) -> bool:
        return self.pool_path == self.for_pool

    def __str__(self) -> str:
        wanted, held, bound = (shown_amount(self.kind, amount) for amount in (self.wanted, self.held, self.bound))
        asked = f"preempted for job {self.for_job} of {self.for_pool}, which wants {self.kind} {wanted}: "
        if self.is_inside and self.priority > self.own_priority:
            return (
                f"{asked}its priority is {self.priority}, this one's {self.own_priority}, "
                f"and {held} of the {self.rule} {bound} is used"
            )
        return f"{asked}{self.pool_path} holds {held} and is entitled to {bound}"


@dataclass(frozen=True, slots=True)
class Eviction:
    """All gangs of ``run`` in pool row ``pool`` give their resources back."""

    pool: int
    run: GangRun
    is_launched: bool
    grounds: Grounds


def held_by(evictions: Sequence[Eviction], others: Usage) -> Usage:
    """What the evicted hold, and ``others`` beside them."""
    held = Usage(
        *(column.copy() for column in (others.non_slack, others.slack, others.non_preemptible, others.controller))
    )
    for one in evictions:
        amounts = np.multiply(one.run.need, one.run.gang_count)
        if one.run.revocable:
            held.slack[one.pool] += amounts
            continue
        held.non_slack[one.pool] += amounts
        held.controller[one.pool] += amounts * one.run.controller
    return held
