"""Connections to the database."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from peloton.errors import Unavailable
from services.storage.engine import POOL_SIZE, Database, make_engine


@pytest.mark.parametrize(("given", "kept"), [({}, POOL_SIZE), ({"pool_size": 4}, 4)])
def test_the_pool_has_the_size_that_is_set(given: dict[str, int], kept: int) -> None:
    """The setting is the number of permanent connections, and of further ones under load."""
    pool: Any = make_engine("postgresql://peloton@db.invalid/peloton", **given).pool

    assert (kept, kept) == (pool.size(), pool._max_overflow)


def test_a_database_that_is_not_there_is_unavailable() -> None:
    """An unreachable database is an outage and not a fault of the request, so a retry is possible."""
    database = Database("postgresql://nobody@127.0.0.1:1/none")

    for ask in (database.read, database.write):
        with pytest.raises(Unavailable, match="storage does not answer"):
            ask(lambda conn: conn.execute(sa.text("SELECT 1")))
    database.close()
