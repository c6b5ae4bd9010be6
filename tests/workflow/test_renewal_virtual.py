"""Runs that end because their workflow continues on other workers, or under other policies."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from peloton.model.job import SlaSpec
from tests.workflow import test_maintenance_virtual, update_story
from tests.workflow.stories import Story
from tests.workflow.virtual import Fault, Virtual
from workflows.policies import Policies


def runs_of(virtual: Virtual) -> list[str]:
    """Versions of the workers that its runs were pinned to."""
    return [run.version for run in virtual.runs]


@pytest.mark.parametrize("moved", [False, True], ids=["pinned", "moved"])
def test_a_job_moves_to_the_current_version_when_it_wakes(moved: bool) -> None:
    """A job moves when it wakes, not earlier, and before any other call: the next run takes the next step. Pods
    continue.
    """
    story = Story(run_s=1000.0).submit(3).run_until_pods("RUNNING", 3).run_for(20)
    before = list(story.workflow.calls)
    story.workflow.upgrade(moved=moved)

    assert 1 == len(story.run_for(20).workflow.runs)
    story.workflow.signal_now()
    story.run_for(1)

    assert ["v2" if moved else "v1", "v2"] == runs_of(story.workflow)
    assert [*before, "policies", "settle"] == story.workflow.calls
    assert ("SUCCEEDED", {"SUCCEEDED": 3}) == story.run()
    assert 3 == len(story.cluster.launched)


def test_a_run_stays_with_workers_without_a_version() -> None:
    """A run without a version stays on its workers, whose code has no versions: its calls must replay when the run is
    moved back.
    """
    story = Story(run_s=1000.0).submit(3).run_until_pods("RUNNING", 3).run_for(20)
    for version in ("", "v1"):
        story.workflow.upgrade(version, moved=True)
        story.workflow.signal_now()
        story.run_for(20)

    assert 1 == len(story.workflow.runs)


def test_a_launch_moves_to_the_current_version() -> None:
    """A launch moves to the current version while it waits for hosts, and continues to wait."""
    story = Story(hosts=0).submit(4, sla=SlaSpec(minimum_running_instances=4)).run_for(60)
    for virtual in (story.workflow, story.gangs[0]):
        virtual.upgrade()

    story.run_for(60)

    assert [["v1", "v2"]] == [runs_of(gang) for gang in story.gangs]
    assert story.gangs[0].current_details.startswith("The gang waits for hosts for all of it")


def test_a_rollout_moves_to_the_current_version() -> None:
    """A rollout moves to the current version half way; each instance is replaced once."""
    story = update_story.Story(6)
    story.roll_out(1)
    story.workflow.run(until=lambda: story.service.versions.count(2) == 3)
    story.workflow.upgrade()
    story.workflow.run()

    assert ["v1", "v2"] == runs_of(story.workflow)
    assert ([2] * 6, 1) == (story.service.versions, story.service.away_most)


def test_a_maintenance_moves_to_the_current_version() -> None:
    """A maintenance moves to the current version in the middle of its drain."""
    story = test_maintenance_virtual.Story(pods=30, policies=Policies(history_events_max=2_000))
    story.workflow.upgrade()
    story.complete()

    assert ["v1", "v2"] == runs_of(story.workflow)


def long_job(policies: Mapping[str, float], faults: Mapping[int, Fault]) -> Virtual:
    """Return the workflow of a job whose first run is full after 30 events; the installation has ``policies``."""
    story = Story(admitted_max=10, policies=policies).submit(95, policies=Policies(history_events_max=30))
    story.workflow.faults.update(faults)
    assert ("SUCCEEDED", {"SUCCEEDED": 95}) == story.run()
    return story.workflow


def test_policies_are_read_when_a_workflow_continues_as_new() -> None:
    """A next run has the policies of the installation; policies unknown to this version are ignored."""
    wide = {"history_events_max": 10_000, "retry_s": 4, "of_a_later_version": 1.5}

    assert 2 == len(long_job(wide, {}).runs)


def test_policies_that_cannot_be_read_stay_as_they_are() -> None:
    """A workflow that cannot read policies continues as new with its old ones, and the next run reads them."""
    wide = {"history_events_max": 10_000}
    first = long_job(wide, {}).calls.index("policies")

    assert 3 == len(long_job(wide, {first: Fault.REFUSED}).runs)


def test_whole_numbers_stay_whole() -> None:
    """Policies may come as decimal numbers from a payload."""
    assert Policies(place_pods_max=7, retry_s=3.0) == Policies().update({"place_pods_max": 7.0, "retry_s": 3})
