"""Activities of the daemon workflow. The host managers carry them out."""

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
        """Run one step of a daemon, unless the daemon is ending or deleted."""
        job = self._jobs.get(JobId(job_id))
        if job is None or is_ending(job):
            return DaemonStep(is_over=True)
        step = self._controller.step_daemon(job.job_id, after)
        if step.waiting_count or step.launched_count:
            self._record_reason(job.job_id, step)
        return step

    def _record_reason(self, job_id: JobId, step: DaemonStep) -> None:
        """Record why pods wait, for `job why`. The step succeeds even if the resource manager is unavailable."""
        try:
            self._resmgr.note_unplaced(job_id, step.waiting_count, step.why)
        except PelotonError as error:
            activity.logger.info("could not store why pods of the daemon wait: %s", error)
