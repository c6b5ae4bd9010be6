"""Admitted pods on their way to placement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial, reduce

import sqlalchemy as sa

from peloton.model.host import ReadyGang
from peloton.model.ids import JobId
from peloton.model.job import JobRecord
from peloton.model.pod import AllOf, PodShape
from peloton.model.resources import Resources
from services.storage.codec import InstanceFacts, job_record
from services.storage.configs import read_facts
from services.storage.store import READY, STAYS, Store
from services.storage.tables import JOB, POD


class Ready(Store):
    def ready_gangs(self, job_id: JobId, limit: int) -> list[ReadyGang]:
        """READY pods as gangs, by instance, at most ``limit`` pods; a larger gang comes alone and whole.

        The run of a pod is the one it launches as. A gang whose members differ has the shape that is enough for each.
        """
        return self.db.read(partial(_ready_gangs, job_id=job_id, limit=limit))


def _ready_gangs(conn: sa.Connection, job_id: str, limit: int) -> list[ReadyGang]:
    row = conn.execute(sa.select(JOB).where(JOB.c.job_id == job_id)).one_or_none()
    if row is None or limit <= 0:
        return []
    job = job_record(row)
    query = (
        sa.select(POD.c.instance_id, POD.c.desired_run_id, POD.c.config_version)
        .where(POD.c.job_id == job_id, POD.c.state == READY, STAYS)
        .order_by(POD.c.instance_id)
        .limit(max(limit, job.gang_size))
    )
    pods = [(instance, run, version) for instance, run, version in conn.execute(query)]
    if not pods:
        return []
    gang = _whole_gang(job, pods)
    singles = pods[len(gang) :][: max(limit - len(gang), 0)]
    shapes = _shapes(conn, job_id, gang + singles)
    gangs = [ReadyGang(shapes[instance], ((instance, run),)) for instance, run, _ in singles]
    if gang:
        shape = reduce(enough_for_both, (shapes[instance] for instance, _, _ in gang))
        gangs.insert(0, ReadyGang(shape, tuple((instance, run) for instance, run, _ in gang)))
    return gangs


def _whole_gang(job: JobRecord, pods: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """The members of the gang when all of them are ready; members that were retried alone are placed alone."""
    size = job.gang_size
    members = list(pods[:size])
    is_whole = size > 1 and len(members) == size and members[-1][0] == size - 1
    return members if is_whole else []


def _shapes(conn: sa.Connection, job_id: str, pods: Sequence[tuple[int, int, int]]) -> Mapping[int, PodShape]:
    span = (pods[0][0], pods[-1][0])
    facts: dict[int, tuple[InstanceFacts | None, dict[int, InstanceFacts]]] = {}
    shapes: dict[int, PodShape] = {}
    for instance, _, version in pods:
        if version not in facts:
            facts[version] = read_facts(conn, job_id, version, span)
        default, overridden = facts[version]
        own = overridden.get(instance, default)
        assert own is not None, f"job {job_id} has no configuration {version}"
        shapes[instance] = own.shape
    return shapes


def enough_for_both(a: PodShape, b: PodShape) -> PodShape:
    """A shape whose place suits a pod of either."""
    if a == b:
        return a
    rules = [rule for rule in dict.fromkeys((a.constraint, b.constraint)) if rule is not None]
    return PodShape(
        resources=Resources(*(max(x, y) for x, y in zip(a.resources, b.resources, strict=True))),
        port_count=max(a.port_count, b.port_count),
        revocable=a.revocable and b.revocable,
        preemptible=a.preemptible and b.preemptible,
        controller=a.controller or b.controller,
        strategy=a.strategy,
        constraint=None if not rules else rules[0] if len(rules) == 1 else AllOf(tuple(rules)),
    )
