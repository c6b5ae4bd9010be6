"""Port to the owners of pods that Peloton holds suspended until their pool admits them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from peloton.model.ids import PodId
from services.hostmgr.external_port import PodCondition
from services.hostmgr.kubernetes.apiserver.wire import Json


class Owners(Protocol):
    """Owners that are held suspended. A stand-in takes the place of one of their pods in the queue."""

    def admit(self, launches: Sequence[tuple[PodId, Json, str]]) -> dict[PodId, str]:
        """Unsuspend the owners of stand-ins; the rules are those of ``ExternalPods.launch``."""
        ...

    def may_take(self, pod: Json) -> bool:
        """Return whether a gated pod could be made by a driver, by its controller."""
        ...

    def take(self, pods: Sequence[Json]) -> set[str]:
        """Take gated pods that drivers have made into the places of stand-ins; return the uids of those, and of pods
        that are gone."""
        ...

    def suspend(self, stand_ins: Collection[Json], why: str) -> None:
        """Suspend the owners of the stand-ins, with the reason ``why``. Raises OSError."""

    def show(self, conditions: Iterable[tuple[Json, PodCondition]]) -> None:
        """Write the conditions of stand-ins to their owners, as the reason of their wait. Raises OSError."""
