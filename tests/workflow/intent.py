"""Stops of a job on a ``Cluster``: the part of ``FakeRecords`` that steers."""

from __future__ import annotations

from peloton.errors import Aborted, NotFound
from peloton.model.ids import JobId
from peloton.model.job import JobRecord, JobState
from tests.workflow.port import Port, call


class FakeIntent(Port):
    @call
    def set_goal(self, job_id: JobId, goal: JobState, now_ns: int) -> JobRecord | None:
        job = self.cluster.jobs.get(job_id)
        if job is None:
            return None
        if job.record.goal is not JobState.DELETED:
            assert goal is JobState.KILLED
            self.cluster.kill(job_id)
        return self.cluster.jobs[job_id].record

    @call
    def stop(self, job_id: JobId, now_ns: int) -> JobRecord:
        job = self.cluster.jobs.get(job_id)
        if job is None:
            raise NotFound(f"job {job_id} not found")
        if self.cluster.stop_refusal:
            raise Aborted(self.cluster.stop_refusal)
        self.cluster.kill(job_id)
        return self.cluster.jobs[job_id].record
