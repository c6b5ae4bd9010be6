"""The settling time of a new leading Mesos master, which may not know all agents yet."""

from __future__ import annotations

from typing import Any

import pytest

from services.hostmgr.mesos.master_term import MasterTerm
from tests.conformance.minicluster.recording import load

WAIT_S = 600.0


class Clock:
    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def term(clock: Clock) -> MasterTerm:
    """Return the term of a master m1 with which all agents have registered."""
    made = MasterTerm(WAIT_S, clock)
    made.begin("m1")
    clock.now_s += WAIT_S
    assert not made.is_settling
    return made


def answers(text: str) -> list[dict[str, Any]]:
    """Return recorded answers of a master to the reconciliation of a task."""
    events = [line.get("event", {}) for line in load("06").lines]
    statuses = [event["update"]["status"] for event in events if event.get("type") == "UPDATE"]
    return [status for status in statuses if status.get("message") == text]


def test_another_master_settles(term: MasterTerm, clock: Clock) -> None:
    """Another master settles from its subscription on, for the time that agents may take to register."""
    term.end()
    assert term.is_settling
    clock.now_s += 5
    term.begin("m2")

    clock.now_s += WAIT_S - 1
    assert term.is_settling
    clock.now_s += 1
    assert not term.is_settling


def test_the_same_master_does_not_settle_again(term: MasterTerm) -> None:
    """A reconnection does not change the agents that a master has registered."""
    term.end()
    term.begin("m1")

    assert not term.is_settling


def test_a_new_host_manager_waits(clock: Clock) -> None:
    """A new host manager cannot tell since when the master leads."""
    term = MasterTerm(WAIT_S, clock)
    assert term.is_settling
    term.begin("m1")

    assert term.is_settling


def test_an_unknown_pod_of_an_unknown_agent_is_not_believed(term: MasterTerm) -> None:
    """The answer is premature while the agent may still register; afterwards it counts."""
    (said, *_) = answers("Reconciliation: Task is unknown")
    assert not term.is_premature(said)
    term.begin("m2")

    assert term.is_premature(said)
    assert term.is_premature({**said, "state": "TASK_LOST"})


@pytest.mark.parametrize("text", ["Reconciliation: Latest task state", "Reconciliation: Task is unknown to the agent"])
def test_what_a_master_knows_is_believed(text: str, term: MasterTerm) -> None:
    """Answers about known pods, and about unknown pods of a registered agent, count."""
    term.begin("m2")
    said = answers(text)

    assert said
    assert not any(term.is_premature(status) for status in said)
