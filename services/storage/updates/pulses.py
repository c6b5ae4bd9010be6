"""Pulses of updates: a row each says when the last one came, so that a thousand of them leave no more than one."""

from __future__ import annotations

import sqlalchemy as sa

from peloton.errors import Aborted, InvalidArgument, NotFound
from peloton.lifecycle import rollout
from peloton.model.ids import JobId
from peloton.model.job import JobRecord
from peloton.model.update import UpdateRecord
from services.storage.repository import Store
from services.storage.tables import UPDATE
from services.storage.updates.rows import read_update
from services.storage.updates.updates import locked


class Pulses(Store):
    def pulse_update(self, job_id: JobId, key_text: str, now_ns: int) -> tuple[JobRecord, UpdateRecord]:
        """Let the job's update go on, if it has this key; any key if ``key_text`` is empty. One that has ended stays as
        it is. Its workflow is to be woken when it ``awaits_pulse``. Raises NotFound, Aborted, InvalidArgument."""

        def work(conn: sa.Connection) -> tuple[JobRecord, UpdateRecord]:
            job = locked(conn, job_id, None)  # a step that is under way would write its own time over this one
            update = read_update(conn, job.update_id)
            if update is None:
                raise NotFound("no workflow found")
            if key_text and update.key.text != key_text:
                raise Aborted(
                    f"the update of job {job_id} is not {key_text!r} but {update.key.text!r}, "
                    f"to version {update.config_version}"
                )
            if not update.spec.pulse_s:
                raise InvalidArgument(f"the update of job {job_id} needs no pulses: its pulse_seconds are 0")
            after = rollout.pulsed(update, now_ns)
            mine = UPDATE.c.update_id == update.update_id
            conn.execute(sa.update(UPDATE).where(mine).values(pulsed_ns=after.pulsed_ns))
            return job, after

        return self.db.write(work)
