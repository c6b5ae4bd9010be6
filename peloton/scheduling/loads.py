"""Measured loads: the cpu and memory of hosts in use at the last measurement, adjusted for pods placed since.

A measurement is kept as the use beyond the amounts that pods held then, in thousandths of the host. So the load rises
with each pod that is placed there, and the next measurement replaces the estimate. Without a measurement the amounts
that pods hold count as used.
"""

from __future__ import annotations

import numpy as np

from peloton.model.resources import RESOURCE_KINDS
from peloton.scheduling.tree import Ints

LOAD_KINDS = slice(0, RESOURCE_KINDS.index("memory") + 1)
"""The measured kinds: cpu and memory."""
AS_HELD = (0, 0)


class MeasuredLoads:
    """Loads by row of a fleet; ``beyond`` is of cpu and memory, negative where pods use less than they hold."""

    def __init__(self) -> None:
        self._beyond = np.zeros((LOAD_KINDS.stop, 0), np.int64)

    def set(self, row: int, beyond: tuple[int, int]) -> None:
        length = self._beyond.shape[1]
        if row >= length:
            if beyond == AS_HELD:
                return
            self._beyond = np.pad(self._beyond, ((0, 0), (0, 2 * row + 1 - length)))
        self._beyond[:, row] = beyond

    def forget(self, row: int) -> None:
        self.set(row, AS_HELD)

    def of(self, row: int) -> tuple[int, int]:
        if row >= self._beyond.shape[1]:
            return AS_HELD
        cpu, memory = self._beyond[:, row].tolist()
        return cpu, memory

    def compute_unused(self, rows: Ints, free: Ints, total: Ints) -> Ints:
        """Return the unused amounts ``[2,H]``, given the free and total amounts ``[R,H]``.

        They are negative where more is in use than the host announces.
        """
        known = rows < self._beyond.shape[1]
        unused = free[LOAD_KINDS].copy()
        unused[:, known] -= self._beyond[:, rows[known]] * total[LOAD_KINDS][:, known] // 1000
        return unused
