"""Members of a job's gang, and the effects of one member's end on the others."""

from __future__ import annotations

from collections import Counter

import sqlalchemy as sa

from peloton.api.convert import POD_STATES
from peloton.lifecycle.gang import Member
from peloton.lifecycle.gang_fate import SharedFate, decide_fate, fate, is_affected
from peloton.model.job import JobRecord, JobType
from peloton.model.pod import NextRun, PodRecord
from services.storage.codec import pod_record
from services.storage.pods.scope import Span, within
from services.storage.pods.sql import GOAL_ENDED, RUN_SUPERSEDED
from services.storage.tables import POD


def members_of(conn: sa.Connection, job: JobRecord) -> Counter[Member]:
    kind = (POD.c.state, GOAL_ENDED, RUN_SUPERSEDED, POD.c.next_run)
    query = sa.select(*kind, sa.func.count()).where(within(conn, Span(job.job_id, 0, job.gang_size))).group_by(*kind)
    members: Counter[Member] = Counter()
    for *found, count in conn.execute(query):
        state, is_to_end, wants_newer, next_run = found
        members[Member(POD_STATES[state], bool(is_to_end), bool(wants_newer), NextRun(next_run))] += count
    return members


def read_members(conn: sa.Connection, job: JobRecord) -> list[PodRecord]:
    query = sa.select(POD).where(within(conn, Span(job.job_id, 0, job.gang_size))).order_by(POD.c.instance_id)
    return [pod_record(row) for row in conn.execute(query)]


def find_shared_fate(conn: sa.Connection, job: JobRecord, allowed: int) -> SharedFate | None:
    """Return at most ``allowed`` members to change because of another's end; None when no member is affected.

    The count of members decides whether they are read.
    """
    if job.gang_size == 1 or job.type is JobType.EXTERNAL:  # Peloton only starts external pods
        return None
    members = members_of(conn, job)
    what = fate(members)
    if not any(is_affected(member, what) for member in members):
        return None
    return decide_fate(read_members(conn, job), allowed)
