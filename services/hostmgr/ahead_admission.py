"""Admission ahead of nodes: a bounded number of gated pods that their pools admit, and that fit on no node now, are
launched without a host. Their scheduler reports them as unschedulable, and a node autoscaler adds nodes for them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping

from peloton.model.external import Slot
from peloton.model.ids import JobId, PodId
from peloton.model.pod import PodState
from peloton.ports import PodLifecycles
from services.hostmgr.external_port import ExternalCluster, FoundPod
from services.hostmgr.launcher import launch_refused
from services.storage.pods.host_pods import HostPods, LaunchRow
from services.storage.pods.pods import Pods

log = logging.getLogger(__name__)

AFTER_S = 10.0
"""Seconds for which a pod has to be admitted by its pool and to find no host, until it is launched without one."""


class AheadAdmission:
    def __init__(
        self,
        name: str,
        limit: int,
        cluster: ExternalCluster,
        pods: Pods,
        host_pods: HostPods,
        lifecycles: PodLifecycles,
        unsettled: Callable[[], None],
    ) -> None:
        """``name`` is the cluster's, ``limit`` the number of pods that may be without a node at a time. ``unsettled``
        is called when it is unknown whether pods were launched."""
        self._name, self._limit, self._cluster = name, limit, cluster
        self._pods, self._host_pods = pods, host_pods
        self._lifecycles, self._unsettled = lifecycles, unsettled
        self._since_s: dict[str, float] = {}  # uid -> when the pod was first seen without a host

    def round(self, now_s: float, slots: Iterable[Slot], found: Mapping[str, FoundPod]) -> None:
        """Launch pods that have waited for a host for long. Raises OSError, and what storage raises."""
        if not self._limit:
            return
        there = [(slot, one) for slot in slots if (one := found.get(slot.uid)) is not None and one.has_gate]
        ready = [slot for slot, one in there if slot.state is PodState.READY and one.observed.waits]
        self._since_s = {slot.uid: self._since_s.get(slot.uid, now_s) for slot in ready}
        left = self._limit - sum(one.is_ahead for _, one in there)
        due = dict.fromkeys(slot.job_id for slot in ready if now_s - self._since_s[slot.uid] >= AFTER_S)
        for job_id in due:
            if left > 0:
                left -= self._launch(job_id, left)

    def _launch(self, job_id: JobId, limit: int) -> int:
        """Launch at most ``limit`` pods of the job, its gang whole or not at all; return their number."""
        gang = self._pods.ready_gang(job_id)
        chosen = [*gang.pods] if gang is not None and len(gang.pods) <= limit else []
        chosen += [one.pods[0] for one in self._pods.ready_gangs(job_id, limit - len(chosen))]
        rows: list[LaunchRow] = [(instance, run, "", "", {}) for instance, run in chosen]
        taken = self._host_pods.mark_launched(job_id, rows, time.time_ns(), self._name)
        runs = [PodId(job_id, instance, run) for instance, run in chosen if instance in taken]
        if not runs:
            return 0
        log.info("%d pods of job %s are admitted although no node has free resources", len(runs), job_id)
        try:
            self._refuse(self._cluster.launch_ahead(runs))
        except OSError:
            self._unsettled()
            raise
        finally:
            self._lifecycles.jobs_changed([job_id], "pods were launched ahead of nodes")
        return len(runs)

    def _refuse(self, refused: Mapping[PodId, str]) -> None:
        statuses = [launch_refused(run, why, time.time_ns()) for run, why in refused.items()]
        if statuses:
            self._host_pods.apply_status(statuses, self._name)
