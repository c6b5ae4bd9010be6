"""The current version of the workers, and versions without workers."""

from __future__ import annotations

import pytest

from peloton.lifecycle.worker_versions import UNVERSIONED, WorkerVersions


def make_versions(current: str, *at_work: str) -> WorkerVersions:
    return WorkerVersions(current, set(at_work))


@pytest.mark.parametrize(
    ("who", "versions", "claims"),
    [
        (
            "new",
            make_versions(UNVERSIONED, UNVERSIONED, "new"),
            True,
        ),  # the first upgrade from workers without a version
        ("new", make_versions("old", "old", "new"), False),  # an upgrade: it ramps
        ("new", make_versions("new", "new"), False),
        ("old", make_versions("new", "old", "new"), False),  # a worker of an old version restarts while new ones run
        ("old", make_versions("new", "old"), True),  # a rollback, when the last new one has gone
        ("new", make_versions("old", "new"), True),
        ("new", make_versions(UNVERSIONED, "new"), True),  # the first worker of an empty cluster
    ],
)
def test_a_worker_claims_that_its_version_be_current(who: str, versions: WorkerVersions, claims: bool) -> None:
    """A worker claims the current version where that has no worker, so that no workflow would run."""
    assert claims == versions.is_claimed_by(who)


def test_a_version_that_was_given_up_claims_only_where_it_is_alone() -> None:
    """Any other version that has workers takes over from a rejected one."""
    beside, alone = make_versions("older", "old", "new"), make_versions("older", "new")

    assert (False, True) == (beside.is_claimed_by("new", {"new"}), beside.is_claimed_by("old", {"new"}))
    assert alone.is_claimed_by("new", {"new"})


@pytest.mark.parametrize(
    ("versions", "is_rolled_back"),
    [
        (make_versions("new", UNVERSIONED), True),
        (make_versions("new", UNVERSIONED, "new"), False),
        (make_versions("new", UNVERSIONED, "old"), False),  # the version that claims it
        (make_versions("new"), False),  # no worker responds
        (make_versions(UNVERSIONED, UNVERSIONED), False),
    ],
)
def test_a_rollback_to_workers_without_versions_is_seen(versions: WorkerVersions, is_rolled_back: bool) -> None:
    """A rollback is seen when only workers without a version are left."""
    assert is_rolled_back == versions.is_rolled_back


@pytest.mark.parametrize(
    ("versions", "can_take_over"),
    [
        (make_versions("new", "new"), True),
        (make_versions("new", "old"), False),
        (make_versions("new"), False),
        (make_versions(UNVERSIONED, UNVERSIONED), True),
        (make_versions(UNVERSIONED, "new"), False),
    ],
)
def test_the_current_version_takes_over(versions: WorkerVersions, can_take_over: bool) -> None:
    """The current version takes over when it has workers."""
    assert can_take_over == versions.can_take_over
