"""Rows of updates and of their events."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields, replace
from functools import cache
from operator import attrgetter
from typing import Any

import sqlalchemy as sa

from peloton.api import convert
from peloton.errors import Aborted, AlreadyExists, InvalidArgument, NotFound, Reason
from peloton.lifecycle.external import owner_refusal
from peloton.model.by_hand import shorten_name
from peloton.model.ids import EntityVersion, JobId
from peloton.model.job import JobRecord, JobState
from peloton.model.reason import SlaRefusal
from peloton.model.text import quote
from peloton.model.update import (
    NONE,
    ROLLING,
    UPDATE_TERMINAL,
    Instances,
    UpdateKey,
    UpdateRecord,
    UpdateSpec,
    UpdateState,
)
from peloton.model.update_text import update_wait_text
from peloton.ports import PERSON
from services.storage.jobs.rows import hold_job
from services.storage.jobs.secrets import forget_unused
from services.storage.jobs.wakes import note_wakes
from services.storage.mapper import Form, Mapper, Part, not_stored
from services.storage.tables import JOB, JOB_CONFIG, OVERRIDE, POD, UPDATE, UPDATE_EVENT
from services.storage.updates import instances
from services.storage.watch_log import note_job, note_service

UPDATES_KEPT = 10
"""Number of updates kept per job; older ones are deleted with their events and the configurations they created."""
EVENTS_KEPT = 10_000
"""Number of events kept per update; a rollout has a few for each batch."""

UNEXPECTED_VERSION = "unexpected entity version"

Version = EntityVersion | int | None
"""Version known to the client: the entity version (v1alpha), the configuration version (v0), or none."""

_READING = sa.select(UPDATE).where(UPDATE.c.update_id == sa.bindparam("of_update"))
"""Statement built once, since each settle of a job with an update runs it."""
_LAST_EVENT = sa.select(sa.func.max(UPDATE_EVENT.c.seq)).where(UPDATE_EVENT.c.update_id == sa.bindparam("of_update"))
_ADDING_EVENTS = UPDATE_EVENT.insert()
_COLUMNS = [column.name for column in UPDATE.columns]
_REFUSAL = re.compile(
    r"the SLA: (?:(?P<missing>\d+) of at most (?P<maximum>\d+) instances are unavailable already"
    r"|no more than (?P<limit>\d+) instances may be unavailable, (?P<away>\d+) are, (?P<refused>\d+) must wait)"
)


def _read_refusal(text: str) -> SlaRefusal | None:
    """Read the refusal from the stored wait, a text that the previous release shows as it is."""
    found = _REFUSAL.fullmatch(text)
    if found is None:
        return None
    maximum, missing, refused = found["maximum"] or found["limit"], found["missing"] or found["away"], found["refused"]
    return SlaRefusal(int(maximum), int(missing), int(refused or 0))


_SETS = ("added", "updated", "removed", "current", "done", "failed")
_UPDATES = Mapper(
    UpdateRecord,
    UPDATE,
    **dict.fromkeys(_SETS, Form(instances.to_text, instances.from_text)),
    spec=Form(
        lambda spec: json.dumps({name: value for name, value in asdict(spec).items() if value}),
        lambda text: UpdateSpec(**json.loads(text)),
    ),
    key=Part(("update_key", "request_digest"), UpdateKey, attrgetter("text", "digest")),
    refusal=Part(("waiting_for",), _read_refusal, lambda _: ("",)),  # written as the text of the whole update
    failed_run_count=not_stored(0),
)
_PLAIN = [field.name for field in fields(UpdateRecord) if field.name not in _SETS]
update_record = _UPDATES.record


def read_update(conn: sa.Connection, update_id: str) -> UpdateRecord | None:
    if not update_id:
        return None
    row = conn.execute(_READING, {"of_update": update_id}).one_or_none()
    return None if row is None else update_record(row)


def knows_request(conn: sa.Connection, job_id: str, key: UpdateKey) -> bool:
    """Return whether the job has an update with this key, created by the same request.

    Raises AlreadyExists when the request differs.
    """
    if not key.text:
        return False
    mine = (UPDATE.c.job_id == job_id, UPDATE.c.update_key == key.text)
    row = conn.execute(sa.select(UPDATE.c.request_digest, UPDATE.c.config_version).where(*mine)).one_or_none()
    if row is not None and row.request_digest != key.digest:
        raise AlreadyExists(
            f"update key {quote(key.text)} of job {job_id} belongs to another request, which led to version "
            f"{row.config_version}"
        )
    return row is not None


@cache
def _build_write(sets: tuple[str, ...]) -> tuple[sa.Update, Callable[[UpdateRecord], dict[str, Any]]]:
    """Build the statement for the sets that a step changes, and its parameters, once per choice."""
    names = [name for name in _COLUMNS if name not in _SETS or name in sets]
    written = {name: sa.bindparam(f"new_{name}", type_=UPDATE.c[name].type) for name in names}
    statement = sa.update(UPDATE).where(UPDATE.c.update_id == sa.bindparam("of_update")).values(written)
    return statement, _UPDATES.writer((*_PLAIN, *sets), "new_")


def insert_update(conn: sa.Connection, update: UpdateRecord) -> None:
    conn.execute(UPDATE.insert().values(**_UPDATES.values(update) | {"waiting_for": update_wait_text(update)}))
    affected = update.added | update.updated | update.removed
    _add_events(conn, update, [(update.state, NONE), (UpdateState.INITIALIZED, affected)], update.created_ns, last=0)


def write_update(conn: sa.Connection, before: UpdateRecord, after: UpdateRecord, now_ns: int) -> None:
    """Store the changes of an update, with their events."""
    if after == before:
        return
    ended = after.state in UPDATE_TERMINAL and not after.completed_ns
    after = replace(after, updated_ns=now_ns, completed_ns=now_ns if ended else after.completed_ns)
    sets = [name for name in _SETS if getattr(after, name) is not getattr(before, name)]  # others are written already
    statement, values_of = _build_write(tuple(sets))
    waits = {"of_update": after.update_id, "new_waiting_for": update_wait_text(after)}
    conn.execute(statement, values_of(after) | waits)
    moving = after.state if after.state in ROLLING else UpdateState.ROLLING_FORWARD
    events = [
        (moving, after.current - before.current),
        (UpdateState.SUCCEEDED, after.done - before.done),
        (UpdateState.FAILED, after.failed - before.failed),
    ]
    changed = [event for event in events if event[1]]
    if after.state is not before.state:
        changed.append((after.state, NONE))
    _add_events(conn, after, changed, now_ns)
    note_service(conn, after.job_id)
    note_wakes(conn, [after.job_id], now_ns)


def _add_events(
    conn: sa.Connection,
    update: UpdateRecord,
    events: Sequence[tuple[UpdateState, Instances]],
    now_ns: int,
    last: int | None = None,
) -> None:
    """Add events; ``last`` is the number of the last event, if known."""
    if not events:
        return
    if last is None:
        last = conn.execute(_LAST_EVENT, {"of_update": update.update_id}).scalar() or 0
    person = shorten_name(PERSON.get())
    rows = [
        {
            "update_id": update.update_id,
            "seq": seq,
            "time_ns": now_ns,
            "state": state.value,
            "instances": instances.to_text(named),
            "person": person,
        }
        for seq, (state, named) in enumerate(events, last + 1)
    ]
    conn.execute(_ADDING_EVENTS, rows)
    if (oldest := last + len(rows) - EVENTS_KEPT) > 0:
        mine = UPDATE_EVENT.c.update_id == update.update_id
        conn.execute(sa.delete(UPDATE_EVENT).where(mine, UPDATE_EVENT.c.seq <= oldest))


def forget_oldest(conn: sa.Connection, job_id: str, newest_version: int) -> None:
    """Delete the oldest updates, and configurations that no pod and no remaining update uses."""
    query = sa.select(UPDATE.c.update_id).where(UPDATE.c.job_id == job_id)
    query = query.order_by(UPDATE.c.created_ns.desc(), UPDATE.c.config_version.desc())
    old = list(conn.execute(query.offset(UPDATES_KEPT)).scalars())
    if not old:
        return
    for table in (UPDATE_EVENT, UPDATE):
        conn.execute(sa.delete(table).where(table.c.update_id.in_(old)))
    needed = [sa.select(c).where(POD.c.job_id == job_id) for c in (POD.c.config_version, POD.c.desired_config_version)]
    needed += [
        sa.select(c).where(UPDATE.c.job_id == job_id) for c in (UPDATE.c.config_version, UPDATE.c.prev_config_version)
    ]
    mine, version = JOB_CONFIG.c.job_id == job_id, JOB_CONFIG.c.version
    conn.execute(sa.delete(JOB_CONFIG).where(mine, version < newest_version, version.not_in(sa.union_all(*needed))))
    oldest = conn.execute(sa.select(sa.func.min(JOB_CONFIG.c.overrides_from)).where(mine)).scalar_one()
    conn.execute(sa.delete(OVERRIDE).where(OVERRIDE.c.job_id == job_id, OVERRIDE.c.version < oldest))
    forget_unused(conn, job_id)


def write_steered(
    conn: sa.Connection, job: JobRecord, update: UpdateRecord, after: UpdateRecord, now_ns: int
) -> JobRecord:
    write_update(conn, update, after, now_ns)
    write_versions(conn, job := replace(job, workflow_version=job.workflow_version + 1), now_ns)
    return job


def write_versions(conn: sa.Connection, job: JobRecord, now_ns: int) -> None:
    conn.execute(
        sa.update(JOB)
        .where(JOB.c.job_id == job.job_id)
        .values(
            update_id=job.update_id,
            config_version=job.config_version,
            workflow_version=job.workflow_version,
            goal=convert.JOB_STATE_NUMBERS[job.goal],
            state=convert.JOB_STATE_NUMBERS[job.state],
            completed_ns=job.completed_ns,
            revision=JOB.c.revision + 1,
            updated_ns=now_ns,
        )
    )
    note_job(conn, job)
    note_wakes(conn, [job.job_id], now_ns)


# -- the job of an update ----------------------------------------------------------------------------------------------


def hold_version(conn: sa.Connection, job_id: JobId, version: Version) -> JobRecord:
    """Read and lock the job, if it has the version known to the client."""
    job = hold_job(conn, job_id)
    if job is None or job.state is JobState.DELETED:
        raise NotFound(f"job {job_id} not found").because(Reason.JOB_NOT_FOUND, job=job_id)
    if why := owner_refusal(job):
        raise InvalidArgument(why)
    check_version(job, version)
    return job


def check_version(job: JobRecord, version: Version) -> None:
    if isinstance(version, EntityVersion) and version != job.entity_version:
        raise Aborted(UNEXPECTED_VERSION).because(Reason.VERSION_CONFLICT)
    if isinstance(version, int) and version != job.config_version:
        raise InvalidArgument("invalid job configuration version").because(Reason.VERSION_CONFLICT)
