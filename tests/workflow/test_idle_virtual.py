"""Idle jobs in virtual time: they cost no events, and the sweep finds lost wake-ups."""

from __future__ import annotations

import pytest

from peloton.model.ids import JobId
from peloton.model.job import SlaSpec
from services.wakers.sweep import PERIOD_S, SIGNAL_GRACE_S
from tests.workflow.stories import JOB, SWEPT, Story
from workflows.policies import Policies

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S


def settles(story: Story) -> int:
    return story.cluster.calls["settle"]


def sweeping(story: Story) -> Story:
    """Sweep from this call on, as the leading resource manager does, with signals that arrive, unlike signals of other
    senders.
    """

    def sweep() -> None:
        until_ns = story.clock.now_ns() - int(SIGNAL_GRACE_S * 1e9)
        if story.cluster.storage.wakes.due(until_ns, 10):
            story.workflow.signal_now()
        if not story.workflow.ended:
            story.clock.after(PERIOD_S, sweep)

    story.clock.after(PERIOD_S, sweep)
    return story


def test_an_idle_job_is_not_read() -> None:
    """All pods run, and a day later the workflow has not read storage again, and has written no event."""
    story = Story(run_s=10 * DAY_S).submit(10).run_until_pods("RUNNING", 10).run_for(60)
    before = story.workflow.events, settles(story)
    story.run_for(DAY_S)

    assert before == (story.workflow.events, settles(story))


def test_a_job_in_the_queue_is_not_read() -> None:
    """A job whose pods wait to be admitted reads no storage until the admission wakes it."""
    story = Story(admitted_max=0).submit(10).run_for(60)
    before = story.workflow.events
    story.run_for(DAY_S)

    assert before == story.workflow.events


def test_an_idle_job_is_not_woken_by_the_sweep() -> None:
    """A job that has seen every change is not woken: rounds of the sweep find no lost wake-up."""
    story = sweeping(Story(run_s=10 * DAY_S).submit(10)).run_until_pods("RUNNING", 10).run_for(5 * 60)
    before = story.workflow.wakes, settles(story)
    story.run_for(HOUR_S)

    assert before == (story.workflow.wakes, settles(story))


def test_a_deadline_has_a_timer_of_its_own() -> None:
    """The time of a pod ends to the second, and not with the next round of a sweep."""
    story = Story(run_s=10 * DAY_S).submit(2, sla=SlaSpec(max_running_time_s=7_200)).run_until_pods("RUNNING", 2)
    began_s = story.clock.elapsed_s

    assert ("KILLED", {"KILLED": 2}) == story.run()
    assert 7_200 <= story.workflow.ended_at_s - began_s + 1 <= 7_210


@pytest.mark.parametrize("pods", [1, 10, 250])
def test_lost_signals_are_found_by_the_sweep(pods: int) -> None:
    """Each role dies between its commits and its signals, always: every step is found within a round."""
    story = Story(hosts=pods)
    story.workflow.signals_lost = True
    sweeping(story.submit(pods))

    assert ("SUCCEEDED", {"SUCCEEDED": pods}) == story.run()
    assert story.workflow.ended_at_s < 5 * (PERIOD_S + SIGNAL_GRACE_S)


def test_a_lost_stop_is_found_by_the_sweep() -> None:
    """A stop that an api committed before it was killed is found by the sweep."""
    story = sweeping(Story(run_s=10 * DAY_S).submit(3)).run_until_pods("RUNNING", 3).run_for(300)
    story.workflow.signals_lost = True
    stopped_s = story.clock.elapsed_s
    story.cluster.kill(JobId(JOB))

    assert ("KILLED", {"KILLED": 3}) == story.run()
    assert story.workflow.ended_at_s - stopped_s < 2.5 * (PERIOD_S + SIGNAL_GRACE_S)


def test_a_launch_under_way_is_read() -> None:
    """The workflow of a gang may fail silently: until the gang runs the sweep wakes its job every five minutes."""
    story = sweeping(Story(hosts=0).submit(4, sla=SlaSpec(minimum_running_instances=4))).run_for(60)
    before = story.workflow.wakes
    story.run_for(500.0)

    assert before < story.workflow.wakes


def test_only_jobs_are_never_read() -> None:
    """Workflows that a job starts, and workflows of hosts, poll every five minutes; a configured interval holds for all
    workflows.
    """
    usual, chosen = Policies(retry_s=7.0), Policies(look_again_s=77.0)

    assert SWEPT == Policies().of_jobs() == SWEPT.of_jobs()
    assert usual == usual.of_jobs().of_children() == usual.of_children()
    assert chosen == chosen.of_jobs() == chosen.of_children()


def test_runs_of_earlier_releases_are_swept_when_they_continue_as_new() -> None:
    """A run of an earlier release ends its polling when it continues as new, on every version of the workers."""
    story = Story(run_s=10 * DAY_S).submit(3, policies=Policies()).run_until_pods("RUNNING", 3)
    story.workflow.upgrade()
    story.run_for(HOUR_S)
    before = settles(story)
    assert 2 == len(story.workflow.runs)
    story.run_for(DAY_S)

    assert before == settles(story)


def test_runs_of_earlier_releases_poll_again() -> None:
    """Runs of earlier releases have the polling interval in their input and continue with the timer in their
    histories.
    """
    story = Story(run_s=DAY_S).submit(3, policies=Policies()).run_until_pods("RUNNING", 3).run_for(60)
    before = settles(story)
    story.run_for(HOUR_S)

    assert HOUR_S / Policies().look_again_s == pytest.approx(settles(story) - before, abs=1)
