"""One PostgreSQL database for many tests: each finds the rows of the migrated, empty schema and nothing else.

Copying a database, connecting to it and compiling its statements take several times as long as a short test of storage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import sqlalchemy as sa

from services.storage import engine as product
from tests.postgres import Postgres

_KEEP_ROWS = """
CREATE SCHEMA kept;
DO $$ DECLARE name text; has_rows boolean; BEGIN
  FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' LOOP
    EXECUTE format('SELECT EXISTS (SELECT FROM public.%I)', name) INTO has_rows;
    IF has_rows THEN EXECUTE format('CREATE TABLE kept.%I AS TABLE public.%I', name, name); END IF;
  END LOOP;
END $$
"""
_RESTORE_ROWS = """
DO $$ DECLARE name text; has_rows boolean; large text[] := ARRAY[]::text[]; BEGIN
  FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' LOOP
    IF pg_relation_size(format('public.%I', name)::regclass) > {large_bytes} THEN
      large := large || format('public.%I', name);
    ELSE
      EXECUTE format('SELECT EXISTS (SELECT FROM public.%I)', name) INTO has_rows;
      IF has_rows THEN EXECUTE format('DELETE FROM public.%I', name); END IF;
    END IF;
  END LOOP;
  IF cardinality(large) > 0 THEN EXECUTE 'TRUNCATE ' || array_to_string(large, ', ') || ' CASCADE'; END IF;
  PERFORM setval(format('public.%I', sequencename)::regclass, start_value, false)
  FROM pg_sequences WHERE schemaname = 'public' AND last_value IS NOT NULL;
  FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'kept' LOOP
    EXECUTE format('INSERT INTO public.%I TABLE kept.%I', name, name);
  END LOOP;
END $$
"""
"""Small tables are deleted from: to truncate them makes new files, and every session forgets its plans."""
LARGE_BYTES = 1 << 18
_END_TRANSACTIONS = """
SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'
"""


class ReusedPostgres:
    """``url`` names the database. Its engines stay connected when a test closes them, and serve the next one."""

    def __init__(self, server: Postgres, migrate: Callable[[str], None]) -> None:
        self.url = server.create_database()
        migrate(self.url)
        self._free: list[sa.Engine] = []
        self._made: list[sa.Engine] = []
        self._admin = psycopg.connect(self.url, autocommit=True)
        self._admin.execute(_KEEP_ROWS)
        self._admin.execute("SET session_replication_role = replica")  # deletes in any order

    def restore(self, large_bytes: int = LARGE_BYTES) -> None:
        """Remove the rows of the last test, and end transactions that it left open. Larger tables are truncated."""
        self._admin.execute(_END_TRANSACTIONS)
        self._admin.execute(_RESTORE_ROWS.format(large_bytes=large_bytes))

    @contextmanager
    def reusing_engines(self) -> Iterator[None]:
        make = product.make_engine

        def free_or_new(url: str, pool_size: int = product.POOL_SIZE) -> sa.Engine:
            if url != self.url or pool_size != product.POOL_SIZE:
                return make(url, pool_size)
            return self._free.pop() if self._free else self._new(make(url, pool_size))

        product.make_engine = free_or_new
        try:
            yield
        finally:
            product.make_engine = make
            for engine in self._made:
                sa.Engine.dispose(engine)
            self._admin.close()

    def _new(self, engine: sa.Engine) -> sa.Engine:
        def free(close: bool = True) -> None:
            if engine not in self._free:
                self._free.append(engine)

        engine.dispose = free  # type: ignore[method-assign]
        self._made.append(engine)
        return engine
