"""Stories of rebalancing in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from activities.policies import PolicyActivities
from activities.rebalance import RebalanceActivities
from peloton.lifecycle.rebalance import HOUR_S, REST_S, TO_GAIN
from peloton.model.rebalance import RebalanceAct
from tests.workflow.clock import VirtualClock
from tests.workflow.rebalanced import CLUSTER, RebalancedCluster
from tests.workflow.virtual import Fault, Virtual
from workflows.policies import REBALANCE_RETRY_MAX_S, Policies
from workflows.rebalance import RebalanceInput, RebalanceResult, RebalanceWorkflow

SLACK_S = 60.0


class Story:
    """A cluster, the workflow of its rebalancing, one clock."""

    def __init__(self, gains: int = 4, *, policies: Policies | None = None, **cluster: Any) -> None:
        self.clock = VirtualClock()
        self.cluster = RebalancedCluster(self.clock, gains, **cluster)
        activities = RebalanceActivities(self.cluster, self.cluster)
        bound: list[Callable[..., Any]] = [activities.advance, activities.stop, PolicyActivities({}).policies]
        self.workflow = Virtual(self.clock, RebalanceWorkflow, bound, signal="changed")
        self.cluster.notify = lambda: self.workflow.jobs_changed([])
        self.workflow.start(RebalanceInput(CLUSTER, policies or Policies()))
        self.workflow.run(until=lambda: bool(self.workflow.calls))

    def until(self, fact: Callable[[], bool]) -> Story:
        self.workflow.run(until=fact)
        assert not self.workflow.ended
        return self

    def until_at_rest(self) -> Story:
        return self.until(lambda: self.cluster.row is not None and self.cluster.row.progress.waiting_for == TO_GAIN)

    def stop(self) -> RebalanceResult:
        self.cluster.act(RebalanceAct.STOP)
        result: RebalanceResult = self.workflow.run()
        assert self.workflow.failure is None, self.workflow.failure
        return result

    @property
    def status(self) -> dict[str, str]:
        return self.workflow.shown


def test_pods_move_round_after_round_until_nothing_is_gained() -> None:
    """Each round ends before the next; then a plan is made once a minute, and pods move when that improves
    the cluster.
    """
    story = Story().until_at_rest()
    assert (4, 2) == (len(story.cluster.begun_ns), story.cluster.moving_most)
    looks = story.cluster.calls["advance"]
    rested_s = story.clock.elapsed_s
    story.until(lambda: story.clock.elapsed_s > rested_s + 600)
    assert story.cluster.calls["advance"] - looks in (9, 10)

    story.cluster.gains = 1
    story.until(lambda: len(story.cluster.begun_ns) == 5)
    assert RebalanceResult(5) == story.stop()
    assert ["RUNNING", "STOPPING", "STOPPED"] == story.workflow.shown_states


def test_each_step_names_itself() -> None:
    """The summaries that Temporal's pages show are the story of rebalancing."""
    story = Story(2).until_at_rest()
    story.cluster.act(RebalanceAct.PAUSE)
    story.until(lambda: story.status["state"] == "PAUSED")
    story.stop()

    assert list(dict.fromkeys(story.workflow.summaries)) == [
        "begin: plan a round, and begin its moves",
        "watch 2 of 2 moves",
        "plan the next round: 2 moves begun within the last hour",
        "check whether it may continue",
    ]


def test_rounds_leave_the_capacity_to_what_waited() -> None:
    """A next plan is made once waiting pods had the time to use the free resources, and no later than the next poll."""
    story = Story().until_at_rest()

    first, *_, last = story.cluster.begun_ns
    least_s = story.cluster.away_s * 2 + REST_S
    assert least_s * 10**9 < last - first < (least_s + REBALANCE_RETRY_MAX_S) * 10**9


def test_a_large_round_costs_no_more_than_a_small_one() -> None:
    """A round writes events for its turns, not for its pods."""
    events = []
    for moves in (2, 60):
        story = Story(moves, at_once=moves, per_hour=1_000, away_s=3.0 / moves)
        story.until_at_rest()
        events.append(story.workflow.events)

    assert events[0] == events[1]
    assert events[0] <= 10 * story.cluster.calls["advance"] + 10


