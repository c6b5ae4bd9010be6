"""Labels of workflows in the lists of the Temporal Web UI, and in their memo."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from temporalio.common import SearchAttributePair, TypedSearchAttributes

from peloton.model.ids import Hostname, RespoolId
from peloton.model.job import JobRecord
from peloton.model.migration import Migration
from peloton.model.rebalance import Rebalance
from peloton.model.respool import PoolSpec, pool_paths
from workflows.attributes import CLUSTER, HOST, JOB_ID, JOB_NAME, OWNER, POOL, STATE, TYPE

MAINTENANCE_TYPE = "MAINTENANCE"
MOVE_TYPE = "HOST_MOVE"
MIGRATION_TYPE = "MIGRATION"
REBALANCE_TYPE = "REBALANCE"
SCHEDULE_TYPE = "JOB_SCHEDULE"
SCHEDULED_JOB_TYPE = "SCHEDULED_JOB"
NAME_MAX = 100
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
class JobLabels:
    """Labels of a job's workflow; an update and the launch of a gang have the same attributes."""

    job: JobRecord
    pool: str  # its path

    @property
    def name(self) -> str:
        return (self.job.name or self.job.job_id)[:NAME_MAX]

    @property
    def summary(self) -> str:
        count = "1 instance" if self.job.instance_count == 1 else f"{self.job.instance_count} instances"
        return f"{self.job.type.lower()} job {self.name} in pool {self.pool}{self._owner}, {count}"

    @property
    def _owner(self) -> str:
        return f" of {self.job.owning_team[:NAME_MAX]}" if self.job.owning_team else ""

    @property
    def details(self) -> str:
        """Return Markdown."""
        return "\n".join(
            [
                f"This workflow looks after the {self.job.type.lower()} job **{self.name}**{self._owner}.",
                "",
                f"- `peloton job get {self.job.job_id}` shows the job.",
                f"- `peloton job why {self.job.job_id}` says what it waits for.",
                "- **Request Cancellation**, or the workflow update `stop`, stops the job and all its pods.",
                "- **Terminate** stops nothing: the workflow is started anew, and carries on.",
            ]
        )

    @property
    def attributes(self) -> TypedSearchAttributes:
        pairs = [
            SearchAttributePair(JOB_ID, self.job.job_id),
            SearchAttributePair(JOB_NAME, self.name),
            SearchAttributePair(POOL, self.pool),
            SearchAttributePair(OWNER, self.job.owning_team[:NAME_MAX]),
            SearchAttributePair(TYPE, self.job.type.value),
            SearchAttributePair(STATE, self.job.state.value),
        ]
        return TypedSearchAttributes([pair for pair in pairs if pair.value])

    @property
    def memo(self) -> dict[str, Any]:
        sla = self.job.sla
        found = {
            "pool id": self.job.respool_id,
            "instances": self.job.instance_count,
            "priority": sla.priority,
            "is preemptible": sla.preemptible,
        }
        return {**found, "members of its gang": self.job.gang_size} if self.job.gang_size > 1 else found


@dataclass(frozen=True)
class HostLabels:
    """Labels of the maintenance of a host, or of its move to another host pool."""

    cluster: str
    hostname: Hostname
    to_pool: str = ""

    @property
    def summary(self) -> str:
        if self.to_pool:
            return f"move of host {self.hostname} in cluster {self.cluster} to host pool {self.to_pool}"
        return f"maintenance of host {self.hostname} in cluster {self.cluster}"

    @property
    def details(self) -> str:
        """Return Markdown."""
        command = "peloton host maintenance"
        if self.to_pool:
            return "\n".join(
                [
                    f"This workflow drains host **{self.hostname}** and puts it into host pool **{self.to_pool}**.",
                    "",
                    f"- `{command} status` shows what it waits for.",
                    f"- `{command} cancel {self.hostname}` keeps the host where it is.",
                    "- **Request Cancellation** does so, too.",
                    "- **Terminate** stops nothing: the workflow is started anew, and carries on.",
                ]
            )
        return "\n".join(
            [
                f"This workflow takes host **{self.hostname}** down, and up again when its maintenance is completed.",
                "",
                f"- `{command} status` shows what it waits for.",
                f"- `{command} complete {self.hostname}` brings it up again.",
                "- **Request Cancellation** keeps the host up, as long as it is not DOWN.",
                "- **Terminate** stops nothing: the workflow is started anew, and carries on.",
            ]
        )

    @property
    def attributes(self) -> TypedSearchAttributes:
        return TypedSearchAttributes(
            [
                SearchAttributePair(TYPE, MOVE_TYPE if self.to_pool else MAINTENANCE_TYPE),
                SearchAttributePair(HOST, self.hostname),
                SearchAttributePair(CLUSTER, self.cluster),
            ]
        )


