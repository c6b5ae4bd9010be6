"""Reports of workers on activities that fail repeatedly."""

from __future__ import annotations

from peloton.model.workflow_trouble import FailingActivity
from services.storage.activity_reports import KEPT_NS
from services.storage.storage import Storage

FIRST = FailingActivity("job/1", "enqueue", 10, "down:\x00\n", 3)
SECOND = FailingActivity("gang/1/1", "launch", 12, "", 4)


def test_a_report_replaces_the_one_before(storage: Storage) -> None:
    """Each worker has one report. The count includes activities that it does not name."""
    reports = storage.activity_reports
    reports.put("w1", [FIRST], 1, 10)
    reports.put("w1", [SECOND], 7, 20)
    reports.put("w2", [FIRST], 1, 30)

    assert ([[FIRST], [SECOND]], 8) == reports.since(20)
    assert ([[FIRST]], 1) == reports.since(21)


def test_a_worker_without_failing_activities_has_no_report(storage: Storage) -> None:
    """The worker reports once that none of its activities fail, and its report is removed."""
    reports = storage.activity_reports
    reports.put("w1", [FIRST], 1, 10)
    reports.put("w1", [], 0, 20)

    assert ([], 0) == reports.since(0)


def test_reports_of_workers_that_are_gone_are_removed(storage: Storage) -> None:
    """The reports of workers that have stopped are removed by the next report of any worker, an hour later."""
    reports = storage.activity_reports
    reports.put("gone", [FIRST], 1, 10)
    reports.put("w1", [SECOND], 1, 11 + KEPT_NS)

    assert ([[SECOND]], 1) == reports.since(0)
