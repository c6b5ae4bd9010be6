"""The pace of costly questions."""

from __future__ import annotations

from services.recheck import LAG_S, REST_S, Recheck


class Clock:
    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def test_a_question_is_due_for_a_while_after_an_event_and_then_rarely() -> None:
    """A change of the observed value is an event, and so is its first read."""
    clock = Clock()
    recheck = Recheck(clock)

    def is_asked(seen: str) -> bool:
        is_due = recheck.is_due(seen)
        if is_due:
            recheck.record_check(has_found=False)
        return is_due

    assert is_asked("a")
    clock.now_s += LAG_S - 1
    assert is_asked("a")
    clock.now_s += 1
    assert not is_asked("a")
    assert is_asked("b")
    clock.now_s += LAG_S
    assert not is_asked("b")
    clock.now_s += REST_S - LAG_S
    assert is_asked("b")
    assert not is_asked("b")


def test_a_question_that_finds_something_is_asked_again() -> None:
    """A list is bounded, and may have more entries than it has shown. A failed question is due again, too."""
    clock = Clock()
    recheck = Recheck(clock)
    assert recheck.is_due("a")
    clock.now_s += LAG_S
    assert recheck.is_due("a")
    recheck.record_check(has_found=True)
    clock.now_s += LAG_S - 1
    assert recheck.is_due("a")
    recheck.record_check(has_found=False)
    clock.now_s += 1
    assert not recheck.is_due("a")


def test_an_event_that_is_taken_back_is_two_events() -> None:
    """Workers that are rolled back and upgraded again leave runs behind, though the versions are the same as before."""
    clock = Clock()
    recheck = Recheck(clock)
    for seen in ("new", "none", "new"):
        assert recheck.is_due(seen)
        recheck.record_check(has_found=False)
        clock.now_s += LAG_S
        assert not recheck.is_due(seen)
