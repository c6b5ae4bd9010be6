"""Errors of activities, as Temporal receives them."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from activities.schedule import ScheduleActivities
from peloton.errors import InvalidArgument, NotFound, PelotonError, ResourceExhausted, Unavailable

BENIGN, COUNTED = ApplicationErrorCategory.BENIGN, ApplicationErrorCategory.UNSPECIFIED


class Refusing:
    """Creates no job of a schedule."""

    def __init__(self, error: PelotonError) -> None:
        self._error = error

    def create(self, run: object) -> Any:
        raise self._error


@pytest.mark.parametrize(
    ("error", "category"),
    [
        (InvalidArgument("resource pool not found"), BENIGN),
        (NotFound("no such pool"), BENIGN),
        (ResourceExhausted("beyond the quota of active pods"), BENIGN),
        (ResourceExhausted("beyond the quota of a minute", 1.0), COUNTED),
        (Unavailable("storage does not answer"), COUNTED),
    ],
)
def test_a_refused_job_of_a_schedule_is_no_failure_of_the_worker(
    error: PelotonError, category: ApplicationErrorCategory
) -> None:
    """Workers count a refused job neither in their metrics nor in the heartbeats by which a new version proves
    itself.
    """
    no_jobs: Any = None
    scheduled: Any = Refusing(error)

    with pytest.raises(ApplicationError) as raised:
        ScheduleActivities(no_jobs, scheduled).create_job(no_jobs)
    assert (category, category is BENIGN) == (raised.value.category, raised.value.non_retryable)
