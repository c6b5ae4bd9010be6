"""Decisions about quotas of active pods."""

from __future__ import annotations

import pytest

from peloton.access.quota import pods_refusal


@pytest.mark.parametrize(
    ("active", "added", "most"),
    [(0, 100, 100), (90, 10, 100), (100, 0, 100), (500, -1, 100), (10**9, 10**6, 0)],
    ids=["all at once", "up to the bound", "none more", "fewer, above the bound", "no bound"],
)
def test_pods_within_the_quota(active: int, added: int, most: int) -> None:
    """The last pod of the quota is allowed, and so is what adds none."""
    assert "" == pods_refusal("ann", active, added, most)


def test_pods_beyond_the_quota_are_refused_with_the_numbers() -> None:
    """The refusal names the user, the active pods, the added ones and the quota."""
    refusal = pods_refusal("ann", 1_990, 11, 2_000)

    assert "user ann has 1,990 active pods, and 11 more would exceed the quota of 2,000" == refusal


def test_a_job_above_the_whole_quota_is_refused_for_its_size() -> None:
    """Waiting for the end of other jobs would not help it."""
    assert "2,001 pods at once exceed the quota of user ann, 2,000 active pods" == pods_refusal("ann", 7, 2_001, 2_000)
