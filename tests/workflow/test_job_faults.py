"""A failure of every activity call of a job's life, one at a time: the job still ends well, and no pod starts twice."""

from __future__ import annotations

import pytest

from peloton.model.ids import PodId
from peloton.model.pod import PodState
from tests.nightly import nightly
from tests.workflow.stories import JOB, Story
from tests.workflow.virtual import Fault
from workflows.policies import Policies

pytestmark = pytest.mark.slow

SLACK_S = 65.0
"""Time that one failure may cost: the longest is the wait for the end of a lease that no workflow has recorded."""


def life() -> Story:
    """15 pods in batches of 4 on 2 hosts of 3, admitted 9 at a time; one fails once; small histories."""
    return _life(admission_s=0.1)


def _life(admission_s: float) -> Story:

    def ending(pod: PodId) -> PodState:
        return PodState.FAILED if (pod.instance_id, pod.run_id) == (7, 1) else PodState.SUCCEEDED

    policies = Policies(place_pods_max=4, admit_pods_max=10, history_events_max=120)
    story = Story(hosts=2, slots=3, admitted_max=9, admission_s=admission_s, ending=ending)
    return story.submit(15, max_failures=2, policies=policies)


def run_killed() -> Story:
    story = life().run_until_pods("RUNNING", 6)
    story.cluster.kill(JOB)
    return story


def small_life() -> Story:
    """Ten pods that run at once, on hosts that have room; the host manager settles their end."""
    return Story(admission_s=0, settles_ends=True).submit(10)


def call_count(story: Story) -> int:
    story.run()
    return len(story.workflow.calls)


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("admission_s", [nightly(0.1), 0])
def test_every_call_of_a_life_fails_once(fault: Fault, admission_s: float) -> None:
    """A failure of any call leaves a job that succeeds and takes little longer. Without a delay of admission the job
    learns of it only from an answer, which is lost.
    """
    usual = _life(admission_s)
    calls = call_count(usual)

    for index in range(calls):
        story = _life(admission_s)
        story.workflow.faults[index] = fault
        assert ("SUCCEEDED", {"SUCCEEDED": 15}) == story.run(), f"call {index}: {story.workflow.calls[index]}"
        assert story.workflow.ended_at_s < usual.workflow.ended_at_s + SLACK_S, f"call {index}"
        assert {PodId(JOB, i, 1) for i in range(15)} | {PodId(JOB, 7, 2)} == set(story.cluster.launched)
    assert calls > 20


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("port", ["settle", "create", "enqueue", "acquire_hosts", "launch"])
def test_every_step_of_a_small_life_fails_once(fault: Fault, port: str) -> None:
    """A failure of any step that a small job makes at once leaves a job that ends as usual."""
    usual = small_life()
    usual.run()
    story = small_life()
    (story.cluster.outages if fault is Fault.REFUSED else story.cluster.lost_replies)[port] = 1

    assert ("SUCCEEDED", {"SUCCEEDED": 10}) == story.run()
    assert story.workflow.ended_at_s < usual.workflow.ended_at_s + SLACK_S
    assert {PodId(JOB, i, 1) for i in range(10)} == set(story.cluster.launched)


@pytest.mark.parametrize("fault", Fault)
def test_every_call_of_a_killed_life_fails_once(fault: Fault) -> None:
    """A failure of any call after a kill leaves every pod ended and no additional pod launched."""
    usual = run_killed()
    before = len(usual.workflow.calls)
    calls = call_count(usual)

    for index in range(before, calls):
        story = run_killed()
        story.workflow.faults[index] = fault
        assert "KILLED" == story.run()[0], f"call {index}: {story.workflow.calls[index]}"
        assert story.workflow.ended_at_s < usual.workflow.ended_at_s + SLACK_S, f"call {index}"
    assert calls > before


@pytest.mark.parametrize("fault", Fault)
def test_many_calls_fail(fault: Fault) -> None:
    """A failure of the first attempt of every third call still leaves a job that ends well."""
    story = life()
    story.workflow.faults = dict.fromkeys(range(0, 10_000, 3), fault)

    assert ("SUCCEEDED", {"SUCCEEDED": 15}) == story.run()


def test_storage_away_for_an_hour() -> None:
    """A read of storage is tried a few times within the workflow task, which would fill the history, and continues as
    an activity, whose attempts write no events.
    """
    usual = Story().submit(10)
    usual.run()
    story = Story().submit(10).run_until_pods("RUNNING", 10)
    before, away_from_s = story.workflow.attempts["settle"], story.clock.elapsed_s
    story.cluster.outages["settle"] = 700

    assert ("SUCCEEDED", {"SUCCEEDED": 10}) == story.run()
    assert 3_200 < story.workflow.ended_at_s - away_from_s < 4_000
    assert 700 < story.workflow.attempts["settle"] - before
    assert story.workflow.events <= usual.workflow.events + 8 + 5  # the activity, and the wake-up after it
