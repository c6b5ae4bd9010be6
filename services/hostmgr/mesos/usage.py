"""What hosts use, from the statistics of their agents: two looks at a counter make a rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from peloton.model.ids import PodId, parse_job_id
from peloton.scheduling.qos import Use
from services.hostmgr.mesos.resources import Json

MIB = 2**20
Key = tuple[str, str]
"""Framework and executor."""


@dataclass(frozen=True, slots=True)
class _Counter:
    cpu_s: float
    at_s: float
    use: Use
    is_rate_known: bool = False


@dataclass(frozen=True, slots=True)
class HostUse:
    """One look at one host. ``is_news``: some counter has moved on since the look before, so that this is a
    measurement of its own."""

    counters: Mapping[Key, _Counter] = field(default_factory=dict)
    is_news: bool = False

    def total(self) -> Use:
        uses = [counter.use for counter in self.counters.values()]
        return Use(sum(use.cpu_milli for use in uses), sum(use.memory_mib for use in uses))

    def pods(self, framework_id: str) -> dict[PodId, Use]:
        """Of one framework; what is no pod of ours is left out."""
        found = {}
        for (framework, executor), counter in self.counters.items():
            pod_id = _pod_id(executor) if framework == framework_id else None
            if pod_id is not None:
                found[pod_id] = counter.use
        return found


def look(before: HostUse, rows: Sequence[Json]) -> HostUse:
    """The next look. Executors that are seen for the first time have no rate of cpu yet, and count as using none."""
    counters: dict[Key, _Counter] = {}
    is_news = False
    for row in rows:
        numbers = row.get("statistics")
        if not numbers or "timestamp" not in numbers:
            continue  # the agent could not measure it
        key = (row["framework_id"], row["executor_id"])
        cpu_s = numbers.get("cpus_user_time_secs", 0.0) + numbers.get("cpus_system_time_secs", 0.0)
        at_s, memory_mib = numbers["timestamp"], int(numbers.get("mem_rss_bytes", 0)) // MIB
        old = before.counters.get(key)
        if old is None:
            counters[key] = _Counter(cpu_s, at_s, Use(0, memory_mib))
        elif at_s <= old.at_s:
            counters[key] = old
        else:
            cpu_milli = round(max(cpu_s - old.cpu_s, 0.0) / (at_s - old.at_s) * 1000)
            counters[key] = _Counter(cpu_s, at_s, Use(cpu_milli, memory_mib), is_rate_known=True)
            is_news = True
    return HostUse(counters, is_news)


def _pod_id(executor_id: str) -> PodId | None:
    try:
        pod_id = PodId.parse(executor_id)
        parse_job_id(pod_id.job_id)
    except ValueError:
        return None
    return pod_id
