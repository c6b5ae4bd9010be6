"""Stories of migrations in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from activities.migration import MigrationActivities
from activities.policies import PolicyActivities
from peloton.model.ids import job_workflow_id
from peloton.model.migration import Migration, MigrationAct, MigrationSpec
from tests.workflow.children import FakeChild
from tests.workflow.clock import VirtualClock
from tests.workflow.migrated import HOME, ID, TARGET, MigratedPool
from tests.workflow.virtual import Fault, Virtual
from workflows.migration import MigrationInput, MigrationResult, MigrationWorkflow
from workflows.policies import Policies

SLACK_S = 60.0


class Story:
    """A pool, the workflow of its migration, one clock."""

    def __init__(self, services: int = 2, instances: int = 4, *, policies: Policies | None = None) -> None:
        self.clock = VirtualClock()
        self.pool = MigratedPool(self.clock, services, instances)
        self.count = services * instances
        activities = MigrationActivities(self.pool)
        bound: list[Callable[..., Any]] = [activities.advance, activities.roll_back, PolicyActivities({}).policies]
        self.workflow = Virtual(self.clock, MigrationWorkflow, bound, signal="changed")
        for one in self.pool.services:
            job = FakeChild(partial(self.pool.end_leaving, one.job_id))
            self.workflow.children[job_workflow_id(one.job_id)] = job
        self.pool.notify = lambda: self.workflow.jobs_changed([])
        self.workflow.start(MigrationInput(ID, "/maps", TARGET, policies or Policies()))
        self.workflow.run(until=lambda: bool(self.workflow.calls))

    def until(self, fact: Callable[[], bool]) -> Story:
        self.workflow.run(until=fact)
        assert not self.workflow.ended
        return self

    def until_half(self) -> Story:
        return self.until(lambda: self.pool.clusters[TARGET] * 2 >= self.count)

    def end(self) -> MigrationResult:
        result: MigrationResult = self.workflow.run()
        assert self.workflow.failure is None, self.workflow.failure
        return result

    @property
    def status(self) -> dict[str, str]:
        return self.workflow.shown


def test_a_pool_moves() -> None:
    """Service after service, batch by batch; the Web UI shows each state; events for turns, not for pods."""
    story = Story()

    assert MigrationResult("SUCCEEDED", 2, 8) == story.end()
    assert {TARGET: 8} == story.pool.clusters
    assert (2, 1) == (story.pool.away_most, story.pool.moving_most)
    assert ["MIGRATING", "SUCCEEDED"] == story.workflow.shown_states
    assert story.workflow.events <= 14 * story.pool.calls["advance"]


def test_each_step_names_itself() -> None:
    """The summaries that Temporal's pages show are the story of the migration."""
    story = Story(1).until_half()
    story.pool.act(MigrationAct.PAUSE)
    story.until(lambda: story.status["state"] == "PAUSED")
    story.pool.act(MigrationAct.ROLL_BACK)
    story.end()

    moved = "2 instances moved, 2 left in the services under way"
    assert list(dict.fromkeys(story.workflow.summaries)) == [
        "begin: take instances down that go to b",
        f"take the next instances down that go to b: {moved}",
        f"check whether it may continue: {moved}",
        "take the next instances down that come back: 2 instances moved, 0 left in the services under way",
    ]


