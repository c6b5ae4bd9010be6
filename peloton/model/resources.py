"""Amounts of resources: int64 in small units, so that sums are exact and every decision is reproducible."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

RESOURCE_KINDS = ("cpu", "memory", "disk", "gpu")
"""Order of kinds in every array ``[.., R]`` and tuple; names of extended resources follow them, if there are any."""
EXTENDED_KINDS_MAX = 16
"""Maximum number of extended resources, of one pod and of all pools."""
EXTENDED_AMOUNT_MAX = 2**30
"""Maximum amount of an extended resource."""
LICENSE_PREFIX = "license/"
"""Beginning of the name of an extended resource that belongs to no host."""

UNLIMITED = 2**53
"""Amount that stands for "no limit"; far above any sum of real amounts, far below the end of int64."""


Extended = tuple[tuple[str, int], ...]
"""Amounts of extended resources by name, sorted, without amounts of 0."""


@dataclass(frozen=True, slots=True)
class Resources:
    """Amounts per kind; units are in the names. Iteration yields the amounts of RESOURCE_KINDS only."""

    cpu_milli: int = 0
    memory_mib: int = 0
    disk_mib: int = 0
    gpu_milli: int = 0
    extended: Extended = ()  # empty for most pods and hosts, and then it costs nothing

    @classmethod
    def of(cls, cpu: float = 0.0, memory_mb: float = 0.0, disk_mb: float = 0.0, gpu: float = 0.0) -> Resources:
        """Convert the wire's doubles. Rounds up: a request is never reduced."""
        return cls(_ceil(cpu * 1000), _ceil(memory_mb), _ceil(disk_mb), _ceil(gpu * 1000))

    @classmethod
    def each(cls, compute: Callable[..., int], *operands: Resources) -> Resources:
        """Return for each kind the amount that ``compute`` returns for those of the operands."""
        cpu, memory, disk, gpu = map(compute, *operands)
        return cls(cpu, memory, disk, gpu, _compute_extended(compute, operands))

    def __iter__(self) -> Iterator[int]:
        return iter((self.cpu_milli, self.memory_mib, self.disk_mib, self.gpu_milli))

    def items(self) -> Iterator[tuple[str, int]]:
        """Yield the name and the amount of each kind, extended ones last."""
        yield from zip(RESOURCE_KINDS, self, strict=True)
        yield from self.extended

    @classmethod
    def from_row(cls, kinds: Sequence[str], amounts: Iterable[int]) -> Resources:
        """Return the amounts of these kinds, RESOURCE_KINDS first."""
        cpu, memory, disk, gpu, *others = amounts
        extended = zip(kinds[len(RESOURCE_KINDS) :], others, strict=True)
        return cls(cpu, memory, disk, gpu, to_extended(dict(extended)))

    def row(self, kinds: Sequence[str]) -> tuple[int, ...]:
        """Return the amounts of these kinds, RESOURCE_KINDS first."""
        if len(kinds) == len(RESOURCE_KINDS):
            return tuple(self)
        amounts = dict(self.extended)
        return (*self, *(amounts.get(kind, 0) for kind in kinds[len(RESOURCE_KINDS) :]))

    def __add__(self, other: Resources) -> Resources:
        return Resources(
            self.cpu_milli + other.cpu_milli,
            self.memory_mib + other.memory_mib,
            self.disk_mib + other.disk_mib,
            self.gpu_milli + other.gpu_milli,
            _compute_extended(operator.add, (self, other)) if self.extended or other.extended else (),
        )

    def __sub__(self, other: Resources) -> Resources:
        return Resources(
            self.cpu_milli - other.cpu_milli,
            self.memory_mib - other.memory_mib,
            self.disk_mib - other.disk_mib,
            self.gpu_milli - other.gpu_milli,
            _compute_extended(operator.sub, (self, other)) if self.extended or other.extended else (),
        )

    def __mul__(self, count: int) -> Resources:
        return Resources(
            self.cpu_milli * count,
            self.memory_mib * count,
            self.disk_mib * count,
            self.gpu_milli * count,
            to_extended({name: amount * count for name, amount in self.extended}) if self.extended else (),
        )

    def without(self, taken: Resources) -> Resources:
        """Return the amounts that are left, 0 where more is taken than there is."""
        return Resources.each(lambda have, gone: max(have - gone, 0), self, taken)

    def fits_in(self, other: Resources) -> bool:
        return (
            self.cpu_milli <= other.cpu_milli
            and self.memory_mib <= other.memory_mib
            and self.disk_mib <= other.disk_mib
            and self.gpu_milli <= other.gpu_milli
            and (
                not (self.extended or other.extended)
                or all(amount >= 0 for _, amount in _compute_extended(operator.sub, (other, self)))
            )
        )


def pair_amounts(one: Resources, other: Resources) -> Iterator[tuple[str, int, int]]:
    """Yield the name of each kind, and the amounts of it in both."""
    yield from zip(RESOURCE_KINDS, one, other, strict=True)
    mine, theirs = dict(one.extended), dict(other.extended)
    for name in sorted(mine.keys() | theirs.keys()):
        yield name, mine.get(name, 0), theirs.get(name, 0)


def to_extended(amounts: Mapping[str, int]) -> Extended:
    """Sort the amounts by name, and drop those of 0."""
    return tuple(sorted((name, amount) for name, amount in amounts.items() if amount))


def _compute_extended(compute: Callable[..., int], operands: Iterable[Resources]) -> Extended:
    amounts = [dict(one.extended) for one in operands]
    if not any(amounts):
        return ()
    return to_extended({name: compute(*(one.get(name, 0) for one in amounts)) for name in set().union(*amounts)})


# The wire's doubles carry binary noise (0.1 * 3): a millionth of a unit either way is not a request.
_NOISE = 1e-6


def _ceil(value: float) -> int:
    return math.ceil(value - _NOISE)


LEAST_CPU_MILLI = 10
"""Cpu of a pod that requests nothing: no cluster accepts a task without resources."""


def compute_needed(asked: Resources) -> Resources:
    """Return the resources that a pod with this request takes of a host: all but licenses, which belong to no host."""
    if asked.extended:
        asked = without_licenses(asked)
    return asked if any(asked) else replace(asked, cpu_milli=LEAST_CPU_MILLI)


def without_licenses(asked: Resources) -> Resources:
    return replace(asked, extended=tuple(one for one in asked.extended if not is_license(one[0])))


def is_license(kind: str) -> bool:
    """Return whether amounts of this kind belong to no host, and are bounded by pools alone."""
    return kind.startswith(LICENSE_PREFIX)


def ordinary(asked: Resources, is_revocable: bool) -> Resources:
    """Return the part of a request that counts against the ordinary resources of a host: the cpu of a revocable pod is
    slack."""
    taken = compute_needed(asked)
    return replace(taken, cpu_milli=0) if is_revocable else taken


def free_share(free: Iterable[int], total: Iterable[int], need: Iterable[int]) -> int:
    """Return the smallest free share of the needed kinds, in millionths. An unknown total counts as free."""
    amounts = zip(free, total, need, strict=True)
    return min((have * 10**6 // whole for have, whole, wanted in amounts if wanted > 0 and whole > 0), default=10**6)
