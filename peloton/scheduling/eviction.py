"""What preemption is about: what is held, what a pool decides by, and an eviction with its grounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from peloton.model.reason import Grounds
from peloton.scheduling.admission import GangRun, Usage


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
