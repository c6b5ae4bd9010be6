"""Allocation of offers to frameworks: dominant-resource order, capabilities, decline filters. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable

from services.lab.mesos.model import Filter, Framework
from services.lab.mesos.resources import Resources, contains
from services.lab.shared.hosts import HostSpec

MIN_CPUS = 10  # thousandths; either suffices (--min_allocatable_resources=cpus:0.01|mem:32)
MIN_MEM = 32_000
MAX_REFUSE_S = 365 * 24 * 3600.0
DEFAULT_REFUSE_S = 5.0


def sees(framework: Framework, host: HostSpec) -> bool:
    """Return whether a framework may get offers of a host: hosts with gpus require the capability GPU_RESOURCES."""
    return not host.gpus or "GPU_RESOURCES" in framework.capabilities


def offerable(free: Resources, role: str, framework: Framework) -> Resources:
    """Return the part of `free` that may be offered to `framework` in `role`."""
    result: Resources = {}
    revocable = "REVOCABLE_RESOURCES" in framework.capabilities
    for kind, value in free.items():
        if not kind.plain:
            if kind.revocable and not revocable:
                continue
            if kind.role is not None and kind.role != role and not role.startswith(kind.role + "/"):
                continue
            if len(kind.reservations) > 1 and not framework.refined:
                continue
        result[kind] = value
    return result


def allocatable(resources: Resources) -> bool:
    for kind, value in resources.items():
        if kind.name == "cpus" and value >= MIN_CPUS:  # type: ignore[operator]
            return True
        if kind.name == "mem" and value >= MIN_MEM:  # type: ignore[operator]
            return True
    return False


def refuse_seconds(filters: dict[str, float] | None, interval_s: float) -> float:
    """Return how long unused resources stay hidden, in seconds; 0 means no filter at all."""
    seconds = DEFAULT_REFUSE_S if filters is None else float(filters.get("refuse_seconds", DEFAULT_REFUSE_S))
    if seconds != seconds or seconds < 0:
        seconds = DEFAULT_REFUSE_S
    if seconds == 0:
        return 0.0
    return max(min(seconds, MAX_REFUSE_S), interval_s)


def end_of_filter(filters: list[Filter], would_be: Resources, now: float) -> float:
    """Return the end of the filter that hides `would_be`, 0 without one: a filter hides only resources it contains."""
    until = 0.0
    for item in filters:
        if item.until > now and item.until > until and contains(item.resources, would_be):
            until = item.until
    return until


class Sorter:
    """Dominant-resource fairness among clients: least share first, then fewest allocations ever, then name."""

    __slots__ = ("_allocated", "_counts")

    def __init__(self) -> None:
        self._allocated: dict[str, dict[str, int]] = {}
        self._counts: dict[str, int] = {}

    def allocate(self, client: str, resources: Resources) -> None:
        mine = self._allocated.setdefault(client, {})
        for kind, value in resources.items():
            if isinstance(value, int):
                mine[kind.name] = mine.get(kind.name, 0) + value
        self._counts[client] = self._counts.get(client, 0) + 1

    def release(self, client: str, resources: Resources) -> None:
        mine = self._allocated.get(client)
        if mine is None:
            return
        for kind, value in resources.items():
            if isinstance(value, int):
                mine[kind.name] = mine.get(kind.name, 0) - value

    def remove(self, client: str) -> None:
        self._allocated.pop(client, None)
        self._counts.pop(client, None)

    def share(self, client: str, totals: dict[str, int]) -> float:
        mine = self._allocated.get(client)
        if not mine:
            return 0.0
        return max((value / totals[name] for name, value in mine.items() if totals.get(name)), default=0.0)

    def order(self, clients: Iterable[str], totals: dict[str, int]) -> list[str]:
        return sorted(clients, key=lambda client: (self.share(client, totals), self._counts.get(client, 0), client))
