"""Activities of the runs of schedules."""

from __future__ import annotations

from activities.definition import define_activity
from peloton.model.ids import JobId
from peloton.model.schedule import JobStart, RunState, ScheduledRun
from peloton.ports import JobRecords, ScheduledJobs


class ScheduleActivities:
    def __init__(self, jobs: JobRecords, scheduled: ScheduledJobs) -> None:
        self._jobs, self._scheduled = jobs, scheduled

    @define_activity("create_scheduled_job", may_refuse=True)
    def create_job(self, run: ScheduledRun) -> JobStart:
        return self._scheduled.create(run)

    @define_activity("look_at_end_of_job")
    def read_end(self, job_id: str) -> str:
        """Return the state in which the job has ended, empty while it has not."""
        job = self._jobs.get(JobId(job_id))
        if job is None:
            return RunState.DELETED
        return "" if job.is_active else job.state.value
