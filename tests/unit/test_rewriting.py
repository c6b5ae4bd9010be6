"""Workers share the rewriting of the assertions of test modules."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

from tests.rewriting import cache_file, find_modules, rewrite_share

WORKERS = 3


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of seven test modules, a configuration of tests and a helper, without bytecode."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    (tmp_path / "below").mkdir()
    for name in [*(f"below/test_{number}.py" for number in range(7)), "conftest.py", "helper.py"]:
        (tmp_path / name).write_text("def test_it():\n    assert 1 == 2\n")
    return tmp_path


def test_each_module_is_rewritten_by_one_worker(pytestconfig: pytest.Config, folder: Path) -> None:
    """The shares of all workers are disjoint, and together they are all modules that pytest rewrites."""
    modules = find_modules([folder])

    shares = [rewrite_share(pytestconfig, modules, worker, WORKERS) for worker in range(WORKERS)]

    assert modules == sorted(path for share in shares for path in share)
    assert ["conftest.py", *(f"test_{number}.py" for number in range(7))] == sorted(path.name for path in modules)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_pytest_finds_what_was_rewritten(pytestconfig: pytest.Config, folder: Path) -> None:
    """The cache of pytest has the rewritten module, which is not rewritten again."""
    module, *_ = modules = find_modules([folder])

    rewrite_share(pytestconfig, modules, 0, 1)

    code = rewrite._read_pyc(module, cache_file(module))
    assert code is not None
    assert "@pytest_ar" in code.co_names
    assert [] == rewrite_share(pytestconfig, modules, 0, 1)


def test_no_bytecode_is_written_where_python_writes_none(
    pytestconfig: pytest.Config, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PYTHONDONTWRITEBYTECODE holds for the cache of pytest too."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    assert [] == rewrite_share(pytestconfig, find_modules([folder]), 0, 1)
    assert not list(folder.rglob("*.pyc"))
