"""Estimate of the pods that a migration would move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import sqlalchemy as sa

from peloton.lifecycle.host_pools import route
from peloton.lifecycle.migration import bound
from peloton.model.job import JobType
from peloton.model.migration import MigrationLoad, MigrationSpec
from peloton.model.pod import PodShape
from services.storage.jobs.configs import facts_of
from services.storage.pods.scope import ON_HOST_NUMBERS
from services.storage.pods.sql import GOAL_ALIVE
from services.storage.tables import POD
from services.storage.volumes.rows import volume_count_outside


def load_of(
    conn: sa.Connection, services: Sequence[str], batch: Sequence[tuple[str, int]], spec: MigrationSpec
) -> MigrationLoad:
    """Compute the load of a migration, with shapes as placed in the target.

    ``batch`` lists jobs with pods on hosts of other clusters, and the numbers of these pods.
    """
    moving, shapes, leaves = Counter[PodShape](), dict[PodShape, None](), Counter[str]()

    def add(job_id: str, job_type: JobType, only_on_hosts: bool) -> int:
        pods = _pods(conn, job_id, only_on_hosts)
        facts = facts_of(conn, job_id, {i: version for i, version, *_ in pods})
        own = {i: bound(route(fact.shape, job_type), spec.target) for i, fact in facts.items()}
        shapes.update(dict.fromkeys(own.values()))
        misplaced = {i: cluster for i, _, cluster, is_on_host in pods if is_on_host and cluster != spec.target}
        moving.update(own[i] for i in misplaced)
        leaves.update(misplaced.values())
        return len(misplaced)

    instances = sum(add(job_id, JobType.SERVICE, only_on_hosts=False) for job_id in services)
    if spec.evicts_batch:
        for job_id, _ in batch:
            add(job_id, JobType.BATCH, only_on_hosts=True)
    batch_pods = sum(count for _, count in batch)
    volumes = volume_count_outside(conn, services, spec.target)
    return MigrationLoad(
        dict(moving),
        tuple(shapes),
        len(services),
        instances,
        batch_pod_count=batch_pods,
        leaves=dict(leaves),
        volume_count=volumes,
    )


def _pods(conn: sa.Connection, job_id: str, only_on_hosts: bool) -> list[tuple[int, int, str, bool]]:
    """Return ``(instance, version, cluster, is on a host)`` of pods with a goal to run."""
    is_on_host = POD.c.state.in_(ON_HOST_NUMBERS)
    columns = (POD.c.instance_id, POD.c.config_version, POD.c.cluster, is_on_host.label("is_on_host"))
    query = sa.select(*columns).where(POD.c.job_id == job_id, GOAL_ALIVE).order_by(POD.c.instance_id)
    rows = conn.execute(query.where(is_on_host) if only_on_hosts else query)
    return [(row.instance_id, row.config_version, row.cluster, bool(row.is_on_host)) for row in rows]
