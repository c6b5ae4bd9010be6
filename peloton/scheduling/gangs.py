"""The values of admission and preemption: gangs in queues, and the usage of admitted pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum

import numpy as np

from peloton.model.host_pool import Workload
from peloton.model.ids import JobId
from peloton.model.pod import PodShape
from peloton.model.resources import RESOURCE_KINDS, Resources
from peloton.scheduling.tree import CPU, Ints, PoolTree

Need = tuple[int, ...]
"""Amounts by resource kind, ``[R]``."""
Needs = tuple[tuple[Workload, Need], ...]


class QueueKind(IntEnum):
    """The queues of a pool in the order of visits."""

    NON_PREEMPTIBLE = 0
    CONTROLLER = 1
    REVOCABLE = 2
    ORDINARY = 3

    __hash__ = int.__hash__  # Enum's own hash is slow, and queues are looked up very often


@dataclass(frozen=True, slots=True)
class GangRun:
    """A run of like gangs of one job: instances ``start .. start + gang_count*gang_size - 1``."""

    job_id: JobId
    start: int
    gang_count: int
    gang_size: int
    need: Need  # [R] of one whole gang
    priority: int  # higher goes first
    queue_seq: int  # lower goes first among equals
    preemptible: bool = True
    revocable: bool = False
    controller: bool = False
    workload: Workload = Workload.ANY
    apart: Needs = ()  # of a gang with pods of several workloads: the need of each workload

    @property
    def needs(self) -> Needs:
        """Return the part of one whole gang's need that falls to each workload."""
        return self.apart or ((self.workload, self.need),)

    @property
    def queue(self) -> QueueKind:
        if self.revocable:
            return QueueKind.REVOCABLE
        if not self.preemptible:
            return QueueKind.NON_PREEMPTIBLE
        return QueueKind.CONTROLLER if self.is_lone_controller else QueueKind.ORDINARY

    @property
    def is_lone_controller(self) -> bool:
        """Return whether the controller limit counts the gang: it is a controller and has one pod."""
        return self.controller and self.gang_size == 1

    @property
    def sort(self) -> tuple[Need, Needs, Workload, bool]:
        """Return the part of a run that admission compares: of two alike in one queue, either both fit or neither
        does."""
        return self.need, self.apart, self.workload, self.is_lone_controller

    @property
    def order(self) -> tuple[int, int, int]:
        return (-self.priority, self.queue_seq, self.start)

    @property
    def pod_count(self) -> int:
        return self.gang_count * self.gang_size

    def widen(self, by: int) -> GangRun:
        """Return the run with ``by`` more kinds, of which it needs nothing."""
        apart = tuple((workload, _widen(need, by)) for workload, need in self.apart)
        return replace(self, need=_widen(self.need, by), apart=apart)


def _widen(need: Need, by: int) -> Need:
    return (*need, *[0] * by)


@dataclass(frozen=True, slots=True)
class Footprint:
    """The properties of a pod that admission compares."""

    need: Need  # [R]
    preemptible: bool
    revocable: bool
    controller: bool
    workload: Workload = Workload.ANY

    @classmethod
    def of(cls, shape: PodShape, workload: Workload, kinds: tuple[str, ...] = RESOURCE_KINDS) -> Footprint:
        """Return the footprint of a pod; ``kinds`` ``[R]`` has at least the kinds that it requests."""
        need = shape.resources + Resources(disk_mib=shape.volume_mib) if shape.volume_mib else shape.resources
        return cls(need.row(kinds), shape.preemptible, shape.revocable, shape.controller, workload)

    @property
    def needs(self) -> Needs:
        return ((self.workload, self.need),)

    def widen(self, by: int) -> Footprint:
        """Return the footprint with ``by`` more kinds, of which the pod needs nothing."""
        return replace(self, need=_widen(self.need, by))


@dataclass(frozen=True, eq=False)
class Usage:
    """The resources that admitted pods hold, own amounts ``[P,R]``; the total is ``non_slack + slack``."""

    non_slack: Ints
    slack: Ints  # of revocable pods, which count in no other column
    non_preemptible: Ints
    controller: Ints
    parts: tuple[Usage, ...] = field(default=(), kw_only=True)  # one per compartment; empty: there are none
    part_of: Mapping[Workload, int] = field(default_factory=dict, kw_only=True)

    @property
    def columns(self) -> tuple[Ints, ...]:
        return self.non_slack, self.slack, self.non_preemptible, self.controller

    def copy(self) -> Usage:
        parts = tuple(part.copy() for part in self.parts)
        return Usage(*(column.copy() for column in self.columns), parts=parts, part_of=self.part_of)

    def without(self, part: Usage) -> Usage:
        """Return the usage that remains without a part of it."""
        parts = tuple(mine.without(gone) for mine, gone in zip(self.parts, part.parts, strict=True))
        columns = (mine - gone for mine, gone in zip(self.columns, part.columns, strict=True))
        return Usage(*columns, parts=parts, part_of=self.part_of)

    def charge(self, row: int, holder: Footprint | GangRun, count: int) -> None:
        """Count ``count`` more pods or gangs in pool ``row``; a negative count takes them off."""
        self._charge(row, holder, holder.need, count)
        if self.parts:
            for workload, need in holder.needs:
                self.parts[self.part_of[workload]]._charge(row, holder, need, count)

    def _charge(self, row: int, holder: Footprint | GangRun, need: Need, count: int) -> None:
        amounts = np.multiply(need, count)
        if holder.revocable:
            self.slack[row] += amounts
            return
        self.non_slack[row] += amounts
        if not holder.preemptible:
            self.non_preemptible[row] += amounts
        if holder.controller:
            self.controller[row] += amounts

    def parts_of(self, run: GangRun) -> tuple[int, ...]:
        """Return the compartments that a gang's pods go to."""
        return tuple(sorted({self.part_of[workload] for workload, _ in run.needs})) if self.parts else (0,)

    @property
    def held(self) -> Ints:
        """Return the amounts ``[R]`` of hosts that all pools hold together."""
        amounts: Ints = self.non_slack.sum(axis=0) + self.slack.sum(axis=0)
        amounts[CPU] -= self.slack[:, CPU].sum()
        return amounts

    def physical(self, tree: PoolTree) -> Ints:
        """Return the amounts ``[P,R]`` of hosts that each subtree holds; the cpu of revocable pods is slack and not
        counted."""
        own = self.non_slack + self.slack
        own[:, CPU] = self.non_slack[:, CPU]
        return tree.roll_up(own)


Queues = Mapping[QueueKind, Sequence[GangRun]]
"""The waiting runs of each queue, sorted by ``GangRun.order``."""
