"""Workers of a run send to its controller what that prints and counts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.reports import WANTING_ALL, send_fewer


class WorkerInteractor:
    """The plugin of a worker that sends each event of a test."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.sent.append("start")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.sent.append(f"{report.when} {report.outcome}")

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.sent.append("finish")


def report_test(outcomes: dict[str, str], **options: Any) -> list[str]:
    """Return what a worker sends of a test whose phases end so."""
    manager = pytest.PytestPluginManager()
    sender = WorkerInteractor()
    manager.register(sender)
    send_fewer(SimpleNamespace(pluginmanager=manager, getoption=options.get))  # type: ignore[arg-type]
    place = ("a.py", 1, "test")
    manager.hook.pytest_runtest_logstart(nodeid="a.py::test", location=place)
    for when, outcome in outcomes.items():
        report: Any = pytest.TestReport("a.py::test", place, {}, outcome, None, when)  # type: ignore[arg-type]
        manager.hook.pytest_runtest_logreport(report=report)
    manager.hook.pytest_runtest_logfinish(nodeid="a.py::test", location=place)
    return sender.sent


@pytest.mark.parametrize(
    ("outcomes", "sent"),
    [
        ({"setup": "passed", "call": "passed", "teardown": "passed"}, ["call passed"]),
        ({"setup": "passed", "call": "failed", "teardown": "failed"}, ["call failed", "teardown failed"]),
        ({"setup": "skipped", "teardown": "passed"}, ["setup skipped"]),
        ({"setup": "failed", "teardown": "passed"}, ["setup failed"]),
    ],
)
def test_a_passed_test_is_one_message(outcomes: dict[str, str], sent: list[str]) -> None:
    """Failures and skips are reported in whichever phase they are."""
    assert sent == report_test(outcomes)


@pytest.mark.parametrize("option", WANTING_ALL)
def test_a_run_that_measures_gets_all_reports(option: str) -> None:
    """Durations of tests have those of setup and teardown."""
    outcomes = {"setup": "passed", "call": "passed", "teardown": "passed"}
    sent = report_test(outcomes, **{option: True})
    assert ["start", "setup passed", "call passed", "teardown passed", "finish"] == sent
