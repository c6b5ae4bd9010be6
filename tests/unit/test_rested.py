"""Answers that are used for a while."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from services.rested import REST_PER_QUESTION, Rested


class Slow:
    """A question that lasts so many seconds of a clock that does not move otherwise."""

    def __init__(self, takes_s: float) -> None:
        self.now_s, self.takes_s, self.asked = 100.0, takes_s, 0

    def find(self) -> int:
        self.now_s += self.takes_s
        self.asked += 1
        return self.asked

    def rested(self, age_s: float) -> Rested[int]:
        return Rested(self.find, age_s, lambda: self.now_s)


def test_an_answer_is_used_for_its_age() -> None:
    """Answers are used until their age, then the question is asked again."""
    slow = Slow(0.0)
    rested = slow.rested(2.0)

    assert [1, 1] == [rested.get(), rested.get()]
    slow.now_s += 2.0
    assert 2 == rested.get()


def test_an_answer_that_took_long_is_used_for_longer() -> None:
    """A slow answer is used for ten times as long as it took to find."""
    slow = Slow(5.0)
    rested = slow.rested(2.0)
    rested.get()

    slow.now_s += 5.0 * REST_PER_QUESTION - 0.1
    assert 1 == rested.get()
    slow.now_s += 0.2
    assert 2 == rested.get()


def test_while_one_asks_the_others_have_the_last_answer() -> None:
    """Callers do not wait for storage, except the one that asks."""
    begun, may_end, answers = threading.Event(), threading.Event(), iter([1, 2])

    def find() -> int:
        answer = next(answers)
        if answer == 2:
            begun.set()
            assert may_end.wait(30)
        return answer

    rested = Rested(find, 0.0, lambda: 0.0)
    assert 1 == rested.get()
    found: list[int] = []
    asking = threading.Thread(target=lambda: found.append(rested.get()))
    asking.start()
    assert begun.wait(30)

    assert 1 == rested.get()

    may_end.set()
    asking.join()
    assert [2] == found


def test_a_question_that_fails_is_asked_again() -> None:
    """A failed question raises its error in the caller."""
    answers: Iterator[OSError | int] = iter([OSError("away"), 7])

    def find() -> int:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    rested = Rested(find, 60.0)
    with pytest.raises(OSError, match="away"):
        rested.get()
    assert 7 == rested.get()
