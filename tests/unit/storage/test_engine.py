"""Connections to the database."""

from __future__ import annotations

import pytest

from services.storage.engine import POOL_SIZE, make_engine


@pytest.mark.parametrize(("given", "kept"), [({}, POOL_SIZE), ({"pool_size": 4}, 4)])
def test_the_pool_has_the_size_that_is_set(given: dict[str, int], kept: int) -> None:
    """So many connections are kept open, and as many more opened in need."""
    pool = make_engine("postgresql://peloton@db.invalid/peloton", **given).pool

    assert (kept, kept) == (pool.size(), pool._max_overflow)  # type: ignore[attr-defined]
