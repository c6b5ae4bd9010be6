"""Engines of closed SQLite files serve the files of later tests, so that their statements are not compiled again, which
is most of the time of a short test of storage. They do not sync to disk: no file outlives its test.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from services.storage import engine as product

_make = product.make_engine
_free: list[sa.Engine] = []


def reuse() -> None:
    """Reuses engines from this call on, in this process."""
    product.make_engine = _free_or_new


def _free_or_new(url: str, pool_size: int = product.POOL_SIZE) -> sa.Engine:
    parsed = sa.make_url(url)
    if parsed.get_backend_name() != "sqlite":
        return _make(url, pool_size)
    engine = _free.pop() if _free else _new(url)
    engine.url = parsed
    return engine


def _new(url: str) -> sa.Engine:
    engine = _make(url)

    def to_its_file(dialect: Any, record: Any, arguments: list[Any], options: dict[str, Any]) -> None:
        arguments[:] = dialect.create_connect_args(engine.url)[0]

    def without_waiting(connection: Any, record: Any) -> None:
        connection.execute("PRAGMA synchronous=OFF")

    def free(engine: sa.Engine) -> None:
        if engine not in _free:
            _free.append(engine)

    sa.event.listen(engine, "do_connect", to_its_file)
    sa.event.listen(engine, "connect", without_waiting)
    sa.event.listen(engine, "engine_disposed", free)
    return engine
