"""Applies reports of pods: to storage first, then to the host manager's memory, and then wakes workflows."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from peloton.model.ids import PodId
from peloton.model.pod import PodStatus
from peloton.ports import PodLifecycles
from services.hostmgr.hosts.pool import HostPool
from services.storage.pods.host_pods import HostPods


class StatusWriter:
    def __init__(
        self,
        pods: HostPods,
        cluster: str,
        pool: HostPool,
        lifecycles: PodLifecycles,
        committed: Callable[[Sequence[PodStatus]], None],
        clock: Callable[[], float],
    ) -> None:
        """``clock``: the monotonic one."""
        self._pods = pods
        self._cluster = cluster
        self._pool = pool
        self._lifecycles = lifecycles
        self._committed = committed
        self._clock = clock

    def commit(self, statuses: Sequence[PodStatus]) -> list[PodId]:
        """Returns runs that are not wanted, to be killed on their hosts."""
        now_ns = time.time_ns()
        outcome = self._pods.apply_status(
            [s if s.time_ns else replace(s, time_ns=now_ns) for s in statuses], self._cluster
        )
        self._pool.aversions.take(outcome.ends, self._clock())
        waiting = self._pool.pods_ended(outcome.ended)
        self._lifecycles.pods_changed(outcome.changed_jobs, "pods changed on their hosts")
        self._lifecycles.jobs_changed(waiting, "hosts that the job waits for have room")
        self._committed(statuses)
        return list(outcome.orphans)
