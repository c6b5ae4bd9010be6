"""Steps of daemons: each is done by the host managers."""

from __future__ import annotations

from temporalio import activity

from activities.definition import define_activity
from peloton.errors import PelotonError
from peloton.lifecycle.job import is_ending
from peloton.model.daemon import DaemonStep
from peloton.model.ids import JobId
from peloton.ports import DaemonKeeper, JobRecords, ResourceManager


class DaemonActivities:
    def __init__(self, jobs: JobRecords, keeper: DaemonKeeper, resmgr: ResourceManager) -> None:
        self._jobs = jobs
        self._keeper = keeper
        self._resmgr = resmgr

    @define_activity("step_daemon")
    def step(self, job_id: str, after: int) -> DaemonStep:
        """Of a daemon that is to end, and of one that is gone, nothing is done."""
        job = self._jobs.get(JobId(job_id))
        if job is None or is_ending(job):
            return DaemonStep(is_over=True)
        step = self._keeper.step_daemon(job.job_id, after)
        if step.waiting_count or step.launched_count:
            self._note(job.job_id, step)
        return step

    def _note(self, job_id: JobId, step: DaemonStep) -> None:
        """For `job why`: a step does not wait for a resource manager that is away."""
        try:
            self._resmgr.note_unplaced(job_id, step.waiting_count, step.why)
        except PelotonError as error:
            activity.logger.info("why pods are not on their hosts was not noted: %s", error)