def test_no_hour_has_more_moves_than_its_budget() -> None:
    """A cluster with a spent budget waits for the hour to pass, which is shown."""
    story = Story(9, per_hour=3)
    story.until(lambda: len(story.cluster.begun_ns) == 3 and not story.cluster.moving)
    story.until(lambda: story.status["waiting_for"].startswith("the hour"))
    assert "It waits for the hour to pass, in which 3 of 3 moves were made." in story.workflow.current_details

    story.until(lambda: len(story.cluster.begun_ns) == 9)
    begun = story.cluster.begun_ns
    assert all(later - earlier >= HOUR_S * 10**9 for earlier, later in zip(begun, begun[3:], strict=False))


def test_paused_rebalancing_moves_nothing() -> None:
    """Paused rebalancing moves no pod until an operator resumes it, and polls every five minutes."""
    story = Story()
    story.until(lambda: story.cluster.moving == 2)
    story.cluster.act(RebalanceAct.PAUSE)
    story.until(lambda: story.status["waiting_for"] == "an operator to resume it" and not story.cluster.moving)
    looks, begun = story.cluster.calls["advance"], len(story.cluster.begun_ns)
    paused_s = story.clock.elapsed_s
    story.until(lambda: story.clock.elapsed_s > paused_s + 1_000)
    assert (2, begun) == (len(story.cluster.begun_ns), 2)
    assert story.cluster.calls["advance"] - looks <= 5

    story.cluster.act(RebalanceAct.RESUME)
    story.until_at_rest()
    assert 4 == len(story.cluster.begun_ns)


@pytest.mark.parametrize("is_cancelled", [False, True], ids=["stopped", "workflow cancelled"])
def test_what_is_stopped_leaves_nothing_half_done(is_cancelled: bool) -> None:
    """A stop, by request or by a cancellation of the workflow, lets moving pods arrive and moves no others."""
    story = Story()
    story.until(lambda: story.cluster.moving == 2)
    if is_cancelled:
        story.workflow.cancel()
        result = story.workflow.run()
    else:
        result = story.stop()

    assert (RebalanceResult(2), 0) == (result, story.cluster.moving)
    assert ["RUNNING", "STOPPING", "STOPPED"] == story.workflow.shown_states


def test_lost_signals_cost_time_only() -> None:
    """A stop without a signal is seen with the next step."""
    story = Story().until_at_rest()
    story.workflow.signals_lost = True

    assert RebalanceResult(4) == story.stop()


def test_histories_are_short() -> None:
    """A life of many turns continues as new, and keeps its recorded states."""
    story = Story(12, policies=Policies(history_events_max=100)).until_at_rest()

    assert RebalanceResult(12) == story.stop()
    assert len(story.workflow.runs) > 2
    assert max(run.events for run in story.workflow.runs) < 130
    assert ["RUNNING", "STOPPED"] == story.workflow.shown_states


def test_it_moves_to_the_current_version_of_the_workers() -> None:
    """A rebalancing moves to the current version of the workers at its next turn."""
    story = Story()
    story.workflow.upgrade()
    story.until_at_rest()

    assert ["v1", "v2"] == [run.version for run in story.workflow.runs]


def test_a_cluster_whose_rows_are_gone_is_left_alone() -> None:
    """A cluster without rows, as after an operator restored the database, ends its workflow without a move."""
    story = Story().until_at_rest()
    story.cluster.row = None

    assert RebalanceResult(0) == story.workflow.run()


@pytest.mark.parametrize("fault", Fault)
def test_every_call_fails_once(fault: Fault) -> None:
    """A failure of any call, before or after it acted, costs little time, and no more pods are moved."""
    usual = Story().until_at_rest()
    rested_s = usual.clock.elapsed_s

    for index in range(len(usual.workflow.calls)):
        story = Story()
        story.workflow.faults[index] = fault
        story.until_at_rest()
        assert story.clock.elapsed_s < rested_s + SLACK_S, f"call {index}: {story.workflow.calls[index]}"
        assert (4, 2) == (len(story.cluster.begun_ns), story.cluster.moving_most)
        assert RebalanceResult(4) == story.stop()
