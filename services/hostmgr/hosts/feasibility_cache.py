"""Which pods no host could take even if it were empty, as found out lately: to find out costs a look at every kind of
host.

Under the lock of ``HostPool``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from peloton.model.pod import PodShape
from peloton.model.reason import Infeasible

SHAPES_MAX = 10_000
"""Shapes that are remembered."""
LOOKS_MAX = 100
"""Shapes that one call finds out about; of more it says nothing yet."""


class FeasibilityCache:
    def __init__(self) -> None:
        self._known: dict[PodShape, Infeasible | None] = {}  # None: some host could
        self._version = -1

    def unknown(self, shapes: Iterable[PodShape], version: int) -> list[PodShape]:
        """What is to be found out of the hosts of this version, at most LOOKS_MAX."""
        if version != self._version or len(self._known) > SHAPES_MAX:
            self._known.clear()
            self._version = version
        return [shape for shape in dict.fromkeys(shapes) if shape not in self._known][:LOOKS_MAX]

    def learn(
        self, shapes: Sequence[PodShape], found: Mapping[PodShape, Infeasible | None], version: int
    ) -> dict[PodShape, Infeasible]:
        """What has been found out; returns those of the shapes that no host could take."""
        if version == self._version:
            self._known.update(found)
        known = self._known if version == self._version else found
        return {shape: why for shape in shapes if (why := known.get(shape)) is not None}
