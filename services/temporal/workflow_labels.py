"""Labels of workflows in the lists of the Temporal Web UI, and in their memo."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from peloton.model.ids import RespoolId
from peloton.model.job import JobRecord, JobState, JobType
from peloton.model.maintenance import HostMaintenance
from peloton.model.migration import Migration
from peloton.model.rebalance import Rebalance
from peloton.model.respool import PoolSpec, pool_paths
from workflows.attributes import CLUSTER, HOST, JOB_ID, JOB_NAME, OWNER, POOL, STATE, TYPE
from workflows.policies import Policies

MAINTENANCE_TYPE = "MAINTENANCE"
MOVE_TYPE = "HOST_MOVE"
MIGRATION_TYPE = "MIGRATION"
REBALANCE_TYPE = "REBALANCE"
SCHEDULE_TYPE = "JOB_SCHEDULE"
SCHEDULED_JOB_TYPE = "SCHEDULED_JOB"
NAME_MAX = 100
TERMINATE = "**Terminate** stops nothing: the workflow is started again, and carries on."
POOLS_READ_PERIOD_S = 60.0


class PoolPaths:
    """Paths of pools for people. A path that has changed is known after a minute, and that of a new pool at once."""

    def __init__(self, read: Callable[[], Iterable[PoolSpec]], clock: Callable[[], float] = time.monotonic) -> None:
        self._read, self._clock = read, clock
        self._paths: dict[RespoolId, str] = {}  # as many as there are pools
        self._read_at_s = -POOLS_READ_PERIOD_S

    def __call__(self, respool_id: RespoolId) -> str:
        """Return the path of a pool, or its id when storage has no such pool."""
        now_s = self._clock()
        if respool_id not in self._paths or now_s - self._read_at_s >= POOLS_READ_PERIOD_S:
            self._paths, self._read_at_s = pool_paths(self._read()), now_s
        return self._paths.get(respool_id) or respool_id


@dataclass(frozen=True)
class Labels:
    """Labels of a workflow; ``details`` is Markdown. The length of names and paths is bounded."""

    summary: str
    attributes: TypedSearchAttributes
    details: str = ""
    memo: Mapping[str, Any] = field(default_factory=dict)


def first_state(job: JobRecord) -> JobState:
    """Return the state that a workflow shows from its start. The first step of a small job creates its pods, so it is
    shown as PENDING: a change of an attribute costs an event, and a write of Temporal's index.
    """
    is_small = job.type is JobType.BATCH and job.instance_count <= Policies.at_once_pods_max
    return JobState.PENDING if is_small and job.state is JobState.INITIALIZED else job.state


def job_labels(job: JobRecord, pool: str) -> Labels:
    """Return the labels of a job's workflow. ``pool``: path of its pool."""
    sla, name, kind = job.sla, job_name(job), job.type.lower()
    owner = f" of {job.owning_team[:NAME_MAX]}" if job.owning_team else ""
    count = "1 instance" if job.instance_count == 1 else f"{job.instance_count} instances"
    gang = {"members of its gang": job.gang_size} if job.gang_size > 1 else {}
    return Labels(
        f"{kind} job {name} in pool {pool}{owner}, {count}",
        _attributes(
            (JOB_ID, job.job_id),
            (JOB_NAME, name),
            (POOL, pool),
            (OWNER, job.owning_team[:NAME_MAX]),
            (TYPE, job.type.value),
            (STATE, first_state(job).value),
        ),
        _details(
            f"This workflow runs the {kind} job **{name}**{owner}.",
            f"`peloton job get {job.job_id}` shows the job.",
            f"`peloton job why {job.job_id}` says what it waits for.",
            "**Request Cancellation**, or the workflow update `stop`, stops the job and all its pods.",
            TERMINATE,
        ),
        {
            "pool id": job.respool_id,
            "instances": job.instance_count,
            "priority": sla.priority,
            "is preemptible": sla.preemptible,
            **gang,
        },
    )


def update_labels(job: JobRecord, pool: str) -> Labels:
    """Return the labels of the workflow of a job's updates, which has the attributes of the job's."""
    return Labels(f"updates of job {job_name(job)}", job_labels(job, pool).attributes)


def daemon_labels(job: JobRecord, pool: str) -> Labels:
    """Return the labels of the workflow of a daemon's hosts, which has the attributes of the job's."""
    return Labels(f"hosts of daemon {job_name(job)}", job_labels(job, pool).attributes)


def job_name(job: JobRecord) -> str:
    return (job.name or job.job_id)[:NAME_MAX]


