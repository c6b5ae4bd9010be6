"""Launches after the database was restored wait for the comparison with the cluster, and for the end of orphans."""

from __future__ import annotations

import pytest

from peloton.errors import Unavailable
from peloton.model.ids import JobId, PodId
from peloton.model.pod import PodState, PodStatus
from services.hostmgr.restored import QUIET_S, WAIT_MAX_S, RestoredGate

A, B = (PodId(JobId("0123abcd-0000-4000-8000-000000000000"), instance, 1) for instance in (0, 1))


class Marks:
    """The mark of one database."""

    def __init__(self, is_restored: bool) -> None:
        self.is_restored = is_restored

    def is_compared(self, cluster: str) -> bool:
        return not self.is_restored

    def note_compared(self, cluster: str, now_ns: int) -> None:
        self.is_restored = False


class World:
    def __init__(self, is_restored: bool = True) -> None:
        self.now_s = 0.0
        self.marks = Marks(is_restored)
        self.gate = RestoredGate(self.marks, "east", lambda: self.now_s)  # type: ignore[arg-type]
        self.gate.start()

    def may_launch(self, after_s: float = 0.0) -> bool:
        self.now_s += after_s
        self.gate.review()
        try:
            self.gate.check()
        except Unavailable:
            return False
        return True


def test_a_database_that_was_not_restored_waits_for_nothing() -> None:
    """Launches begin at once, and orphans do not stop them."""
    world = World(is_restored=False)
    world.gate.note_orphans([A])
    assert world.may_launch()


def test_launches_wait_for_the_comparison() -> None:
    """Launches begin when it is complete and no orphan has appeared for a while; the next leader does not wait."""
    world = World()
    assert not world.may_launch(100 * QUIET_S)
    world.gate.note_compared()
    assert not world.may_launch(QUIET_S - 1)
    assert world.may_launch(1)
    assert not world.marks.is_restored


def test_launches_wait_for_the_end_of_orphans() -> None:
    """Each new orphan is waited for; a report that it runs does not count."""
    world = World()
    world.gate.note_compared()
    world.gate.note_orphans([A, B])
    assert not world.may_launch(2 * QUIET_S)
    world.gate.note_statuses([PodStatus(A, PodState.KILLED, 1), PodStatus(B, PodState.RUNNING, 1)])
    with pytest.raises(Unavailable, match="compared with cluster east: launches wait until 1 orphaned pods have ended"):
        world.gate.check()
    assert not world.may_launch(QUIET_S)
    world.gate.note_statuses([PodStatus(B, PodState.LOST, 1)])
    assert world.may_launch()


def test_an_orphan_that_does_not_end_delays_for_a_bounded_time() -> None:
    """Hosts of orphans may be gone for ever."""
    world = World()
    world.gate.note_compared()
    world.gate.note_orphans([A])
    assert not world.may_launch(WAIT_MAX_S - 1)
    assert world.may_launch(1)
