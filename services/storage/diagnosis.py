"""Facts about the database for the checks of a control plane."""

from __future__ import annotations

import shutil
from pathlib import Path

import sqlalchemy as sa

from services.storage import schema_version
from services.storage.checks import CHECKS, Checks
from services.storage.engine import Repository, reading


class Diagnosis(Repository):
    @reading
    def schema(self, conn: sa.Connection) -> tuple[str, str, bool]:
        """Return the version of the schema, the one that this program needs, and whether it works on the first."""
        found, wanted = schema_version.read_version(conn), schema_version.newest()
        return found, wanted, schema_version.works_on(found, wanted)

    @reading
    def clock_s(self, conn: sa.Connection) -> float:
        """Return the time of the database in unix seconds."""
        now = (
            "(julianday('now') - 2440587.5) * 86400.0"
            if conn.dialect.name == "sqlite"
            else "extract(epoch FROM clock_timestamp())"
        )
        return float(conn.exec_driver_sql(f"SELECT {now}").scalar_one())

    def disk(self) -> tuple[str, int, int] | None:
        """Return file, free and total bytes of its disk; None for a database elsewhere."""
        path = self._db.engine.url.database
        if not self._db.is_sqlite or not path:
            return None
        usage = shutil.disk_usage(Path(path).parent)
        return path, usage.free, usage.total

    def broken_rules(self) -> tuple[list[tuple[str, int]], int]:
        """Return the rules that rows break, with their number, and the number of all rules. It may take minutes."""
        found = Checks(self._db).findings()
        return [(f"{one.check.table}: {one.check.rule}", one.count) for one in found if not one.check.is_note], len(
            CHECKS
        )
