"""A job's states, its record, and what its workflow sees of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from peloton.model.ids import EntityVersion, JobId, RespoolId
from peloton.model.pod import PodState


class JobType(StrEnum):
    BATCH = "BATCH"
    SERVICE = "SERVICE"
    DAEMON = "DAEMON"
    EXTERNAL = "EXTERNAL"  # its pods were made by others, in a cluster of ours

    @property
    def runs_to_end(self) -> bool:
        """Its pods are not replaced when they succeed, and people do not care which of them are down."""
        return self in (JobType.BATCH, JobType.EXTERNAL)

    @property
    def is_rolled_out(self) -> bool:
        """Its updates and restarts are rolled out, a batch of pods at a time."""
        return self in (JobType.SERVICE, JobType.DAEMON)


class JobState(StrEnum):
    """Values are the wire spelling of v0 JobState."""

    UNKNOWN = "UNKNOWN"
    UNINITIALIZED = "UNINITIALIZED"
    INITIALIZED = "INITIALIZED"  # stored; its pods are being created
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    KILLED = "KILLED"
    KILLING = "KILLING"
    DELETED = "DELETED"


JOB_TERMINAL = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.KILLED, JobState.DELETED})


GANG_MEMBERS_MAX = 20_000
"""Members of a gang, which are placed by one call and launched by one transaction."""


@dataclass(frozen=True, slots=True)
class SlaSpec:
    priority: int = 0
    preemptible: bool = False
    revocable: bool = False
    maximum_running_instances: int = 0  # 0 = no bound
    minimum_running_instances: int = 0  # > 1: the first so many instances are one gang
    max_running_time_s: int = 0  # 0 = no deadline
    maximum_unavailable_instances: int = 0  # 0 = any number
    strict_updates: bool = False  # updates keep to maximum_unavailable_instances too


@dataclass(frozen=True, slots=True)
class JobRecord:
    """The stored runtime of a job. Times are unix nanoseconds, 0 when unset."""

    job_id: JobId
    name: str
    type: JobType
    owning_team: str
    respool_id: RespoolId
    instance_count: int
    sla: SlaSpec
    state: JobState
    goal: JobState
    config_version: int = 1
    state_version: int = 1
    desired_state_version: int = 1
    workflow_version: int = 1
    has_controller: bool = False
    pod_counts: dict[PodState, int] = field(default_factory=dict)
    labels: tuple[tuple[str, str], ...] = ()
    created_ns: int = 0
    started_ns: int = 0
    completed_ns: int = 0
    updated_ns: int = 0
    run_seconds: float = 0.0
    gang_requeue_count: int = 0  # launches of the gang given up in a row, since it last ran whole
    gang_due_ns: int = 0  # the gang is not admitted before
    revision: int = 1
    update_id: str = ""  # of the last update, whatever became of it

    @property
    def entity_version(self) -> EntityVersion:
        return EntityVersion(self.config_version, self.desired_state_version, self.workflow_version)

    @property
    def is_active(self) -> bool:
        return self.state not in JOB_TERMINAL

    @property
    def gang_size(self) -> int:
        """Instances ``0 .. gang_size-1`` are one gang; 1 when every pod stands alone."""
        is_gang = self.sla.minimum_running_instances > 1 and self.type.runs_to_end and not self.sla.revocable
        return self.sla.minimum_running_instances if is_gang else 1


@dataclass(frozen=True, slots=True)
class JobProgress:
    """What the job's workflow needs to decide the next step; counts only, whatever the size of the job."""

    state: JobState
    counts: dict[str, int] = field(default_factory=dict)  # PodState value -> pods
    missing_count: int = 0  # pods that the spec asks for and that have not been created
    admit_count: int = 0  # INITIALIZED pods that may be queued now
    ready_count: int = 0  # admitted pods, but for members of the gang, that wait for a host
    kill_count: int = 0  # pods that must end: goal KILLED, or a newer run wanted
    queued_kill_count: int = 0  # of these, pods that are on no host
    settle_again: bool = False  # the bound of one settle was reached: there is more to do at once
    is_unwanted: bool = False  # it has ended, and its records are to be deleted
    update_id: str = ""  # of the update that is under way
    update_version: int = 0  # rises with each act of people on the job's updates
    update_moves: bool = False  # the next step of the update would change something
    deadline_s: float = 0.0  # seconds until the next pod reaches its max running time; 0 = none
    gang_run: int = 0  # of the gang's first member, while the gang is between admission and running; else 0
    follows_hosts: bool = False  # of a daemon that is to run
    hosts_wait: bool = False  # of a daemon: pods are to be launched on their hosts
    creation_id: str = ""  # of the update that creates the service, which settles roll out: see lifecycle.creation

    @property
    def is_finished(self) -> bool:
        return self.state in JOB_TERMINAL and not self.update_id and not self.settle_again


@dataclass(frozen=True, slots=True)
class Queued:
    """The answer to a request to queue pods."""

    count: int
    admitted_count: int = 0  # READY already, without members of the gang; a wake-up follows for the rest


@dataclass(frozen=True, slots=True)
class RolledUp:
    """Jobs whose pods were counted together."""

    needs_work: list[JobId]  # their workflows have something to do, or may have
    display_only: list[JobId]  # their workflows only show what changed


@dataclass(frozen=True, slots=True)
class GangProgress:
    """What the workflow of a gang's launch sees of it: how many members are at which stage (``lifecycle.gang``)."""

    size: int
    stages: dict[str, int] = field(default_factory=dict)  # Stage value -> members
    vain_count: int = 0  # failed launches in a row
