"""Launches of gangs in virtual time: the real workflows of the job and of the gang on a fake cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import pytest

from peloton.lifecycle.gang import REQUEUE_BACKOFF
from peloton.model.ids import PodId, gang_workflow_id
from peloton.model.job import SlaSpec
from peloton.model.pod import PodState
from tests.workflow.fakes import WHY_UNFIT
from tests.workflow.stories import JOB, Story
from tests.workflow.virtual import Fault, Virtual
from workflows.policies import Policies

GANG = SlaSpec(minimum_running_instances=4)
SHORT = Policies(gang_placement_s=60.0, gang_launch_s=20.0)
HOLD_S = REQUEUE_BACKOFF.delay_ns(1) / 1e9


def fails(*pods: tuple[int, int]) -> Callable[[PodId], PodState]:
    """Make the given ``(instance, run)`` fail."""
    return lambda pod: PodState.FAILED if (pod.instance_id, pod.run_id) in pods else PodState.SUCCEEDED


def promise_events(gang: Virtual, calls: Counter[str]) -> int:
    """Return the number of events that the docstring of the workflow promises."""
    timers = gang.commands["start_timer"]
    vain = calls["place_gang"] - calls["launch"]
    once = 2 * bool(calls["place_and_launch_gang"]) + 7 * calls["place_and_launch_gang"]
    return 14 + 5 * gang.wakes + 7 * vain + 2 * timers + 13 * calls["launch"] + once + 6 * calls["requeue_gang"]


def test_a_gang_is_launched_by_a_workflow_of_its_own() -> None:
    """The gang starts whole, the other pods meanwhile; each pod is launched once."""
    story = Story().submit(10, sla=GANG)

    assert ("SUCCEEDED", {"SUCCEEDED": 10}) == story.run()
    assert {PodId(JOB, i, 1) for i in range(10)} == set(story.cluster.launched)
    assert ["together"] == story.outcomes
    assert [gang_workflow_id(JOB, 1)] == [gang.workflow_id for gang in story.gangs]
    assert ["PLACE", "START", "RUNNING"] == story.gangs[0].shown_states
    assert 1 == story.workflow.commands["start_child_workflow_execution"]


def test_history_budget() -> None:
    """A launch stays within the events that the workflow's docstring promises, however large the gang, and so does the
    job: 8 events to start a launch and to see its end, 5 for each wake-up that is passed on.
    """
    for size in (2, 1_000, 1_001):
        story = Story(hosts=500).submit(size, sla=SlaSpec(minimum_running_instances=size))
        story.run()
        (gang,) = story.gangs
        calls, job = Counter(story.workflow.calls), story.workflow

        assert gang.events <= promise_events(gang, calls)
        told = job.commands["signal_external_workflow_execution"]
        turns = 14 + 7 * job.wakes + len(job.shown_states) + 6 * calls["enqueue"]
        assert job.events <= turns + 15 + 5 * told
        assert told <= 6


@pytest.mark.parametrize("is_told", [True, False])
def test_no_hosts_until_the_timeout(is_told: bool) -> None:
    """A gang that fits on no host releases its admission repeatedly, with longer backoffs, until a host joins."""
    story = Story(hosts=1, slots=3).submit(4, sla=GANG, policies=SHORT).run_for(30)
    waits = "The gang waits for hosts for all of it (4 pods without a host (no host offered))."
    assert story.gangs[0].current_details.startswith(waits)
    assert story.counts == {"READY": 4}
    assert "the launch of its gang" == story.status["waiting_for"]

    story.run_for(40)
    assert story.counts == {"PENDING": 4}
    reason = "no hosts for all 4 members of the gang in 60 s: 4 pods without a host (no host offered)"
    assert {f"queued again: {reason}"} == {pod.message for pod in story.cluster.jobs[JOB].pods}
    story.run_until_pods("READY", 4).run_until_pods("PENDING", 4)
    assert {} == story.cluster.launched
    assert 60 + 30 + 60 <= story.clock.elapsed_s <= 60 + 30 + 60 + 10
    assert 60 == (story.cluster.jobs[JOB].record.gang_due_ns - story.clock.now_ns()) / 1e9

    story.cluster.add_hosts(1, notify=is_told)
    assert ("SUCCEEDED", {"SUCCEEDED": 4}) == story.run()
    assert ["requeue", "requeue", "together"] == story.outcomes
    assert {PodId(JOB, i, 1) for i in range(4)} == set(story.cluster.launched)


def test_a_launch_that_fails_is_started_again_later_each_time() -> None:
    """The job alone starts a failed launch again, after a backoff, however often it wakes."""
    story = Story().submit(4, sla=GANG)
    story.cluster.refusals.update(ready_gang=2)

    def wake_each_second() -> None:
        story.workflow.jobs_changed([])
        story.clock.after(1.0, wake_each_second)

    wake_each_second()
    story.run_until_pods("RUNNING", 4)
    ended_s = [gang.ended_at_s for gang in story.gangs if gang.failure is not None]

    waits_s = [after - before for before, after in pairwise([*ended_s, story.clock.elapsed_s])]

    assert [30, 60] == [10 * round(wait_s / 10) for wait_s in waits_s]


def test_a_gang_with_a_member_that_no_host_could_take() -> None:
    """A gang with a member that fits no host releases its admission at once, and pods of its job outside of the gang
    run.
    """
    story = Story()
    story.cluster.unfit = {2}
    story.submit(6, sla=GANG).run_until_pods("RUNNING", 2)

    assert story.clock.elapsed_s < 3
    assert {"RUNNING": 2, "PENDING": 4} == story.counts
    assert ["requeue"] == story.outcomes
    assert f"queued again: {WHY_UNFIT}" == story.cluster.jobs[JOB].pods.records[0].message
    assert story.gangs[0].events <= promise_events(story.gangs[0], Counter(story.workflow.calls))


def test_hosts_that_come_in_time() -> None:
    """A wake-up about free hosts reaches the gang through its job, at once."""
    story = Story(hosts=1, slots=3).submit(4, sla=GANG).run_for(45)
    story.cluster.add_hosts(1)

    assert ("SUCCEEDED", {"SUCCEEDED": 4}) == story.run()
    assert story.workflow.ended_at_s < 45 + 62
    assert ["together"] == story.outcomes
    assert story.gangs[0].events <= promise_events(story.gangs[0], Counter(story.workflow.calls))


def test_one_member_is_refused() -> None:
    """A host refuses one member: all members return to the queue and none runs without the others; the next launch is
    whole.
    """
    story = Story()
    story.cluster.refused = {PodId(JOB, 2, 1)}
    story.submit(4, sla=GANG)

    assert ("SUCCEEDED", {"SUCCEEDED": 4}) == story.run()
    assert ["requeue", "together"] == story.outcomes
    assert {PodId(JOB, i, run) for i in range(4) for run in (1, 2)} == set(story.cluster.launched)
    assert HOLD_S <= story.workflow.ended_at_s <= HOLD_S + 75


def test_a_gang_that_does_not_start_in_time() -> None:
    """Members that are not RUNNING within the time of a launch are stopped, and the whole gang is queued again."""
    story = Story(start_s=21.0).submit(4, sla=GANG, policies=SHORT).run_for(30)
    story.cluster.start_s = 1.0

    assert ("SUCCEEDED", {"SUCCEEDED": 4}) == story.run()
    assert ["requeue", "together"] == story.outcomes
    assert "0 of 4 members of the gang run 20 s after its launch" == story.gangs[0].result.reason


def test_a_member_fails_after_the_start() -> None:
    """All members restart in a launch of their own; the pods outside of the gang do not."""
    story = Story(ending=fails((1, 1))).submit(6, sla=GANG, max_failures=2)

    assert ("SUCCEEDED", {"SUCCEEDED": 6}) == story.run()
    assert [2, 2, 2, 2, 1, 1] == [pod.run_id for pod in story.cluster.jobs[JOB].pods]
    assert [0, 1, 0, 0] == [pod.failure_count for pod in story.cluster.jobs[JOB].pods.members()]
    assert [gang_workflow_id(JOB, run) for run in (1, 2)] == [gang.workflow_id for gang in story.gangs]


def test_a_member_fails_finally() -> None:
    """Other members end with a member that fails permanently, and the job fails."""
    story = Story(ending=fails((1, 1), (1, 2))).submit(4, sla=GANG, max_failures=2)
    story.cluster.ending = lambda pod: PodState.FAILED if pod.instance_id == 1 else PodState.RUNNING

    assert ("FAILED", {"FAILED": 1, "KILLED": 3}) == story.run()
    assert [2] * 4 == [pod.run_id for pod in story.cluster.jobs[JOB].pods]


def test_kill_during_placement() -> None:
    """A job that is killed while its gang waits for hosts ends at once, and the launch ends by itself."""
    story = Story(hosts=0).submit(4, sla=GANG).run_for(60)
    story.cluster.kill(JOB)

    assert ("KILLED", {"KILLED": 4}) == story.run()
    assert ["over"] == story.outcomes
    assert story.workflow.ended_at_s < 62
    assert story.gangs[0].ended_at_s < 95


def test_the_job_continues_as_new_meanwhile() -> None:
    """A launch continues while its job's workflow continues as new, is signalled, and is not started twice."""
    story = Story(hosts=1, slots=3, run_s=1.0, ending=fails(*((i, run) for i in (4, 5) for run in range(1, 30))))
    story.submit(6, sla=GANG, max_failures=30, policies=Policies(history_events_max=40)).run_for(120)
    runs_before = len(story.workflow.runs)
    story.cluster.add_hosts(1)

    assert "SUCCEEDED" == story.run()[0]
    assert runs_before > 3
    assert ["together"] == story.outcomes
    assert story.gangs[0].ended_at_s < 125


