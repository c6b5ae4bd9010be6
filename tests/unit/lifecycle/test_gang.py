"""Progress of a gang's launch, its timeouts, and the effect of a member's end on the others."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peloton.lifecycle.gang import REQUEUE_BACKOFF, Member, Stage, Step, evaluate, progress_of, stage
from peloton.lifecycle.gang_fate import Fate, fate, has_failed_finally, is_affected
from peloton.lifecycle.reason_text import requeue_text
from peloton.model.job import GangProgress
from peloton.model.pod import ON_HOST, TERMINAL, NextRun, PodState

I, P, READY, L, R, S, F, LOST, K = (  # noqa: E741
    PodState.INITIALIZED,
    PodState.PENDING,
    PodState.READY,
    PodState.LAUNCHED,
    PodState.RUNNING,
    PodState.SUCCEEDED,
    PodState.FAILED,
    PodState.LOST,
    PodState.KILLED,
)
RETRY, RELAUNCH, REPLACE = NextRun.RETRY, NextRun.RELAUNCH, NextRun.REPLACE


@pytest.mark.parametrize(
    ("member", "expected"),
    [
        (Member(I), Stage.QUEUED),
        (Member(P), Stage.QUEUED),
        (Member(READY), Stage.READY),
        (Member(READY, wants_newer=True), Stage.READY),  # the launch starts that run
        (Member(READY, is_to_end=True), Stage.LEAVING),
        (Member(L), Stage.STARTING),
        (Member(PodState.STARTING), Stage.STARTING),
        (Member(L, wants_newer=True), Stage.LEAVING),
        (Member(R), Stage.RUNNING),
        (Member(R, is_to_end=True), Stage.LEAVING),
        (Member(PodState.PREEMPTING), Stage.LEAVING),
        (Member(PodState.KILLING), Stage.LEAVING),
        (Member(S), Stage.DONE),
        (Member(S, next_run=REPLACE), Stage.ENDED),
        (Member(F), Stage.ENDED),
        (Member(F, next_run=RETRY), Stage.ENDED),
        (Member(LOST, next_run=RELAUNCH), Stage.REFUSED),
        (Member(K, is_to_end=True), Stage.ENDED),
    ],
)
def test_stages(member: Member, expected: Stage) -> None:
    """Each member is at one stage of the launch."""
    assert expected is stage(member)


def gang(**stages: int) -> GangProgress:
    return GangProgress(4, stages)


@pytest.mark.parametrize(
    ("seen", "waited_s", "expected"),
    [
        (gang(ready=4), 9.9, (Step.PLACE, "")),
        (gang(ready=4), 10.0, (Step.REQUEUE, "no hosts for all 4 members of the gang in 10 s")),
        (gang(starting=4), 4.9, (Step.START, "")),
        (gang(starting=1, running=2, done=1), 4.9, (Step.START, "")),
        (
            gang(starting=1, running=2, done=1),
            5,
            (Step.REQUEUE, "3 of 4 members of the gang run 5 s after its launch"),
        ),
        (gang(running=4), 99, (Step.RUNNING, "")),
        (gang(running=1, done=3), 99, (Step.RUNNING, "")),
        (gang(refused=1, starting=3), 0, (Step.REQUEUE, "1 of 4 members of the gang could not be launched")),
        (gang(refused=4), 0, (Step.REQUEUE, "4 of 4 members of the gang could not be launched")),
        (
            gang(ready=3, running=1),
            0,
            (Step.REQUEUE, "3 of 4 members of the gang were left behind by the others"),
        ),
        (gang(ready=3, ended=1), 0, (Step.REQUEUE, "3 of 4 members of the gang were left behind by the others")),
        (gang(running=3, ended=1), 0, (Step.SUPERSEDED, "")),  # a member failed: settling decides for all
        (gang(running=3, leaving=1), 0, (Step.SUPERSEDED, "")),
        (gang(leaving=4), 0, (Step.SUPERSEDED, "")),
        (gang(queued=4), 0, (Step.SUPERSEDED, "")),
        (gang(starting=3), 0, (Step.SUPERSEDED, "")),  # its last member is not even created
        (GangProgress(0), 0, (Step.SUPERSEDED, "")),
    ],
)  # fmt: skip
def test_verdicts(seen: GangProgress, waited_s: float, expected: tuple[Step, str]) -> None:
    """Each verdict is the next step of the launch, with 10 s for placement and 5 s for the start."""
    verdict = evaluate(seen, waited_s, placement_s=10, launch_s=5)
    assert expected == (verdict.step, requeue_text(verdict.reason) if verdict.reason else "")


@given(st.dictionaries(st.sampled_from([stage.value for stage in Stage]), st.integers(1, 4)), st.booleans())
def test_a_launch_never_waits_for_ever(stages: dict[str, int], is_late: bool) -> None:
    """A verdict does not wait after the timeout of its step; and a gang is together only if all members run or have
    ended well.
    """
    seen = GangProgress(sum(stages.values()), stages)
    verdict = evaluate(seen, 10.0 if is_late else 0.0, 10, 10)

    assert not (is_late and verdict.is_waiting)
    assert (verdict.step is Step.RUNNING) == (bool(stages) and set(stages) <= {Stage.RUNNING, Stage.DONE})
    assert (verdict.step is Step.REQUEUE) <= bool(verdict.reason)


@pytest.mark.parametrize(
    ("members", "expected", "along"),
    [
        ([Member(I)] * 3, Fate.RESTART, 0),  # the initial state: they wait for each other, and no action is needed
        ([Member(R)] * 3, Fate.NONE, 0),
        ([Member(S), Member(R), Member(R)], Fate.NONE, 0),
        ([Member(F, next_run=RETRY), Member(R), Member(S)], Fate.RESTART, 2),
        ([Member(LOST, next_run=RELAUNCH), Member(L), Member(R)], Fate.RESTART, 2),
        ([Member(I), Member(R, wants_newer=True), Member(S)], Fate.RESTART, 1),
        ([Member(PodState.PREEMPTING, wants_newer=True), Member(S)], Fate.RESTART, 1),
        ([Member(F, next_run=RETRY), Member(READY), Member(P)], Fate.RESTART, 0),  # resmgr sends these back
        ([Member(READY, wants_newer=True)] * 3, Fate.NONE, 0),
        ([Member(F), Member(R), Member(S)], Fate.END, 1),
        ([Member(LOST), Member(READY), Member(I)], Fate.END, 2),
        ([Member(F), Member(F, next_run=RETRY), Member(R)], Fate.END, 2),
        ([Member(R, is_to_end=True), Member(R)], Fate.END, 1),
        ([Member(S, is_to_end=True), Member(R)], Fate.NONE, 0),
        ([Member(K), Member(R)], Fate.END, 1),
    ],
)
def test_fates(members: list[Member], expected: Fate, along: int) -> None:
    """Each fate is common to the members, with the number of members that change."""
    shared = fate(Counter(members))

    assert (expected, along) == (shared, sum(is_affected(member, shared) for member in members))


ALL = [
    Member(state, is_to_end, newer, next_run)
    for state, is_to_end, newer, next_run in product(PodState, (False, True), (False, True), NextRun)
    if next_run is NextRun.NONE or (state in TERMINAL and not is_to_end)
]


@given(st.lists(st.sampled_from(ALL), min_size=2, max_size=4))
def test_members_that_went_along_share_their_fate(members: list[Member]) -> None:
    """A fate requires no more changes after all of its changes are written."""
    shared = fate(Counter(members))

    def after(member: Member) -> Member:
        if not is_affected(member, shared):
            return member
        if shared is Fate.END:
            return member._replace(is_to_end=True, next_run=NextRun.NONE)
        return member._replace(wants_newer=True) if member.state in ON_HOST else Member(I)

    changed = [after(member) for member in members]
    assert [] == [member for member in changed if is_affected(member, fate(Counter(changed)))]


def test_stages_are_counted() -> None:
    """The workflow of a launch has counts only."""
    assert GangProgress(3, {"ready": 2, "running": 1}) == progress_of(3, {Member(READY): 2, Member(R): 1})


def test_the_hold_doubles() -> None:
    """The backoff is 30 s after the first failed launch, at most 10 minutes."""
    assert [30, 60, 120, 240, 480, 600, 600] == [REQUEUE_BACKOFF.delay_ns(count) // 10**9 for count in range(1, 8)]


def test_a_gang_has_failed_when_a_member_rests_without_success() -> None:
    """A member that runs again may still succeed; a killed member alone does not decide."""
    assert has_failed_finally(F, runs_again=False)
    assert has_failed_finally(LOST, runs_again=False)
    assert not has_failed_finally(F, runs_again=True)
    assert not has_failed_finally(K, runs_again=False)
