"""Cancelling a workflow, as in the Web UI, stops the job, update or maintenance that it runs; the workflow ends after
that.
"""

from __future__ import annotations

import pytest

from peloton.model.job import SlaSpec
from tests.workflow.stories import Story
from tests.workflow.test_maintenance_virtual import Story as Maintenance
from tests.workflow.update_story import Story as UpdateStory
from tests.workflow.virtual import Fault
from workflows.policies import Policies


def job_life() -> Story:
    """40 pods, ten of them on hosts at a time, small histories."""
    return Story(admitted_max=10).submit(40, policies=Policies(history_events_max=40))


def test_a_cancelled_job_is_stopped() -> None:
    """The job's pods end on their hosts and in the queue, then the workflow ends like that of any stopped job."""
    story = job_life().run_until_pods("RUNNING", 10)
    story.workflow.cancel()

    assert ("KILLED", {"KILLED": 40}) == story.run()
    assert 1 == story.cluster.calls["set_goal"]


def test_a_job_may_be_cancelled_at_any_moment() -> None:
    """A job that is cancelled before or within any of its calls, or just after it continued as new, ends with all its
    pods.
    """
    usual = job_life()
    usual.run()
    names = list(enumerate(usual.workflow.calls))
    for index, name in names:
        story = job_life()
        story.workflow.run(until=lambda story=story, index=index: len(story.workflow.calls) > index)
        story.workflow.cancel()
        state, counts = story.run()
        assert 40 == sum(counts.values()), f"call {index}: {name}"
        assert state in {"KILLED", "SUCCEEDED"}, f"call {index}: {name}"
        assert set(counts) <= {"KILLED", "SUCCEEDED"}, f"call {index}: {name}"


@pytest.mark.parametrize("fault", Fault)
def test_the_stop_of_a_cancelled_job_is_tried_again(fault: Fault) -> None:
    """Storage that does not respond to the call, or responds too late, costs time only."""
    story = job_life().run_until_pods("RUNNING", 10)
    before = len(story.workflow.calls)
    story.workflow.faults = dict.fromkeys(range(before, before + 4), fault)
    story.workflow.cancel()

    assert "KILLED" == story.run()[0]


def test_a_job_that_ends_meanwhile_ends() -> None:
    """A cancellation that comes with the last pod's end stops no pod."""
    story = Story().submit(3).run_until_pods("SUCCEEDED", 3)
    story.workflow.cancel()

    assert ("SUCCEEDED", {"SUCCEEDED": 3}) == story.run()


def test_a_job_with_a_gang_on_its_way_is_stopped() -> None:
    """The workflow of the launch sees its members go, and ends by itself."""
    story = Story(hosts=0).submit(4, sla=SlaSpec(minimum_running_instances=4)).run_until_pods("READY", 4)
    story.run_for(5)
    story.workflow.cancel()

    assert ("KILLED", {"KILLED": 4}) == story.run()
    assert ["over"] == story.outcomes


def test_a_cancelled_launch_is_given_up() -> None:
    """The gang waits in its queue again, in backoff for a while, and is launched by another workflow then."""
    story = Story(hosts=0).submit(4, sla=SlaSpec(minimum_running_instances=4)).run_until_pods("READY", 4)
    story.run_for(5)
    story.gangs[0].cancel()
    story.run_for(5)
    story.cluster.add_hosts(1)

    assert ("SUCCEEDED", {"SUCCEEDED": 4}) == story.run()
    assert ["requeue", "together"] == story.outcomes
    assert "the workflow of its launch was cancelled" == story.gangs[0].result.reason


def test_a_cancelled_update_is_aborted() -> None:
    """No instance is changed after that."""
    story = UpdateStory(9).roll_out(2)
    story.until(lambda: story.service.versions.count(2) >= 2).workflow.cancel()

    assert "ABORTED" == story.end().state
    assert 0 < story.service.versions.count(1)


@pytest.mark.parametrize("turn", [True, False])
def test_a_cancelled_maintenance_leaves_the_host_up(turn: bool) -> None:
    """A host whose maintenance is cancelled while it drains or waits for its turn stays UP."""
    story = Maintenance(turn=turn)
    story.until(lambda: len(story.workflow.calls) > 2).workflow.cancel()

    assert "DOWN" not in story.end()


def test_a_host_that_is_down_stays_so() -> None:
    """A host that is DOWN may be under repair: its maintenance must be completed, as the details of the
    workflow say.
    """
    story = Maintenance().until_state("DOWN")
    story.workflow.cancel()
    story.until(lambda: "refused" in story.workflow.current_details)
    details = story.workflow.current_details

    assert "DOWN" in story.complete().end()
    assert "The cancellation was refused: host host1 is DOWN: complete its maintenance instead" in details
