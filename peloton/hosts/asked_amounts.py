"""Resources requested by the pods on each host, whatever they take of their cluster."""

from __future__ import annotations

from collections.abc import Iterable

from peloton.hosts.announced import NOTHING
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.resources import Resources

PodAmounts = tuple[PodId, str, Resources]
"""A pod, its host, and the resources that it requests without revocable cpu."""
_Key = tuple[JobId, int]


class AskedAmounts:
    """Requests of pods between launch and end; read from storage before the first lease. Not thread-safe."""

    def __init__(self) -> None:
        self._pods: dict[_Key, tuple[int, Hostname, Resources]] = {}  # -> run, host, amounts
        self._on_host: dict[Hostname, Resources] = {}
        self._claimed: dict[_Key, PodAmounts] = {}  # the pods among them that storage may not have yet
        self._missed: list[tuple[bool, list[PodAmounts]]] | None = None  # changes while storage is read

    def on_host(self, hostname: str) -> Resources:
        return self._on_host.get(Hostname(hostname), NOTHING)

    def add(self, pods: Iterable[PodAmounts]) -> set[Hostname]:
        """Add pods; an instance has one run at a time. Returns the hosts concerned."""
        added = list(pods)
        if self._missed is not None:
            self._missed.append((True, added))
        touched: set[Hostname] = set()
        for pod_id, host, amounts in added:
            touched |= self._drop((pod_id.job_id, pod_id.instance_id))
            hostname = Hostname(host)
            self._pods[pod_id.job_id, pod_id.instance_id] = (pod_id.run_id, hostname, amounts)
            self._on_host[hostname] = self._on_host.get(hostname, NOTHING) + amounts
            touched.add(hostname)
        return touched

    def claim(self, pods: Iterable[PodAmounts]) -> None:
        """Add pods that are about to be launched; ``confirm`` or ``remove`` follows."""
        claimed = list(pods)
        self._claimed |= {(one[0].job_id, one[0].instance_id): one for one in claimed}
        self.add(claimed)

    def confirm(self, keys: Iterable[_Key]) -> None:
        for key in keys:
            self._claimed.pop(key, None)

    def remove(self, pod_ids: Iterable[PodId]) -> set[Hostname]:
        """Remove runs that have ended or were not launched. Returns the hosts concerned."""
        gone = list(pod_ids)
        if self._missed is not None:
            self._missed.append((False, [(pod_id, "", NOTHING) for pod_id in gone]))
        touched: set[Hostname] = set()
        for pod_id in gone:
            key = (pod_id.job_id, pod_id.instance_id)
            if key in self._claimed and self._claimed[key][0] == pod_id:
                del self._claimed[key]
            if key in self._pods and self._pods[key][0] == pod_id.run_id:
                touched |= self._drop(key)
        return touched

    def _drop(self, key: _Key) -> set[Hostname]:
        if key not in self._pods:
            return set()
        _, hostname, amounts = self._pods.pop(key)
        self._on_host[hostname] -= amounts
        return {hostname}

    # Storage is read while pods launch and end.

    def begin_reading(self) -> None:
        self._missed = []

    def end_reading(self, pods: Iterable[PodAmounts]) -> set[Hostname]:
        """Replace all pods with these, the claimed ones, and the changes since the read began. Returns the hosts
        concerned."""
        missed, self._missed = self._missed or [], None
        touched = {*self._on_host}
        self._pods, self._on_host = {}, {}
        self.add([*pods, *self._claimed.values()])
        for is_added, changed in missed:
            if is_added:
                self.add(changed)
            else:
                self.remove(pod_id for pod_id, *_ in changed)
        return touched | {*self._on_host}