def test_a_large_service_costs_no_more_than_a_small_one() -> None:
    """A migration takes as many turns as it has batches, whatever their size."""
    events = []
    for instances in (4, 400):
        story = Story(1, instances)
        story.pool.row = Migration(ID, "pool", True, "/maps", MigrationSpec(TARGET, instances // 2, 1))
        story.end()
        events.append(story.workflow.events)

    assert events[0] == events[1]


def test_what_it_waits_for_is_shown() -> None:
    """The query and the details show the reason of a wait."""
    story = Story()
    story.until(lambda: bool(story.pool.away[story.pool.services[0].job_id]))

    assert {"state": "MIGRATING", "waiting_for": "web0: 2 instances to serve in cluster b"} == story.status
    assert "It waits for web0: 2 instances to serve in cluster b." in story.workflow.current_details
    story.end()


def test_a_paused_migration_rests() -> None:
    """A paused migration rests until an operator resumes it, with a read every five minutes."""
    story = Story().until_half()
    story.pool.act(MigrationAct.PAUSE)
    story.until(lambda: story.status["state"] == "PAUSED")
    looks, moved = story.pool.calls["advance"], story.pool.clusters[TARGET]
    story.until(lambda: story.clock.elapsed_s > 1_000)

    assert (3, moved) == (story.pool.calls["advance"] - looks, story.pool.clusters[TARGET])
    story.pool.act(MigrationAct.RESUME)
    assert "SUCCEEDED" == story.end().state


@pytest.mark.parametrize("is_cancelled", [False, True], ids=["rolled back", "workflow cancelled"])
def test_a_rollback(is_cancelled: bool) -> None:
    """A rollback, by request or by a cancellation of the workflow, moves every service back, batch by batch."""
    story = Story().until_half()
    if is_cancelled:
        story.workflow.cancel()
    else:
        story.pool.act(MigrationAct.ROLL_BACK)

    assert "ROLLED_BACK" == story.end().state
    assert ({HOME: 8}, 2) == (story.pool.clusters, story.pool.away_most)
    assert ["MIGRATING", "ROLLING_BACK", "ROLLED_BACK"] == story.workflow.shown_states


def test_lost_signals_cost_time_only() -> None:
    """A rollback without a signal is seen with the next step."""
    story = Story()
    story.workflow.signals_lost = True
    story.until_half().pool.act(MigrationAct.ROLL_BACK)

    assert "ROLLED_BACK" == story.end().state


def test_a_job_without_a_workflow_holds_no_migration_up() -> None:
    """A job without a workflow does not block the migration: it is notified again with the next step, once it
    has one.
    """
    story = Story(1)
    (job,) = story.workflow.children.values()
    job.ended = True
    story.until(lambda: story.pool.calls["advance"] == 4)
    job.ended = False

    assert "SUCCEEDED" == story.end().state


def test_histories_are_short() -> None:
    """A migration of many turns continues as new, and keeps its recorded states."""
    story = Story(3, 12, policies=Policies(history_events_max=100))

    assert "SUCCEEDED" == story.end().state
    assert len(story.workflow.runs) > 2
    assert max(run.events for run in story.workflow.runs) < 150
    assert len(story.workflow.runs) - 1 == story.workflow.summaries.count("continue")
    assert ["MIGRATING", "SUCCEEDED"] == story.workflow.shown_states


def test_it_moves_to_the_current_version_of_the_workers() -> None:
    """A migration moves to the current version of the workers at its next turn."""
    story = Story().until_half()
    story.workflow.upgrade()

    assert "SUCCEEDED" == story.end().state
    assert ["v1", "v2"] == [run.version for run in story.workflow.runs]


def test_a_migration_that_is_forgotten_ends() -> None:
    """A migration without rows ends, as after an operator restored the database."""
    story = Story().until_half()
    story.pool.row = None

    assert "ROLLED_BACK" == story.end().state


@pytest.mark.parametrize("fault", Fault)
def test_every_call_fails_once(fault: Fault) -> None:
    """A failure of any call, before or after it acted, costs little time, and no more instances are unavailable."""
    usual = Story()
    usual.end()

    for index in range(len(usual.workflow.calls)):
        story = Story()
        story.workflow.faults[index] = fault
        assert "SUCCEEDED" == story.end().state, f"call {index}: {story.workflow.calls[index]}"
        assert story.workflow.ended_at_s < usual.workflow.ended_at_s + SLACK_S
        assert 2 == story.pool.away_most