def test_a_launch_continues_as_new() -> None:
    """A launch keeps its timeout when it continues as new: it gives up as early with a long history as with a short
    one.
    """
    story = Story(hosts=0).submit(4, sla=GANG, policies=Policies(gang_placement_s=300.0, history_events_max=30))
    story.run_until_pods("READY", 4).run_until_pods("PENDING", 4)

    assert 300 <= story.clock.elapsed_s <= 302
    assert len(story.gangs[0].runs) > 2
    assert max(run.events for run in story.gangs[0].runs) < 30 + 25


def test_no_signals() -> None:
    """A launch and its job end without any signal."""
    story = Story(run_s=1_000.0)
    story.workflow.signals_lost = True
    story.submit(4, sla=GANG, policies=Policies(look_again_s=300))

    assert ("SUCCEEDED", {"SUCCEEDED": 4}) == story.run()
    assert ["together"] == story.outcomes


def test_a_launch_that_was_terminated_is_begun_again() -> None:
    """The operator who terminates the workflow of a launch does not end the launch: the next wake-up starts another."""
    story = Story(hosts=0).submit(4, sla=GANG).run_for(10)
    story.gangs[0].terminate()
    story.run_for(10)
    assert 1 == len(story.gangs)
    story.cluster.add_hosts(1)

    assert "SUCCEEDED" == story.workflow.run().state
    assert "together" == story.gangs[1].result.outcome


def life() -> Story:
    """A gang of 4 and 3 other pods: one member fails once, one launch of it is refused; small histories."""
    story = Story(hosts=3, slots=3, ending=fails((1, 3)))
    story.cluster.refused = {PodId(JOB, 2, 1)}
    return story.submit(7, sla=GANG, max_failures=2, policies=Policies(history_events_max=60))


@pytest.mark.parametrize("fault", Fault)
def test_every_call_fails_once(fault: Fault) -> None:
    """A failure of any call, before or after it acted, leaves a job that succeeds, with no pod launched twice."""
    usual = life()
    usual.run()
    calls = list(usual.workflow.calls)

    for index in range(len(calls)):
        story = life()
        story.workflow.faults[index] = fault
        assert ("SUCCEEDED", {"SUCCEEDED": 7}) == story.run(), f"call {index}: {calls[index]}"
        assert story.workflow.ended_at_s < usual.workflow.ended_at_s + 100, f"call {index}: {calls[index]}"
    assert {"place_gang", "requeue_gang", "look_at_gang", "launch", "settle", "kill_running"} <= set(calls)
