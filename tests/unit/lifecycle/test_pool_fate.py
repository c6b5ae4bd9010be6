"""Fate of pods that the queue of their pool does not accept."""

from __future__ import annotations

import pytest

from peloton.lifecycle.pool_fate import PoolFate, evaluate_pool
from peloton.model.job import JobType

GONE = "resource pool p does not exist any more"


@pytest.mark.parametrize("kind", [JobType.BATCH, JobType.EXTERNAL])
def test_jobs_that_run_to_their_end_fail_with_their_pool(kind: JobType) -> None:
    """The id of a deleted pool is never used again, so these jobs fail."""
    assert PoolFate(True, GONE) == evaluate_pool(kind, "p", is_known=False, is_stored=False, is_leaf=False)


def test_a_service_waits_for_a_person() -> None:
    """A service in a deleted pool never ends without a user."""
    fate = evaluate_pool(JobType.SERVICE, "p", is_known=False, is_stored=False, is_leaf=False)

    assert PoolFate(False, f"{GONE}: delete the job, or create it in another pool") == fate


def test_what_may_pass_is_waited_for() -> None:
    """Jobs wait for a resource manager that has not read the rows, and for a pool with child pools, which may be
    removed.
    """
    unknown = evaluate_pool(JobType.BATCH, "p", is_known=False, is_stored=True, is_leaf=False)
    parent = evaluate_pool(JobType.BATCH, "/p", is_known=True, is_stored=True, is_leaf=False)

    assert PoolFate(False, "resource pool p is not known to this resource manager yet") == unknown
    assert PoolFate(False, "resource pool /p takes no jobs: it is not a leaf") == parent


def test_a_leaf_takes_jobs() -> None:
    """A leaf accepts jobs."""
    assert evaluate_pool(JobType.BATCH, "/p", is_known=True, is_stored=True, is_leaf=True) is None
