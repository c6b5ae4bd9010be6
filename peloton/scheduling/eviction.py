"""The values of preemption: held gangs, a pool's policy, and an eviction with its grounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from peloton.model.reason import Grounds
from peloton.scheduling.gangs import GangRun, Usage


@dataclass(frozen=True, slots=True)
class HeldRun:
    """Admitted gangs of pool row ``pool``. ``run.need`` leaves out members that have ended.

    ``is_launched``: they are on hosts; otherwise they are READY.
    """

    pool: int
    run: GangRun
    is_launched: bool


class PreemptionPolicy(Protocol):
    """The order in which a pool chooses its victims; see POLICIES."""

    def order(self, held: HeldRun) -> tuple[int, ...]:
        """Return the sort key of a held gang: the lowest is evicted first."""
        ...

    def may_evict(self, waiting: GangRun, held: GangRun) -> bool:
        """Return whether one gang may evict another of its pool.

        It must be a strict order, or gangs would evict each other in turn.
        """
        ...


class PriorityFifo:
    """Evict revocable gangs first, READY before launched, then the lowest priority, then the latest in the queue: of a
    job the pods beyond its gang, the highest instance first, before the gang.

    A gang of a higher priority may evict another, and a gang the pods of its own job beyond it: they are of no use
    without it, and may have been admitted while it ran again."""

    def order(self, held: HeldRun) -> tuple[int, ...]:
        run = held.run
        return (not run.revocable, held.is_launched, run.priority, -run.queue_seq, -run.start)

    def may_evict(self, waiting: GangRun, held: GangRun) -> bool:
        if held.job_id == waiting.job_id:
            return held.gang_size == 1 < waiting.gang_size
        return held.priority < waiting.priority


DEFAULT_POLICY = "PriorityFIFO"
POLICIES: dict[str, PreemptionPolicy] = {DEFAULT_POLICY: PriorityFifo()}
"""The policies by name, the ``policy`` of a pool's configuration. A new one is added here and to the .proto's enum."""


@dataclass(frozen=True, slots=True)
class Eviction:
    """The eviction of all gangs of ``run`` in pool row ``pool``, which give their resources back."""

    pool: int
    run: GangRun
    is_launched: bool
    grounds: Grounds


def sum_usage(evictions: Sequence[Eviction], others: Usage) -> Usage:
    """Return the usage of the evicted gangs, added to ``others``."""
    held = others.copy()
    for one in evictions:
        held.charge(one.pool, one.run, one.run.gang_count)
    return held
