"""Resource pools: one row each, with the configuration that people gave."""

from __future__ import annotations

import sqlalchemy as sa

from peloton.api.v0.respool.respool_pb2 import ResourcePoolConfig
from peloton.model.respool import PoolSpec
from services.storage.codec import pack, pool_from_text, pool_to_text, unpack
from services.storage.engine import Database
from services.storage.tables import RESPOOL


class Pools:
    def __init__(self, db: Database) -> None:
        self._db = db

    def put(self, pool: PoolSpec, config: ResourcePoolConfig) -> None:
        values = {
            "spec": pool_to_text(pool),
            "config": pack(config.SerializeToString()),
            "updated_ns": self._db.clock_ns(),
        }
        insert = self._db.upsert(RESPOOL).values(respool_id=pool.respool_id, **values)
        statement = insert.on_conflict_do_update(index_elements=["respool_id"], set_=values)
        self._db.write(lambda conn: conn.execute(statement))

    def delete(self, respool_id: str) -> bool:
        statement = sa.delete(RESPOOL).where(RESPOOL.c.respool_id == respool_id)
        return self._db.write(lambda conn: conn.execute(statement).rowcount) > 0

    def all(self) -> list[tuple[PoolSpec, ResourcePoolConfig]]:
        """By pool id."""
        query = sa.select(RESPOOL).order_by(RESPOOL.c.respool_id)

        def work(conn: sa.Connection) -> list[tuple[PoolSpec, ResourcePoolConfig]]:
            return [
                (pool_from_text(row.spec), ResourcePoolConfig.FromString(unpack(row.config)))
                for row in conn.execute(query)
            ]

        return self._db.read(work)


def read_pools(conn: sa.Connection) -> tuple[PoolSpec, ...]:
    specs = conn.execute(sa.select(RESPOOL.c.spec).order_by(RESPOOL.c.respool_id)).scalars()
    return tuple(pool_from_text(spec) for spec in specs)
