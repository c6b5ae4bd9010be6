"""The ramp of a new version of the workers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from peloton.lifecycle.worker_ramp import (
    BY_HAND,
    CRASH_WINDOW_S,
    CRASHES_MAX,
    FAILED_WORKFLOW_TASKS_MAX,
    QUIET_S,
    STEPS,
    UNHEARD_S,
    Act,
    Decision,
    Fleet,
    Outlook,
    Promotion,
    State,
    Tasks,
    Version,
    count_crashes,
    decide,
    promote,
    rollback,
    state_of,
)
from peloton.lifecycle.worker_versions import UNVERSIONED

NOW_S = 100_000.0
FIRST, LAST = STEPS[0], STEPS[-1]
LONG_S = max(step.up_s for step in STEPS)
OLD = Version("old", 10.0, workers=2, up_since_s=1_000.0, activities=Tasks(900, 100))
NEW = Version("new", 20.0, workers=1, up_since_s=NOW_S - LONG_S, workflow_tasks=Tasks(LAST.tasks), activities=Tasks(50))


def fleet(*versions: Version, current: str = "old", at_work: str = "old new", **ramp: Any) -> Fleet:
    return Fleet(current, set(at_work.split()), {one.build: one for one in versions or (OLD, NEW)}, **ramp)


def ramping(version: Version = NEW, percent: float = FIRST.percent, since_s: float = LONG_S, **given: Any) -> Fleet:
    """The new version within a step that began ``since_s`` ago."""
    return fleet(OLD, version, ramping="new", percent=percent, step_since_s=NOW_S - since_s, **given)


def test_a_new_version_alongside_the_current_one_starts_at_the_first_step() -> None:
    """A new version does not run all workflows at once."""
    assert Decision(Act.RAMP, "new", "newer than version old", FIRST.percent) == decide(fleet(), NOW_S)


def test_an_old_version_that_restarts_alongside_the_current_one_runs_nothing() -> None:
    """The versions are ordered by the time when the server first registered them."""
    assert Act.HOLD is decide(fleet(current="new"), NOW_S).act


def test_it_passes_each_step_and_becomes_current() -> None:
    """The shares of the steps follow each other."""
    assert [Decision(Act.RAMP, "new", f"{LAST.tasks + 50} tasks done, 0 failed", STEPS[1].percent)] == [
        decide(ramping(), NOW_S)
    ]
    last = decide(ramping(percent=LAST.percent), NOW_S)
    assert (Act.MAKE_CURRENT, "new") == (last.act, last.build)


@pytest.mark.parametrize(
    ("version", "since_s", "reason"),
    [
        (replace(NEW, up_since_s=0.0), LONG_S, "none of its workers has reported yet"),
        (NEW, 12.0, f"up for 12 of {FIRST.up_s:.0f} s"),
        (replace(NEW, up_since_s=NOW_S - 7.0), LONG_S, f"up for 7 of {FIRST.up_s:.0f} s"),  # its workers restart
        (replace(NEW, workflow_tasks=Tasks(3), activities=Tasks(4)), LONG_S, f"7 of {FIRST.tasks} tasks done"),
        (replace(NEW, workflow_tasks=Tasks(199, 4)), LONG_S, "4 of 203 workflow tasks failed"),
        (replace(NEW, activities=Tasks(50, 25)), LONG_S, "25 of 75 activities failed, 10% on version old"),
    ],
)
def test_it_is_held_at_a_step(version: Version, since_s: float, reason: str) -> None:
    """A held ramp has a reason with the numbers, and keeps its share."""
    held = decide(ramping(version, since_s=since_s), NOW_S)

    assert (Act.HOLD, "new", FIRST.percent) == (held.act, held.build, held.percent)
    assert held.reason.startswith(reason)


def test_activities_that_fail_on_both_versions_hold_nothing() -> None:
    """The cause is outside of the new version."""
    assert Act.RAMP is decide(ramping(replace(NEW, activities=Tasks(85, 15))), NOW_S).act


def test_a_quiet_cluster_passes_by_time() -> None:
    """A quiet cluster has no more tasks to prove a version by."""
    quiet = replace(NEW, workflow_tasks=Tasks(1), up_since_s=NOW_S - QUIET_S)

    assert Act.RAMP is decide(ramping(quiet, since_s=QUIET_S), NOW_S).act


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"crashes": CRASHES_MAX}, "3 of its workers crashed within 60 min of their start"),
        ({"workflow_tasks": Tasks(0, FAILED_WORKFLOW_TASKS_MAX)}, "5 of 5 workflow tasks failed"),
    ],
)
@pytest.mark.parametrize("promotion", Promotion)
def test_a_faulty_version_is_given_up(fault: dict[str, Any], reason: str, promotion: Promotion) -> None:
    """The fault ends each step, and the wait before the first one, with both kinds of promotion."""
    faulty = replace(NEW, **fault)
    given_up = Decision(Act.GIVE_UP, "new", reason)

    assert given_up == decide(ramping(faulty), NOW_S, promotion)
    assert given_up == decide(ramping(faulty, LAST.percent), NOW_S, promotion)
    assert given_up == decide(fleet(OLD, faulty), NOW_S, promotion)


def test_few_failures_among_many_tasks_are_not_a_fault() -> None:
    """Some tasks fail on a busy machine."""
    busy = replace(NEW, workflow_tasks=Tasks(2_000, FAILED_WORKFLOW_TASKS_MAX))

    assert Act.RAMP is decide(ramping(busy), NOW_S).act


def test_a_version_that_was_given_up_never_ramps_by_itself() -> None:
    """A worker of a rejected version that starts again claims no workflows; a ramp that is left over ends."""
    given_up = replace(NEW, verdict="3 of its workers crashed")

    assert Act.HOLD is decide(fleet(OLD, given_up), NOW_S).act
    assert Act.STOP_RAMP is decide(ramping(given_up), NOW_S).act


def test_a_ramp_ends_with_the_last_worker_and_begins_again_with_the_next() -> None:
    """Workflows in the share of a version without workers would wait."""
    assert Decision(Act.STOP_RAMP, "new", "it has no worker") == decide(ramping(at_work="old"), NOW_S)
    assert FIRST.percent == decide(fleet(), NOW_S).percent


def test_a_still_newer_version_ramps_in_its_place() -> None:
    """A fixed build need not wait for the broken one."""
    newest = replace(NEW, build="newest", created_s=30.0)
    both = replace(ramping(at_work="old new newest"), versions={one.build: one for one in (OLD, NEW, newest)})

    assert Decision(Act.STOP_RAMP, "new", "version newest is newer") == decide(both, NOW_S)
    assert "newest" == decide(replace(both, ramping=""), NOW_S).build


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        (fleet(NEW, current=UNVERSIONED, at_work="new"), "no version is current"),  # the first worker
        (fleet(at_work="new"), "version old has no worker"),  # an upgrade that stopped the old workers first
        (ramping(at_work="new"), "version old has no worker"),  # ... and one that stopped them during the ramp
        (fleet(OLD, replace(NEW, verdict="crashes"), at_work="new"), "version old has no worker"),
    ],
)
def test_the_only_version_with_workers_is_promoted_at_once(before: Fleet, reason: str) -> None:
    """The only version with workers is promoted at once. Manual promotion leaves it to a user, once a version has been
    current.
    """
    waits = Decision(Act.HOLD, "new", f"{reason}; {BY_HAND}") if before.current else None

    assert Decision(Act.MAKE_CURRENT, "new", reason) == decide(before, NOW_S)
    assert (waits or decide(before, NOW_S)) == decide(before, NOW_S, Promotion.MANUAL)


def test_a_version_that_was_given_up_hands_over_to_a_sound_one() -> None:
    """The rejected version became current when no other had workers, and the other one is back."""
    back = fleet(OLD, replace(NEW, verdict="crashes"), current="new")

    assert Decision(Act.MAKE_CURRENT, "old", "version new was given up") == decide(back, NOW_S, Promotion.MANUAL)


def test_a_sound_version_replaces_the_current_one_before_one_that_was_given_up() -> None:
    """A sound version is promoted although a rejected one has workers as well."""
    gone = Fleet("gone", {"old", "new"}, {"old": OLD, "new": replace(NEW, verdict="crashes")})

    assert "old" == decide(gone, NOW_S).build


def test_nothing_is_decided_while_all_workers_are_away() -> None:
    """The current version is kept while no worker responds."""
    assert Act.HOLD is decide(replace(fleet(), at_work=set()), NOW_S).act


def test_manual_promotion_waits_for_a_person() -> None:
    """A ramp waits before the first step, and at the share that a user chose."""
    assert Decision(Act.HOLD, "new", BY_HAND) == decide(fleet(), NOW_S, Promotion.MANUAL)
    assert Decision(Act.HOLD, "new", BY_HAND, 40.0) == decide(ramping(percent=40.0), NOW_S, Promotion.MANUAL)


def test_an_automatic_ramp_continues_from_the_share_that_a_person_chose() -> None:
    """A share below the first step is proven as the first step is."""
    assert FIRST.percent == decide(ramping(percent=1.0), NOW_S).percent
    assert Act.HOLD is decide(ramping(percent=1.0, since_s=1.0), NOW_S).act
    assert Act.MAKE_CURRENT is decide(ramping(percent=60.0), NOW_S).act


def test_a_person_promotes_a_version_that_has_workers() -> None:
    """A version with workers is promoted to all workflows, or a share."""
    assert (Act.MAKE_CURRENT, Act.RAMP) == (promote(fleet(), "new").act, promote(fleet(), "new", 10).act)
    with pytest.raises(ValueError, match="version odd has no worker; versions that have: old, new"):
        promote(fleet(), "odd")
    with pytest.raises(ValueError, match="version old is current: only another version can run 10 % of the workflows"):
        promote(fleet(), "old", 10)


def test_a_rollback_gives_the_ramp_up_and_then_goes_back() -> None:
    """A rollback never leads to a newer version, nor to a rejected one."""
    assert Decision(Act.GIVE_UP, "new", "rolled back by a person") == rollback(ramping())
    back = rollback(fleet(current="new"))
    assert (Act.MAKE_CURRENT, "old") == (back.act, back.build)
    for without in (fleet(), fleet(replace(OLD, verdict="crashes"), NEW, current="new")):
        with pytest.raises(ValueError, match="no version older than the current one"):
            rollback(without)
    with pytest.raises(ValueError, match="no version of the workers is current"):
        rollback(fleet(current=UNVERSIONED))


@pytest.mark.parametrize(
    ("starts", "crashes"),
    [
        ([], 0),
        ([("worker@a/1", NOW_S - 500.0)], 0),  # is up
        ([("worker@b/1", NOW_S - 500.0)], 0),  # may have gone with its machine
        ([(f"worker@{host}/1", NOW_S - 500.0) for host in "bcdef"], 0),  # as may many at the same time
        ([(f"worker@b/{process}", NOW_S - 500.0 + process) for process in range(3)], 3),  # comes back, and vanishes
        ([(f"worker@{host}/{run}", NOW_S - 500.0 + run) for host in "bc" for run in range(2)], 4),
        ([("worker@a/0", NOW_S - 500.0), ("worker@a/1", NOW_S - 400.0)], 0),  # its machine came back
        ([("worker@b/0", NOW_S - 500.0), ("worker@b/1", NOW_S - UNHEARD_S + 1.0)], 0),  # has just started
        ([("worker@a/1", NOW_S - 500.0 + run) for run in range(3)], 2),  # the first process of a container
        ([("worker@b/1", NOW_S - run) for run in (3.0, 2.0, 1.0)], 2),  # ... whose latest start is not recorded yet
        ([("worker@b/0", NOW_S - CRASH_WINDOW_S - 1.0), ("worker@b/1", NOW_S - 500.0)], 0),  # after a long life
    ],
)
def test_starts_that_are_left_over_on_one_host_are_crashes(starts: list[tuple[str, float]], crashes: int) -> None:
    """A worker that stops in order removes its start; one that is lost with its machine does not crash again."""
    assert crashes == count_crashes(starts, {"worker@a/1"}, NOW_S)


def test_people_see_the_state_and_the_reason_of_each_version() -> None:
    """The decision is the reason of the version that it is about, a verdict that of a rejected one."""
    gone, drained = Version("gone", 1.0, is_draining=True), Version("drained", 2.0)
    bad = replace(NEW, build="bad", created_s=15.0, verdict="crashes")
    seen = replace(ramping(percent=25.0), versions={one.build: one for one in (gone, drained, OLD, bad, NEW)})
    outlook = Outlook(seen, Decision(Act.HOLD, "new", "2 of 200 tasks done"), Promotion.AUTO)

    assert [
        ("gone", State.DRAINING, 0.0, ""),
        ("drained", State.IDLE, 0.0, ""),
        ("old", State.CURRENT, 75.0, ""),
        ("bad", State.GIVEN_UP, 0.0, "crashes"),
        ("new", State.RAMPING, 25.0, "2 of 200 tasks done"),
    ] == [(one, state_of(seen, one), outlook.percent_of(one), outlook.reason_of(one)) for one in seen.versions]
    assert State.WAITING is state_of(replace(seen, ramping=""), "new")
