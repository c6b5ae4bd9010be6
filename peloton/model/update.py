"""Updates: the request and the progress of a service's rollout."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from peloton.model.ids import JobId
from peloton.model.pod import TerminationReason

Instances = frozenset[int]
NONE: Instances = frozenset()


class UpdateType(StrEnum):
    """Values are the wire's, without WORKFLOW_TYPE_."""

    UPDATE = "UPDATE"
    RESTART = "RESTART"
    START = "START"
    STOP = "STOP"


class UpdateState(StrEnum):
    """Values are the wire's, without WORKFLOW_STATE_."""

    INITIALIZED = "INITIALIZED"
    ROLLING_FORWARD = "ROLLING_FORWARD"
    PAUSED = "PAUSED"
    SUCCEEDED = "SUCCEEDED"
    ABORTED = "ABORTED"
    FAILED = "FAILED"
    ROLLING_BACKWARD = "ROLLING_BACKWARD"
    ROLLED_BACK = "ROLLED_BACK"


class UpdateAct(StrEnum):
    """What a person may do to an update that is under way."""

    PAUSE = "pause"
    RESUME = "resume"
    ABORT = "abort"


UPDATE_TERMINAL = frozenset({UpdateState.SUCCEEDED, UpdateState.ABORTED, UpdateState.FAILED, UpdateState.ROLLED_BACK})
ROLLING = frozenset({UpdateState.ROLLING_FORWARD, UpdateState.ROLLING_BACKWARD})


@dataclass(frozen=True, slots=True)
class UpdateSpec:
    batch_size: int = 0  # instances in flight at a time; 0 = all at once
    rollback_on_failure: bool = False
    max_instance_attempts: int = 0  # failures after which an instance counts as failed; 0 = never
    max_failure_instances: int = 0  # failed instances at which the update fails; 0 = never
    start_paused: bool = False
    in_place: bool = False  # each instance comes back on the host that it was on
    start_pods: bool = False  # instances that were stopped are started
    pulse_s: int = 0  # it goes on only while a pulse comes at least this often; 0 = it needs none
    progress_deadline_s: int = 0  # without an instance that becomes done it counts as stalled; 0 = the default


@dataclass(frozen=True, slots=True)
class UpdateKey:
    """A client's own name for an update, and a digest of the request: both together identify a repeated call."""

    text: str = ""  # "": no name was given
    digest: str = ""


@dataclass(frozen=True, slots=True)
class UpdateRecord:
    """A stored update. Instances are added, updated or removed by it; each goes from none of ``current``, ``failed``
    and ``done`` into ``current`` and from there into one of the others. Times are unix nanoseconds, 0 when unset.
    """

    update_id: str
    job_id: JobId
    type: UpdateType
    spec: UpdateSpec
    state: UpdateState
    config_version: int  # that instances are brought to
    prev_config_version: int
    prev_state: UpdateState = UpdateState.INITIALIZED
    added: Instances = NONE
    updated: Instances = NONE
    removed: Instances = NONE
    current: Instances = NONE
    done: Instances = NONE
    failed: Instances = NONE
    opaque_data: str = ""
    key: UpdateKey = UpdateKey()
    pulsed_ns: int = 0  # when the last pulse came
    awaits_pulse: bool = False  # the last step would have gone on, had a pulse come
    waiting_for: str = ""  # by the last step, while it is under way
    progressed_ns: int = 0  # when an instance became done last, or the time for that began
    stalled_ns: int = 0  # when the progress deadline had passed
    stall_cause: str = ""  # by the last step, of one that has stalled
    failed_run_count: int = 0  # runs of its instances that failed, counted when it is read; not stored
    created_ns: int = 0
    updated_ns: int = 0
    completed_ns: int = 0

    @property
    def total_count(self) -> int:
        return len(self.added) + len(self.updated) + len(self.removed)

    @property
    def remaining_count(self) -> int:
        return self.total_count - len(self.done) - len(self.failed)

    @property
    def is_active(self) -> bool:
        return self.state not in UPDATE_TERMINAL


@dataclass(frozen=True, slots=True)
class UpdateEvent:
    """A step of an update, or of one instance in it."""

    time_ns: int
    type: UpdateType
    state: UpdateState


@dataclass(frozen=True, slots=True)
class UpdateProgress:
    """What the workflow of an update needs; counts only, whatever the size of the job."""

    update_id: str = ""  # "": the job has no update to roll out
    state: UpdateState = UpdateState.SUCCEEDED
    type: UpdateType = UpdateType.UPDATE
    total_count: int = 0
    done_count: int = 0
    failed_count: int = 0
    current_count: int = 0
    kill_count: int = 0  # of the instances that this step put in flight, those that hosts run
    rest_count: int = 0  # of the instances that this step put in flight, the others
    begun: str = ""  # those that this step put in flight, in words
    rolls_back_to: int = 0  # version to which it is to be rolled back: too many have failed; 0 = they have not
    waiting_for: str = ""
    look_again: bool = False  # no wake-up follows when what it waits for changes
    batch_size: int = 0
    coming_image_count: int = 0  # pairs of image and host that the next instances need
    stalls_in_s: float = 0.0  # until its progress deadline; 0 = none
    stall: str = ""  # why it has stalled
    needs_no_pulse: bool = False
    is_first: bool = False  # of the job: there is no configuration before it

    @property
    def begun_count(self) -> int:
        return self.done_count + self.failed_count + self.current_count

    @property
    def is_finished(self) -> bool:
        return self.state in UPDATE_TERMINAL

    @property
    def milestone(self) -> str:
        """Changes with each step that puts instances in flight or changes the state; a repeated step gives the same."""
        return f"{self.update_id} {self.state} {self.begun_count}"

    @property
    def batch(self) -> str:
        """Changes each time that another batch of instances has begun, however few begin at a time."""
        return f"{self.update_id} {self.state} {self.begun_count // self.batch_size if self.batch_size else 0}"


@dataclass(frozen=True, slots=True)
class Disruption:
    """An answer of the SLA: for one pod, or with ``instance_id`` -1 for several that were refused together."""

    time_ns: int
    instance_id: int
    reason: TerminationReason
    granted: bool
    message: str
