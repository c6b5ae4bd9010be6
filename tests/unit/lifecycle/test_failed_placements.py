"""Timeouts of admitted pods and gangs that find no host, and the least backoff after that."""

from __future__ import annotations

import pytest

from peloton.lifecycle.failed_placements import (
    BACKOFF_MAX_S,
    FailedPlacements,
    backoff_min_s,
    find_failed_placements,
    placement_timeout_s,
)
from peloton.lifecycle.gang import REQUEUE_BACKOFF, Step, Verdict, evaluate
from peloton.model.host import PlacementBatch, ReadyGang, Unplaced
from peloton.model.ids import JobId
from peloton.model.job import GangProgress
from peloton.model.pod import PodShape
from peloton.model.reason import RequeueReason, RequeueRule
from peloton.model.resources import Resources
from tests.reasons import lacking_capacity

ONE = PodShape(Resources.of(1))
NS = 10**9


@pytest.mark.parametrize(
    ("placement_s", "expected"),
    [(600, [600, 300, 150, 75, 37.5, 18.75, 10, 10]), (20, [20, 10, 10, 10, 10, 10, 10, 10]), (3, [3] * 8)],
)
def test_each_try_is_half_as_long(placement_s: float, expected: list[float]) -> None:
    """Each timeout is half of the one before, down to the duration of a placement, and never longer than the first."""
    assert expected == [placement_timeout_s(placement_s, count) for count in (0, 1, 2, 3, 4, 5, 6, 1_000)]


@pytest.mark.parametrize(
    ("vain_count", "turns", "waited_s", "is_given_up"),
    [
        (0, 0, 599, False),
        (0, 0, 600, True),
        (1, 0, 299, False),
        (1, 0, 300, True),
        (1, 1, 150, True),
        (0, 2, 149, False),
        (0, 2, 150, True),
        (50, 50, 9, False),
        (50, 50, 10, True),
    ],
)
def test_pods_that_were_tried_before_give_up_sooner(
    vain_count: int, turns: int, waited_s: float, is_given_up: bool
) -> None:
    """Pods that failed before have a shorter timeout, and so do pods of a pool with many pods in backoff."""
    gang = ReadyGang(ONE, ((4, 1),), waited_s=waited_s, vain_count=vain_count)
    batch = PlacementBatch(JobId("job"), "", unplaced_count=1, why=lacking_capacity(1), unplaced=(Unplaced((4,)),))
    seconds = placement_timeout_s(600, vain_count + turns)
    reason = RequeueReason(RequeueRule.NO_HOST_IN_TIME, seconds=seconds, placement=lacking_capacity(1))

    assert (FailedPlacements(((4, 1),), reason) if is_given_up else FailedPlacements()) == find_failed_placements(
        [gang], batch, 600, turns
    )


def test_gangs_with_failed_launches_give_up_sooner() -> None:
    """Gangs whose launch failed before have a shorter timeout, as pods do."""
    seen = [evaluate(GangProgress(2, {"ready": 2}, 2), waited_s, placement_s=600) for waited_s in (149, 150)]

    assert [
        Verdict(Step.PLACE),
        Verdict(Step.REQUEUE, RequeueReason(RequeueRule.NO_GANG_HOSTS_IN_TIME, 2, 2, 150)),
    ] == seen


def test_the_more_is_in_backoff_the_longer_is_a_hold() -> None:
    """The least backoff grows with the number of pods in backoff, up to an hour."""
    assert [0, 60, 600, BACKOFF_MAX_S, BACKOFF_MAX_S] == [backoff_min_s(turns) for turns in (0, 1, 10, 60, 10_000)]


def test_a_hold_is_no_shorter_than_the_try_before() -> None:
    """A backoff is no shorter than the try before it, up to the longest backoff."""
    assert [30, 45, 600] == [REQUEUE_BACKOFF.delay_after_ns(1, took_s * NS) // NS for took_s in (0, 45, 7_200)]
