"""Stories of a service's rollout in virtual time."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from peloton.lifecycle import rollout
from peloton.model.ids import update_workflow_id
from tests.workflow import stories
from tests.workflow.rolled import RolledService
from tests.workflow.stories import JOB
from tests.workflow.update_story import Story
from tests.workflow.virtual import Fault
from workflows.policies import Policies
from workflows.update import UpdateResult

SLACK_S = 10.0
FAILING: dict[str, Any] = {"rollback_on_failure": True, "max_instance_attempts": 1, "max_failure_instances": 1}


def test_batches() -> None:
    """Three batches of two run one after the other: the job is notified of the end only, and the Web UI shows it."""
    story = Story(6).roll_out(2)

    assert story.end() == UpdateResult("update1", "SUCCEEDED", 6, 0)
    assert (story.service.versions, story.service.away_most) == ([2] * 6, 2)
    assert (story.batches, len(story.told_s)) == (3, 1)
    assert story.workflow.shown_states == ["ROLLING_FORWARD", "SUCCEEDED"]
    assert story.workflow.current_details.startswith(
        "The UPDATE `update1` is **SUCCEEDED**:\n\n- 6 of 6 instances done"
    )


def test_each_step_names_itself() -> None:
    """The summaries that Temporal's pages show are the story of the rollout."""
    story = Story(5).roll_out(2)
    story.end()

    assert story.workflow.summaries == [
        "begin: find the instances that differ",
        "replace instances 0-1, batch 1 of 3",
        "watch batch 1 of 3: waits for instances 0-1 to run and be healthy",
        "replace instances 2-3, batch 2 of 3",
        "watch batch 2 of 3: waits for instances 2-3 to run and be healthy",
        "replace instance 4, batch 3 of 3",
        "watch batch 3 of 3: waits for instance 4 to run and be healthy",
    ]


def test_a_large_batch_is_the_jobs() -> None:
    """A job is notified of each batch that has more pods than one step may end."""
    story = Story(6).roll_out(2, Policies(at_once_pods_max=1))

    assert story.end() == UpdateResult("update1", "SUCCEEDED", 6, 0)
    assert (story.batches, len(story.told_s), story.service.away_most) == (0, 3 + 1, 2)


def test_it_reports_what_it_waits_for() -> None:
    """Details name the instances in flight, as many as the batch has; a paused update waits for an operator."""
    story = Story(6).roll_out(2)
    story.until(lambda: story.service.versions.count(2) == 2 and story.batches == 2)
    assert story.status == {"state": "ROLLING_FORWARD", "waiting_for": "instances 2-3 to run and be healthy"}

    story.service.steer(rollout.pause)
    story.until(lambda: story.status["state"] == "PAUSED")
    assert story.status["waiting_for"] == "an operator to resume it"
    story.service.steer(rollout.resume)

    assert story.end().done_count == 6


def test_abort() -> None:
    """The abort ends the update at once, and instances that were not begun keep their version."""
    story = Story(6).roll_out(2)
    story.until(lambda: story.batches == 2)

    story.service.steer(rollout.abort)

    assert story.end().state == "ABORTED"
    assert story.service.versions.count(1) >= 2


def test_a_failing_version_is_rolled_back() -> None:
    """The instance that failed is brought back; the others are never touched."""
    story = Story(4)
    story.service.broken_versions = {2}
    story.roll_out(1, **FAILING)

    assert story.end().state == "ROLLED_BACK"
    assert story.service.versions == [3, 1, 1, 1]
    assert story.workflow.shown_states == ["ROLLING_FORWARD", "ROLLING_BACKWARD", "ROLLED_BACK"]


def test_a_rollback_is_a_step_and_a_run_of_its_own() -> None:
    """A rollback names the version and the failures, and costs a bounded number of events."""
    story = Story(4)
    story.service.broken_versions = {2}
    story.roll_out(1, **FAILING)
    story.end()

    first, second = story.workflow.runs
    looks = [name for name in story.workflow.summaries if name.startswith(("begin", "continue", "roll back"))]
    assert looks == [
        "begin: find the instances that differ",
        "roll back to version 1: 1 of 4 instances failed",
        "continue the rollout",
    ]
    told, wakes = 5 * len(story.told_s), 5 * story.workflow.wakes
    assert first.events + second.events == 8 + wakes + story.batches + told + 1 + 12


