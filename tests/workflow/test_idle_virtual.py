"""Idle jobs in virtual time: they cost nothing, and the sweep finds wake-ups that were lost."""

from __future__ import annotations

import pytest

from peloton.model.ids import JobId
from peloton.model.job import SlaSpec
from services.sweep import PERIOD_S, SIGNAL_GRACE_S
from tests.workflow.stories import JOB, SWEPT, Story
from workflows.policies import Policies

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S


def settles(story: Story) -> int:
    return story.cluster.calls["settle"]


def sweeping(story: Story) -> Story:
    """Sweep from now on, as the leading resource manager does, with signals that arrive, unlike those of others."""

    def sweep() -> None:
        until_ns = story.clock.now_ns() - int(SIGNAL_GRACE_S * 1e9)
        if story.cluster.storage.wakes.due(until_ns, 10):
            story.workflow.signal_now()
        if not story.workflow.ended:
            story.clock.after(PERIOD_S, sweep)

    story.clock.after(PERIOD_S, sweep)
    return story


def test_an_idle_job_is_not_looked_at() -> None:
    """All pods run, and a day later the workflow has not looked again, and has written no event."""
    story = Story(run_s=10 * DAY_S).submit(10).run_until_pods("RUNNING", 10).run_for(60)
    before = story.workflow.events, settles(story)
    story.run_for(DAY_S)

    assert before == (story.workflow.events, settles(story))


def test_a_job_in_the_queue_is_not_looked_at() -> None:
    """Its pods wait to be admitted, and the admission wakes it."""
    story = Story(admitted_max=0).submit(10).run_for(60)
    before = story.workflow.events
    story.run_for(DAY_S)

    assert before == story.workflow.events


def test_an_idle_job_is_not_woken_by_the_sweep() -> None:
    """Every change was seen: rounds find nothing."""
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
    """A person's stop that an api committed before it was killed."""
    story = sweeping(Story(run_s=10 * DAY_S).submit(3)).run_until_pods("RUNNING", 3).run_for(300)
    story.workflow.signals_lost = True
    stopped_s = story.clock.elapsed_s
    story.cluster.kill(JobId(JOB))

    assert ("KILLED", {"KILLED": 3}) == story.run()
    assert story.workflow.ended_at_s - stopped_s < 2.5 * (PERIOD_S + SIGNAL_GRACE_S)


def test_a_launch_under_way_is_looked_at() -> None:
    """The workflow of a gang may fail silently: until the gang runs the sweep has its job look every five minutes."""
    story = sweeping(Story(hosts=0).submit(4, sla=SlaSpec(minimum_running_instances=4))).run_for(60)
    before = story.workflow.wakes
    story.run_for(500.0)

    assert before < story.workflow.wakes


def test_only_jobs_are_never_looked_at() -> None:
    """Workflows that a job starts, and those of hosts, look every five minutes; a time that was chosen otherwise holds
    for all."""
    usual, chosen = Policies(retry_s=7.0), Policies(look_again_s=77.0)

    assert SWEPT == Policies().of_jobs() == SWEPT.of_jobs()
    assert usual == usual.of_jobs().of_others() == usual.of_others()
    assert chosen == chosen.of_jobs() == chosen.of_others()


def test_runs_of_earlier_releases_are_swept_when_they_continue_as_new() -> None:
    """The next run of a job, on whatever version of the workers, is not looked at any more."""
    story = Story(run_s=10 * DAY_S).submit(3, policies=Policies()).run_until_pods("RUNNING", 3)
    story.workflow.upgrade()
    story.run_for(HOUR_S)
    before = settles(story)
    assert 2 == len(story.workflow.runs)
    story.run_for(DAY_S)

    assert before == settles(story)


def test_runs_of_earlier_releases_look_again() -> None:
    """Their input names the time: they go on by the timer that their histories have."""
    story = Story(run_s=DAY_S).submit(3, policies=Policies()).run_until_pods("RUNNING", 3).run_for(60)
    before = settles(story)
    story.run_for(HOUR_S)

    assert HOUR_S / Policies().look_again_s == pytest.approx(settles(story) - before, abs=1)
