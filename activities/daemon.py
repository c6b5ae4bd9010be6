"""Activities of daemons, which the host managers carry out."""

from __future__ import annotations

from temporalio import activity

from activities.definition import define_activity
from peloton.errors import PelotonError
from peloton.lifecycle.job import is_ending
from peloton.model.daemon import DaemonStep
from peloton.model.ids import JobId
from peloton.ports import DaemonController, JobRecords, ResourceManager


class DaemonActivities:
    def __init__(self, jobs: JobRecords, controller: DaemonController, resmgr: ResourceManager) -> None:
        self._jobs = jobs
        self._controller = controller
        self._resmgr = resmgr

    @define_activity("step_daemon")
    def step(self, job_id: str, after: int) -> DaemonStep:
        """Run one step of the daemon. An ending or deleted daemon has no steps."""
        job = self._jobs.get(JobId(job_id))
        if job is None or is_ending(job):
            return DaemonStep(is_over=True)
        step = self._controller.step_daemon(job.job_id, after)
        if step.waiting_count or step.launched_count:
            self._record_reason(job.job_id, step)
        return step

    def _record_reason(self, job_id: JobId, step: DaemonStep) -> None:
        """Record the reason of waiting pods for `job why`: a step does not wait for an unavailable resource manager."""
        try:
            self._resmgr.note_unplaced(job_id, step.waiting_count, step.why)
        except PelotonError as error:
            activity.logger.info("reasons of waiting daemon pods not stored: %s", error)
