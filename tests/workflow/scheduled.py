"""The jobs of schedules on a ``Cluster``."""

from __future__ import annotations

from peloton.errors import InvalidArgument
from peloton.lifecycle.schedule import job_id_of, job_name_of
from peloton.model.schedule import JobStart, ScheduledRun
from tests.workflow.cluster import Cluster
from workflows.attributes import TYPE


class FakeScheduledJobs:
    """Implements ``ports.ScheduledJobs``: each job has ``pods``, and its workflow is on ``task_queue``."""

    def __init__(self, cluster: Cluster, task_queue: str = "virtual", pods: int = 1) -> None:
        self.cluster, self.task_queue, self.pods = cluster, task_queue, pods
        self.refusal = ""
        self.created: list[str] = []
        self.creators: set[str] = set()

    def create(self, run: ScheduledRun) -> JobStart:
        self.cluster.calls["create_scheduled_job"] += 1
        if self.refusal:
            raise InvalidArgument(self.refusal)
        self.creators.add(run.creator)
        job_id = job_id_of(run)
        with self.cluster.lock:
            if job_id not in self.cluster.jobs:
                self.cluster.submit(job_id, self.pods)
                self.created.append(job_id)
        name = job_name_of("train", run.scheduled_ns)
        attributes = {TYPE.name: "BATCH"}
        return JobStart(job_id, name, self.task_queue, "pool", f"batch job {name}", "", attributes, {"instances": 1})
