"""Position of a publisher: the revision up to which every event is published."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

STEPS_MAX = 100_000


@dataclass
class Step:
    """An event, or a revision without one. ``is_done``: it is published, or there is nothing to publish.

    ``revision``: the position once this step and all before it are done.
    """

    revision: int
    is_done: bool = False


class Progress:
    def __init__(self, position: int) -> None:
        self._position = position
        self._steps: deque[Step] = deque()

    def begin_event(self, revision: int) -> Step:
        step = Step(revision)
        self._steps.append(step)
        return step

    def reach(self, revision: int) -> None:
        """Note that all events up to a revision have begun."""
        if self._steps and self._steps[-1].is_done:
            self._steps[-1].revision = revision
        else:
            self._steps.append(Step(revision, is_done=True))

    @property
    def position(self) -> int:
        self._forget_done()
        return self._position

    @property
    def is_full(self) -> bool:
        """Return whether unpublished events hold the position back so far that no more may begin."""
        self._forget_done()
        return len(self._steps) >= STEPS_MAX

    def _forget_done(self) -> None:
        while self._steps and self._steps[0].is_done:
            self._position = self._steps.popleft().revision
