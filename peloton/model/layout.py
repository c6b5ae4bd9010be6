"""How the pods of one job lie to each other: spread over the domains of a host label, and gangs close together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Spread:
    """Pods of the job go to the domains, that is the values of a host label, that have fewest of them."""

    label: str
    max_skew: int = 1
    is_hard: bool = True
    """No domain gets more than ``max_skew`` pods above any other, and pods wait for that; else as far as there is
    room."""


@dataclass(frozen=True, slots=True)
class GangClose:
    """All pods of a gang go to one domain of a label."""

    label: str
    is_required: bool = False
    """The gang waits for such a domain; else it goes anywhere when there is none."""


@dataclass(frozen=True, slots=True)
class Layout:
    spread: tuple[Spread, ...] = ()
    close: GangClose | None = None  # of a gang only

    @property
    def apart(self) -> Layout | None:
        """Of pods that are not in the gang."""
        return Layout(self.spread) if self.spread else None

    @property
    def is_hard(self) -> bool:
        return any(rule.is_hard for rule in self.spread)


@dataclass(frozen=True, slots=True)
class DomainCount:
    """Of a label on the hosts of some clusters, for pods of one shape."""

    pods: Mapping[str, int] = field(default_factory=dict)  # value -> pods of the job
    open: frozenset[str] = frozenset()  # values on hosts that would take the pod if they were empty

    def plus(self, other: DomainCount) -> DomainCount:
        pods = dict(self.pods)
        for value, count in other.pods.items():
            pods[value] = pods.get(value, 0) + count
        return DomainCount(pods, self.open | other.open)


@dataclass(frozen=True, slots=True)
class Domains:
    """What placement on some hosts has to know: pods in the open domains of these hosts, and the open one that has
    fewest among the others."""

    counts: Mapping[str, int] = field(default_factory=dict)
    lowest_name: str = ""
    lowest: int | None = None  # None: there are no others

    @classmethod
    def of(cls, count: DomainCount, near: Iterable[str]) -> Domains:
        counts = {value: count.pods.get(value, 0) for value in near if value in count.open}
        others = ((count.pods.get(value, 0), value) for value in count.open if value not in counts)
        lowest, name = min(others, default=(None, ""))
        return cls(counts, name, lowest)
