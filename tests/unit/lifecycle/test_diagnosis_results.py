"""Results of the checks of a control plane."""

from __future__ import annotations

import pytest

from peloton.lifecycle import diagnosis
from peloton.model.diagnosis import Check, CheckResult

OK, WARN, FAIL = CheckResult
GIB = 1 << 30


@pytest.mark.parametrize(
    ("check", "result"),
    [
        (diagnosis.check_latency(0.01), OK),
        (diagnosis.check_latency(0.5), WARN),
        (diagnosis.check_clock("clock", 0.4), OK),
        (diagnosis.check_clock("clock", -2.0), WARN),
        (diagnosis.check_clock("clock", 60.0), FAIL),
        (diagnosis.check_schema("0030_from_0009", "0030_from_0009", is_compatible=True), OK),
        (diagnosis.check_schema("0031_from_0009", "0030_from_0009", is_compatible=True), WARN),
        (diagnosis.check_schema("", "0030_from_0009", is_compatible=False), FAIL),
        (diagnosis.check_lease("resmgr", "h:1", 3.0), OK),
        (diagnosis.check_lease("resmgr", "h:1", -3.0), FAIL),
        (diagnosis.check_lease("hostmgr/a", "", 0.0), FAIL),
        (diagnosis.check_lease("resmgr", "h:1", 500.0), FAIL),
        (diagnosis.check_answer("resmgr", 0.1), OK),
        (diagnosis.check_answer("hostmgr/a", None), FAIL),
        (diagnosis.check_backlog([("jobs_waiting", 1, 100), ("jobs_active", 2, 100)]), OK),
        (diagnosis.check_backlog([("jobs_waiting", 60, 100), ("jobs_active", 2, 100)]), WARN),
        (diagnosis.check_backlog([("jobs_waiting", 60, 100), ("jobs_active", 100, 100)]), FAIL),
        (diagnosis.check_disk("x.db", 50 * GIB, 100 * GIB), OK),
        (diagnosis.check_disk("x.db", 5 * GIB, 100 * GIB), WARN),
        (diagnosis.check_disk("x.db", 1, 100 * GIB), FAIL),
        (diagnosis.check_rules([], 31), OK),
        (diagnosis.check_rules([("pod: has a job", 3)], 31), FAIL),
    ],
)
def test_a_check_has_advice_where_something_is_to_be_done(check: Check, result: CheckResult) -> None:
    """Each result but ok says what to do, and ok asks for nothing."""
    assert (result, result is not OK) == (check.result, bool(check.advice))
    assert check.text
