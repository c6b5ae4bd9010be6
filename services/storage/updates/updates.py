"""Updates of services: requests, actions, reads and steps."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from peloton.api import convert
from peloton.api.v0.job import job_pb2
from peloton.errors import Aborted, AlreadyExists, InvalidArgument, NotFound, Reason
from peloton.lifecycle import rollout
from peloton.model.ids import EntityVersion, Hostname, JobId
from peloton.model.job import JobRecord, JobState
from peloton.model.secret import Secret
from peloton.model.text import quote
from peloton.model.update import (
    Instances,
    UpdateAct,
    UpdateEvent,
    UpdateKey,
    UpdateProgress,
    UpdateRecord,
    UpdateSpec,
    UpdateState,
    UpdateType,
)
from peloton.ports import SecretStore
from services.storage.codec import job_record
from services.storage.engine import Database, Repository, lock_job, reading, writing
from services.storage.jobs.configs import OverrideRows, insert_config
from services.storage.jobs.rows import insert_alone
from services.storage.jobs.secrets import Sent, carry_secrets
from services.storage.jobs.wakes import note_wakes
from services.storage.tables import UPDATE, UPDATE_EVENT
from services.storage.updates import instances
from services.storage.updates.image_prefetch import images_to_prefetch
from services.storage.updates.requests import (
    Wanted,
    check_immutable,
    create_update,
    find_created,
    first_state,
    roll_back_update,
    take_name,
)
from services.storage.updates.rolling import advance, roll_back_failed
from services.storage.updates.rows import (
    Version,
    hold_version,
    insert_update,
    read_update,
    update_record,
    write_steered,
)
from services.storage.updates.stalls import with_failed_runs
from services.storage.watch_log import note_job

NO_KEY = UpdateKey()


class Updates(Repository):
    def __init__(self, db: Database, store: SecretStore) -> None:
        super().__init__(db)
        self._store = store

    # -- client requests

    def create_service(
        self,
        job: JobRecord,
        config: job_pb2.JobConfig,
        spec: bytes,
        update: UpdateSpec,
        opaque: str,
        now_ns: int,
        key: UpdateKey = NO_KEY,
        secrets: Sequence[Secret] = (),
    ) -> JobRecord:
        """Create a service whose first update adds all of its instances, or return the one created with this key.

        Raises AlreadyExists, InvalidArgument.
        """
        record = UpdateRecord(
            update_id=str(uuid.uuid4()),
            job_id=job.job_id,
            type=UpdateType.UPDATE,
            spec=update,
            state=first_state(update),
            config_version=1,
            prev_config_version=0,
            added=frozenset(range(job.instance_count)),
            opaque_data=opaque,
            key=key,
            created_ns=now_ns,
            updated_ns=now_ns,
        )
        job = replace(
            job,
            state=JobState.PENDING,
            pod_counts={},
            update_id=record.update_id,
            created_ns=job.created_ns or now_ns,
            updated_ns=job.updated_ns or now_ns,
        )
        rows = OverrideRows(job.job_id, 1, config).of(config.instanceConfig)
        sent = Sent.of(self._db, self._store, job.job_id, config, secrets)

        def work(conn: sa.Connection) -> None:
            carry_secrets(conn, job.job_id, 0, config, sent)
            insert_alone(conn, job, config)
            insert_config(conn, job.job_id, 1, config, rows, now_ns, spec=spec)
            take_name(conn, job.job_id, job.name, now_ns)
            insert_update(conn, record)
            note_job(conn, job)

        try:
            self._db.write(work)
        except IntegrityError as error:
            there = self._db.read(lambda conn: find_created(conn, job.job_id, key))
            if there is None:
                raise AlreadyExists(f"job {job.job_id} already exists").because(
                    Reason.JOB_EXISTS, job=job.job_id
                ) from error
            return there
        return job

    def create(
        self,
        job_id: JobId,
        version: Version,
        type: UpdateType,
        spec: UpdateSpec,
        config: job_pb2.JobConfig | None,
        job_spec: bytes,
        instances: Iterable[int],
        opaque: str,
        now_ns: int,
        key: UpdateKey = NO_KEY,
        secrets: Sequence[Secret] = (),
    ) -> JobRecord:
        """Roll a service out to ``config``, or, if that is None, restart, start or stop its ``instances`` (empty: all).

        Returns the job with its new versions. A request for the update under way changes nothing, nor does one with the
        ``key`` of a stored update, whatever ``version`` is. Raises NotFound, Aborted for an outdated version,
        AlreadyExists for a key of another request, InvalidArgument.
        """
        return self._db.write(
            partial(
                create_update,
                job_id=job_id,
                version=version,
                wanted=Wanted(
                    type,
                    spec,
                    config,
                    job_spec,
                    named=tuple(instances),
                    opaque=opaque,
                    key=key,
                    secrets=Sent.of(self._db, self._store, job_id, config, secrets),
                ),
                now_ns=now_ns,
            )
        )

    def roll_back(self, update_id: str, key: UpdateKey, now_ns: int) -> JobRecord:
        """Roll the job back to the configuration before its latest update, by a new update with the same pace.

        A request with the ``key`` of a stored update changes nothing. Raises NotFound, InvalidArgument, AlreadyExists.
        """
        return self._db.write(partial(roll_back_update, update_id=update_id, key=key, now_ns=now_ns))

    @writing
    def steer(
        self,
        conn: sa.Connection,
        job_id: JobId,
        version: EntityVersion | None,
        act: UpdateAct,
        opaque: str | None,
        now_ns: int,
        update_id: str = "",
    ) -> JobRecord:
        """Pause, resume or abort the job's update, if its id is ``update_id`` or that is empty.

        An ended update stays as it is. The workflow version rises in any case. ``opaque`` None keeps the stored data.
        Raises NotFound, Aborted.
        """
        steer = {UpdateAct.PAUSE: rollout.pause, UpdateAct.RESUME: rollout.resume, UpdateAct.ABORT: rollout.abort}
        job = hold_version(conn, job_id, version)
        update = read_update(conn, job.update_id)
        if update is None:
            raise NotFound("no workflow found").because(Reason.UPDATE_NOT_FOUND)
        if update_id and update_id != job.update_id:
            raise Aborted(rollout.not_latest_text(update_id, job_id, job.update_id))
        after = steer[act](update)
        after = replace(after, opaque_data=update.opaque_data if opaque is None else opaque)
        return write_steered(conn, job, update, after, now_ns)

    @writing
    def pulse(self, conn: sa.Connection, job_id: JobId, key_text: str, now_ns: int) -> tuple[JobRecord, UpdateRecord]:
        """Record a pulse for the job's update with this key; any key if ``key_text`` is empty.

        An ended update stays as it is. The caller wakes the workflow if the update ``awaits_pulse``. Raises NotFound,
        Aborted, InvalidArgument.
        """
        job = hold_version(conn, job_id, None)  # a step under way would overwrite this time
        update = read_update(conn, job.update_id)
        if update is None:
            raise NotFound("no workflow found").because(Reason.UPDATE_NOT_FOUND)
        if key_text and update.key.text != key_text:
            raise Aborted(
                f"the update of job {job_id} is not {quote(key_text)} but {quote(update.key.text)}, "
                f"to version {update.config_version}"
            )
        if not update.spec.pulse_s:
            raise InvalidArgument(rollout.no_pulse_text(job_id))
        after = rollout.pulse(update, now_ns)
        mine = UPDATE.c.update_id == update.update_id
        conn.execute(sa.update(UPDATE).where(mine).values(pulsed_ns=after.pulsed_ns))
        if update.awaits_pulse:
            note_wakes(conn, [job_id], now_ns)
        return job, after

    @writing
    def abort_active(self, conn: sa.Connection, job_id: JobId, now_ns: int) -> None:
        """Abort the update of a service, if one is under way."""
        row = lock_job(conn, job_id)
        update = read_update(conn, row.update_id) if row is not None else None
        if row is not None and update is not None and update.is_active:
            write_steered(conn, job_record(row), update, rollout.abort(update), now_ns)

    # -- reading

    @reading
    def get(self, conn: sa.Connection, update_id: str) -> UpdateRecord | None:
        found = read_update(conn, update_id)
        return None if found is None else with_failed_runs(conn, [found])[0]

    def some(self, update_ids: Collection[str]) -> dict[str, UpdateRecord]:
        """Return the stored updates among these, which belong to at most a page of jobs."""
        query = sa.select(UPDATE).where(UPDATE.c.update_id.in_(update_ids))
        return {update.update_id: update for update in self._read(query)} if update_ids else {}

    def of_job(self, job_id: JobId, limit: int = 0) -> list[UpdateRecord]:
        """Return the stored updates of a job, newest first; limit 0 = all."""
        query = sa.select(UPDATE).where(UPDATE.c.job_id == job_id).order_by(UPDATE.c.created_ns.desc())
        query = query.order_by(UPDATE.c.config_version.desc())
        query = query.limit(limit) if limit else query
        return self._read(query)

    def _read(self, query: sa.Select[Any]) -> list[UpdateRecord]:
        return self._db.read(lambda conn: with_failed_runs(conn, map(update_record, conn.execute(query).all())))

    @reading
    def events(
        self, conn: sa.Connection, update_id: str, instance_id: int | None = None, limit: int = 0
    ) -> list[UpdateEvent]:
        """Return events of the update, or of one instance in it, newest first, without repeated states; limit 0 =
        all."""
        found: list[UpdateEvent] = []
        for event, named in _read_events(conn, update_id):
            if (not named) if instance_id is None else (instance_id in named):
                _add_changed(found, event)
        return found[::-1][:limit] if limit else found[::-1]

    @reading
    def instance_events(self, conn: sa.Connection, update_id: str, limit: int = 0) -> dict[int, list[UpdateEvent]]:
        """Return the ``events`` of every instance in the update, in one pass."""
        found: dict[int, list[UpdateEvent]] = {}
        for event, named in _read_events(conn, update_id):
            for instance in named:
                _add_changed(found.setdefault(instance, []), event)
        return {i: found[i][::-1][:limit] if limit else found[i][::-1] for i in sorted(found)}

    @writing
    def difference(
        self, conn: sa.Connection, job_id: JobId, version: EntityVersion | None, config: job_pb2.JobConfig
    ) -> rollout.Difference:
        """Return the instances that an update to ``config`` would touch. Raises like ``create``."""
        job = hold_version(conn, job_id, version)
        check_immutable(job, config)
        carry_secrets(conn, job_id, job.config_version, config, Sent.of_config(config))
        pods = instances.pods_of(conn, job_id)
        differs = instances.find_changed(conn, job_id, pods, config)
        return rollout.difference(pods, convert.count_wanted(job, config), job.config_version + 1, differs)

    # -- steps

    def advance(self, job_id: JobId, now_ns: int) -> UpdateProgress:
        """Check the instances in flight of the job's update, and start the next ones.

        Repeated calls are safe: instances in flight are not started again.
        """
        return self._db.write(partial(advance, job_id=job_id, now_ns=now_ns))

    def roll_back_failed(self, job_id: JobId, now_ns: int) -> None:
        """Roll the job's update back to the version before, if too many of its instances have failed.

        Repeated calls are safe: an update that rolls back does not change direction again.
        """
        self._db.write(partial(roll_back_failed, job_id=job_id, now_ns=now_ns))

    def images_to_prefetch(self, job_id: JobId) -> dict[str, list[Hostname]]:
        """Return image -> hosts that will run it once their instances are updated next."""
        return self._db.read(partial(images_to_prefetch, job_id=job_id))


def _read_events(conn: sa.Connection, update_id: str) -> Iterator[tuple[UpdateEvent, Instances]]:
    """Yield events, oldest first, with the instances that reached the state; no instances: the update itself did."""
    update = read_update(conn, update_id)
    if update is None:
        return
    query = sa.select(UPDATE_EVENT).where(UPDATE_EVENT.c.update_id == update_id).order_by(UPDATE_EVENT.c.seq)
    for row in conn.execute(query):
        event = UpdateEvent(row.time_ns, update.type, UpdateState(row.state), row.person)
        yield event, instances.from_text(row.instances)


def _add_changed(events: list[UpdateEvent], event: UpdateEvent) -> None:
    """Append an event unless it repeats the last state."""
    if not events or events[-1].state is not event.state:
        events.append(event)
