"""The tests of storage that ``make test`` leaves out on PostgreSQL repeat statements of the ones that it runs there."""

from __future__ import annotations

import pytest

from tests.conformance.storage.postgres_cover import FILE, KEPT, choose, load


def test_every_statement_is_run_by_a_chosen_test() -> None:
    """The test that runs most of the missing statements per second is chosen first; modules that are kept are chosen
    whole.
    """
    select, insert, update, delete = statements = ("SELECT", "INSERT", "UPDATE", "DELETE")
    runs = {
        f"{KEPT[0]}::test_a": frozenset({select}),
        "test_b.py::test_slow": frozenset(statements),
        "test_b.py::test_quick": frozenset({insert, update}),
        "test_b.py::test_repeats": frozenset({select, insert}),
        "test_b.py::test_deletes": frozenset({delete}),
    }
    seconds = {**dict.fromkeys(runs, 1.0), "test_b.py::test_slow": 10.0}

    assert {f"{KEPT[0]}::test_a", "test_b.py::test_quick", "test_b.py::test_deletes"} == choose(runs, seconds)


@pytest.mark.parametrize("name", sorted({name.partition("::")[0] for name in load()}))
def test_repeats_are_tests_that_exist(name: str) -> None:
    """A test that was renamed runs on PostgreSQL, so its old name has no place in the list."""
    text = (FILE.parent / name).read_text(encoding="utf-8")
    listed = [test for module, _, test in (line.partition("::") for line in load()) if module == name]

    assert [test for test in listed if f"def {test}(" not in text] == []
