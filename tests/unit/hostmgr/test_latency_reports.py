"""The latencies that are kept."""

from __future__ import annotations

import pytest

from peloton.errors import ResourceExhausted
from peloton.model.advice import PodLatency
from peloton.model.ids import JobId, PodName
from services.hostmgr.latency_reports import LatencyReports

A, B = JobId("91b1b8e5-2ba8-41e7-bc23-0242ac11000a"), JobId("91b1b8e5-2ba8-41e7-bc23-0242ac11000b")
OLD, NEW = PodLatency(1, 2, 3, 4), PodLatency(5, 6, 7, 8)


class Story:
    def __init__(self, pods_max: int = 100) -> None:
        self.now_s = 0.0
        self.reports = LatencyReports(lambda: self.now_s, pods_max)

    def take(self, job_id: JobId, instances: int, latency: PodLatency = OLD) -> None:
        self.reports.take({PodName(job_id, instance): latency for instance in range(instances)})


def test_the_last_report_of_each_instance_counts() -> None:
    """The last report of each instance counts, and is returned as news once."""
    story = Story()
    story.take(A, 2)
    story.take(A, 1, NEW)

    assert {A: {0: NEW, 1: OLD}} == story.reports.pop_news()
    assert ({}, {A}) == (story.reports.pop_news(), story.reports.jobs())


def test_a_report_is_kept_for_a_minute() -> None:
    """A pod without a report for a minute counts as one that never reported."""
    story = Story()
    story.take(A, 2)
    story.now_s = 59
    story.take(B, 1)
    story.take(A, 1)
    story.now_s = 60

    assert {A: {0: OLD}, B: {0: OLD}} == story.reports.pop_news()
    story.now_s = 200
    assert ({}, set()) == (story.reports.pop_news(), story.reports.jobs())


def test_no_more_pods_are_kept_than_the_bound() -> None:
    """A report above the bound is rejected as a whole, with the numbers; known pods are still accepted; old ones are
    dropped.
    """
    story = Story(pods_max=3)
    story.take(A, 2)
    with pytest.raises(
        ResourceExhausted, match="latencies of 2 pods are kept, of 2 more are reported: at most 3"
    ) as no:
        story.take(B, 2)
    assert 60.0 == no.value.retry_after_s
    story.take(A, 2, NEW)
    assert {A: {0: NEW, 1: NEW}} == story.reports.pop_news()
    story.now_s = 60

    story.take(B, 3)
    story.reports.forget(B)
    story.take(A, 3)
    assert {A} == story.reports.jobs()
