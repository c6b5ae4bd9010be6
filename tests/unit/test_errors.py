"""Status codes: one meaning each, and each is told to clients."""

from __future__ import annotations

import ast
from pathlib import Path

import grpc
import pytest

from peloton.errors import ERRORS, PelotonError
from tests.unit.tidy import PACKAGES, ROOT, files, tree_of

TABLE = (ROOT / "docs" / "operations.md").read_text().split("## Status codes")[1].split("\n## ")[0]


@pytest.mark.parametrize("code", [*ERRORS, "DEADLINE_EXCEEDED"])
def test_every_code_is_in_the_table_of_clients(code: str) -> None:
    """With whose fault it is and whether the call may be repeated."""
    rows = [line.split("|") for line in TABLE.splitlines() if line.startswith(f"| {code}")]

    assert rows
    assert all(whose.strip() and repeat.strip() for _, _, whose, repeat, *_ in rows)


def test_codes_are_those_of_grpc() -> None:
    """Each by its own class."""
    assert {code: type(error) for code, error in ERRORS.items()} == dict.fromkeys(ERRORS, type)
    assert set(ERRORS) <= {code.name for code in grpc.StatusCode}


def _raised(path: Path) -> set[str]:
    calls = [node.exc for node in ast.walk(tree_of(path)) if isinstance(node, ast.Raise)]
    return {call.func.id for call in calls if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)}


def test_no_refusal_is_without_a_code() -> None:
    """Nor INTERNAL, which is a bug: nobody raises one on purpose."""
    faults = {PelotonError.__name__, "Internal"}

    assert [path for path in files(*PACKAGES) if path.suffix == ".py" and faults & _raised(path)] == []
