"""Activities on storage."""

from __future__ import annotations

from collections.abc import Callable

from activities.definition import define_activity, report_progress
from peloton.model.ids import JobId
from peloton.model.job import GangProgress, JobProgress, JobState
from peloton.model.update import UpdateProgress
from peloton.ports import JobRecords, PodRecords, UpdateRecords


class RecordsActivities:
    def __init__(self, jobs: JobRecords, pods: PodRecords, updates: UpdateRecords, now_ns: Callable[[], int]) -> None:
        self._jobs, self._pods, self._updates = jobs, pods, updates
        self._now_ns = now_ns

    @define_activity("create_pods")
    def create_pods(self, job_id: str) -> JobProgress:
        """Create missing pods, and return the job's progress."""
        return self._create(JobId(job_id), report_progress)

    @define_activity("look_at_gang")
    def read_gang(self, job_id: str) -> GangProgress:
        return self._pods.gang(JobId(job_id))

    def _create(self, job_id: JobId, on_chunk: Callable[[int], None]) -> JobProgress:
        self._pods.create(job_id, on_chunk)
        return self._jobs.settle(job_id, self._now_ns())

    @define_activity("delete_job")
    def delete_job(self, job_id: str) -> None:
        self._jobs.delete(JobId(job_id), report_progress)

    @define_activity("is_stored")
    def is_stored(self, job_id: str) -> bool:
        return self._jobs.get(JobId(job_id)) is not None

    @define_activity("stop_job")
    def stop_job(self, job_id: str) -> None:
        self._jobs.set_goal(JobId(job_id), JobState.KILLED, self._now_ns())

    @define_activity("abort_update")
    def abort_update(self, job_id: str) -> None:
        self._updates.abort_active(JobId(job_id), self._now_ns())

    @define_activity("advance_update")
    def advance_update(self, job_id: str) -> UpdateProgress:
        return self._updates.advance(JobId(job_id), self._now_ns())

    @define_activity("roll_back_failed_update")
    def roll_back_failed_update(self, job_id: str) -> None:
        self._updates.roll_back_failed(JobId(job_id), self._now_ns())
