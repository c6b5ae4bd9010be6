"""States and stored record of a job, and the progress that its workflow sees."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from peloton.model.ids import EntityVersion, JobId, RespoolId
from peloton.model.pod import PodState


class JobType(StrEnum):
    BATCH = "BATCH"
    SERVICE = "SERVICE"
    DAEMON = "DAEMON"
    EXTERNAL = "EXTERNAL"  # its pods were created by other controllers in a cluster that Peloton schedules

    @property
    def runs_to_end(self) -> bool:
        """True if pods are not replaced when they succeed; unavailable pods of such a job are no disruption."""
        return self in (JobType.BATCH, JobType.EXTERNAL)

    @property
    def is_rolled_out(self) -> bool:
        """True if updates and restarts are rolled out, a batch of pods at a time."""
        return self in (JobType.SERVICE, JobType.DAEMON)


class JobState(StrEnum):
    """State of a job. Values are the wire spelling of v0 JobState."""

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
"""Maximum members of a gang, which one call places and one transaction launches."""


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
    gang_requeue_count: int = 0  # consecutive failed launches since the gang last ran complete
    gang_due_ns: int = 0  # end of the gang's backoff
    revision: int = 1
    update_id: str = ""  # the last update, in any state
    creator: str = ""  # name of the user who created it; "": not known

    @property
    def entity_version(self) -> EntityVersion:
        return EntityVersion(self.config_version, self.desired_state_version, self.workflow_version)

    @property
    def is_active(self) -> bool:
        return self.state not in JOB_TERMINAL

    @property
    def gang_size(self) -> int:
        """The number of gang members, instances ``0 .. gang_size-1``; 1 when the job has no gang."""
        is_gang = self.sla.minimum_running_instances > 1 and self.type.runs_to_end and not self.sla.revocable
        return self.sla.minimum_running_instances if is_gang else 1


@dataclass(frozen=True, slots=True)
class JobProgress:
    """Counts from which the job's workflow decides the next step; bounded whatever the size of the job."""

    state: JobState
    counts: dict[str, int] = field(default_factory=dict)  # PodState value -> pods
    missing_count: int = 0  # pods of the spec that have not been created
    admit_count: int = 0  # INITIALIZED pods that may be queued now
    ready_count: int = 0  # admitted pods that wait for a host, without gang members
    kill_count: int = 0  # pods that must end: goal KILLED, or a newer run wanted
    queued_kill_count: int = 0  # pods of these that are on no host
    settle_again: bool = False  # the bound of one settle was reached: the next follows at once
    is_unwanted: bool = False  # the job has ended, and its records have to be deleted
    update_id: str = ""  # the update that is under way
    update_version: int = 0  # rises with each request of a client on the job's updates
    update_moves: bool = False  # the next step of the update would change something
    deadline_s: float = 0.0  # seconds until the next pod reaches its max running time; 0 = none
    gang_run: int = 0  # run of the gang's first member between admission and running; otherwise 0
    follows_hosts: bool = False  # the job is a daemon whose goal is to run
    hosts_wait: bool = False  # daemon: pods wait to be launched on their hosts
    creation_id: str = ""  # update that creates the service, rolled out by settles: see lifecycle.creation
    waiting_count: int = 0  # pods that the settle has queued, and that wait for their admission
    takes_ends: bool = False  # the version of the worker that settled takes the end of the job from a signal
    revision: int = field(default=0, compare=False)  # of the job's row after the settle; 0: not known

    @property
    def is_finished(self) -> bool:
        return self.state in JOB_TERMINAL and not self.update_id and not self.settle_again

    def may_launch_at_once(self, pods_max: int) -> bool:
        """Return whether the next steps are to queue, place and launch at most so many pods, and no others."""
        others = self.missing_count or self.kill_count or self.gang_run or self.settle_again
        runs_pods = not (self.update_id or self.follows_hosts or self.hosts_wait or self.is_finished)
        return runs_pods and not others and 0 < self.admit_count + self.ready_count <= pods_max


@dataclass(frozen=True, slots=True)
class Queued:
    """The answer to a request to queue pods."""

    count: int
    admitted_count: int = 0  # READY already, without gang members; the others follow with a wake-up


END_HEADER = "end"
"""Header of a signal that has the end of a job."""


@dataclass(frozen=True, slots=True)
class JobEnd:
    """End of a job that was settled without its workflow."""

    state: JobState
    counts: dict[str, int] = field(default_factory=dict)  # PodState value -> pods
    revision: int = field(default=0, compare=False)  # of the job's row that has the end


@dataclass(frozen=True, slots=True)
class RolledUp:
    """Jobs whose pods were counted together."""

    needs_work: list[JobId]  # their workflows may have something to do
    display_only: list[JobId]  # their workflows only update their summary
    ended: dict[JobId, JobEnd] = field(default_factory=dict)  # their workflows only have to end


@dataclass(frozen=True, slots=True)
class GangProgress:
    """Counts of a gang's members by stage (``lifecycle.gang``), for the workflow of the gang's launch."""

    size: int
    stages: dict[str, int] = field(default_factory=dict)  # Stage value -> members
    vain_count: int = 0  # consecutive failed launches
