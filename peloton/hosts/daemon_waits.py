"""Pods of daemons that found too few free resources on their hosts, until more may be free."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from peloton.hosts.host_resources_table import HostResourcesTable
from peloton.model.daemon import WaitingDaemonPod
from peloton.model.ids import Hostname, JobId
from peloton.model.misfit import HostRule, Misfit


class DaemonWaits:
    """Waiting pods, at most one for each daemon and host."""

    def __init__(self, free_resources: HostResourcesTable) -> None:
        self._resources = free_resources
        self._pods: dict[Hostname, dict[JobId, WaitingDaemonPod]] = {}
        self._closed: set[Hostname] = set()  # hosts among them that were in maintenance

    def note(self, job_id: JobId, pod: WaitingDaemonPod, misfit: Misfit | None) -> None:
        """Record the result for a pod; None: it fits, and is launched now."""
        if misfit is None:
            self._drop(pod.hostname, [job_id])
            return
        self._pods.setdefault(pod.hostname, {})[job_id] = pod
        self._resources.awaited.add(pod.hostname)
        if misfit.rule is HostRule.MAINTENANCE:
            self._closed.add(pod.hostname)

    def take_fitting(
        self, fits: Callable[[JobId, WaitingDaemonPod], bool], is_unavailable: Callable[[Hostname], bool]
    ) -> set[JobId]:
        """Return daemons with a pod that fits now, on hosts whose free resources, lease or maintenance have changed
        since the last call. Each pod is reported once, until it is evaluated again."""
        opened = {hostname for hostname in self._closed if not is_unavailable(hostname)}
        self._closed -= opened
        found: set[JobId] = set()
        for hostname in opened | self._resources.take_changed():
            fitting = [job_id for job_id, pod in self._pods.get(hostname, {}).items() if fits(job_id, pod)]
            self._drop(hostname, fitting)
            found.update(fitting)
        return found

    def keep(self, wanted: Collection[JobId]) -> None:
        """Remove the pods of all other daemons."""
        for hostname, pods in list(self._pods.items()):
            self._drop(hostname, [job_id for job_id in pods if job_id not in wanted])

    def forget(self, hostnames: Iterable[Hostname]) -> None:
        """Remove the pods of hosts that are gone."""
        for hostname in hostnames:
            self._drop(hostname, list(self._pods.get(hostname, ())))

    def _drop(self, hostname: Hostname, job_ids: Collection[JobId]) -> None:
        pods = self._pods.get(hostname)
        if pods is None:
            return
        for job_id in job_ids:
            pods.pop(job_id, None)
        if not pods:
            del self._pods[hostname]
            self._resources.awaited.discard(hostname)
            self._closed.discard(hostname)
