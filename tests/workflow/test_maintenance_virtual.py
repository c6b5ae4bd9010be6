"""Stories of a host's maintenance in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from activities.maintenance import MaintenanceActivities
from activities.policies import PolicyActivities
from peloton.model.maintenance import MaintenanceAct
from tests.workflow.clock import VirtualClock
from tests.workflow.maintained import CLUSTER, HOST, MaintainedHost
from tests.workflow.virtual import Fault, Virtual
from workflows.maintenance import HostMaintenanceWorkflow, MaintenanceInput
from workflows.policies import Policies

CYCLE = ["DRAINING", "DRAINED", "DOWN", "UP"]
SLACK_S = 60.0


class Story:
    def __init__(
        self, *, policies: Policies | None = None, pods: int = 3, turn: bool = True, to_pool: str = ""
    ) -> None:
        self.clock = VirtualClock()
        self.host = MaintainedHost(self.clock, pods=pods, turn=turn)
        activities = MaintenanceActivities(self.host, self.host)
        bound: list[Callable[..., Any]] = [
            activities.read,
            activities.cordon,
            activities.drain,
            activities.take_down,
            activities.bring_up,
            activities.relabel,
            activities.cancel,
            activities.steer,
            PolicyActivities({}).policies,
        ]
        self.workflow = Virtual(self.clock, HostMaintenanceWorkflow, bound, signal="changed")
        self.host.request(to_pool)
        self.host.notify = lambda: self.workflow.jobs_changed([])
        self.workflow.start(MaintenanceInput(CLUSTER, HOST, policies or Policies()))
        self.workflow.run(until=lambda: bool(self.workflow.calls))

    def until(self, fact: Callable[[], bool]) -> Story:
        self.workflow.run(until=fact)
        assert not self.workflow.ended
        return self

    def until_state(self, state: str) -> Story:
        return self.until(lambda: self.host.row is not None and self.host.row.state == state)

    def complete(self) -> Story:
        self.until_state("DOWN").host.act(MaintenanceAct.COMPLETE)
        return self

    def end(self) -> list[str]:
        """Run to the end and return the steps."""
        result = self.workflow.run()
        assert self.workflow.failure is None, self.workflow.failure
        assert result.was_down == ("DOWN" in self.host.steps)
        assert self.host.row is None
        return self.host.steps

    @property
    def status(self) -> dict[str, str]:
        return self.workflow.shown


def test_down_and_up_again() -> None:
    """Each step is done once; one pod is unavailable at a time; the Web UI shows each state; few events for few
    turns.
    """
    story = Story().complete()

    assert story.end() == CYCLE
    assert story.host.away_most == 1
    assert story.workflow.shown_states == ["UP", *CYCLE]
    assert story.workflow.events <= 14 * 10


def test_what_blocks_is_reported() -> None:
    """Details name the jobs whose SLA blocks the drain, the number of pods, and the reason of the SLA."""
    story = Story()
    story.until(lambda: "SLA" in story.status["waiting_for"])

    assert story.status["waiting_for"] == "the end of 1 pod and the SLA of 1 job to let 2 pods go"
    assert story.workflow.current_details.splitlines()[2:] == [
        "3 pods on the host, 1 terminating.",
        "",
        "It waits for the end of 1 pod and the SLA of 1 job to let 2 pods go.",
        "",
        "- job 00000000-0000-4000-8000-000000000001: 2 pods may not leave: "
        "1 of at most 1 instances are unavailable already",
    ]
    assert story.complete().end() == CYCLE


def test_a_host_waits_for_its_turn() -> None:
    """A host drains no pod before its turn; then it drains at once."""
    story = Story(turn=False)
    story.workflow.run(until=lambda: story.host.calls["cordon"] == 3)
    assert (story.status["state"], story.host.staying) == ("UP", 3)

    story.host.give_turn()

    assert story.complete().end() == CYCLE


CANCELS: dict[str, tuple[Callable[[Story], object], list[str]]] = {
    "waiting for its turn": (lambda s: s.until(lambda: s.host.calls["cordon"] == 1), []),
    "draining": (lambda s: s.until(lambda: s.host.leaving == 1), ["DRAINING", "UP"]),
    "drained": (lambda s: s.until(lambda: "DRAINED" in s.host.steps), ["DRAINING", "DRAINED", "UP"]),
}


@pytest.mark.parametrize(("wait", "steps"), CANCELS.values(), ids=CANCELS.keys())
def test_cancel(wait: Callable[[Story], object], steps: list[str]) -> None:
    """A maintenance that is cancelled at any step before DOWN leaves the host up, and no more pods are evicted."""
    story = Story(turn=bool(steps))
    wait(story)
    staying = story.host.staying

    story.host.act(MaintenanceAct.CANCEL)

    assert story.end() == steps
    assert story.host.staying == staying


def test_force() -> None:
    """All pods leave at once."""
    story = Story(pods=9)
    story.until(lambda: "SLA" in story.status["waiting_for"])
    story.host.act(MaintenanceAct.FORCE)

    assert story.complete().end() == CYCLE
    assert story.host.away_most == 9


def test_lost_signals_cost_time_only() -> None:
    """A drain continues without any signal, and a completion is seen."""
    story = Story()
    story.workflow.signals_lost = True

    assert story.complete().end() == CYCLE


def test_a_request_during_the_end_begins_again() -> None:
    """A host that is requested again while its maintenance ends begins another maintenance."""
    story = Story().complete()
    story.workflow.run(until=lambda: story.host.row is None)
    story.host.request()
    story.workflow.signal_now()
    story.until_state("DOWN").host.act(MaintenanceAct.COMPLETE)

    assert story.end() == CYCLE * 2


def test_histories_are_short() -> None:
    """A drain of many rounds continues as new, and keeps its recorded states."""
    story = Story(pods=30, policies=Policies(history_events_max=100)).complete()

    assert story.end() == CYCLE
    assert len(story.workflow.runs) > 5
    assert max(run.events for run in story.workflow.runs) < 150
    assert story.workflow.shown_states == ["UP", *CYCLE]


@pytest.mark.parametrize("fault", Fault)
def test_every_call_fails_once(fault: Fault) -> None:
    """A failure of any call, before or after it acted, leaves each step done once, a little later."""
    usual = Story().complete()
    usual.end()

    for index in range(len(usual.workflow.calls)):
        story = Story()
        story.workflow.faults[index] = fault
        assert story.complete().end() == CYCLE, f"call {index}: {story.workflow.calls[index]}"
        assert story.workflow.ended_at_s < usual.workflow.ended_at_s + SLACK_S
        assert story.host.away_most == 1


# Moves to another host pool.

MOVE = ["DRAINING", "DRAINED", "in batch", "UP"]


def test_a_host_moves_once_it_is_empty() -> None:
    """A host moves as the SLA allows its pods to be evicted; it changes its host pool and is UP again, and is never
    DOWN.
    """
    story = Story(to_pool="batch")
    story.until(lambda: story.host.leaving == 1)
    assert story.workflow.current_details.startswith("Host host1 is **DRAINING**: it moves to host pool batch.")

    assert story.end() == MOVE
    assert story.host.away_most == 1
    assert story.workflow.shown_states == ["UP", "DRAINING", "DRAINED", "UP"]


@pytest.mark.parametrize(("wait", "steps"), CANCELS.values(), ids=CANCELS.keys())
def test_a_cancelled_move_leaves_the_host_where_it_is(wait: Callable[[Story], object], steps: list[str]) -> None:
    """A move that is cancelled at any step before the change leaves the host in its host pool."""
    story = Story(turn=bool(steps), to_pool="batch")
    wait(story)

    story.host.act(MaintenanceAct.CANCEL)

    assert story.end() == steps


def test_a_move_becomes_maintenance() -> None:
    """A move becomes maintenance when an operator requests the host DOWN: it goes DOWN once it is drained."""
    story = Story(to_pool="batch")
    story.until(lambda: story.host.leaving == 1)
    assert story.host.row is not None
    story.host.row = replace(story.host.row, to_pool="")

    assert story.complete().end() == CYCLE


@pytest.mark.parametrize("fault", Fault)
def test_every_call_of_a_move_fails_once(fault: Fault) -> None:
    """A failure of any call, before or after it acted, leaves each step of a move done once."""
    usual = Story(to_pool="batch")
    usual.end()

    for index in range(len(usual.workflow.calls)):
        story = Story(to_pool="batch")
        story.workflow.faults[index] = fault
        assert story.end() == MOVE, f"call {index}: {story.workflow.calls[index]}"
        assert story.workflow.ended_at_s < usual.workflow.ended_at_s + SLACK_S
