"""Pods of an update, read as far as a step needs them: a step of a service with 100,000 pods touches one batch."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from peloton.lifecycle import sla
from peloton.lifecycle.guards import Condition
from peloton.lifecycle.sla import Availability
from peloton.model.pod import PodRecord
from peloton.model.update import Instances, UpdateRecord

Pods = Mapping[int, PodRecord]
"""Existing pods by instance."""
ORDER = {
    Availability.UNAVAILABLE: 0,
    Availability.KILLED: 1,
    Availability.DELETED: 1,
    Availability.INVALID: 2,
    Availability.AVAILABLE: 3,
}
"""Order in which pods are updated."""


@dataclass(frozen=True, slots=True)
class Coming:
    """Instances that start next, in their order, and their existing pods."""

    first: tuple[int, ...] = ()
    pods: Pods = field(default_factory=dict)


class PodSource(Protocol):
    def in_flight(self, update: UpdateRecord) -> Pods:
        """Return, for the instances in flight, at least the pods that are done, have failed, or have to be removed."""

    def coming(self, update: UpdateRecord, limit: int) -> Coming:
        """Return the first instances that have not started: added ones that do not exist, then others in ORDER, then
        removed ones; each group by instance. An instance to update that does not exist is added."""

    def count(self, condition: Condition, given: Mapping[str, Any], among: Collection[int] | None) -> int:
        """Count the pods that meet a condition with parameters, among these instances; None: among all of the job."""


class AtHand:
    """Source with all pods of a job in memory."""

    def __init__(self, pods: Pods) -> None:
        self._pods = pods

    def in_flight(self, update: UpdateRecord) -> Pods:
        return self._pods

    def coming(self, update: UpdateRecord, limit: int) -> Coming:
        waiting = waiting_of(update)
        changing = waiting - update.removed
        added = sorted(i for i in changing if i not in self._pods)
        updated = sorted((i for i in changing if i in self._pods), key=self._rank)
        first = (added + updated + sorted(waiting & update.removed))[:limit]
        return Coming(tuple(first), {i: self._pods[i] for i in first if i in self._pods})

    def count(self, condition: Condition, given: Mapping[str, Any], among: Collection[int] | None) -> int:
        chosen = self._pods if among is None else self._pods.keys() & among
        return sum(condition.holds(self._pods[i], given) for i in chosen)

    def _rank(self, instance: int) -> tuple[int, int]:
        return ORDER[sla.availability(self._pods[instance])], instance


def waiting_of(update: UpdateRecord) -> Instances:
    """Return the instances that have not started."""
    return (update.added | update.updated | update.removed) - update.current - update.done - update.failed
