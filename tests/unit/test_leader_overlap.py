"""Overlap of two leaders, in virtual time: a quarter of a lease at most, however slow storage is."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Sequence
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from peloton.errors import Unavailable
from services.election.lease_row import LeaderElection
from tests.unit.lease_table import Table

ROLE, RIVAL = "hostmgr", "rival"
TTL_S = 8.0
OVERLAP_MAX_S = TTL_S / 4
NEVER_S = 100 * TTL_S


class Jumps(selectors.DefaultSelector):
    """Selects no events from outside: waiting costs no time."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1_000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "everybody waits, and nothing will happen"
        self.now_s += max(timeout, 0.0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs calls of threads after the times in ``takes``."""

    def __init__(self, takes: Callable[[str], tuple[float, float]]) -> None:
        self._jumps = Jumps()
        self._takes = takes
        super().__init__(self._jumps)

    def time(self) -> float:
        return self._jumps.now_s

    def stand_still(self, for_s: float) -> None:
        self._jumps.now_s += for_s

    def run_in_executor(  # type: ignore[override]  # whose parameters are bound to those of the function
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = self.create_future()
        effect_s, answer_s = self._takes(func.__name__)

        def take_effect() -> None:
            found = func(*args)

            def give() -> None:
                if not answer.done():
                    answer.set_result(found)

            self.call_later(answer_s, give)

        self.call_later(effect_s, take_effect)
        return answer


class Story:
    """A leader whose storage is slow, a rival that replaces it as soon as possible, and the time for which both
    lead.
    """

    def __init__(
        self,
        renewals: Sequence[float],
        questions: Sequence[tuple[float, float]],
        rival_waits_s: float,
        stops: Sequence[tuple[float, float]],
    ) -> None:
        """Plan the times. ``renewals``: each has its effect after so many seconds; ``questions``: the same, and the
        time until the answer arrives; later calls hang. ``stops``: when and for how long the leader's process is
        stopped.
        """
        self._times = {
            "renew": [(effect_s, 0.0) for effect_s in renewals],
            "holds": list(questions),
            "acquire": [(0.0, 0.0)],
        }
        self._rival_waits_s = rival_waits_s
        self._stops = stops
        self._table = Table()
        self._loop = VirtualLoop(self._takes)
        self._woke_s = 0.0
        self._taken_s: float | None = None

    def _takes(self, call: str) -> tuple[float, float]:
        left = self._times[call]
        return left.pop(0) if left else (NEVER_S, NEVER_S)

    def overlap_s(self) -> float:
        """Return the overlap in the time in which the leader's process ran."""
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            return runner.run(self._play())

    async def _play(self) -> float:
        clock = self._loop.time
        election = LeaderElection(self._table, ROLE, TTL_S, clock, clock)
        await election.win()
        began_s = clock()
        for at_s, for_s in self._stops:
            self._loop.call_later(at_s, self._stop, for_s)
        self._loop.call_later(self._rival_waits_s, self._rival)
        with pytest.raises(Unavailable, match="leadership lost"):
            await election.hold()
        assert clock() < began_s + NEVER_S
        return clock() - max(self._taken_s, self._woke_s) if self._taken_s else 0.0

    def _stop(self, for_s: float) -> None:
        self._loop.stand_still(for_s)
        self._woke_s = self._loop.time()

    def _rival(self) -> None:
        """Try to win at every moment, from a time on."""
        if self._table.acquire(ROLE, RIVAL, "", 1_000 * TTL_S, self._loop.time()):
            self._taken_s = self._loop.time()
        else:
            self._loop.call_later(TTL_S / 100, self._rival)


def parts(most: float) -> st.SearchStrategy[float]:
    """Draw a part of a lease, in hundredths."""
    return st.integers(0, int(most * 100)).map(lambda hundredths: hundredths * TTL_S / 100)


@given(
    renewals=st.lists(st.one_of(parts(0.3), parts(4.0), st.just(NEVER_S)), max_size=12),
    questions=st.lists(st.tuples(parts(0.08), parts(0.06)), max_size=30),
    rival_waits_s=parts(4.0),
    stops=st.lists(st.tuples(parts(4.0), parts(3.0)), max_size=3),
)
@example([], [(0.0, 0.99)] * 30, 1.3 * TTL_S, [])  # slow answers, and the rival comes right after a question
@example([NEVER_S], [(0.0, 0.5)] * 2, 1.01 * TTL_S, [])
@example([0.1], [(0.0, 0.99)] * 9, 5.0, [(4.1, 20.0)])  # stopped while a renewal is under way
@example([20.0] + [0.1] * 5, [(0.0, 0.1)] * 40, 22.1, [])  # a renewal has its effect after the one that followed it
@example([], [(0.0, 0.9)] * 9, 8.1, [(6.5, 20.0)])  # stopped between an answer and its arrival
def test_no_two_lead_for_longer_than_a_quarter_of_a_lease(
    renewals: list[float], questions: list[tuple[float, float]], rival_waits_s: float, stops: list[tuple[float, float]]
) -> None:
    """The overlap is bounded however slow renewals and questions are, and whenever and however often the leader was
    stopped.
    """
    assert Story(renewals, questions, rival_waits_s, stops).overlap_s() <= OVERLAP_MAX_S + 0.01
