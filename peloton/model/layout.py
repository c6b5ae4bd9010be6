"""Layout of the pods of one job: spread over the domains of a host label, or a gang within one domain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Spread:
    """Spreads pods of the job over the domains (values of a host label): each pod goes to a domain with the fewest."""

    label: str
    max_skew: int = 1
    is_hard: bool = True
    """Pods wait instead of giving a domain more than ``max_skew`` pods above any other; otherwise the skew is best
    effort."""


@dataclass(frozen=True, slots=True)
class GangClose:
    """Places all pods of a gang in one domain of a label."""

    label: str
    is_required: bool = False
    """The gang waits for such a domain; otherwise it is placed anywhere if there is none."""


@dataclass(frozen=True, slots=True)
class Layout:
    spread: tuple[Spread, ...] = ()
    close: GangClose | None = None  # gangs only

    @property
    def apart(self) -> Layout | None:
        """The layout of pods outside the gang."""
        return Layout(self.spread) if self.spread else None

    @property
    def is_hard(self) -> bool:
        return any(rule.is_hard for rule in self.spread)


@dataclass(frozen=True, slots=True)
class DomainCount:
    """Pods per domain of a label on the hosts of some clusters, for pods of one shape."""

    pods: Mapping[str, int] = field(default_factory=dict)  # value -> pods of the job
    open: frozenset[str] = frozenset()  # values on hosts that would take the pod if they were empty

    def plus(self, other: DomainCount) -> DomainCount:
        pods = dict(self.pods)
        for value, count in other.pods.items():
            pods[value] = pods.get(value, 0) + count
        return DomainCount(pods, self.open | other.open)


@dataclass(frozen=True, slots=True)
class Domains:
    """Pods per open domain on the hosts of one placement, and the open domain with the fewest pods among all other
    hosts."""

    counts: Mapping[str, int] = field(default_factory=dict)
    lowest_name: str = ""
    lowest: int | None = None  # None: there are no other hosts

    @classmethod
    def of(cls, count: DomainCount, near: Iterable[str]) -> Domains:
        counts = {value: count.pods.get(value, 0) for value in near if value in count.open}
        others = ((count.pods.get(value, 0), value) for value in count.open if value not in counts)
        lowest, name = min(others, default=(None, ""))
        return cls(counts, name, lowest)
