"""Causes of stalled updates, and counts of failed runs, read from the pods of their jobs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import sqlalchemy as sa

from peloton.api.convert import POD_STATE_NUMBERS
from peloton.lifecycle.retry import THROTTLED_MESSAGE
from peloton.lifecycle.stall import cause_text
from peloton.model.pod import TERMINAL, PodEvent, PodRecord
from peloton.model.update import UpdateRecord, UpdateState, UpdateType
from services.storage.codec import pod_event, pod_record
from services.storage.pods.scope import Chosen, within
from services.storage.tables import POD, POD_EVENT

_ENDED = sorted(POD_STATE_NUMBERS[state] for state in TERMINAL)


def with_cause(conn: sa.Connection, update: UpdateRecord) -> UpdateRecord:
    """Set the cause of a stalled update to the failures of its instance in flight that has failed most often.

    One row of the pods in flight is read, and one event.
    """
    if not update.stalled_ns:
        return update
    worst = _find_worst(conn, update)
    last = _last_failure(conn, worst) if worst is not None and worst.failure_count else None
    return replace(update, stall_cause=cause_text(update, worst, last))


def _find_worst(conn: sa.Connection, update: UpdateRecord) -> PodRecord | None:
    if not update.current:
        return None
    mine = within(conn, Chosen(update.job_id, sorted(update.current)))
    query = sa.select(POD).where(mine).order_by(POD.c.failure_count.desc(), POD.c.instance_id).limit(1)
    row = conn.execute(query).one_or_none()
    return None if row is None else pod_record(row)


def _last_failure(conn: sa.Connection, pod: PodRecord) -> PodEvent | None:
    """Return the newest end of a run, skipping records of the wait for the next one."""
    query = (
        sa.select(POD_EVENT)
        .where(POD_EVENT.c.job_id == pod.job_id, POD_EVENT.c.instance_id == pod.instance_id)
        .where(POD_EVENT.c.state.in_(_ENDED), POD_EVENT.c.message.not_like(f"{THROTTLED_MESSAGE}%"))
        .order_by(POD_EVENT.c.revision.desc())
        .limit(1)
    )
    row = conn.execute(query).one_or_none()
    return None if row is None else pod_event(row)


def with_failed_runs(conn: sa.Connection, updates: Iterable[UpdateRecord]) -> list[UpdateRecord]:
    """Count the failures of the version that an update rolls out.

    Restarts are left out, since they do not reset the count of their pods, and so are updates that succeeded.
    """
    found = list(updates)
    counted = [one for one in found if one.type is UpdateType.UPDATE and one.state not in _WITHOUT_COUNT]
    if not counted:
        return found
    versions = sa.tuple_(POD.c.job_id, POD.c.config_version).in_([(one.job_id, one.config_version) for one in counted])
    query = sa.select(POD.c.job_id, POD.c.config_version, sa.func.sum(POD.c.failure_count))
    rows = conn.execute(query.where(versions).group_by(POD.c.job_id, POD.c.config_version))
    counts = {(job_id, version): int(count) for job_id, version, count in rows}
    known = {one.update_id: counts.get((one.job_id, one.config_version), 0) for one in counted}
    return [replace(one, failed_run_count=known.get(one.update_id, 0)) for one in found]


_WITHOUT_COUNT = frozenset({UpdateState.SUCCEEDED, UpdateState.ABORTED, UpdateState.ROLLED_BACK})
