"""Tests of a group (``xdist_group``) run in one worker, the longest groups first, and share what they start."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests import durations, waiting
from tests.sharing import Shared


@pytest.mark.xdist_group("grouped")
@pytest.mark.parametrize("name", ["a", "b"])
def test_the_group_is_part_of_the_id(request: pytest.FixtureRequest, name: str) -> None:
    """The id of a test has its group, by which xdist distributes tests."""
    group = "@grouped" if getattr(request.config.option, "loadgroup", False) else ""

    assert request.node.nodeid.endswith(f"[{name}]{group}")


@pytest.mark.parametrize(
    ("node_id", "unit"),
    [
        ("tests/e2e/test_gangs.py::test_a@gangs", "@gangs"),
        ("tests/e2e/test_gangs.py::test_a[x@y]@real-kubernetes", "@real-kubernetes"),
        ("tests/unit/test_a.py::test_a[x@y]", "tests/unit/test_a.py"),
        ("tests/unit/test_a.py::test_a", "tests/unit/test_a.py"),
    ],
)
def test_seconds_are_of_a_group_or_a_file(node_id: str, unit: str) -> None:
    """The group of a node id is what xdist appended to it, not a part of a parameter."""
    assert unit == durations.unit_of(node_id)


def test_the_longest_of_ungrouped_files_start_first(request: pytest.FixtureRequest) -> None:
    """Tests without a group come after all groups; those without a record come last."""
    file = request.node.nodeid.partition("::")[0]

    assert (True, -5.0, "") == durations.turn_of(request.node, {file: 5.0})
    assert (True, 0.0, "") == durations.turn_of(request.node, {})


@pytest.mark.xdist_group("grouped")
def test_a_group_without_a_record_starts_first(request: pytest.FixtureRequest) -> None:
    """A group without a record may take any time."""
    assert (False, float("-inf"), "grouped") == durations.turn_of(request.node, {})
    assert (False, -7.0, "grouped") == durations.turn_of(request.node, {"@grouped": 7.0})


def test_durations_are_kept_as_a_line_per_unit(tmp_path: Path) -> None:
    """The longest stands first; what takes less than a second needs no place in the order."""
    file = tmp_path / "durations.json"

    durations.save({"tests/a.py": 1.4, "@gangs": 62.0, "tests/b.py": 0.2}, file)

    assert ["{", '  "@gangs": 62,', '  "tests/a.py": 1', "}"] == file.read_text().splitlines()
    assert {"@gangs": 62, "tests/a.py": 1} == durations.load(file)
    assert {} == durations.load(tmp_path / "none.json")


def test_what_a_group_shares_is_made_once_and_ends() -> None:
    """The newest ends first; afterwards it is made again."""
    story: list[str] = []

    @contextmanager
    def make_group(name: str) -> Iterator[str]:
        story.append(f"{name} begins")
        yield name
        story.append(f"{name} ends")

    shared = Shared()
    for name in ("a", "b", "a"):
        assert name == shared.get(name, partial(make_group, name))
    shared.close()
    shared.get("a", lambda: make_group("a"))

    assert ["a begins", "b begins", "b ends", "a ends", "a begins"] == story
    shared.close()


@pytest.mark.parametrize(("load", "expected_s"), [(0.1, 30), (2, 60), (5.5, 165), (60, 180)])
def test_a_timeout_grows_with_the_load(monkeypatch: pytest.MonkeyPatch, load: float, expected_s: float) -> None:
    """A timeout is 30 s on a quiet machine and 180 s at most; a wait that needs longer has what it asks for."""
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "getloadavg", lambda: (2 * load, 0.0, 0.0))

    assert expected_s == waiting.timeout_s()
    assert 200 == waiting.timeout_s(200)


@pytest.mark.parametrize(("waited_s", "pause_s"), [(0.0, 0.01), (0.2, 0.025), (60.0, 0.05)])
def test_polls_become_rarer_in_a_long_wait(waited_s: float, pause_s: float) -> None:
    """The pause between two polls grows with the time waited, within its bounds."""
    assert pause_s == waiting.pause_s(waited_s, 0.01, 0.05)
