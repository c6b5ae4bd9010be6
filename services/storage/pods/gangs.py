"""Members of a job's gang, and the effects of one member's end on the others."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from peloton.api.convert import POD_STATES
from peloton.lifecycle.discovery import NOWHERE, Bounds, GangPod, GangView, Peer, pod_address, view_gang
from peloton.lifecycle.gang import Member
from peloton.lifecycle.gang_fate import SharedFate, decide_fate, fate, is_affected
from peloton.model.job import JobRecord, JobType
from peloton.model.pod import ON_HOST, NextRun, PodRecord
from services.storage.codec import pod_record
from services.storage.pods.scope import ON_HOST_NUMBERS, Span, within
from services.storage.pods.sql import GOAL_ENDED, RUN_SUPERSEDED
from services.storage.tables import CLUSTER_HOST, POD

_GANG_PODS = sa.select(
    *(POD.c.instance_id, POD.c.run_id, POD.c.state, POD.c.host, POD.c.ports, CLUSTER_HOST.c.address),
    sa.or_(GOAL_ENDED, RUN_SUPERSEDED).label("leaves"),
).join(CLUSTER_HOST, CLUSTER_HOST.c.hostname == POD.c.host, isouter=True)


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


def read_gang(conn: sa.Connection, job: JobRecord, count_max: int) -> GangView:
    """Return the gang and the extras on hosts, at most ``count_max`` pods."""
    there = sa.or_(POD.c.instance_id < job.gang_size, POD.c.state.in_(ON_HOST_NUMBERS))
    query = _GANG_PODS.where(POD.c.job_id == job.job_id, there).order_by(POD.c.instance_id).limit(count_max + 1)
    return view_gang(Bounds.of(job), (_gang_pod(job, row) for row in conn.execute(query)), count_max)


def read_lead(conn: sa.Connection, job: JobRecord) -> tuple[int, Peer]:
    """Return the generation of the gang, and its coordinator, which is NOWHERE while it is on no host."""
    newest = sa.select(sa.func.max(POD.c.run_id)).where(within(conn, Span(job.job_id, 0, job.gang_size)))
    first = conn.execute(_GANG_PODS.where(POD.c.job_id == job.job_id, POD.c.instance_id == 0)).one_or_none()
    pod = None if first is None else _gang_pod(job, first)
    return conn.execute(newest).scalar() or 0, pod.peer if pod and pod.hostname else NOWHERE


def _gang_pod(job: JobRecord, row: sa.Row[Any]) -> GangPod:
    state = POD_STATES[row.state]
    pod = GangPod(row.instance_id, row.run_id, state, bool(row.leaves))
    if state not in ON_HOST:
        return pod
    address = pod_address(row.address or "", job.job_id, row.instance_id)
    return replace(pod, hostname=row.host, address=address, ports=json.loads(row.ports or "{}"))


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
