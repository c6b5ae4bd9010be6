"""Rows of updates and of their events."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import sqlalchemy as sa

from peloton.model.ids import JobId
from peloton.model.update import (
    NONE,
    ROLLING,
    UPDATE_TERMINAL,
    Instances,
    UpdateRecord,
    UpdateSpec,
    UpdateState,
    UpdateType,
)
from services.storage import instances
from services.storage.codec import stored_text
from services.storage.tables import JOB_CONFIG, OVERRIDE, POD, UPDATE, UPDATE_EVENT
from services.storage.watch import note_service

UPDATES_KEPT = 10
"""Of a job; older ones are forgotten with their events and with the configuration that they made."""
EVENTS_KEPT = 10_000
"""Steps of one update; a rollout has a few for each batch."""

_SETS = ("added", "updated", "removed", "current", "done", "failed")


def update_record(row: sa.Row[Any]) -> UpdateRecord:
    sets: dict[str, Instances] = {name: instances.from_text(getattr(row, name)) for name in _SETS}
    return UpdateRecord(
        update_id=row.update_id,
        job_id=JobId(row.job_id),
        type=UpdateType(row.type),
        spec=UpdateSpec(**json.loads(row.spec)),
        state=UpdateState(row.state),
        prev_state=UpdateState(row.prev_state),
        config_version=row.config_version,
        prev_config_version=row.prev_config_version,
        opaque_data=row.opaque_data,
        created_ns=row.created_ns,
        updated_ns=row.updated_ns,
        completed_ns=row.completed_ns,
        **sets,
    )


def read_update(conn: sa.Connection, update_id: str) -> UpdateRecord | None:
    if not update_id:
        return None
    row = conn.execute(sa.select(UPDATE).where(UPDATE.c.update_id == update_id)).one_or_none()
    return None if row is None else update_record(row)


def _values(update: UpdateRecord) -> dict[str, Any]:
    return {
        "update_id": update.update_id,
        "job_id": update.job_id,
        "type": update.type.value,
        "spec": json.dumps(asdict(update.spec)),
        "state": update.state.value,
        "prev_state": update.prev_state.value,
        "config_version": update.config_version,
        "prev_config_version": update.prev_config_version,
        "opaque_data": stored_text(update.opaque_data),
        "created_ns": update.created_ns,
        "updated_ns": update.updated_ns,
        "completed_ns": update.completed_ns,
        **{name: instances.to_text(getattr(update, name)) for name in _SETS},
    }


def insert_update(conn: sa.Connection, update: UpdateRecord) -> None:
    conn.execute(UPDATE.insert().values(**_values(update)))
    affected = update.added | update.updated | update.removed
    _add_events(conn, update, [(update.state, NONE), (UpdateState.INITIALIZED, affected)], update.created_ns)


def write_update(conn: sa.Connection, before: UpdateRecord, after: UpdateRecord, now_ns: int) -> None:
    """Store what changed, with its events."""
    if after == before:
        return
    ended = after.state in UPDATE_TERMINAL and not after.completed_ns
    after = replace(after, updated_ns=now_ns, completed_ns=now_ns if ended else after.completed_ns)
    conn.execute(sa.update(UPDATE).where(UPDATE.c.update_id == after.update_id).values(**_values(after)))
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


def _add_events(
    conn: sa.Connection, update: UpdateRecord, events: Sequence[tuple[UpdateState, Instances]], now_ns: int
) -> None:
    mine = UPDATE_EVENT.c.update_id == update.update_id
    last = conn.execute(sa.select(sa.func.max(UPDATE_EVENT.c.seq)).where(mine)).scalar() or 0
    rows = [
        {
            "update_id": update.update_id,
            "seq": seq,
            "time_ns": now_ns,
            "state": state.value,
            "instances": instances.to_text(named),
        }
        for seq, (state, named) in enumerate(events, last + 1)
    ]
    if rows:
        conn.execute(UPDATE_EVENT.insert(), rows)
        conn.execute(sa.delete(UPDATE_EVENT).where(mine, UPDATE_EVENT.c.seq <= last + len(rows) - EVENTS_KEPT))


def forget_oldest(conn: sa.Connection, job_id: str, newest_version: int) -> None:
    """Also the configurations that nothing needs any more: no pod, and no update that is kept."""
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
