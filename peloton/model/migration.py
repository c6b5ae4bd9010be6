"""Migration of a job, or of all jobs of a pool, to another cluster: request, state and progress."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from peloton.model.pod import PodShape
from peloton.model.reason import Infeasible
from peloton.model.resources import Resources, ordinary


class MigrationState(StrEnum):
    MIGRATING = "MIGRATING"
    PAUSED = "PAUSED"
    ROLLING_BACK = "ROLLING_BACK"
    SUCCEEDED = "SUCCEEDED"
    ROLLED_BACK = "ROLLED_BACK"


MIGRATION_TERMINAL = frozenset({MigrationState.SUCCEEDED, MigrationState.ROLLED_BACK})


class MigrationAct(StrEnum):
    """Request of an operator for a migration that is under way."""

    PAUSE = "PAUSE"
    RESUME = "RESUME"
    ROLL_BACK = "ROLL_BACK"


class ServiceState(StrEnum):
    """Progress of one service of a migration."""

    WAITING = "WAITING"  # until its turn
    MOVING = "MOVING"
    DONE = "DONE"


@dataclass(frozen=True, slots=True)
class MigrationSpec:
    target: str  # cluster
    batch_size: int = 0  # unavailable instances of a service at a time; 0 = a tenth of them
    services_at_once: int = 2  # services of a pool
    evicts_batch: bool = False  # batch pods are evicted instead of running to their end


@dataclass(frozen=True, slots=True)
class Migration:
    """The stored migration. Times are unix nanoseconds, 0 = unset."""

    migration_id: str
    object_id: str  # id of the job or the pool
    is_pool: bool
    name: str  # name of the job, or path of the pool
    spec: MigrationSpec
    state: MigrationState = MigrationState.MIGRATING
    bound_before: str = ""  # cluster to which the object was bound before
    progress: MigrationProgress | None = None
    created_ns: int = 0
    updated_ns: int = 0
    completed_ns: int = 0

    @property
    def is_active(self) -> bool:
        return self.state not in MIGRATION_TERMINAL


@dataclass(frozen=True, slots=True)
class ServiceProgress:
    """A service of a migration after its last step."""

    job_id: str
    name: str
    state: ServiceState
    moved_count: int = 0  # instances taken down to go to the target
    left_count: int = 0  # instances still to be taken down
    waiting_for: str = ""


@dataclass(frozen=True, slots=True)
class MigrationProgress:
    """The result of the last step, of bounded size."""

    state: MigrationState = MigrationState.MIGRATING
    services: tuple[ServiceProgress, ...] = ()  # services under way, at most SERVICES_NAMED_MAX
    done_count: int = 0  # services
    service_count: int = 0
    moved_count: int = 0  # instances of all services
    left_count: int = 0  # instances of the services under way
    batch_left_count: int = 0  # batch pods that have not left yet
    to_wake: tuple[str, ...] = ()  # jobs whose pods have to end
    waiting_for: str = ""

    @property
    def is_over(self) -> bool:
        return self.state in MIGRATION_TERMINAL


@dataclass(frozen=True, slots=True)
class MigrationLoad:
    """The pods that a migration would move, according to storage."""

    moving: dict[PodShape, int]  # pods that leave hosts to run in the target
    shapes: tuple[PodShape, ...]  # all wanted pods, on hosts or not
    service_count: int = 0
    instance_count: int = 0  # instances of services that move
    batch_pod_count: int = 0  # on hosts of other clusters
    leaves: dict[str, int] = field(default_factory=dict)  # cluster -> pods of services, and batch pods that are evicted
    volume_count: int = 0  # volumes of its services in other clusters; their contents are not moved

    @property
    def needed(self) -> Resources:
        """Resources that moving pods need in the target, without revocable cpu, which is slack."""
        total = Resources()
        for shape, count in self.moving.items():
            total += ordinary(shape.resources, shape.revocable) * count
        return total


@dataclass(frozen=True, slots=True)
class MigrationTarget:
    """Resources of the target cluster, and the pods that it cannot take."""

    capacity: Resources  # hosts that take pods
    free: Resources
    infeasible: dict[PodShape, Infeasible]  # pods that no host could take even if empty
