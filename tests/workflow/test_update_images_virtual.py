"""Images that are fetched ahead of a rollout, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from peloton.lifecycle import rollout
from tests.workflow.update_story import Story
from workflows.policies import Policies
from workflows.update import UpdateResult

PREFETCH = "prefetch_images"
IMAGES = {1: "web:1", 2: "web:2", 3: "web:3"}


def with_images(instances: int = 6) -> Story:
    story = Story(instances)
    story.service.images = dict(IMAGES)
    return story


def test_images_of_the_next_batches_are_fetched_while_one_is_updated() -> None:
    """Each host is asked before its instance begins, in the order in which they begin; the first batch and the last
    step send no request.
    """
    story = with_images(6).roll_out(2, in_place=True)
    before_the_second: list[tuple[str, str]] = []
    story.until(lambda: story.batches == 2)
    before_the_second += story.cluster.prefetched
    story.end()

    assert before_the_second == [("web:2", f"host{i}") for i in (2, 3, 4, 5)]
    assert story.cluster.prefetched[4:] == [("web:2", f"host{i}") for i in (4, 5)]
    assert story.workflow.calls.count(PREFETCH) == 2


@pytest.mark.parametrize("batch_size", [1, 2, 5, 12])
def test_history_budget_with_images(batch_size: int) -> None:
    """A rollout writes 6 more events for each batch whose images are fetched, as the docstring of the workflow
    promises.
    """
    story = with_images(12).roll_out(batch_size, in_place=True)
    story.end()

    fetched = -(-12 // batch_size) - 1
    assert story.workflow.calls.count(PREFETCH) == fetched
    assert (
        story.workflow.events == 8 + 5 * story.workflow.wakes + story.batches + 5 * len(story.told_s) + 6 * fetched + 1
    )


@pytest.mark.parametrize("spec", [{"in_place": False}, {"in_place": True, "batch_size": 0}])
def test_nothing_is_fetched_for_hosts_that_are_not_known_or_have_begun(spec: dict[str, Any]) -> None:
    """Instances that are placed again may run on any host, and a single batch has no later instances."""
    story = with_images()
    story.roll_out(spec.pop("batch_size", 2), **spec).end()

    assert ([], 0) == (story.cluster.prefetched, story.workflow.calls.count(PREFETCH))


def test_an_image_that_stays_costs_nothing() -> None:
    """Unchanged images cost no event."""
    story = Story(6)
    story.service.images = {1: "web:1", 2: "web:1"}
    story.roll_out(2, in_place=True).end()

    assert story.workflow.calls.count(PREFETCH) == 0


def test_no_cluster_can_fetch_images() -> None:
    """A cluster that cannot fetch images is asked once, also when the workflow continues as new, and the rollout
    continues.
    """
    story = with_images(12)
    story.cluster.can_prefetch = False
    story.roll_out(1, Policies(history_events_max=30), in_place=True)

    assert story.end().done_count == 12
    assert len(story.workflow.runs) > 2
    assert story.workflow.calls.count(PREFETCH) == 1


def test_fetching_fails_and_the_rollout_does_not_notice() -> None:
    """Three attempts for each batch fail, and the rollout takes no longer than without."""
    usual = Story(6).roll_out(2)
    usual.end()
    story = with_images(6)
    story.cluster.outages["prefetch"] = 1_000
    story.roll_out(2, in_place=True)

    assert story.end() == UpdateResult("update1", "SUCCEEDED", 6, 0)
    assert story.workflow.attempts[PREFETCH] == 3 * 2
    assert story.workflow.ended_at_s < usual.workflow.ended_at_s + 0.1


def test_a_slow_answer_holds_nothing_up() -> None:
    """A first call under way does not stop the update from being paused, resumed and continued; there is one call at a
    time.
    """
    story = with_images(8)
    story.cluster.outages["prefetch"] = 2  # its third attempt comes after the pause
    story.workflow.on_call[PREFETCH] = lambda: story.service.steer(rollout.pause)
    story.roll_out(2, in_place=True)
    story.until(lambda: bool(story.told_s))
    story.until(lambda: story.status["state"] == "PAUSED")
    assert story.workflow.attempts[PREFETCH] < 3
    story.service.steer(rollout.resume)

    assert story.end().done_count == 8
    assert story.workflow.calls.count(PREFETCH) == 3


def test_batches_that_are_faster_than_a_call() -> None:
    """One call runs at a time; images of batches that begin meanwhile are requested when it has ended."""
    story = Story(8, away_s=0.01)
    story.service.images = dict(IMAGES)
    story.cluster.outages["prefetch"] = 2
    story.roll_out(1, in_place=True)

    assert story.end().done_count == 8
    assert 2 <= story.workflow.calls.count(PREFETCH) < 8 - 1
    assert {f"host{i}" for i in range(3, 8)} == {host for _, host in story.cluster.prefetched}


def test_images_of_an_update_that_is_turned_back() -> None:
    """A rollback has batches of its own, and their images are fetched ahead as well."""
    story = with_images(6)
    story.service.broken_versions = {2}
    story.service.images[3] = "web:1"
    story.roll_out(2, in_place=True, rollback_on_failure=True, max_instance_attempts=1, max_failure_instances=1)

    assert story.end().state == "ROLLED_BACK"
    assert story.cluster.prefetched == [("web:2", f"host{i}") for i in (2, 3, 4, 5)]
