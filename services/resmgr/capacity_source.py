"""The port of the resource manager to the capacity of the clusters. All calls are synchronous."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from peloton.errors import PelotonError
from peloton.model.advice import Marked
from peloton.model.daemon import DaemonPlan, DaemonReach
from peloton.model.host import Capacity
from peloton.model.ids import Hostname, JobId
from peloton.model.planned_capacity import CapacityAnswer, PlannedPods
from peloton.model.pod import PodShape
from peloton.model.reason import Infeasibility


class CapacitySource(Protocol):
    def capacity(self) -> Capacity:
        """Return the capacity of all clusters. Raises Unavailable."""
        ...

    def evaluate(self, shapes: Sequence[PodShape]) -> Mapping[PodShape, Infeasibility]:
        """Return the pods that not even an empty host could take, and the reasons. Raises Unavailable."""
        ...

    def find_capacity(self, pods: Sequence[PlannedPods]) -> CapacityAnswer:
        """Return for how many planned pods hosts have free resources now. Raises Unavailable."""
        ...

    def plan_daemon(self, shape: PodShape) -> Mapping[str, DaemonPlan | PelotonError]:
        """Return by cluster the free resources that a planned daemon would find on hosts now, or why they are unknown.

        Raises Unavailable.
        """
        ...

    def reach(self, shape: PodShape) -> Sequence[DaemonReach]:
        """Return by cluster the hosts on which a daemon with such pods runs. Raises Unavailable."""
        ...

    def advice(self) -> tuple[Mapping[Hostname, Marked], Mapping[JobId, Marked]]:
        """Return the hosts and services that are marked orange or red. Raises Unavailable."""
        ...
