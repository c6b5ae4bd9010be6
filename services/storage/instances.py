"""Sets of instances as texts, and what a new configuration changes for which of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import sqlalchemy as sa

from peloton.api.compare import same_task
from peloton.api.merge import effective_task_config
from peloton.api.v0.job import job_pb2
from peloton.model.pod import PodRecord
from peloton.model.update import Instances
from services.storage.codec import pod_record
from services.storage.configs import read_config_with_instances
from services.storage.store import as_ranges
from services.storage.tables import POD


def to_text(instances: Iterable[int]) -> str:
    """``0-4,7``; empty for none."""
    return ",".join(
        f"{start}-{start + count - 1}" if count > 1 else str(start) for start, count in as_ranges(sorted(instances))
    )


def from_text(text: str) -> Instances:
    found: set[int] = set()
    for piece in text.split(",") if text else ():
        first, _, last = piece.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def pods_of(conn: sa.Connection, job_id: str) -> dict[int, PodRecord]:
    query = sa.select(POD).where(POD.c.job_id == job_id).order_by(POD.c.instance_id)
    return {row.instance_id: pod_record(row) for row in conn.execute(query)}


def changed(
    conn: sa.Connection, job_id: str, pods: Mapping[int, PodRecord], config: job_pb2.JobConfig
) -> dict[tuple[int, int], bool]:
    """(instance, version that it runs) -> whether its task differs in ``config``, which has its instances.

    Instances without overrides on either side are compared once for all. A version that is gone counts as changed.
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
