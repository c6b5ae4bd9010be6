"""Send one report per passed test from the workers of a run to its controller, instead of five messages.

The controller reads them with CPU that the tests need: 3 s in 9,000 tests. It prints and counts no report of a setup or
teardown that has passed; runs that record or print the durations of tests get all reports.
"""

from __future__ import annotations

from typing import Any

import pytest

WANTING_ALL = ("durations", "record_durations", "xmlpath")
"""Options whose plugins read every report."""


def send_fewer(config: pytest.Config) -> None:
    """Reduce the messages of this worker."""
    if any(config.getoption(option, None) for option in WANTING_ALL):
        return
    sender: Any = next(one for one in config.pluginmanager.get_plugins() if type(one).__name__ == "WorkerInteractor")
    send = sender.pytest_runtest_logreport

    def pytest_runtest_logreport(report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed:
            send(report)

    config.pluginmanager.unregister(sender)
    sender.pytest_runtest_logreport = pytest_runtest_logreport
    sender.pytest_runtest_logstart = sender.pytest_runtest_logfinish = None
    config.pluginmanager.register(sender)