@pytest.mark.parametrize("fault", Fault)
def test_a_rollback_whose_call_fails_turns_once(fault: Fault) -> None:
    """A rollback whose call fails is repeated, and has no second effect if the first call acted."""
    story = Story(4)
    story.service.broken_versions = {2}
    story.workflow.faults = {3: fault}  # the calls before it: begin, replace, watch
    story.roll_out(1, **FAILING)

    assert story.end().state == "ROLLED_BACK"
    assert "roll_back_failed_update" == story.workflow.calls[3]
    assert story.service.versions == [3, 1, 1, 1]


def test_a_step_that_the_sla_refuses_polls_again() -> None:
    """A step that the SLA blocks is repeated with pauses that double up to a bound, as no signal announces
    the change.
    """
    story = Story(3, sla_maximum=1)
    story.service.lose(2)
    story.roll_out(1, instances=[0, 1])
    story.until(lambda: len(story.service.reads_ns) == 8)

    pauses_s = [round((later - earlier) / 1e9) for earlier, later in pairwise(story.service.reads_ns)]
    assert pauses_s == [2, 4, 8, 16, 30, 30, 30]
    assert story.status["waiting_for"] == "the SLA: 1 of at most 1 instances are unavailable already"
    story.service.find(2)

    assert story.end().state == "SUCCEEDED"
    assert (story.service.versions, story.service.away_most) == ([2, 2, 1], 1)


def test_a_pulse_resumes_it_at_once() -> None:
    """The update without a pulse begins no instance, however often the workflow wakes; instances in flight are
    finished.
    """
    story = Story(4).roll_out(1, pulse_s=5)
    story.until(lambda: len(story.service.reads_ns) == 3)
    assert story.status == {"state": "ROLLING_FORWARD", "waiting_for": "its first pulse"}
    assert (story.service.versions, round(story.clock.elapsed_s)) == ([1] * 4, 600)

    story.service.pulse(story.clock.now_ns())
    story.until(lambda: story.status["waiting_for"] == "a pulse: none has come for 5 s")
    assert story.service.versions == [2, 2, 2, 1]
    assert story.clock.elapsed_s < 600 + SLACK_S

    story.service.pulse(story.clock.now_ns())
    assert story.end().state == "SUCCEEDED"


def test_pulses_leave_no_trace_in_the_history() -> None:
    """Ten pulses a second write no events: only a workflow that waits for one is woken."""
    histories = []
    for pulse_s in (0, 5):
        story = Story(6)

        def pulse(story: Story = story) -> None:
            story.service.pulse(story.clock.now_ns())
            story.clock.after(0.1, pulse)

        story.roll_out(2, pulse_s=pulse_s)
        pulse()
        assert story.end().done_count == 6
        histories.append(story.workflow.events)
    assert histories[0] == histories[1]


def test_lost_signals_cost_time_only() -> None:
    """Each batch is seen at the next poll when all signals are lost."""
    story = Story(6)
    story.workflow.signals_lost = True

    assert story.roll_out(2, Policies(look_again_s=20.0)).end().state == "SUCCEEDED"
    assert story.clock.elapsed_s < 3 * 20 + SLACK_S


def test_signals_that_come_twice() -> None:
    """A repeated signal begins no instance twice."""
    story = Story(6)
    story.workflow.signal_copies = 3

    assert story.roll_out(2).end().done_count == 6
    assert (story.service.away_most, story.batches, len(story.told_s)) == (2, 3, 1)


def test_an_update_that_comes_while_it_ends() -> None:
    """The update whose signal meets the last step of the one before is rolled out by the same workflow."""
    story = Story(4)

    def another() -> None:
        story.service.roll_out(2)
        story.workflow.signal_now()

    story.service.on_end = another

    assert story.roll_out(2).end() == UpdateResult("update2", "SUCCEEDED", 4, 0)
    assert story.service.versions == [3] * 4