@dataclass(frozen=True)
class MigrationLabels:
    """Labels of a migration. Users find a pool by its path, a job by its id and name."""

    migration: Migration

    @property
    def name(self) -> str:
        return self.migration.name[:NAME_MAX]

    @property
    def _kind(self) -> str:
        return "pool" if self.migration.is_pool else "job"

    @property
    def summary(self) -> str:
        return f"migration of {self._kind} {self.name} to cluster {self.migration.spec.target}"

    @property
    def details(self) -> str:
        """Return Markdown."""
        command, target = "peloton migration", self.migration.spec.target
        which = self.name if self.migration.is_pool else self.migration.object_id
        return "\n".join(
            [
                f"This workflow moves {self._kind} **{self.name}** to cluster **{target}**, as its SLA allows.",
                "",
                f"- `{command} status {which}` shows how far it is.",
                f"- `{command} pause {which}`, `resume` and `rollback` steer it.",
                "- **Request Cancellation** rolls it back.",
                "- **Terminate** stops nothing: the workflow is started anew, and carries on.",
            ]
        )

    @property
    def attributes(self) -> TypedSearchAttributes:
        migration = self.migration
        who = [SearchAttributePair(POOL, self.name)] if migration.is_pool else []
        if not migration.is_pool:
            who = [SearchAttributePair(JOB_ID, migration.object_id), SearchAttributePair(JOB_NAME, self.name)]
        return TypedSearchAttributes(
            [
                *who,
                SearchAttributePair(TYPE, MIGRATION_TYPE),
                SearchAttributePair(CLUSTER, migration.spec.target),
                SearchAttributePair(STATE, migration.state.value),
            ]
        )

    @property
    def memo(self) -> dict[str, Any]:
        spec = self.migration.spec
        return {
            "target": spec.target,
            "instances of a service at a time": spec.batch_size or "a tenth",
            "services at a time": spec.services_at_once,
            "batch pods are evicted": spec.evicts_batch,
        }


@dataclass(frozen=True)
class RebalanceLabels:
    """Labels of the rebalancing of a cluster."""

    rebalance: Rebalance

    @property
    def summary(self) -> str:
        return f"rebalancing of cluster {self.rebalance.cluster}"

    @property
    def details(self) -> str:
        """Return Markdown."""
        command, cluster = "peloton host rebalance", self.rebalance.cluster
        return "\n".join(
            [
                f"This workflow moves pods of services to other hosts of cluster **{cluster}**, as their SLAs allow.",
                "",
                f"- `{command} status --cluster {cluster}` shows how far it is, and what blocks it.",
                f"- `{command} pause`, `resume` and `stop` steer it.",
                "- **Request Cancellation** stops it; pods on their way get there.",
                "- **Terminate** stops nothing: the workflow is started anew, and carries on.",
            ]
        )

    @property
    def attributes(self) -> TypedSearchAttributes:
        return TypedSearchAttributes(
            [
                SearchAttributePair(TYPE, REBALANCE_TYPE),
                SearchAttributePair(CLUSTER, self.rebalance.cluster),
                SearchAttributePair(STATE, self.rebalance.state.value),
            ]
        )

    @property
    def memo(self) -> dict[str, Any]:
        spec = self.rebalance.spec
        return {"goals": ", ".join(spec.goals), "moves per hour": spec.moves_per_hour}


@dataclass(frozen=True)
class ScheduleLabels:
    """Labels of a schedule of jobs, and of its runs. The length of names and paths is bounded."""

    name: str
    job_name: str
    pool: str  # its path
    owner: str

    @property
    def summary(self) -> str:
        return f"run of schedule {self.name}: a job {self.job_name[:NAME_MAX]} in pool {self.pool[:NAME_MAX]}"

    @property
    def details(self) -> str:
        """Return Markdown."""
        return "\n".join(
            [
                f"This workflow creates a job for a time of schedule **{self.name}**, and ends with the job.",
                "",
                f"- `peloton job schedule show {self.name}` shows the schedule and its runs.",
                "- **Request Cancellation** stops the job.",
                "- **Terminate** leaves the job as it is; the schedule goes on without waiting for it.",
            ]
        )

    @property
    def attributes(self) -> TypedSearchAttributes:
        return self._attributes(SCHEDULE_TYPE)

    @property
    def run_attributes(self) -> TypedSearchAttributes:
        return self._attributes(SCHEDULED_JOB_TYPE)

    def _attributes(self, kind: str) -> TypedSearchAttributes:
        pairs = [
            SearchAttributePair(TYPE, kind),
            SearchAttributePair(JOB_NAME, self.job_name[:NAME_MAX]),
            SearchAttributePair(POOL, self.pool),
            SearchAttributePair(OWNER, self.owner[:NAME_MAX]),
        ]
        return TypedSearchAttributes([pair for pair in pairs if pair.value])
