"""Cached results of whether any host could take a pod if it were empty: a result costs an evaluation of each kind of
host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from peloton.model.pod import PodShape
from peloton.model.reason import Infeasible

SHAPES_MAX = 10_000
"""Limit of cached shapes."""
EVALUATED_MAX = 100
"""Limit of shapes that one call evaluates; the others have no result yet."""


class FeasibilityCache:
    def __init__(self) -> None:
        self._known: dict[PodShape, Infeasible | None] = {}  # None: some host could
        self._version = -1

    def unknown(self, shapes: Iterable[PodShape], version: int) -> list[PodShape]:
        """Return shapes without a result for the hosts of this version, at most EVALUATED_MAX."""
        if version != self._version or len(self._known) > SHAPES_MAX:
            self._known.clear()
            self._version = version
        return [shape for shape in dict.fromkeys(shapes) if shape not in self._known][:EVALUATED_MAX]

    def learn(
        self, shapes: Sequence[PodShape], found: Mapping[PodShape, Infeasible | None], version: int
    ) -> dict[PodShape, Infeasible]:
        """Add results; return the shapes that no host could take."""
        if version == self._version:
            self._known.update(found)
        known = self._known if version == self._version else found
        return {shape: why for shape in shapes if (why := known.get(shape)) is not None}
