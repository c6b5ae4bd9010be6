"""Activities of migrations, on storage."""

from __future__ import annotations

from activities.definition import define_activity
from peloton.errors import Aborted, NotFound
from peloton.model.migration import MigrationAct, MigrationProgress
from peloton.ports import MigrationRecords


class MigrationActivities:
    def __init__(self, migrations: MigrationRecords) -> None:
        self._migrations = migrations

    @define_activity("advance_migration")
    def advance(self, migration_id: str) -> MigrationProgress:
        return self._migrations.advance(migration_id)

    @define_activity("roll_migration_back")
    def roll_back(self, migration_id: str) -> str:
        """Roll the migration back. Return the reason of a refusal, or an empty text."""
        try:
            self._migrations.steer(migration_id, MigrationAct.ROLL_BACK)
        except (Aborted, NotFound) as refusal:
            return refusal.message
        return ""
