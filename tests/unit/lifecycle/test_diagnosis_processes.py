"""Comparison of the processes of a control plane."""

from __future__ import annotations

import pytest

from peloton.lifecycle.diagnosis import NAMED_MAX, check_settings, check_versions
from peloton.model.diagnosis import CheckResult, ProcessRecord

OK, WARN, FAIL = CheckResult


def a_process(number: int, version: str = "0.2.0", **settings: str) -> ProcessRecord:
    return ProcessRecord(f"h:{number}", "worker", version, settings)


@pytest.mark.parametrize(
    ("versions", "result"),
    [
        (["0.2.0"], OK),
        (["0.2.0", "0.2.0"], OK),
        (["0.2.0", "0.2.1"], WARN),
        (["0.1.0", "0.2.0.dev0"], WARN),
        (["0.1.0", "0.2.0", "0.2.1"], WARN),
        (["0.9.0", "1.0.0"], WARN),
        (["0.9.0", "0.10.3"], WARN),
        (["0.9.0", "1.1.0"], FAIL),
        (["0.1.0", "0.3.0"], FAIL),
        (["0.1.0", "0.2.0", "0.3.0"], FAIL),
        (["0.1.0", "2.0.0"], FAIL),
        (["0.2.0", "(not installed: runs from its source folder)"], FAIL),
        (["(not installed: runs from its source folder)"], OK),
        ([], WARN),
    ],
)
def test_only_neighbouring_releases_run_together(versions: list[str], result: CheckResult) -> None:
    """Each result but ok has advice; all versions are named."""
    check = check_versions([a_process(number, version) for number, version in enumerate(versions)])

    assert (result, result is not OK) == (check.result, bool(check.advice))
    assert all(version in check.text for version in versions)


def test_the_text_names_a_process_of_each_version() -> None:
    """The most frequent version comes first, with one of its processes and the number of the others."""
    check = check_versions([a_process(1, "0.1.0"), a_process(2), a_process(3)])

    assert "0.2.0 at worker h:2 and 1 more; 0.1.0 at worker h:1" == check.text


@pytest.mark.parametrize(
    ("processes", "texts"),
    [
        ([], []),
        ([a_process(1, namespace="a", issuer="i"), a_process(2, namespace="a")], []),
        ([a_process(1, namespace="a"), a_process(2, namespace="b")], ["a at worker h:1; b at worker h:2"]),
        ([a_process(1, address="x"), a_process(2, address="")], ["x at worker h:1; (empty) at worker h:2"]),
        (
            [a_process(1, namespace="a", keys="k1"), a_process(2, namespace="b", keys="k1, k2")],
            ["k1 at worker h:1; k1, k2 at worker h:2", "a at worker h:1; b at worker h:2"],
        ),
    ],
)
def test_contradictions_name_setting_processes_and_values(processes: list[ProcessRecord], texts: list[str]) -> None:
    """Each setting with different values is a failure of its own. A process without the setting agrees."""
    checks = check_settings(processes)

    assert texts == [one.text for one in checks if one.result is FAIL]
    assert all(one.name.removeprefix("setting ") in ("keys", "namespace", "address") for one in checks if one.advice)
    assert texts or [OK] == [one.result for one in checks]


def test_a_text_names_few_values() -> None:
    """The text has a bound, whatever the number of processes."""
    (check,) = check_settings([a_process(number, namespace=str(number)) for number in range(NAMED_MAX + 3)])

    assert check.text.endswith("; 3 more values")
