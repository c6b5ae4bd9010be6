"""Counts of pods by label on each host, for constraints on other pods."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable

from peloton.hosts.effects import event
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.pod import PORT_LABEL, Label


class PodLabelIndex:
    """Index of labelled pods between launch and end, read from storage before the first lease."""

    def __init__(self) -> None:
        self._pods: dict[tuple[JobId, int], tuple[int, str, tuple[Label, ...]]] = {}  # -> run, host, labels
        self._counts: defaultdict[Label, Counter[str]] = defaultdict(Counter)  # label -> host -> pods
        self._ports: defaultdict[str, Counter[int]] = defaultdict(Counter)  # host -> port in use -> pods

    @event()
    def add(self, pods: Iterable[tuple[PodId, str, tuple[Label, ...]]]) -> None:
        """Add launched pods ``(pod, host, labels)``; an instance has one run at a time."""
        for pod_id, host, labels in pods:
            self._drop((pod_id.job_id, pod_id.instance_id))
            if labels:
                self._pods[pod_id.job_id, pod_id.instance_id] = (pod_id.run_id, host, labels)
                for label in set(labels):
                    self._counts[label][host] += 1
                for port in _ports(labels):
                    self._ports[host][port] += 1

    @event()
    def remove(self, pod_ids: Iterable[PodId]) -> bool:
        """Remove runs that have ended; return whether any had labels."""
        found = False
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
        for port in _ports(labels):
            self._ports[host][port] -= 1
            if not self._ports[host][port]:
                del self._ports[host][port]
            if not self._ports[host]:
                del self._ports[host]

    def ports_on(self, hostname: str) -> frozenset[int]:
        """Return the dynamic and static ports that pods on the host use."""
        return frozenset(self._ports.get(hostname, ()))

    def hosts_with(self, label: Label) -> dict[Hostname, int]:
        """Return the hosts of pods with the label, and the number of pods."""
        return {Hostname(host): count for host, count in self._counts.get(label, {}).items()}

    def on_host(self, hostname: str, labels: Collection[Label]) -> tuple[tuple[Label, int], ...]:
        """Return which of the labels pods on the host carry, with the number of pods."""
        if not labels:
            return ()
        known = [(label, self._counts[label][hostname]) for label in sorted(labels) if label in self._counts]
        return tuple((label, count) for label, count in known if count)

    def by_host(self) -> dict[Hostname, dict[Label, int]]:
        """Return the number of pods by host and label."""
        found: dict[Hostname, dict[Label, int]] = {}
        for label, counts in self._counts.items():
            for host, count in counts.items():
                found.setdefault(Hostname(host), {})[label] = count
        return found


def _ports(labels: Iterable[Label]) -> set[int]:
    return {int(value) for key, value in labels if key == PORT_LABEL and value.isascii() and value.isdigit()}
