"""What workflows want of a job on a ``Cluster`` when they are cancelled: the part of ``FakeRecords`` that steers."""

from __future__ import annotations

from peloton.lifecycle import rollout
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
    def abort_active(self, job_id: JobId, now_ns: int) -> None:
        rolled = self.cluster.rolled.get(job_id)
        if rolled is not None and rolled.update is not None and rolled.update.is_active:
            rolled.steer(rollout.aborted)
