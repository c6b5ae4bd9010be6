"""Decide whether the workflow of a job rolls out the update that creates its service.

Such an update begins all instances at once and is done when they run: two steps, which the settles of the job take in
their own transactions. Any other update has batches, pulses, pauses, rollbacks or deadlines to watch, and a workflow of
its own for that.
"""

from __future__ import annotations

from peloton.lifecycle.stall import PROGRESS_DEADLINE_S
from peloton.lifecycle.wake import POLL_S
from peloton.model.job import JobRecord, JobType
from peloton.model.times import NS_PER_S
from peloton.model.update import UpdateRecord, UpdateState, UpdateType

FIRST_WORKFLOW_VERSION = 1
"""Version of a job whose creation no person has paused, resumed or aborted; each of these acts raises it."""
_PLAIN_STATES = (UpdateState.INITIALIZED, UpdateState.ROLLING_FORWARD)


def has_no_pods(job: JobRecord, update: UpdateRecord) -> bool:
    """Return whether the update is the first one of its service and has yet to begin. It adds what its row says."""
    return _is_creation(job, update) and update.state is UpdateState.INITIALIZED


def is_plain_creation(job: JobRecord, update: UpdateRecord, created_max: int, now_ns: int) -> bool:
    """Return whether settles of the job roll the update out. One that makes no progress for ``POLL_S`` is handed over
    to a workflow of its own, which watches its progress deadline. One that people have steered stays with its workflow:
    the job would not tell this workflow how the creation ends."""
    if not _is_creation(job, update) or update.state not in _PLAIN_STATES or not 0 < update.total_count <= created_max:
        return False
    if update.spec.pulse_s or update.spec.rollback_on_failure or job.workflow_version > FIRST_WORKFLOW_VERSION:
        return False
    is_whole = not update.spec.batch_size or update.spec.batch_size >= update.total_count
    has_usual_deadline = update.spec.progress_deadline_s in (0, PROGRESS_DEADLINE_S)
    is_young = not update.progressed_ns or now_ns - update.progressed_ns < POLL_S * NS_PER_S
    return is_whole and has_usual_deadline and is_young


def _is_creation(job: JobRecord, update: UpdateRecord) -> bool:
    return job.type is JobType.SERVICE and update.type is UpdateType.UPDATE and not update.prev_config_version
