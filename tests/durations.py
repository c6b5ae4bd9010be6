"""The recorded seconds of tests, in ``durations.json``, by which the longest tests start first.

A line has the sum of a group (``xdist_group``), which one worker runs from its first test to its last, or of a file
whose tests are in no group. ``make durations`` records them. Each worker of a run derives the same order from it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.sharing import group_of

FILE = Path(__file__).with_name("durations.json")
OPTION = "--record-durations"


def unit_of(node_id: str) -> str:
    """Return the group of a node id as xdist writes it, ``file::test@group``, or the file of a test without a group."""
    file, _, test = node_id.partition("::")
    group = test.rpartition("]")[2].partition("@")[2]  # a parameter's text, in brackets before it, may hold an @
    return f"@{group}" if group else file


def turn_of(item: pytest.Item, seconds: Mapping[str, float]) -> tuple[bool, float, str]:
    """Return the key by which tests are sorted: groups first, each list by its recorded seconds, the longest first.

    Ungrouped tests, most of them short, fill the gaps at the end. A group without a record may take any time.
    """
    group = group_of(item)
    unit = f"@{group}" if group else unit_of(item.nodeid)
    return not group, -seconds.get(unit, float("inf") if group else 0.0), group


def load(file: Path = FILE) -> dict[str, float]:
    """Return the seconds by unit; empty when nothing has been recorded."""
    found: dict[str, float] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return found


class Recorder:
    """Sums up the reports of a run, in the process to which all workers report."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[unit_of(report.nodeid)] += report.duration

    def pytest_sessionfinish(self) -> None:
        save(self._seconds)


def save(seconds: Mapping[str, float], file: Path = FILE) -> None:
    """Write one line per unit, the longest first, so that a change of one unit changes one line."""
    rows = sorted(seconds.items(), key=lambda row: (-row[1], row[0]))
    lines = ",\n".join(f"  {json.dumps(unit)}: {value:.0f}" for unit, value in rows if value >= 1)
    file.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
