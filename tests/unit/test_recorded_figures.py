"""Figures of speed in documents are figures of recorded runs, with the date and the yardstick of each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bench import baseline

ROOT = Path(__file__).resolve().parents[2]
RECORDS = baseline.load()
_CASE = re.compile(r"`([a-z0-9-]+)`")
_BOLD = re.compile(r"\*\*(.+?)\*\*")
_FIGURE = re.compile(r"\d[\d,]*(?:\.\d+)?")


def circumstances(case: str) -> str:
    return f"{RECORDS[case]['date']}, {RECORDS[case]['yardstick_ms']} ms"


def rows() -> list[tuple[str, str, str]]:
    """Read case, measured figures and record of each row of docs/scale.md. A row without a case is of the one above."""
    found, case = [], ""
    text = (ROOT / "docs/scale.md").read_text(encoding="utf-8")
    for line in text.partition("| case | target |")[2].partition("\n\n")[0].splitlines()[2:]:
        what, _, measured, recorded = (cell.strip() for cell in line.strip("|").split("|"))
        if named := _CASE.match(what):
            case = named[1]
        found.append((case, measured, recorded))
    return found


def numbers(value: Any) -> Iterator[float]:
    """All numbers of a record, at any depth."""
    if isinstance(value, dict):
        for one in value.values():
            yield from numbers(one)
    elif isinstance(value, (int, float)):
        yield value
        yield 100 * value  # as a percentage


def is_recorded(figure: str, case: str) -> bool:
    """Return whether a number of the case's record is this figure to the digits that it has."""
    digits = len(figure.partition(".")[2])
    half = 0.5 * 10**-digits + 1e-9
    return any(abs(value - float(figure.replace(",", ""))) <= half for value in numbers(RECORDS[case]))


def test_the_table_of_targets_has_rows() -> None:
    """The table has rows for the test below."""
    assert len(rows()) > 15


@pytest.mark.parametrize(("case", "measured", "recorded"), rows())
def test_a_measured_figure_is_that_of_the_recorded_run(case: str, measured: str, recorded: str) -> None:
    """Each bold figure of docs/scale.md is in the record of its case, and the row has its date and yardstick."""
    figures = [figure for bold in _BOLD.findall(measured) for figure in _FIGURE.findall(bold)]

    assert circumstances(case) == recorded
    assert [] == [figure for figure in figures if not is_recorded(figure, case)]


def test_the_readme_has_the_recorded_throughput() -> None:
    """The README's pods a second are the result of the case `throughput`, with date and yardstick."""
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    run = RECORDS["throughput"]

    said = f"{run['pods_per_second']:,.0f} pods a second ({run['date']}, yardstick {run['yardstick_ms']} ms)"
    assert said in text
    assert [f"{run['pods_per_second']:,.0f}"] == re.findall(r"([\d,]+) pods a second", text)


def test_a_figure_that_was_not_recorded_is_found() -> None:
    """The comparison itself can fail."""
    assert is_recorded(f"{RECORDS['throughput']['pods_per_second']:,.0f}", "throughput")
    assert not is_recorded("2,000", "throughput")


def test_every_record_has_a_date() -> None:
    """A run without a date says nothing about the state of the program that it measured."""
    assert [] == [case for case, line in RECORDS.items() if not re.fullmatch(r"\d{4}-\d\d-\d\d", line.get("date", ""))]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", baseline.circumstances()["date"])
