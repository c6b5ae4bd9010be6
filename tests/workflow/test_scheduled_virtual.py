"""Runs of schedules in virtual time: one creates a job, and lasts until it has ended."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from peloton.model.ids import JobId, job_workflow_id
from peloton.model.job import JobState
from peloton.model.pod import PodState
from services.worker.worker import activities_on
from tests.workflow.clock import VirtualClock
from tests.workflow.cluster import Cluster
from tests.workflow.scheduled import FakeScheduledJobs
from tests.workflow.stories import ports_on
from tests.workflow.virtual import Fault, Virtual
from workflows.job import JobWorkflow
from workflows.policies import SCHEDULED_JOB_POLL_MAX_S, Policies
from workflows.scheduled_job import ScheduledJobInput, ScheduledJobResult, ScheduledJobWorkflow

CREATION = "5d8a4a1e-6a0e-4d35-9d43-3e4f3a0a9a10"


class Story:
    """A cluster, one run of a schedule, and the workflow of its job, which is notified of changed pods."""

    def __init__(self, *, policies: Policies | None = None, **cluster: Any) -> None:
        self.clock = VirtualClock()
        self.cluster = Cluster(self.clock, **cluster)
        self.jobs = FakeScheduledJobs(self.cluster)
        ports = replace(ports_on(self.cluster), scheduled=self.jobs)
        activities = activities_on(ports, self.clock.now_ns)
        self.workflow = Virtual(
            self.clock, ScheduledJobWorkflow, activities, signal="changed", children=[JobWorkflow],
            workflow_id="scheduled-job/report-1",
        )  # fmt: skip
        self.cluster.lifecycles = self
        self.workflow.start(ScheduledJobInput("report", CREATION, "", policies or Policies()))

    def jobs_changed(self, job_ids: Iterable[JobId], cause: str = "") -> None:
        for job_id in job_ids:
            if (job := self.workflow.children.get(job_workflow_id(job_id))) is not None:
                job.jobs_changed([job_id])

    def run(self) -> ScheduledJobResult:
        result: ScheduledJobResult = self.workflow.run()
        assert self.workflow.failure is None, self.workflow.failure
        return result

    def failure(self) -> tuple[str, str]:
        """Let the run end; return the type and the text of its failure."""
        self.workflow.run()
        failure = self.workflow.failure
        assert failure is not None
        return failure.application_failure_info.type, failure.message

    def until_pods_run(self) -> Story:
        self.workflow.run(
            until=lambda: any(self.cluster.counts(JobId(job)).get("RUNNING") for job in self.jobs.created)
        )
        return self

    @property
    def job_id(self) -> JobId:
        (job_id,) = self.jobs.created
        return JobId(job_id)

    @property
    def job(self) -> Virtual:
        job: Virtual = self.workflow.children[job_workflow_id(self.job_id)]
        return job


def test_a_run_lasts_until_its_job_has_ended() -> None:
    """A run is woken by the end of the job's workflow, and reads the job once."""
    story = Story(run_s=3_600.0)

    result = story.run()

    assert ScheduledJobResult(story.job_id, "SUCCEEDED") == result
    assert story.clock.elapsed_s > 3_600
    assert 1 == story.workflow.attempts["look_at_end_of_job"]
    assert story.workflow.ended_at_s - story.job.ended_at_s < 1
    assert ["RUNNING", "SUCCEEDED"] == story.workflow.shown_states
    assert story.workflow.events <= 26


def test_a_run_whose_job_fails_has_failed() -> None:
    """Temporal shows a run whose job fails as failed, which may pause the schedule."""
    story = Story(ending=lambda _: PodState.FAILED)

    assert ("JOB_FAILED", "its job has FAILED") == story.failure()
    assert ["RUNNING", "FAILED"] == story.workflow.shown_states


def test_a_run_whose_job_is_refused_says_why() -> None:
    """A refused run reports the text of the refusal, such as the text about a deleted pool."""
    story = Story()
    story.jobs.refusal = "resource pool not found"

    assert ("JOB_REFUSED", "resource pool not found") == story.failure()
    assert (["REFUSED"], []) == (story.workflow.shown_states, story.jobs.created)


def test_a_run_that_is_cancelled_stops_its_job() -> None:
    """A schedule cancels a run to make way for the next one."""
    story = Story(run_s=3_600.0).until_pods_run()
    story.workflow.cancel()

    assert ScheduledJobResult(story.job_id, "KILLED") == story.run()
    assert story.clock.elapsed_s < 60


def test_a_run_that_is_cancelled_before_it_has_a_job_stops_that_one() -> None:
    """The creation is not interrupted, so that no job is left over."""
    story = Story(run_s=3_600.0)
    story.workflow.on_call["create_scheduled_job"] = story.workflow.cancel

    assert "KILLED" == story.run().state


def test_a_job_whose_workflow_was_terminated_is_read() -> None:
    """A job whose workflow was terminated is polled soon, later once a minute; the job's next workflow is no child."""
    story = Story(run_s=3_600.0, policies=Policies(history_events_max=100)).until_pods_run()
    story.job.terminate()
    story.clock.after(1_900, lambda: None)
    story.workflow.run(until=lambda: story.clock.elapsed_s > 1_800)
    looks = story.workflow.attempts["look_at_end_of_job"]
    assert 1_800 / SCHEDULED_JOB_POLL_MAX_S <= looks <= 2 * 1_800 / SCHEDULED_JOB_POLL_MAX_S

    story.cluster.jobs[story.job_id].write(state=JobState.KILLED)
    assert "KILLED" == story.run().state
    assert len(story.workflow.runs) > 1
    assert 1 == story.cluster.calls["create_scheduled_job"]


def test_a_job_that_is_deleted_ends_its_run() -> None:
    """A deleted job ends its run."""
    story = Story(run_s=3_600.0).until_pods_run()
    job_id = story.job_id
    story.job.terminate()
    story.cluster.forget(job_id)

    assert ScheduledJobResult(job_id, "DELETED") == story.run()


def test_a_run_moves_to_the_current_version_of_the_workers() -> None:
    """A run moves to the current version when it is woken for that; it then polls for the end of the job itself."""
    story = Story(run_s=3_600.0).until_pods_run()
    story.workflow.upgrade()
    story.workflow.signal_now()

    assert ScheduledJobResult(story.job_id, "SUCCEEDED") == story.run()
    assert ["v1", "v2"] == list(dict.fromkeys(run.version for run in story.workflow.runs))
    assert story.workflow.ended_at_s - story.job.ended_at_s <= SCHEDULED_JOB_POLL_MAX_S + 1


@pytest.mark.parametrize("fault", Fault)
def test_every_call_fails_once(fault: Fault) -> None:
    """There is one job, and it succeeds, when any call fails before or after it acted."""
    usual = Story(run_s=5.0)
    usual.run()

    for index in range(len(usual.workflow.calls)):
        story = Story(run_s=5.0)
        story.workflow.faults[index] = fault
        assert ("SUCCEEDED", 1) == (story.run().state, len(story.jobs.created)), story.workflow.calls[index]
