"""Services as a whole: started, stopped, deleted."""

from __future__ import annotations

import sqlalchemy as sa

from peloton.errors import Aborted, InvalidArgument
from peloton.lifecycle import rollout
from peloton.lifecycle.job_machine import JobEvent, next_job
from peloton.lifecycle.settle import STOP_MESSAGE
from peloton.model.ids import EntityVersion, JobId
from peloton.model.job import JobRecord, JobState
from peloton.model.pod import PodState
from services.storage.codec import job_record
from services.storage.engine import lock_job
from services.storage.jobs.goals import START_MESSAGE, steer_pods, write_steering
from services.storage.repository import Store, pod_spans
from services.storage.tables import LOCKDOWN
from services.storage.updates.rows import read_update, write_steered, write_update
from services.storage.updates.updates import locked
from services.storage.watch_log import note_job

_EVENTS = {
    JobState.RUNNING: JobEvent.START_SERVICE,
    JobState.KILLED: JobEvent.STOP_SERVICE,
    JobState.DELETED: JobEvent.DELETE_SERVICE,
}


class Services(Store):
    def set_service_goal(
        self, job_id: JobId, version: EntityVersion | None, goal: JobState, force: bool, now_ns: int
    ) -> JobRecord:
        """RUNNING starts, KILLED stops, DELETED deletes a service. Raises NotFound, Aborted, InvalidArgument.

        A service is deleted when it is KILLED, or with ``force``, in which case it is stopped first; its records go
        when all pods have ended. An update that is under way is aborted with it.
        """

        def work(conn: sa.Connection) -> JobRecord:
            job = locked(conn, job_id, version)
            if job.goal is JobState.DELETED and goal is not JobState.DELETED:
                raise InvalidArgument("job is going to be deleted")
            update = read_update(conn, job.update_id)
            if goal is JobState.KILLED and update is not None and update.is_active and update.spec.start_pods:
                raise Aborted("job has active update with start_pods set, cannot stop the job now")
            if goal is JobState.DELETED and job.state is not JobState.KILLED and not force:
                raise Aborted("job is not stopped")
            job = next_job(job, _EVENTS[goal], now_ns)
            write_steering(conn, job)
            if goal is JobState.DELETED and update is not None:
                write_update(conn, update, rollout.aborted(update), now_ns)
            note_job(conn, job)
            return job

        job = self.db.write(work)
        pod_goal = PodState.RUNNING if goal is JobState.RUNNING else PodState.KILLED
        message = START_MESSAGE if goal is JobState.RUNNING else STOP_MESSAGE
        for span in self.db.read(lambda conn: pod_spans(conn, job_id)):
            self.db.write(
                lambda conn, span=span: steer_pods(conn, job, span, pod_goal, now_ns, message)  # type: ignore[misc]
            )
        return job

    def abort_update(self, job_id: JobId, now_ns: int) -> None:
        """As people abort it, if one is under way."""

        def work(conn: sa.Connection) -> None:
            row = lock_job(conn, job_id)
            update = read_update(conn, row.update_id) if row is not None else None
            if row is not None and update is not None and update.is_active:
                write_steered(conn, job_record(row), update, rollout.aborted(update), now_ns)

        self.db.write(work)

    def lockdowns(self) -> set[str]:
        """Components that are locked."""
        return self.db.read(lambda conn: set(conn.execute(sa.select(LOCKDOWN.c.component)).scalars()))

    def set_lockdown(self, component: str, locked: bool) -> None:
        mine = LOCKDOWN.c.component == component
        statement = self.db.upsert(LOCKDOWN).values(component=component).on_conflict_do_nothing()
        self.db.write(lambda conn: conn.execute(statement if locked else sa.delete(LOCKDOWN).where(mine)))
