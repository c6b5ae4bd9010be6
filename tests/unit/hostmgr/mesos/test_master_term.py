"""What a Mesos master that has just come to lead may not know."""

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
    """Of a master m1 that all agents have come to."""
    made = MasterTerm(WAIT_S, clock)
    made.begin("m1")
    clock.now_s += WAIT_S
    assert not made.is_settling
    return made


def answers(text: str) -> list[dict[str, Any]]:
    """Recorded answers of a master to a question about a task."""
    events = [line.get("event", {}) for line in load("06").lines]
    statuses = [event["update"]["status"] for event in events if event.get("type") == "UPDATE"]
    return [status for status in statuses if status.get("message") == text]


def test_another_master_settles(term: MasterTerm, clock: Clock) -> None:
    """From its subscription on, as long as agents may take."""
    term.lost()
    assert term.is_settling
    clock.now_s += 5
    term.begin("m2")

    clock.now_s += WAIT_S - 1
    assert term.is_settling
    clock.now_s += 1
    assert not term.is_settling


def test_the_same_master_does_not_settle_again(term: MasterTerm) -> None:
    """A connection that was cut and made again changes nothing of what it knows."""
    term.lost()
    term.begin("m1")

    assert not term.is_settling


def test_a_new_host_manager_waits(clock: Clock) -> None:
    """It does not know since when the master leads."""
    term = MasterTerm(WAIT_S, clock)
    assert term.is_settling
    term.begin("m1")

    assert term.is_settling


def test_an_unknown_pod_of_an_unknown_agent_is_not_believed(term: MasterTerm) -> None:
    """As long as the agent may be on its way; afterwards it is."""
    (said, *_) = answers("Reconciliation: Task is unknown")
    assert not term.is_premature(said)
    term.begin("m2")

    assert term.is_premature(said)
    assert term.is_premature({**said, "state": "TASK_LOST"})


@pytest.mark.parametrize("text", ["Reconciliation: Latest task state", "Reconciliation: Task is unknown to the agent"])
def test_what_a_master_knows_is_believed(text: str, term: MasterTerm) -> None:
    """Of a pod, and of an agent that has come and does not know the pod."""
    term.begin("m2")
    said = answers(text)

    assert said
    assert not any(term.is_premature(status) for status in said)
