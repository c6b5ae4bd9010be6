"""Goals by the type of a job."""

from __future__ import annotations

import pytest

from peloton.lifecycle.goal import default_goal, default_pod_goal
from peloton.model.job import JOB_TERMINAL, JobType


@pytest.mark.parametrize("job_type", list(JobType))
def test_goals_of_a_type(job_type: JobType) -> None:
    """A batch job is to succeed, all others are to run. Pods steer as their job does, but those of an external job,
    which are to succeed, while the job lives on for the next ones."""
    steers_alike = default_goal(job_type).value == default_pod_goal(job_type).value
    assert steers_alike == (job_type is not JobType.EXTERNAL)
    assert (default_goal(job_type) in JOB_TERMINAL) == (job_type is JobType.BATCH)
