"""Settling of a job, and of a small one the steps after it as far as they succeed at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from temporalio import activity

from activities.definition import define_activity
from peloton.errors import PelotonError
from peloton.model.ids import JobId
from peloton.model.job import JobProgress
from peloton.ports import HostManager, JobRecords, PodRecords, ResourceManager


class SettlingActivities:
    def __init__(
        self,
        jobs: JobRecords,
        pods: PodRecords,
        resmgr: ResourceManager,
        hosts: HostManager,
        now_ns: Callable[[], int],
    ) -> None:
        self._jobs, self._pods, self._resmgr, self._hosts = jobs, pods, resmgr, hosts
        self._now_ns = now_ns

    @define_activity("settle")
    def settle(self, job_id: str, created_max: int = 0, at_once_max: int = 0, place_max: int = 0) -> JobProgress:
        """Settle the job. Missing pods are also created when they are no more than ``created_max``.

        Up to ``at_once_max`` pods are then queued, placed and launched, each as far as it succeeds at once: the
        progress counts the rest, for which the workflow makes the same steps by calls of their own. ``place_max`` is
        the number of pods that the workflow places before it settles again.
        """
        job = JobId(job_id)
        progress = self._settle(job, created_max, place_max)
        if not progress.may_launch_at_once(at_once_max):
            return progress
        try:
            progress = self._enqueue(job, progress)
            return self._launch(job, progress)
        except PelotonError as error:
            activity.logger.info("job %s: a step after its settle is left to the next call: %s", job, error)
        return progress

    def _settle(self, job: JobId, created_max: int, place_max: int) -> JobProgress:
        progress = self._jobs.settle(job, self._now_ns(), created_max, place_max)
        if 0 < progress.missing_count <= created_max:
            self._pods.create(job, lambda _: None)
            progress = self._jobs.settle(job, self._now_ns())
        return replace(progress, takes_ends=True)

    def _enqueue(self, job: JobId, progress: JobProgress) -> JobProgress:
        if not progress.admit_count:
            return progress
        queued = self._resmgr.enqueue(job, progress.admit_count)
        if not queued.count:
            return progress
        ready_count = progress.ready_count + queued.admitted_count
        waiting_count = queued.count - queued.admitted_count
        return replace(progress, admit_count=0, ready_count=ready_count, waiting_count=waiting_count)

    def _launch(self, job: JobId, progress: JobProgress) -> JobProgress:
        found = self._hosts.place_and_launch(job, progress.ready_count) if progress.ready_count else None
        if found is None:
            return progress
        launched_count = found.launch.launched_count + found.launch.failed_count
        return replace(progress, ready_count=max(progress.ready_count - launched_count, 0))
