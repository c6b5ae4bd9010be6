"""Clusters: which there are, who leads them, which hosts each has, and what its pods hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import partial

import sqlalchemy as sa

from peloton.model.ids import HOSTMGR_ROLE
from peloton.model.resources import Resources
from services.storage.jobs.configs import read_facts
from services.storage.pods.pods import LIVING_JOBS
from services.storage.repository import ON_HOST_NUMBERS, Store
from services.storage.tables import CLUSTER_HOST, FRAMEWORK, HOST, LEASE, POD

HOSTS_PER_STATEMENT = 500


class Clusters(Store):
    def clusters(self, now_s: float) -> dict[str, str]:
        """Clusters that have run pods or that somebody leads -> address of the leader, empty while there is none. By
        name."""

        def work(conn: sa.Connection) -> dict[str, str]:
            known = dict.fromkeys(conn.execute(sa.select(FRAMEWORK.c.cluster)).scalars(), "")
            query = sa.select(LEASE.c.role, LEASE.c.address).where(LEASE.c.expires_s > now_s)
            for role, address in conn.execute(query.where(LEASE.c.role.startswith(HOSTMGR_ROLE, autoescape=True))):
                known[role.removeprefix(HOSTMGR_ROLE)] = address
            return dict(sorted(known.items()))

        return self.db.read(work)

    def claim_hosts(self, cluster: str, hostnames: Collection[str]) -> dict[str, str]:
        """Host names become this cluster's unless another one has them: those -> whose they are."""
        refused: dict[str, str] = {}
        for names in _portions(hostnames):
            refused |= self.db.write(partial(self._claim, cluster=cluster, names=names))
        return refused

    def _claim(self, conn: sa.Connection, cluster: str, names: Sequence[str]) -> dict[str, str]:
        rows = [{"hostname": name, "cluster": cluster} for name in names]
        conn.execute(self.db.upsert(CLUSTER_HOST).on_conflict_do_nothing(), rows)
        others = sa.and_(CLUSTER_HOST.c.hostname.in_(names), CLUSTER_HOST.c.cluster != cluster)
        query = sa.select(CLUSTER_HOST.c.hostname, CLUSTER_HOST.c.cluster).where(others)
        return {row.hostname: row.cluster for row in conn.execute(query)}

    def disclaim_hosts(self, cluster: str, hostnames: Collection[str]) -> None:
        """They are registered there no more."""
        for names in _portions(hostnames):
            mine = sa.and_(CLUSTER_HOST.c.cluster == cluster, CLUSTER_HOST.c.hostname.in_(names))
            self.db.write(lambda conn, mine=mine: conn.execute(sa.delete(CLUSTER_HOST).where(mine)))  # type: ignore[misc]

    def claimed_hosts(self, cluster: str) -> set[str]:
        query = sa.select(CLUSTER_HOST.c.hostname).where(CLUSTER_HOST.c.cluster == cluster)
        return self.db.read(lambda conn: set(conn.execute(query).scalars()))

    def clusters_of_hosts(self, hostnames: Collection[str]) -> dict[str, str]:
        """Of these hosts those that are registered or in maintenance -> their clusters."""

        def work(conn: sa.Connection) -> dict[str, str]:
            found: dict[str, str] = {}
            for names in _portions(hostnames):
                for table in (HOST, CLUSTER_HOST):
                    query = sa.select(table.c.hostname, table.c.cluster).where(table.c.hostname.in_(names))
                    found |= {row.hostname: row.cluster for row in conn.execute(query)}
            return found

        return self.db.read(work)

    def held_in_cluster(self, cluster: str) -> tuple[Resources, Resources]:
        """What pods on hosts of the cluster were given: all of it but revocable cpu, and that. One pass over the pods
        of jobs that have not ended."""
        held, revocable = Resources(), Resources()
        for job_id in self.db.read(lambda conn: list(conn.execute(LIVING_JOBS).scalars())):
            own, own_revocable = self.db.read(partial(_held, job_id=job_id, cluster=cluster))
            held, revocable = held + own, revocable + own_revocable
        return held, revocable


def _portions(hostnames: Collection[str]) -> Iterator[Sequence[str]]:
    names = sorted(set(hostnames))
    for start in range(0, len(names), HOSTS_PER_STATEMENT):
        yield names[start : start + HOSTS_PER_STATEMENT]


def _held(conn: sa.Connection, job_id: str, cluster: str) -> tuple[Resources, Resources]:
    query = sa.select(POD.c.instance_id, POD.c.config_version).where(
        POD.c.job_id == job_id, POD.c.state.in_(ON_HOST_NUMBERS), POD.c.cluster == cluster
    )
    pods = list(conn.execute(query.order_by(POD.c.instance_id)))
    if not pods:
        return Resources(), Resources()
    span = (pods[0].instance_id, pods[-1].instance_id)
    facts = {version: read_facts(conn, job_id, version, span) for version in {pod.config_version for pod in pods}}
    counts: Counter[tuple[Resources, bool]] = Counter()
    for pod in pods:
        default, overridden = facts[pod.config_version]
        own = overridden.get(pod.instance_id, default)
        assert own is not None, f"job {job_id} has no configuration {pod.config_version}"
        counts[own.shape.resources, own.shape.revocable] += 1
    held, revocable = Resources(), Resources()
    for (asked, is_revocable), count in counts.items():
        cpu, *rest = (amount * count for amount in asked)
        held += Resources(0 if is_revocable else cpu, *rest)
        revocable += Resources(cpu if is_revocable else 0)
    return held, revocable
