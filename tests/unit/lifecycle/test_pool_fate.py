"""Fate of pods that the queue of their pool cannot take."""

from __future__ import annotations

import pytest

from peloton.lifecycle.pool_fate import PoolFate, judge_pool
from peloton.model.job import JobType

GONE = "resource pool p does not exist any more"


@pytest.mark.parametrize("kind", [JobType.BATCH, JobType.EXTERNAL])
def test_jobs_that_run_to_their_end_fail_with_their_pool(kind: JobType) -> None:
    """No pool ever has the id of one that was deleted."""
    assert PoolFate(True, GONE) == judge_pool(kind, "p", is_known=False, is_stored=False, is_leaf=False)


def test_a_service_waits_for_a_person() -> None:
    """It never ends by itself."""
    fate = judge_pool(JobType.SERVICE, "p", is_known=False, is_stored=False, is_leaf=False)

    assert PoolFate(False, f"{GONE}: delete the job, or create it in another pool") == fate


def test_what_may_pass_is_waited_for() -> None:
    """A resource manager that is behind the rows, and a pool that has got child pools, which may go again."""
    unknown = judge_pool(JobType.BATCH, "p", is_known=False, is_stored=True, is_leaf=False)
    parent = judge_pool(JobType.BATCH, "/p", is_known=True, is_stored=True, is_leaf=False)

    assert PoolFate(False, "resource pool p is not known to this resource manager yet") == unknown
    assert PoolFate(False, "resource pool /p takes no jobs: it is not a leaf") == parent


def test_a_leaf_takes_jobs() -> None:
    """There is nothing to say."""
    assert judge_pool(JobType.BATCH, "/p", is_known=True, is_stored=True, is_leaf=True) is None
