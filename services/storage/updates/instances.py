"""Sets of instances as texts, and the instances that a new configuration changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from peloton.api import convert
from peloton.api.compare import same_task
from peloton.api.merge import effective_task_config
from peloton.api.v0.job import job_pb2
from peloton.lifecycle.pod_terms import MISSING
from peloton.model.ids import JobId
from peloton.model.pod import PodRecord, Termination
from peloton.model.ranges import as_ranges
from peloton.model.update import Instances
from services.storage.jobs.configs import read_config_with_instances
from services.storage.pods.scope import ON_HOST_NUMBERS
from services.storage.pods.sql import where
from services.storage.tables import POD


def to_text(instances: Iterable[int]) -> str:
    """Format a set of instances as ``0-4,7``; "" for none."""
    return ",".join(
        f"{start}-{start + count - 1}" if count > 1 else str(start) for start, count in as_ranges(sorted(instances))
    )


def from_text(text: str) -> Instances:
    found: set[int] = set()
    for piece in text.split(",") if text else ():
        first, _, last = piece.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


_READ_COLUMNS = (
    POD.c.state,
    POD.c.goal,
    sa.case((POD.c.desired_run_id > POD.c.run_id, 1), else_=0),
    POD.c.config_version,
    POD.c.desired_config_version,
    POD.c.health,
    POD.c.failure_count,
    POD.c.termination,
)


def pods_of(conn: sa.Connection, job_id: str) -> dict[int, PodRecord]:
    """Read the properties of every pod of a job that rollouts and the SLA use.

    Equal pods share a record without an instance id: a service has thousands of pods in a few conditions, which are
    read often.
    """
    return read_pods(conn, job_id, POD.c.job_id == job_id, {}, (POD.c.instance_id,))


def read_pods(
    conn: sa.Connection,
    job_id: str,
    scope: sa.ColumnElement[bool],
    named: Mapping[str, Any],
    order: Sequence[sa.ColumnElement[Any]],
    limit: int | None = None,
) -> dict[int, PodRecord]:
    """Read pods in ``scope`` in the given order; ``named`` are the parameters of the scope."""
    alike: dict[tuple[int, ...], PodRecord] = {}
    pods: dict[int, PodRecord] = {}
    query = sa.select(POD.c.instance_id, *_READ_COLUMNS).where(scope).order_by(*order).limit(limit)
    for instance, *condition in conn.execute(query, named):
        key = tuple(condition)
        record = alike.get(key)
        if record is None:
            record = alike[key] = _record(JobId(job_id), key)
        pods[instance] = record
    return pods


def missing_of(conn: sa.Connection, job_id: str) -> frozenset[int]:
    """Return missing instances, as defined by ``sla.missing_of``."""
    query = sa.select(POD.c.instance_id).where(POD.c.job_id == job_id, where(MISSING))
    return frozenset(conn.execute(query).scalars())


def conditions_of(
    conn: sa.Connection, job_ids: Sequence[str], cluster: str
) -> Iterator[tuple[JobId, PodRecord, bool, int]]:
    """Count equal pods of each of these jobs, on hosts of the cluster and elsewhere."""
    is_here = sa.case((sa.and_(POD.c.cluster == cluster, POD.c.state.in_(ON_HOST_NUMBERS)), 1), else_=0)
    columns = [
        POD.c.job_id,
        is_here.label("is_here"),
        *(column.label(f"c{i}") for i, column in enumerate(_READ_COLUMNS)),
    ]
    each = sa.select(*columns).where(POD.c.job_id.in_(job_ids)).subquery()
    query = sa.select(*each.c, sa.func.count()).group_by(*each.c)
    for job_id, here, *condition, count in conn.execute(query):
        yield JobId(job_id), _record(JobId(job_id), tuple(condition)), bool(here), count


def _record(job_id: JobId, key: tuple[int, ...]) -> PodRecord:
    state, goal, is_newer, version, desired_version, health, failures, termination = key
    return PodRecord(
        job_id=job_id,
        instance_id=-1,
        run_id=0,
        desired_run_id=is_newer,
        state=convert.POD_STATES[state],
        goal=convert.POD_STATES[goal],
        config_version=version,
        desired_config_version=desired_version,
        health=convert.HEALTH_STATES[health],
        failure_count=failures,
        termination=Termination(convert.TERMINATION_REASONS[termination]) if termination else None,
    )


def find_changed(
    conn: sa.Connection, job_id: str, pods: Mapping[int, PodRecord], config: job_pb2.JobConfig
) -> dict[tuple[int, int], bool]:
    """Return (instance, its current version) -> whether its task differs in ``config``, which has its instances.

    Instances without overrides on either side are compared once for all. A deleted version counts as changed.
    """
    answers: dict[tuple[int, int], bool] = {}
    for version in {pod.config_version for pod in pods.values()}:
        old = read_config_with_instances(conn, job_id, version)
        mine = [i for i, pod in pods.items() if pod.config_version == version]
        if old is None:
            answers |= {(i, version): True for i in mine}
            continue
        default_differs = not same_task(old.defaultConfig, config.defaultConfig)
        for i in mine:
            if i in old.instanceConfig or i in config.instanceConfig:
                before, after = effective_task_config(old, i), effective_task_config(config, i)
                answers[i, version] = not same_task(before, after)
            else:
                answers[i, version] = default_differs
    return answers
