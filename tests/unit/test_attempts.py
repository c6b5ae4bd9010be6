"""Attempts of activities, as a worker counts and reports them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from peloton.model.workflow_trouble import FailingActivity
from services.worker.attempts import NAMED_MAX, NEXT_ATTEMPT_S, TRACKED_MAX, Attempts, reporting

INFO = replace(
    ActivityEnvironment.default_info(),
    workflow_id="job/1",
    workflow_run_id="r",
    activity_id="5",
    activity_type="enqueue",
    scheduled_time=datetime.fromtimestamp(3, UTC),
)


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def attempts(clock: Clock) -> Attempts:
    return Attempts(clock)


def fail(attempts: Attempts, attempt: int, error: str = "down", **info: Any) -> None:
    attempts.begin(replace(INFO, attempt=attempt, **info))
    attempts.end(replace(INFO, attempt=attempt, **info), error)


def test_the_tenth_attempt_is_reported_with_the_error_of_the_ninth(attempts: Attempts) -> None:
    """A tenth attempt is reported while it is under way; earlier ones are not reported."""
    fail(attempts, 8, "earlier")
    fail(attempts, 9)
    assert ([], 0) == attempts.report()
    attempts.begin(replace(INFO, attempt=10))

    assert ([FailingActivity("job/1", "enqueue", 10, "down", 3_000_000_000)], 1) == attempts.report()


def test_an_attempt_that_never_ends_is_forgotten_after_its_time(attempts: Attempts, clock: Clock) -> None:
    """A thread hangs. Temporal has started the next attempt on another worker, or the workflow has ended."""
    hung = replace(INFO, attempt=10, start_to_close_timeout=timedelta(seconds=60))
    attempts.begin(hung)
    clock.now_s += 60.0 + NEXT_ATTEMPT_S - 1.0
    assert 1 == attempts.report()[1]
    clock.now_s += 2.0

    assert ([], 0) == attempts.report()
    attempts.end(hung, "")


def test_an_attempt_that_ends_late_leaves_the_next_one(attempts: Attempts) -> None:
    """A later attempt has begun on the same worker, and is under way."""
    attempts.begin(replace(INFO, attempt=10))
    attempts.begin(replace(INFO, attempt=11))
    for error in ("it did not end within 30 s", ""):
        attempts.end(replace(INFO, attempt=10), error)

    assert [("", 11)] == [(one.error, one.attempt) for one in attempts.report()[0]]


def test_an_attempt_that_succeeds_ends_the_report(attempts: Attempts) -> None:
    """The next report is without it."""
    fail(attempts, 10)
    assert 1 == attempts.report()[1]
    fail(attempts, 11, "")

    assert ([], 0) == attempts.report()


def test_an_activity_whose_next_attempt_does_not_come_is_forgotten(attempts: Attempts, clock: Clock) -> None:
    """Another worker runs the activity, or its workflow was terminated. A running attempt is kept until its timeout."""
    fail(attempts, 10)
    attempts.begin(replace(INFO, attempt=10, activity_id="6", start_to_close_timeout=timedelta(minutes=30)))
    clock.now_s += NEXT_ATTEMPT_S + 1

    assert 1 == attempts.report()[1]


def test_a_report_names_a_bounded_number(attempts: Attempts) -> None:
    """Activities that have failed longest come first; and memory holds a bounded number."""
    for number in range(NAMED_MAX + 5):
        fail(attempts, 10, activity_id=str(number), scheduled_time=datetime.fromtimestamp(1_000 - number, UTC))
    named, count = attempts.report()
    assert (NAMED_MAX, NAMED_MAX + 5) == (len(named), count)
    assert 1_000 - NAMED_MAX - 4 == named[0].since_ns // 10**9
    for number in range(TRACKED_MAX + 5):
        fail(attempts, 10, activity_id=f"more {number}")

    assert TRACKED_MAX == attempts.report()[1]


async def test_reports_are_sent_while_there_is_something_and_once_more(attempts: Attempts) -> None:
    """A report that storage refuses is followed by the next one."""
    sent: list[int] = []
    is_unavailable = [True]

    def take(activities: Sequence[FailingActivity], count: int) -> None:
        sent.append(count)
        if is_unavailable[0]:
            raise OSError("storage is away")

    async def until_sent(counts: list[int]) -> None:
        async with asyncio.timeout(120):
            while sent[-len(counts) :] != counts:
                await asyncio.sleep(0.001)

    fail(attempts, 10)
    async with reporting(attempts, take, 0.001):
        await until_sent([1, 1])
        is_unavailable[0] = False
        fail(attempts, 11, "")
        await until_sent([1, 0])
        before = len(sent)
        fail(attempts, 12)
        await until_sent([0, 1])

    assert 0 not in sent[before:]
