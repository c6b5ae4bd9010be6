"""Hosts that come back again and again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from peloton.lifecycle.avoidance import FOR_ALL
from peloton.lifecycle.flapping import RETURNS_MIN, WINDOW_S, Returns, after_return
from peloton.lifecycle.reason_text import misfit_text


def after(*at_s: float, may_avoid: bool = True) -> Returns:
    record = Returns()
    for one in at_s:
        record = after_return(record, one, may_avoid)
    return record


def test_three_returns_within_the_window_are_too_many() -> None:
    """Three returns within the window make a host avoided, with the numbers in the reason; two do not, nor three that
    are far apart.
    """
    assert [False, False, True] == [after(*(100.0, 200.0, 300.0)[:n]).is_avoided(301.0) for n in (1, 2, 3)]
    assert not after(100.0, 200.0, 201.0 + WINDOW_S).is_avoided(202.0 + WINDOW_S)
    assert "avoided after it was gone and came back 3 times within 200 s" == misfit_text(after(100.0, 200.0, 300.0).why)


def test_each_time_it_is_avoided_for_longer() -> None:
    """Avoidance doubles each time, up to an hour; after an hour without returns it restarts."""
    record, now_s, lengths = Returns(), 0.0, []
    for _ in range(9):
        for _ in range(RETURNS_MIN):
            now_s += 1.0
            record = after_return(record, now_s, True)
        lengths.append(record.until_s - now_s)
        now_s = record.until_s
    assert [60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3600.0, 3600.0, 3600.0] == lengths

    later_s = record.until_s + FOR_ALL.longest_s + 1.0
    assert record.is_over(later_s)
    for step in range(RETURNS_MIN):
        record = after_return(record, later_s + step, True)
    assert FOR_ALL.first_s == record.until_s - later_s - RETURNS_MIN + 1


def test_a_host_that_may_not_be_avoided_is_remembered() -> None:
    """The returns are counted while the host may not be avoided: the next one makes it avoided."""
    record = after(1.0, 2.0, 3.0, may_avoid=False)

    assert (False, True) == (record.is_avoided(3.5), after_return(record, 4.0, True).is_avoided(4.5))


@given(st.lists(st.floats(0.0, 1_000.0), max_size=30))
def test_memory_and_waits_are_bounded(gaps: list[float]) -> None:
    """Memory and waits are bounded, whatever a host does."""
    record, now_s = Returns(), 0.0
    for gap in gaps:
        now_s += gap
        record = after_return(record, now_s, True)
        assert len(record.at_s) <= RETURNS_MIN
        assert record.until_s - now_s <= FOR_ALL.longest_s
