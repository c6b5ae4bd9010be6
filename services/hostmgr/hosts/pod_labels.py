"""How many pods with each label are on each host: constraints on other pods ask for it."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable

from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.pod import Label


class PodLabelIndex:
    """Labelled pods between launch and end, read from storage before the first lease. It has a lock of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pods: dict[tuple[JobId, int], tuple[int, str, tuple[Label, ...]]] = {}  # -> run, host, labels
        self._counts: defaultdict[Label, Counter[str]] = defaultdict(Counter)  # label -> host -> pods

    def add(self, pods: Iterable[tuple[PodId, str, tuple[Label, ...]]]) -> None:
        """``(pod, host, labels)`` of pods that were launched; an instance has one run at a time."""
        with self._lock:
            for pod_id, host, labels in pods:
                self._drop((pod_id.job_id, pod_id.instance_id))
                if labels:
                    self._pods[pod_id.job_id, pod_id.instance_id] = (pod_id.run_id, host, labels)
                    for label in set(labels):
                        self._counts[label][host] += 1

    def remove(self, pod_ids: Iterable[PodId]) -> bool:
        """Runs that have ended; returns whether any had labels."""
        found = False
        with self._lock:
            for pod_id in pod_ids:
                key = (pod_id.job_id, pod_id.instance_id)
                if key in self._pods and self._pods[key][0] == pod_id.run_id:
                    self._drop(key)
                    found = True
        return found

    def _drop(self, key: tuple[JobId, int]) -> None:
        _, host, labels = self._pods.pop(key, (0, "", ()))
        for label in set(labels):
            counts = self._counts[label]
            counts[host] -= 1
            if not counts[host]:
                del counts[host]
            if not counts:
                del self._counts[label]

    def hosts_with(self, labels: Collection[Label]) -> set[Hostname]:
        """Where pods with any of these labels are."""
        with self._lock:
            return {Hostname(host) for label in labels if label in self._counts for host in self._counts[label]}

    def on_host(self, hostname: str, labels: Collection[Label]) -> tuple[tuple[Label, int], ...]:
        """Those of the labels that pods on the host carry, with the number of pods."""
        if not labels:
            return ()
        with self._lock:
            known = [(label, self._counts[label][hostname]) for label in sorted(labels) if label in self._counts]
        return tuple((label, count) for label, count in known if count)