def test_a_newer_update_takes_over() -> None:
    """A newer update starts half-way through the older one; all instances end on the newest version."""
    story = Story(6).roll_out(2)
    story.until(lambda: story.batches == 2)

    story.service.roll_out(3)

    assert story.end() == UpdateResult("update2", "SUCCEEDED", 6, 0)
    assert story.service.versions == [3] * 6


@pytest.mark.parametrize("batch_size", [1, 3, 0])
def test_history_budget(batch_size: int) -> None:
    """A rollout writes the events that the docstring of the workflow promises: 8 events, 5 for each wake-up, one for
    each batch that it ends, 5 for each signal to the job, and one timer.
    """
    story = Story(12).roll_out(batch_size)
    story.end()

    assert story.workflow.events == 8 + 5 * story.workflow.wakes + story.batches + 5 * len(story.told_s) + 1


def test_a_long_rollout_continues_as_new() -> None:
    """Each run is short; states and signals are not repeated in the next run."""
    story = Story(40).roll_out(1, Policies(history_events_max=60))

    assert story.end().done_count == 40
    assert len(story.workflow.runs) > 3
    assert max(run.events for run in story.workflow.runs) < 80
    assert story.workflow.shown_states == ["ROLLING_FORWARD", "SUCCEEDED"]
    assert (story.batches, len(story.told_s)) == (40, 1)


@pytest.mark.parametrize("fault", Fault)
def test_every_call_fails_once(fault: Fault) -> None:
    """A failure of any step, before or after it acted, begins no instance twice, notifies the job of a batch that was
    not ended here, and costs little time.
    """
    usual = Story(6).roll_out(2)
    usual.end()

    for index in range(len(usual.workflow.calls)):
        story = Story(6)
        story.workflow.faults[index] = fault
        assert story.roll_out(2).end() == UpdateResult("update1", "SUCCEEDED", 6, 0), f"call {index}"
        assert story.service.away_most == 2, f"call {index}"
        assert len(story.told_s) <= 2, f"call {index}"
        assert story.workflow.ended_at_s < usual.workflow.ended_at_s + SLACK_S


def test_the_job_starts_its_rollouts() -> None:
    """A job starts the workflow when it reads an update, signals changes to a running one, and starts another for the
    next update after its end.
    """
    story = stories.Story(hosts=1, run_s=10_000)
    service = RolledService(story.clock, JOB, 4)
    story.cluster.rolled[JOB] = service
    service.notify = lambda: story.cluster.notify(JOB)
    story.submit(2).run_until_pods("RUNNING", 2)

    for number in (1, 2):
        service.roll_out(2)
        story.workflow.run(until=lambda number=number: len(story.gangs) == number and story.gangs[-1].ended)

    assert [update.result for update in story.gangs] == [
        UpdateResult("update1", "SUCCEEDED", 4, 0),
        UpdateResult("update2", "SUCCEEDED", 4, 0),
    ]
    assert {update.workflow_id for update in story.gangs} == {update_workflow_id(JOB)}
    story.cluster.kill(JOB)
    assert story.run()[0] == "KILLED"


def test_an_update_does_not_wait_for_the_rollout_that_failed() -> None:
    """A failed workflow is started again later each time; another update, and an act of a user, start it at once."""
    story = stories.Story(hosts=1, run_s=10_000)
    service = RolledService(story.clock, JOB, 4)
    story.cluster.rolled[JOB] = service
    service.notify = lambda: story.cluster.notify(JOB)
    story.submit(2).run_until_pods("RUNNING", 2)
    story.cluster.refusals["advance"] = 3
    began_s = story.clock.elapsed_s

    service.roll_out(2)
    story.workflow.run(until=lambda: len(story.gangs) == 1 and story.gangs[0].ended)
    assert 1 == len(story.run_for(20).gangs)
    story.workflow.run(until=lambda: len(story.gangs) == 2 and story.gangs[1].ended)
    assert 30 < story.clock.elapsed_s - began_s < 30 + SLACK_S
    service.steer(rollout.pause)
    story.workflow.run(until=lambda: len(story.gangs) == 3 and story.gangs[2].ended)
    service.roll_out(2)
    story.workflow.run(until=lambda: len(story.gangs) == 4 and story.gangs[3].ended)

    assert UpdateResult("update2", "SUCCEEDED", 4, 0) == story.gangs[3].result
    assert story.clock.elapsed_s - began_s < 30 + 2 * SLACK_S


