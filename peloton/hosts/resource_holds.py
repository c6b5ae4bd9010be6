"""Resources on hosts that are held for returning pods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from peloton.model.host import ComingBack
from peloton.model.ids import Hostname, JobId
from peloton.model.resources import Resources

HOLD_S = 180.0
"""Seconds for which resources are held after the latest time at which the pod has left."""
HOLDS_MAX = 10_000
"""Limit of holds; further pods get none."""
PodKey = tuple[JobId, int]
ComingBackOf = Callable[[JobId, Sequence[int]], Sequence[ComingBack]]
"""Returns which of a job's instances still return to their hosts."""


class ResourceHolds:
    """Holds in memory only: under the next leader of the host manager, pods return to their host only if it has enough
    free resources."""

    def __init__(self) -> None:
        self._holds: dict[PodKey, tuple[float, ComingBack]] = {}  # -> until when
        self._on_host: dict[Hostname, dict[PodKey, Resources]] = {}

    def add(self, pods: Iterable[ComingBack], now_s: float) -> None:
        for pod in pods:
            key = (pod.job_id, pod.instance_id)
            self.drop([key])
            if len(self._holds) < HOLDS_MAX:
                self._holds[key] = (now_s + pod.grace_s + HOLD_S, pod)
                self._on_host.setdefault(pod.hostname, {})[key] = pod.resources

    def drop(self, keys: Iterable[PodKey]) -> bool:
        """Drop holds; return whether there were any."""
        found = False
        for key in keys:
            if key in self._holds:
                _, pod = self._holds.pop(key)
                on_host = self._on_host[pod.hostname]
                del on_host[key]
                if not on_host:
                    del self._on_host[pod.hostname]
                found = True
        return found

    def expire(self, now_s: float) -> bool:
        return self.drop([key for key, (until_s, _) in self._holds.items() if until_s <= now_s])

    def hostnames(self) -> Iterable[Hostname]:
        return self._on_host.keys()

    def is_held(self, hostname: Hostname, key: PodKey) -> bool:
        return key in self._on_host.get(hostname, {})

    def sum_held(self, hostname: Hostname, apart_from: frozenset[PodKey]) -> tuple[Resources, int]:
        """Return the held resources of the host that are withheld from a placement of ``apart_from``, and for how many
        pods."""
        on_host: Mapping[PodKey, Resources] = self._on_host.get(hostname, {})
        held = [amounts for key, amounts in on_host.items() if key not in apart_from]
        return sum(held, Resources()), len(held)

    def by_job(self) -> dict[JobId, list[int]]:
        jobs: dict[JobId, list[int]] = {}
        for job_id, instance in self._holds:
            jobs.setdefault(job_id, []).append(instance)
        return jobs
