"""Resource pools: the stored record is the configured pool, from which the specs for admission are derived."""

from __future__ import annotations

from functools import lru_cache

import sqlalchemy as sa

from peloton.api.convert_pool import pool_spec
from peloton.api.v0.respool.respool_pb2 import ResourcePoolConfig
from peloton.model.ids import RespoolId
from peloton.model.respool import PoolSpec
from services.storage.codec import pack, pool_to_text, unpack
from services.storage.engine import Repository, writing
from services.storage.moves.bindings import bind, read_bindings
from services.storage.tables import CLUSTER_BINDING, RESPOOL

_SPECS_MAX = 4_096
"""Number of pools whose specs are cached: nearly every call about a job reads all pools, which rarely change."""


class Pools(Repository):
    @writing
    def put(self, conn: sa.Connection, pool_id: RespoolId, config: ResourcePoolConfig) -> None:
        values = {
            "spec": pool_to_text(pool_spec(pool_id, config)),  # for processes of 0.1, which read it
            "config": pack(config.SerializeToString()),
            "updated_ns": self._db.clock_ns(),
        }
        insert = self._db.upsert(RESPOOL).values(respool_id=pool_id, **values)
        statement = insert.on_conflict_do_update(index_elements=["respool_id"], set_=values)
        own = RESPOOL.c.respool_id == pool_id
        is_new = conn.execute(sa.select(RESPOOL.c.respool_id).where(own)).first() is None
        conn.execute(statement)
        above = config.parent.value
        if is_new and (binding := read_bindings(conn, above).get(above)):
            bind(conn, pool_id, binding)  # inherited from a migrated parent

    @writing
    def delete(self, conn: sa.Connection, pool_id: RespoolId) -> bool:
        conn.execute(sa.delete(CLUSTER_BINDING).where(CLUSTER_BINDING.c.object_id == pool_id))
        return conn.execute(sa.delete(RESPOOL).where(RESPOOL.c.respool_id == pool_id)).rowcount > 0

    def specs(self) -> tuple[PoolSpec, ...]:
        """Return the specs of all pools, by pool id."""
        return self._db.read(read_pools)

    def configs(self) -> dict[RespoolId, ResourcePoolConfig]:
        query = sa.select(RESPOOL.c.respool_id, RESPOOL.c.config)
        rows = self._db.read(lambda conn: conn.execute(query).all())
        return {RespoolId(pool_id): ResourcePoolConfig.FromString(unpack(blob)) for pool_id, blob in rows}


_READING = sa.select(RESPOOL.c.respool_id, RESPOOL.c.config).order_by(RESPOOL.c.respool_id)


def read_pools(conn: sa.Connection) -> tuple[PoolSpec, ...]:
    rows = conn.execute(_READING)
    return tuple(_spec(RespoolId(pool_id), blob) for pool_id, blob in rows)


@lru_cache(maxsize=_SPECS_MAX)
def _spec(pool_id: RespoolId, blob: bytes) -> PoolSpec:
    return pool_spec(pool_id, ResourcePoolConfig.FromString(unpack(blob)))