def test_the_job_reports_what_people_do() -> None:
    """A pause is shown, and an abort ends the workflow, at once: not at the next poll."""
    story = stories.Story(hosts=1, run_s=10_000)
    service = RolledService(story.clock, JOB, 4, away_s=1_000.0)
    story.cluster.rolled[JOB] = service
    service.notify = lambda: story.cluster.notify(JOB)
    story.submit(2).run_until_pods("RUNNING", 2)
    service.roll_out(2)
    story.workflow.run(until=lambda: len(story.gangs) == 1 and bool(story.gangs[0].shown_states))
    began_s = story.clock.elapsed_s

    service.steer(rollout.pause)
    story.workflow.run(until=lambda: story.gangs[0].shown_states[-1] == "PAUSED")
    service.steer(rollout.abort)
    story.workflow.run(until=lambda: story.gangs[0].ended)

    assert story.gangs[0].result == UpdateResult("update1", "ABORTED", 0, 0)
    assert story.clock.elapsed_s < began_s + SLACK_S


def test_the_job_reports_what_moves_the_update() -> None:
    """A change that does not concern the update is not signalled to its workflow."""
    story = stories.Story(hosts=1, run_s=10_000)
    service = RolledService(story.clock, JOB, 4, away_s=1_000.0)
    story.cluster.rolled[JOB] = service
    service.notify = lambda: story.cluster.notify(JOB)
    story.submit(2).run_until_pods("RUNNING", 2)
    service.roll_out(2)
    story.workflow.run(until=lambda: service.ending == {} and service.reads_ns != [])
    story.run_for(5)
    looks = len(service.reads_ns)

    for _ in range(5):
        story.cluster.notify(JOB)
        story.run_for(5)

    assert len(service.reads_ns) == looks


def test_a_rollout_whose_pods_crash_stalls_at_its_deadline() -> None:
    """The timer of the workflow is enough, and the rollout ends once its pods run."""
    story = Story(4)
    story.service.broken_versions = {2}
    story.roll_out(2)
    told = "It has stalled: no instance has become done for 600 seconds or more: instance 0"
    story.until(lambda: story.service.was_stalled and told in story.workflow.current_details)

    assert 600 <= story.clock.elapsed_s <= 600 + SLACK_S
    assert "ROLLING_FORWARD" == story.status["state"]
    story.service.broken_versions = set()
    for instance in (0, 1):
        story.service._came_back(instance, 2)

    assert story.end() == UpdateResult("update1", "SUCCEEDED", 4, 0)
    assert "stalled" not in story.workflow.current_details


def test_a_slow_rollout_that_moves_on_does_not_stall() -> None:
    """Each instance has the whole deadline, and uses most of it; a pause uses none of it."""
    story = Story(3, away_s=500.0)
    story.roll_out(1)
    story.until(lambda: story.service.versions == [2, 1, 1] and story.batches == 2)
    story.service.steer(rollout.pause)
    story.until(lambda: story.clock.elapsed_s > 2_000)
    story.service.steer(rollout.resume)

    assert 3 == story.end().done_count
    assert not story.service.was_stalled


def test_a_deadline_of_its_own() -> None:
    """Updates may have a deadline shorter than the time after which a rollout polls by itself."""
    story = Story(2)
    story.service.broken_versions = {2}
    story.roll_out(1, progress_deadline_s=45)
    story.until(lambda: story.service.was_stalled)

    assert 45 <= story.clock.elapsed_s <= 45 + SLACK_S
