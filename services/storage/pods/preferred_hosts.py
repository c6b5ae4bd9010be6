"""Preferred hosts of the pods of a job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import sqlalchemy as sa

from peloton.api.convert import POD_STATE_NUMBERS
from peloton.model.ids import Hostname, JobId
from peloton.model.pod import QUEUED, NextRun, PodState
from services.storage.pods.scope import ON_HOST_NUMBERS
from services.storage.pods.sql import RUN_SUPERSEDED
from services.storage.tables import POD

WAITING_NUMBERS = [POD_STATE_NUMBERS[state] for state in QUEUED | {PodState.READY}]


def read_preferred_hosts(
    conn: sa.Connection, job_id: JobId, cluster: str, without: Collection[int]
) -> dict[Hostname, int]:
    """Count pods by preferred host: the current host, or the one to which a pod returns or moves."""
    is_there = POD.c.state.in_(ON_HOST_NUMBERS)
    moves = sa.and_(RUN_SUPERSEDED, POD.c.desired_host != "")
    comes_back = sa.or_(POD.c.state.in_(WAITING_NUMBERS), POD.c.next_run != int(NextRun.NONE))
    home = sa.case((sa.and_(is_there, sa.not_(moves)), POD.c.host), else_=POD.c.desired_host).label("home")
    query = (
        sa.select(home, sa.func.count())
        .where(POD.c.job_id == job_id, POD.c.cluster == cluster, sa.or_(is_there, comes_back), home != "")
        .group_by(home)
    )
    found = Counter({Hostname(host): count for host, count in conn.execute(query)})
    if without:
        waiting = sa.select(POD.c.instance_id, POD.c.desired_host).where(
            POD.c.job_id == job_id, POD.c.cluster == cluster, POD.c.desired_host != "", sa.not_(is_there), comes_back
        )
        apart = set(without)
        found.subtract(Hostname(host) for instance, host in conn.execute(waiting) if instance in apart)
    return {host: count for host, count in found.items() if count > 0}
