"""Amounts of resources: int64 in small units, so that sums are exact and every decision is reproducible."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

RESOURCE_KINDS = ("cpu", "memory", "disk", "gpu")
"""Order of kinds in every array ``[.., R]`` and tuple."""

UNLIMITED = 2**53
"""Amount that stands for "no limit"; far above any sum of real amounts, far below the end of int64."""


@dataclass(frozen=True, slots=True)
class Resources:
    """Amounts per kind; units are in the names."""

    cpu_milli: int = 0
    memory_mib: int = 0
    disk_mib: int = 0
    gpu_milli: int = 0

    @classmethod
    def of(cls, cpu: float = 0.0, memory_mb: float = 0.0, disk_mb: float = 0.0, gpu: float = 0.0) -> Resources:
        """Convert the wire's doubles. Rounds up: a request is never reduced."""
        return cls(_ceil(cpu * 1000), _ceil(memory_mb), _ceil(disk_mb), _ceil(gpu * 1000))

    def __iter__(self) -> Iterator[int]:
        return iter((self.cpu_milli, self.memory_mib, self.disk_mib, self.gpu_milli))

    def __add__(self, other: Resources) -> Resources:
        return Resources(
            self.cpu_milli + other.cpu_milli,
            self.memory_mib + other.memory_mib,
            self.disk_mib + other.disk_mib,
            self.gpu_milli + other.gpu_milli,
        )

    def __sub__(self, other: Resources) -> Resources:
        return Resources(
            self.cpu_milli - other.cpu_milli,
            self.memory_mib - other.memory_mib,
            self.disk_mib - other.disk_mib,
            self.gpu_milli - other.gpu_milli,
        )

    def __mul__(self, count: int) -> Resources:
        return Resources(self.cpu_milli * count, self.memory_mib * count, self.disk_mib * count, self.gpu_milli * count)

    def fits_in(self, other: Resources) -> bool:
        return (
            self.cpu_milli <= other.cpu_milli
            and self.memory_mib <= other.memory_mib
            and self.disk_mib <= other.disk_mib
            and self.gpu_milli <= other.gpu_milli
        )


# The wire's doubles carry binary noise (0.1 * 3): a millionth of a unit either way is not a request.
_NOISE = 1e-6


def _ceil(value: float) -> int:
    return math.ceil(value - _NOISE)


LEAST_CPU_MILLI = 10
"""Cpu of a pod that requests nothing: no cluster accepts a task without resources."""


def compute_needed(asked: Resources) -> Resources:
    """Return the resources that a pod with this request takes of a host."""
    return asked if any(asked) else Resources(cpu_milli=LEAST_CPU_MILLI)


def ordinary(asked: Resources, is_revocable: bool) -> Resources:
    """Return the part of a request that counts against the ordinary resources of a host: the cpu of a revocable pod is
    slack."""
    taken = compute_needed(asked)
    return replace(taken, cpu_milli=0) if is_revocable else taken


def free_share(free: Iterable[int], total: Iterable[int], need: Iterable[int]) -> int:
    """Return the smallest free share of the needed kinds, in millionths. An unknown total counts as free."""
    amounts = zip(free, total, need, strict=True)
    return min((have * 10**6 // whole for have, whole, wanted in amounts if wanted > 0 and whole > 0), default=10**6)
