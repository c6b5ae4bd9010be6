"""Which cluster has which host, and the id under which a cluster knows our framework."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial

import sqlalchemy as sa

from services.storage.engine import Database
from services.storage.tables import CLUSTER_HOST, FRAMEWORK, HOST

HOSTS_PER_STATEMENT = 500


class Hosts:
    def __init__(self, db: Database) -> None:
        self._db = db

    def claim(self, cluster: str, hostnames: Collection[str]) -> dict[str, str]:
        """Give host names to this cluster; returns those that another cluster has, with it."""
        refused: dict[str, str] = {}
        for names in _portions(hostnames):
            refused |= self._db.write(partial(self._claim, cluster=cluster, names=names))
        return refused

    def _claim(self, conn: sa.Connection, cluster: str, names: Sequence[str]) -> dict[str, str]:
        rows = [{"hostname": name, "cluster": cluster} for name in names]
        conn.execute(self._db.upsert(CLUSTER_HOST).on_conflict_do_nothing(), rows)
        others = sa.and_(CLUSTER_HOST.c.hostname.in_(names), CLUSTER_HOST.c.cluster != cluster)
        query = sa.select(CLUSTER_HOST.c.hostname, CLUSTER_HOST.c.cluster).where(others)
        return {row.hostname: row.cluster for row in conn.execute(query)}

    def disclaim(self, cluster: str, hostnames: Collection[str]) -> None:
        """Free the names of hosts that are no longer registered there."""
        for names in _portions(hostnames):
            mine = sa.and_(CLUSTER_HOST.c.cluster == cluster, CLUSTER_HOST.c.hostname.in_(names))
            self._db.write(lambda conn, mine=mine: conn.execute(sa.delete(CLUSTER_HOST).where(mine)))  # type: ignore[misc]

    def claimed(self, cluster: str) -> set[str]:
        query = sa.select(CLUSTER_HOST.c.hostname).where(CLUSTER_HOST.c.cluster == cluster)
        return self._db.read(lambda conn: set(conn.execute(query).scalars()))

    def clusters_of(self, hostnames: Collection[str]) -> dict[str, str]:
        """Of these hosts those that are registered or in maintenance -> their clusters."""

        def work(conn: sa.Connection) -> dict[str, str]:
            found: dict[str, str] = {}
            for names in _portions(hostnames):
                for table in (HOST, CLUSTER_HOST):
                    query = sa.select(table.c.hostname, table.c.cluster).where(table.c.hostname.in_(names))
                    found |= {row.hostname: row.cluster for row in conn.execute(query)}
            return found

        return self._db.read(work)

    def framework_id(self, cluster: str) -> str | None:
        query = sa.select(FRAMEWORK.c.framework_id).where(FRAMEWORK.c.cluster == cluster)
        return self._db.read(lambda conn: conn.execute(query).scalar())

    def set_framework_id(self, cluster: str, framework_id: str) -> None:
        insert = self._db.upsert(FRAMEWORK).values(cluster=cluster, framework_id=framework_id)
        statement = insert.on_conflict_do_update(index_elements=["cluster"], set_={"framework_id": framework_id})
        self._db.write(lambda conn: conn.execute(statement))


def _portions(hostnames: Collection[str]) -> Iterator[Sequence[str]]:
    names = sorted(set(hostnames))
    for start in range(0, len(names), HOSTS_PER_STATEMENT):
        yield names[start : start + HOSTS_PER_STATEMENT]
