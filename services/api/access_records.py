"""Lookups that lead from the objects of a request to their pools."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping

from peloton.model.ids import JobId, RespoolId
from peloton.model.respool import PoolSpec
from services.storage.storage import Storage


class AccessRecords:
    """Implements ``services.access.pools.Records``."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def pools_of_jobs(self, job_ids: Collection[JobId]) -> Mapping[JobId, str]:
        found = dict(self._storage.jobs.pools_of(job_ids))
        missing = [job_id for job_id in job_ids if job_id not in found]
        return found | self._storage.volumes.pools_left(missing) if missing else found

    def job_of_update(self, update_id: str) -> str | None:
        known = parse_uuid(update_id)
        update = self._storage.updates.some([known]).get(known) if known else None
        return update.job_id if update is not None else None

    def pool_of_volume(self, volume_id: str) -> str | None:
        """Return the pool of the job, or the one that a deleted job had."""
        known = parse_uuid(volume_id)
        volume = self._storage.volumes.get(known) if known else None
        if volume is None:
            return None
        return self._storage.jobs.pools_of([volume.job_id]).get(volume.job_id, RespoolId(volume.respool_id))

    def object_of_migration(self, migration_id: str) -> tuple[str, bool] | None:
        """Return the id of the job or pool that a migration moves, and whether it is a pool."""
        known = parse_uuid(migration_id)
        migration = self._storage.migrations.get(known) if known else None
        return (migration.object_id, migration.is_pool) if migration is not None else None

    def pools(self) -> tuple[PoolSpec, ...]:
        return self._storage.pools.specs()


def parse_uuid(text: str) -> str:
    """Return the id in its canonical form, "" for a text that is none."""
    try:
        return str(uuid.UUID(text))
    except ValueError:
        return ""
