"""Ownership of hosts by clusters, and the framework id under which a cluster knows Peloton."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial

import sqlalchemy as sa

from peloton.lifecycle import host_events
from peloton.model.ids import Hostname
from services.storage.engine import Repository, reading
from services.storage.hosts.host_events import last_left, record
from services.storage.hosts.maintenance import HOST_STATES
from services.storage.tables import CLUSTER_HOST, FRAMEWORK, HOST

HOSTS_PER_STATEMENT = 500


class Hosts(Repository):
    def claim(self, cluster: str, hostnames: Collection[str], is_first: bool = False) -> dict[str, str]:
        """Claim host names for this cluster; returns names that another cluster owns -> that cluster.

        ``is_first`` suppresses events for the hosts with which the cluster begins.
        """
        refused: dict[str, str] = {}
        for names in _portions(hostnames):
            refused |= self._db.write(partial(self._claim, cluster=cluster, names=names, is_first=is_first))
        return refused

    def _claim(self, conn: sa.Connection, cluster: str, names: Sequence[str], is_first: bool) -> dict[str, str]:
        query = sa.select(CLUSTER_HOST.c.hostname, CLUSTER_HOST.c.cluster).where(CLUSTER_HOST.c.hostname.in_(names))
        before = {row.hostname for row in conn.execute(query)}
        rows = [{"hostname": name, "cluster": cluster} for name in names]
        conn.execute(self._db.upsert(CLUSTER_HOST).on_conflict_do_nothing(), rows)
        holders = {row.hostname: row.cluster for row in conn.execute(query)}
        new = [name for name in names if name not in before and holders.get(name) == cluster]
        if new and not is_first:
            left, now_ns = last_left(conn, new), self._db.clock_ns()
            record(conn, [host_events.describe_join(Hostname(name), cluster, left.get(name), now_ns) for name in new])
        return {name: holder for name, holder in holders.items() if holder != cluster}

    def disclaim(self, cluster: str, hostnames: Collection[str]) -> None:
        """Release the names of hosts that are no longer registered in the cluster."""
        for names in _portions(hostnames):
            self._db.write(partial(self._disclaim, cluster=cluster, names=names))

    def _disclaim(self, conn: sa.Connection, cluster: str, names: Sequence[str]) -> None:
        mine = sa.and_(CLUSTER_HOST.c.cluster == cluster, CLUSTER_HOST.c.hostname.in_(names))
        gone = sorted(conn.execute(sa.select(CLUSTER_HOST.c.hostname).where(mine)).scalars())
        conn.execute(sa.delete(CLUSTER_HOST).where(mine))
        maintained = sa.and_(HOST.c.cluster == cluster, HOST.c.hostname.in_(names))
        rows = conn.execute(sa.select(HOST.c.hostname, HOST.c.state).where(maintained))
        states, now_ns = {row.hostname: HOST_STATES[row.state] for row in rows}, self._db.clock_ns()
        record(conn, [host_events.describe_leave(Hostname(name), cluster, states.get(name), now_ns) for name in gone])

    def list_claimed(self, cluster: str) -> set[str]:
        query = sa.select(CLUSTER_HOST.c.hostname).where(CLUSTER_HOST.c.cluster == cluster)
        return self._db.read(lambda conn: set(conn.execute(query).scalars()))

    def addresses(self, cluster: str) -> dict[str, str]:
        """Return the stored addresses of the hosts of a cluster by name."""
        query = sa.select(CLUSTER_HOST.c.hostname, CLUSTER_HOST.c.address).where(CLUSTER_HOST.c.cluster == cluster)
        return self._db.read(lambda conn: {row.hostname: row.address for row in conn.execute(query)})

    def set_addresses(self, cluster: str, addresses: Mapping[str, str]) -> None:
        """Store the addresses of hosts whose names the cluster has claimed."""
        mine = sa.and_(CLUSTER_HOST.c.cluster == cluster, CLUSTER_HOST.c.hostname == sa.bindparam("name"))
        statement = sa.update(CLUSTER_HOST).where(mine).values(address=sa.bindparam("ip"))
        for names in _portions(addresses):
            rows = [{"name": name, "ip": addresses[name]} for name in names]
            self._db.write(partial(_execute, statement=statement, rows=rows))

    @reading
    def clusters_of(self, conn: sa.Connection, hostnames: Collection[str]) -> dict[str, str]:
        """Return the clusters of the hosts that are registered or in maintenance."""
        found: dict[str, str] = {}
        for names in _portions(hostnames):
            for table in (HOST, CLUSTER_HOST):
                query = sa.select(table.c.hostname, table.c.cluster).where(table.c.hostname.in_(names))
                found |= {row.hostname: row.cluster for row in conn.execute(query)}
        return found

    def like(self, text: str, limit: int) -> list[tuple[str, str]]:
        """Return registered hosts whose names contain the text in any case, with their clusters.

        Names that begin with the text come first, then in order of name. The method scans all names.
        """
        name, lower = sa.func.lower(CLUSTER_HOST.c.hostname), text.lower()
        begins = sa.case((name.startswith(lower, autoescape=True), 0), else_=1)
        query = sa.select(CLUSTER_HOST.c.hostname, CLUSTER_HOST.c.cluster).where(name.contains(lower, autoescape=True))
        query = query.order_by(begins, name, CLUSTER_HOST.c.hostname).limit(limit)
        return self._db.read(lambda conn: [(row.hostname, row.cluster) for row in conn.execute(query)])

    def framework_id(self, cluster: str) -> str | None:
        query = sa.select(FRAMEWORK.c.framework_id).where(FRAMEWORK.c.cluster == cluster)
        return self._db.read(lambda conn: conn.execute(query).scalar())

    def set_framework_id(self, cluster: str, framework_id: str) -> None:
        insert = self._db.upsert(FRAMEWORK).values(cluster=cluster, framework_id=framework_id)
        statement = insert.on_conflict_do_update(index_elements=["cluster"], set_={"framework_id": framework_id})
        self._db.write(lambda conn: conn.execute(statement))


def _execute(conn: sa.Connection, statement: sa.Update, rows: Sequence[Mapping[str, str]]) -> None:
    conn.execute(statement, rows)


def _portions(hostnames: Collection[str]) -> Iterator[Sequence[str]]:
    names = sorted(set(hostnames))
    for start in range(0, len(names), HOSTS_PER_STATEMENT):
        yield names[start : start + HOSTS_PER_STATEMENT]
