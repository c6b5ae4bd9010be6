"""Updates: the request and the progress of a service's rollout."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from peloton.model.ids import JobId
from peloton.model.pod import TerminationReason
from peloton.model.reason import SlaRefusal

Instances = frozenset[int]
NONE: Instances = frozenset()


class UpdateType(StrEnum):
    """Kind of an update. Values are the wire's, without WORKFLOW_TYPE_."""

    UPDATE = "UPDATE"
    RESTART = "RESTART"
    START = "START"
    STOP = "STOP"


class UpdateState(StrEnum):
    """State of an update. Values are the wire's, without WORKFLOW_STATE_."""

    INITIALIZED = "INITIALIZED"
    ROLLING_FORWARD = "ROLLING_FORWARD"
    PAUSED = "PAUSED"
    SUCCEEDED = "SUCCEEDED"
    ABORTED = "ABORTED"
    FAILED = "FAILED"
    ROLLING_BACKWARD = "ROLLING_BACKWARD"
    ROLLED_BACK = "ROLLED_BACK"


class UpdateAct(StrEnum):
    """Request of a client for an update that is under way."""

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
    in_place: bool = False  # each instance returns to its host
    start_pods: bool = False  # stopped instances are started
    pulse_s: int = 0  # the update continues only with a pulse at least this often; 0 = no pulses
    progress_deadline_s: int = 0  # time without a finished instance after which it counts as stalled; 0 = default


@dataclass(frozen=True, slots=True)
class UpdateKey:
    """A client's own name for an update, and a digest of the request; both together identify a repeated call."""

    text: str = ""  # "": no name given
    digest: str = ""


@dataclass(frozen=True, slots=True)
class UpdateRecord:
    """A stored update. It adds, updates or removes instances; each is first in none of ``current``, ``failed`` and
    ``done``, then in ``current``, then in ``failed`` or ``done``. Times are unix nanoseconds, 0 when unset."""

    update_id: str
    job_id: JobId
    type: UpdateType
    spec: UpdateSpec
    state: UpdateState
    config_version: int  # target version of the instances
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
    pulsed_ns: int = 0  # time of the last pulse
    awaits_pulse: bool = False  # the last step stopped only for lack of a pulse
    refusal: SlaRefusal | None = None  # of instances that the last step would have begun
    progressed_ns: int = 0  # time of the last finished instance, or start of the deadline
    stalled_ns: int = 0  # when the progress deadline passed
    stall_cause: str = ""  # from the last step, if the update has stalled
    failed_run_count: int = 0  # failed runs of its instances, counted on reading; not stored
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
    """A step of an update, or of one instance of it."""

    time_ns: int
    type: UpdateType
    state: UpdateState
    person: str = ""  # the user whose request led to it, if one did


@dataclass(frozen=True, slots=True)
class UpdateProgress:
    """Counts from which the workflow of an update decides; bounded whatever the size of the job."""

    update_id: str = ""  # "": the job has no update to roll out
    state: UpdateState = UpdateState.SUCCEEDED
    type: UpdateType = UpdateType.UPDATE
    total_count: int = 0
    done_count: int = 0
    failed_count: int = 0
    current_count: int = 0
    kill_count: int = 0  # instances that this step put in flight and that are on hosts
    rest_count: int = 0  # other instances that this step put in flight
    begun: str = ""  # instances that this step put in flight, in words
    rolls_back_to: int = 0  # version for the rollback after too many failures; 0 = no rollback
    waiting_for: str = ""
    look_again: bool = False  # poll: no wake-up follows when the condition changes
    batch_size: int = 0
    coming_image_count: int = 0  # pairs of image and host that the next instances need
    stalls_in_s: float = 0.0  # until its progress deadline; 0 = none
    stall: str = ""  # why the update has stalled
    needs_no_pulse: bool = False
    is_first: bool = False  # the job has no configuration before it

    @property
    def begun_count(self) -> int:
        return self.done_count + self.failed_count + self.current_count

    @property
    def is_finished(self) -> bool:
        return self.state in UPDATE_TERMINAL

    @property
    def milestone(self) -> str:
        """A text that changes with each step that puts instances in flight or changes the state; repeating a step keeps
        it."""
        return f"{self.update_id} {self.state} {self.begun_count}"

    @property
    def batch(self) -> str:
        """A text that changes each time another full batch of instances has begun."""
        return f"{self.update_id} {self.state} {self.begun_count // self.batch_size if self.batch_size else 0}"


@dataclass(frozen=True, slots=True)
class Disruption:
    """A decision of the SLA on one pod, or with ``instance_id`` -1 on several that were refused together."""

    time_ns: int
    instance_id: int
    reason: TerminationReason
    granted: bool
    message: str
