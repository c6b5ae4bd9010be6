"""Rewrite the assertions of test modules once per checkout, and not once per worker.

pytest rewrites the assertions of a module when it first imports it, and caches the result. All workers import the same
modules at the same time, so each of them would rewrite all modules of a new checkout, which takes 13 s of CPU.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

NAMES = ("test_*.py", "conftest.py")


def find_modules(folders: Iterable[Path]) -> list[Path]:
    """Return the modules below these folders whose assertions pytest rewrites."""
    return sorted(path for folder in folders for name in NAMES for path in folder.rglob(name))


def cache_file(module: Path) -> Path:
    """Return the file in which pytest looks for the rewritten module."""
    return rewrite.get_cache_dir(module) / f"{module.stem}{rewrite.PYC_TAIL}"


def rewrite_share(config: pytest.Config, modules: Sequence[Path], worker: int, workers: int) -> list[Path]:
    """Cache every ``workers``-th module that has no cache yet; return these. pytest rewrites the others at their
    import: those that have changed since, and those that another worker has not finished.
    """
    if sys.dont_write_bytecode:
        return []
    share = [path for path in modules[worker::workers] if not cache_file(path).exists()]
    for path in share:
        source_hash, code = rewrite._rewrite_test(path, config)
        cache_file(path).parent.mkdir(parents=True, exist_ok=True)
        rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, source_hash, cache_file(path))
    return share
