"""The current version of the workers, and versions without workers."""

from __future__ import annotations

import pytest

from peloton.lifecycle.worker_versions import UNVERSIONED, WorkerVersions


def seen(current: str, *at_work: str) -> WorkerVersions:
    return WorkerVersions(current, set(at_work))


@pytest.mark.parametrize(
    ("who", "versions", "claims"),
    [
        ("new", seen(UNVERSIONED, UNVERSIONED, "new"), True),  # the first upgrade from workers without a version
        ("new", seen("old", "old", "new"), False),  # an upgrade: it ramps
        ("new", seen("new", "new"), False),
        ("old", seen("new", "old", "new"), False),  # a worker of an old version restarts while new ones run
        ("old", seen("new", "old"), True),  # a rollback, when the last new one has gone
        ("new", seen("old", "new"), True),
        ("new", seen(UNVERSIONED, "new"), True),  # the first worker of an empty cluster
    ],
)
def test_a_worker_claims_that_its_version_be_current(who: str, versions: WorkerVersions, claims: bool) -> None:
    """A worker claims the current version where that has no worker, so that no workflow would run."""
    assert claims == versions.is_claimed_by(who)


def test_a_version_that_was_given_up_claims_only_where_it_is_alone() -> None:
    """Any other version that has workers takes over from a rejected one."""
    beside, alone = seen("older", "old", "new"), seen("older", "new")

    assert (False, True) == (beside.is_claimed_by("new", {"new"}), beside.is_claimed_by("old", {"new"}))
    assert alone.is_claimed_by("new", {"new"})


@pytest.mark.parametrize(
    ("versions", "is_rolled_back"),
    [
        (seen("new", UNVERSIONED), True),
        (seen("new", UNVERSIONED, "new"), False),
        (seen("new", UNVERSIONED, "old"), False),  # the version that claims it
        (seen("new"), False),  # no worker responds
        (seen(UNVERSIONED, UNVERSIONED), False),
    ],
)
def test_a_rollback_to_workers_without_versions_is_seen(versions: WorkerVersions, is_rolled_back: bool) -> None:
    """A rollback is seen when only workers without a version are left."""
    assert is_rolled_back == versions.is_rolled_back


@pytest.mark.parametrize(
    ("versions", "can_take_over"),
    [
        (seen("new", "new"), True),
        (seen("new", "old"), False),
        (seen("new"), False),
        (seen(UNVERSIONED, UNVERSIONED), True),
        (seen(UNVERSIONED, "new"), False),
    ],
)
def test_the_current_version_takes_over(versions: WorkerVersions, can_take_over: bool) -> None:
    """The current version takes over when it has workers."""
    assert can_take_over == versions.can_take_over