def maintenance_labels(host: HostMaintenance) -> Labels:
    """Return the labels of the maintenance of a host, or of its move to another host pool."""
    name, command = host.hostname, "peloton host maintenance"
    if host.to_pool:
        summary = f"move of host {name} in cluster {host.cluster} to host pool {host.to_pool}"
        points = (
            f"This workflow drains host **{name}** and puts it into host pool **{host.to_pool}**.",
            f"`{command} status` shows what it waits for.",
            f"`{command} cancel {name}` leaves the host in its pool.",
            "**Request Cancellation** does so, too.",
        )
    else:
        summary = f"maintenance of host {name} in cluster {host.cluster}"
        points = (
            f"This workflow takes host **{name}** down, and up again when its maintenance is completed.",
            f"`{command} status` shows what it waits for.",
            f"`{command} complete {name}` brings it up again.",
            "**Request Cancellation** keeps the host up, as long as it is not DOWN.",
        )
    kind = MOVE_TYPE if host.to_pool else MAINTENANCE_TYPE
    return Labels(
        summary, _attributes((TYPE, kind), (HOST, name), (CLUSTER, host.cluster)), _details(*points, TERMINATE)
    )


def migration_labels(migration: Migration) -> Labels:
    """Return the labels of a migration. Users find a pool by its path, a job by its id and name."""
    name, spec, command = migration.name[:NAME_MAX], migration.spec, "peloton migration"
    kind, key = ("pool", name) if migration.is_pool else ("job", migration.object_id)
    moved = [(POOL, name)] if migration.is_pool else [(JOB_ID, migration.object_id), (JOB_NAME, name)]
    return Labels(
        f"migration of {kind} {name} to cluster {spec.target}",
        _attributes(*moved, (TYPE, MIGRATION_TYPE), (CLUSTER, spec.target), (STATE, migration.state.value)),
        _details(
            f"This workflow moves {kind} **{name}** to cluster **{spec.target}**, as its SLA allows.",
            f"`{command} status {key}` shows how far it is.",
            f"`{command} pause {key}`, `resume` and `rollback` steer it.",
            "**Request Cancellation** rolls it back.",
            TERMINATE,
        ),
        {
            "target": spec.target,
            "instances of a service at a time": spec.batch_size or "a tenth",
            "services at a time": spec.services_at_once,
            "batch pods are evicted": spec.evicts_batch,
        },
    )


def rebalance_labels(rebalance: Rebalance) -> Labels:
    """Return the labels of the rebalancing of a cluster."""
    spec, command, cluster = rebalance.spec, "peloton host rebalance", rebalance.cluster
    return Labels(
        f"rebalancing of cluster {cluster}",
        _attributes((TYPE, REBALANCE_TYPE), (CLUSTER, cluster), (STATE, rebalance.state.value)),
        _details(
            f"This workflow moves pods of services to other hosts of cluster **{cluster}**, as their SLAs allow.",
            f"`{command} status --cluster {cluster}` shows how far it is, and what blocks it.",
            f"`{command} pause`, `resume` and `stop` steer it.",
            "**Request Cancellation** stops it; pods on their way get there.",
            TERMINATE,
        ),
        {"goals": ", ".join(spec.goals), "moves per hour": spec.moves_per_hour},
    )


def schedule_labels(name: str, job_name: str, pool: str, owner: str) -> tuple[TypedSearchAttributes, Labels]:
    """Return the attributes of a schedule of jobs, and the labels of its runs. ``pool``: path of the pool."""
    described = (JOB_NAME, job_name[:NAME_MAX]), (POOL, pool), (OWNER, owner[:NAME_MAX])
    runs = Labels(
        f"run of schedule {name}: a job {job_name[:NAME_MAX]} in pool {pool[:NAME_MAX]}",
        _attributes((TYPE, SCHEDULED_JOB_TYPE), *described),
        _details(
            f"This workflow creates a job for a time of schedule **{name}**, and ends with the job.",
            f"`peloton job schedule show {name}` shows the schedule and its runs.",
            "**Request Cancellation** stops the job.",
            "**Terminate** leaves the job as it is; the schedule continues without waiting for it.",
        ),
    )
    return _attributes((TYPE, SCHEDULE_TYPE), *described), runs


def _attributes(*pairs: tuple[SearchAttributeKey[str], str]) -> TypedSearchAttributes:
    """Return the attributes that have a value."""
    return TypedSearchAttributes([SearchAttributePair(key, value) for key, value in pairs if value])


def _details(sentence: str, *points: str) -> str:
    return "\n".join([sentence, "", *(f"- {point}" for point in points)])
