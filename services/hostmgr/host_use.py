"""Measured use of hosts: two samples of a counter yield a rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from peloton.model.ids import PodId
from peloton.scheduling.qos import Use
from services.hostmgr.driver import UseSample


@dataclass(frozen=True, slots=True)
class Counter:
    pod_id: PodId | None
    cpu_s: float
    at_s: float
    use: Use


@dataclass(frozen=True, slots=True)
class HostUse:
    """One sample of one host. ``is_news`` is set when a counter has advanced since the previous sample."""

    counters: Mapping[str, Counter] = field(default_factory=dict)
    is_news: bool = False

    def total(self) -> Use:
        uses = [counter.use for counter in self.counters.values()]
        return Use(sum(use.cpu_milli for use in uses), sum(use.memory_mib for use in uses))

    def pods(self) -> dict[PodId, Use]:
        return {counter.pod_id: counter.use for counter in self.counters.values() if counter.pod_id is not None}


def next_use(before: HostUse, samples: Sequence[UseSample]) -> HostUse:
    """Return the next sample. A process group that is new has no cpu rate yet, and counts as using none."""
    counters: dict[str, Counter] = {}
    is_news = False
    for key, pod_id, cpu_s, at_s, memory_mib in samples:
        old = before.counters.get(key)
        if old is None:
            counters[key] = Counter(pod_id, cpu_s, at_s, Use(0, memory_mib))
        elif at_s <= old.at_s:
            counters[key] = old
        else:
            cpu_milli = round(max(cpu_s - old.cpu_s, 0.0) / (at_s - old.at_s) * 1000)
            counters[key] = Counter(pod_id, cpu_s, at_s, Use(cpu_milli, memory_mib))
            is_news = True
    return HostUse(counters, is_news)
