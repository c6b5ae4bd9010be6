"""Activities that carry out users' requests about jobs and their updates. They call the same methods of storage as the
API, and refuse with the same messages.
"""

from __future__ import annotations

from collections.abc import Callable

from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from activities.definition import define_activity
from peloton.errors import Unavailable
from peloton.model.ids import JobId
from peloton.model.job import JobRecord
from peloton.model.request import RequestAnswer
from peloton.model.update import UpdateAct, UpdateKey
from peloton.ports import JobRecords, Lockdowns, UpdateRecords


class RequestActivities:
    def __init__(
        self, jobs: JobRecords, updates: UpdateRecords, lockdowns: Lockdowns, now_ns: Callable[[], int]
    ) -> None:
        self._jobs, self._updates, self._lockdowns = jobs, updates, lockdowns
        self._now_ns = now_ns

    @define_activity("request_stop", is_request=True)
    def stop(self, job_id: str) -> RequestAnswer:
        self._check_unlocked()
        job = self._jobs.stop(JobId(job_id), self._now_ns())
        return RequestAnswer(job.state.value, job.goal.value, version=str(job.entity_version))

    @define_activity("steer_update", is_request=True)
    def steer(self, job_id: str, update_id: str, act: UpdateAct) -> RequestAnswer:
        """Pause, resume or abort the update of the job if its id is ``update_id``, or any update if that is empty."""
        self._check_unlocked()
        return self._answer(self._updates.steer(JobId(job_id), None, act, None, self._now_ns(), update_id))

    @define_activity("pulse_update", is_request=True)
    def pulse(self, job_id: str, key: str) -> RequestAnswer:
        self._check_unlocked()
        return self._answer(self._updates.pulse(JobId(job_id), key, self._now_ns())[0])

    @define_activity("roll_back_update", is_request=True)
    def roll_back(self, update_id: str) -> RequestAnswer:
        """Start an update that rolls back ``update_id``. The call is idempotent."""
        self._check_unlocked()
        key = UpdateKey(f"rollback of {update_id}", "asked of the workflow")
        return self._answer(self._updates.roll_back(update_id, key, self._now_ns()))

    def _answer(self, job: JobRecord) -> RequestAnswer:
        update = self._updates.get(job.update_id)
        state = update.state.value if update is not None else ""
        return RequestAnswer(state, update_id=job.update_id, version=str(job.entity_version))

    def _check_unlocked(self) -> None:
        """Raise an error that is not retried while an administrator has locked writes."""
        if refusal := self._lockdowns.refusal("Write"):
            benign = ApplicationErrorCategory.BENIGN
            raise ApplicationError(refusal, type=Unavailable.code, non_retryable=True, category=benign)
