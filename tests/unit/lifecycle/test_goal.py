"""Goals by the type of a job."""

from __future__ import annotations

import pytest

from peloton.lifecycle.goal import default_goal, default_pod_goal
from peloton.model.job import JOB_TERMINAL, JobType


@pytest.mark.parametrize("job_type", list(JobType))
def test_goals_of_a_type(job_type: JobType) -> None:
    """The goal of a batch job is to succeed, that of all others to run. Pods have the goal of their job, except pods of
    external jobs, which are to succeed, while the job continues for the next ones.
    """
    steers_alike = default_goal(job_type).value == default_pod_goal(job_type).value
    assert steers_alike == (job_type is not JobType.EXTERNAL)
    assert (default_goal(job_type) in JOB_TERMINAL) == (job_type is JobType.BATCH)
