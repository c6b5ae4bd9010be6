"""Rebalancing: its view of pods, its moves, each in one transaction, and the progress of each cluster.

A transaction that moves pods locks their job first and the counter of rebalancing next, so that a stop, a pause or the
budget applies to every move after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import sqlalchemy as sa

from peloton.api.convert import JOB_TYPE_NUMBERS
from peloton.errors import Aborted, NotFound
from peloton.lifecycle.host_pools import route
from peloton.lifecycle.migration import bound
from peloton.lifecycle.rebalance import (
    act_refusal,
    affordable,
    after_act,
    after_round,
    grants_left,
    move_text,
    next_round,
)
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.job import JobRecord, JobType
from peloton.model.pod import Label, PodShape
from peloton.model.rebalance import (
    Move,
    MoveRecord,
    PodCensus,
    PodNow,
    Rebalance,
    RebalanceAct,
    RebalancePlan,
    RebalanceProgress,
    RebalanceSpec,
    RebalanceState,
    Stays,
    WaitingPods,
)
from peloton.model.text import shorten
from services.storage.codec import InstanceFacts
from services.storage.engine import Repository, take_numbers, writing
from services.storage.jobs.configs import facts_of
from services.storage.jobs.rows import hold_job, read_job
from services.storage.moves.bindings import binding_of_job
from services.storage.moves.rebalance_rows import (
    SEQ,
    hour_count,
    insert_moves,
    last_ended_ns,
    read_moves,
    read_rebalance,
    read_rebalances,
    settle_moves,
    write_rebalance,
)
from services.storage.pods.ready import ready_gangs
from services.storage.pods.scope import KILLING, ON_HOST_NUMBERS
from services.storage.pods.sql import GOAL_ENDED, LAUNCHABLE, RUN_SUPERSEDED
from services.storage.tables import IS_ACTIVE, JOB, POD
from services.storage.updates import instances
from services.storage.updates.disruptions import move_pods
from services.storage.updates.rows import read_update
from services.storage.volumes.rows import volume_there

WAITING_PODS_MAX = 1_000
"""Maximum number of waiting pods read per job."""
WAITED_MIN_S = 10.0
"""Minimum wait of a pod: pods admitted later are probably being placed, unless placement has failed before."""
PREFERRED_MAX = 100
"""Maximum number of pods per job that wait to return to a preferred host."""
JOBS_PER_QUERY = 500
_SERVICE = JOB.c.type == JOB_TYPE_NUMBERS[JobType.SERVICE]
_WHY_OTHERS_STAY = {
    JOB_TYPE_NUMBERS[JobType.BATCH]: Stays.BATCH,
    JOB_TYPE_NUMBERS[JobType.DAEMON]: Stays.DAEMON,
    JOB_TYPE_NUMBERS[JobType.EXTERNAL]: Stays.EXTERNAL,
}


class Rebalances(Repository):
    def census(self, cluster: str) -> PodCensus:
        """Read all pods of services on hosts of the cluster, service by service, and count the pods of other jobs."""
        services = sa.select(JOB.c.job_id).where(IS_ACTIVE, _SERVICE).order_by(JOB.c.job_id)
        pods: list[PodNow] = []
        grants: dict[JobId, int] = {}
        for job_id in self._db.read(lambda conn: list(conn.execute(services).scalars())):
            own, granted = self._db.read(partial(_of_service, job_id=job_id, cluster=cluster))
            if own:
                pods += own
                grants[JobId(job_id)] = granted
        others = self._db.read(partial(_count_others, cluster=cluster))
        return PodCensus(pods, others, self._waiting(cluster), grants)

    def are_elsewhere(self, job_ids: Collection[JobId], cluster: str) -> set[JobId]:
        """Return jobs with pods on hosts of other clusters, or with pods that return there."""
        is_there = sa.or_(POD.c.state.in_(ON_HOST_NUMBERS), POD.c.desired_host != "")
        mine = sa.exists().where(POD.c.job_id == JOB.c.job_id, is_there, POD.c.cluster != cluster)
        found: set[JobId] = set()
        ids = sorted(job_ids)
        for start in range(0, len(ids), JOBS_PER_QUERY):
            query = sa.select(JOB.c.job_id).where(JOB.c.job_id.in_(ids[start : start + JOBS_PER_QUERY]), mine)
            found.update(self._db.read(partial(_column, query=query)))
        return found

    # -- operator requests

    @writing
    def start(self, conn: sa.Connection, clusters: Collection[str], spec: RebalanceSpec) -> list[Rebalance]:
        """Start rebalancing, or continue with these goals and this budget; moves within the last hour count towards
        it."""
        now_ns = self._db.clock_ns()
        take_numbers(conn, SEQ, 0)
        found = [
            _start_or_continue(read_rebalance(conn, cluster), cluster, spec, now_ns) for cluster in sorted(clusters)
        ]
        for one in found:
            write_rebalance(conn, one)
        return found

    @writing
    def steer(self, conn: sa.Connection, clusters: Collection[str], act: RebalanceAct) -> list[Rebalance]:
        """Apply the action to all of the clusters, or none. Raises NotFound for a cluster never rebalanced, Aborted."""
        now_ns = self._db.clock_ns()
        take_numbers(conn, SEQ, 0)
        found: list[Rebalance] = []
        for cluster in sorted(clusters):
            one = read_rebalance(conn, cluster)
            if one is None:
                raise NotFound(f"cluster {shorten(cluster)} has never been rebalanced")
            if refusal := act_refusal(act, cluster, one.state):
                raise Aborted(refusal)
            state = after_act(one.state, act)
            progress = replace(one.progress, state=state)
            found.append(replace(one, state=state, progress=progress, updated_ns=now_ns))
            write_rebalance(conn, found[-1])
        return found

    # -- reading

    def get(self, cluster: str) -> Rebalance | None:
        return self._db.read(partial(read_rebalance, cluster=cluster))

    def all(self) -> list[Rebalance]:
        """Return all rebalancings, by cluster."""
        return self._db.read(read_rebalances)

    def moves(self, cluster: str, limit: int) -> list[MoveRecord]:
        """Return moves, newest first."""
        return self._db.read(partial(read_moves, cluster=cluster, limit=limit))

    # -- steps

    @writing
    def settle(self, conn: sa.Connection, cluster: str) -> tuple[int, Sequence[MoveRecord]]:
        """Record the outcome of moves; returns how many may begin now, and the moves under way."""
        now_ns = self._db.clock_ns()
        take_numbers(conn, SEQ, 0)
        left = settle_moves(conn, cluster, now_ns)
        one = read_rebalance(conn, cluster)
        return (_round(conn, one, len(left), now_ns)[0] if one is not None else 0), left

    @writing
    def begin(self, conn: sa.Connection, cluster: str, job_id: JobId, moves: Sequence[Move]) -> list[Move]:
        """Restart pods of a service on other hosts, as far as its SLA and the hourly budget allow.

        Returns the moves that began. Pods that have changed since the plan are left out.
        """
        now_ns = self._db.clock_ns()
        job = hold_job(conn, job_id)
        take_numbers(conn, SEQ, 0)
        one = read_rebalance(conn, cluster)
        is_running = one is not None and one.state is RebalanceState.RUNNING
        if job is None or job.type is not JobType.SERVICE or one is None or not is_running:
            return []
        pods, grants = _of_service(conn, job_id, cluster)
        pod_hosts = {pod.pod_id: pod.hostname for pod in pods if pod.stays is None}
        able = [move for move in moves if pod_hosts.get(move.pod_id) == move.source]
        chosen = affordable(able, grants, one.spec.moves_per_hour - hour_count(conn, cluster, now_ns))
        targets = {
            move.pod_id.instance_id: (move.target, f"Moves to {move.target}: {move_text(move)}") for move in chosen
        }
        if not targets:
            return []
        granted = set(move_pods(conn, job, targets, now_ns).granted)
        begun = [move for move in chosen if move.pod_id.instance_id in granted]
        if begun:
            insert_moves(conn, cluster, begun, now_ns)
            write_rebalance(conn, replace(one, move_count=one.move_count + len(begun), updated_ns=now_ns))
        return begun

    @writing
    def note(self, conn: sa.Connection, cluster: str, plan: RebalancePlan | None) -> None:
        """Record the progress after a step, and the end; ``plan`` is the step's plan, if it made one."""
        now_ns = self._db.clock_ns()
        take_numbers(conn, SEQ, 0)
        one = read_rebalance(conn, cluster)
        if one is None or not one.is_active:
            return
        moving_count = len(settle_moves(conn, cluster, now_ns))
        _, waiting_for = _round(conn, one, moving_count, now_ns)
        progress = after_round(one, moving_count, hour_count(conn, cluster, now_ns), waiting_for, plan)
        if progress != one.progress:
            write_rebalance(conn, replace(one, state=progress.state, progress=progress, updated_ns=now_ns))

    def _waiting(self, cluster: str) -> list[WaitingPods]:
        waits = sa.exists().where(POD.c.job_id == JOB.c.job_id, LAUNCHABLE)
        jobs = sa.select(JOB.c.job_id).where(IS_ACTIVE, waits).order_by(JOB.c.job_id)
        found: list[WaitingPods] = []
        for job_id in self._db.read(lambda conn: list(conn.execute(jobs).scalars())):
            found += self._db.read(partial(_waiting_of, job_id=job_id, cluster=cluster, now_ns=self._db.clock_ns()))
        return found


def _column(conn: sa.Connection, query: sa.Select[Any]) -> list[JobId]:
    return [JobId(job_id) for job_id in conn.execute(query).scalars()]


def _start_or_continue(before: Rebalance | None, cluster: str, spec: RebalanceSpec, now_ns: int) -> Rebalance:
    if before is None or not before.is_active:
        progress = RebalanceProgress(RebalanceState.RUNNING)
        return Rebalance(cluster, spec, progress=progress, started_ns=now_ns, updated_ns=now_ns)
    progress = replace(before.progress, state=RebalanceState.RUNNING)
    return replace(before, spec=spec, state=RebalanceState.RUNNING, progress=progress, updated_ns=now_ns)


def _round(conn: sa.Connection, one: Rebalance, moving_count: int, now_ns: int) -> tuple[int, str]:
    counts = moving_count, hour_count(conn, one.cluster, now_ns), last_ended_ns(conn, one.cluster)
    return next_round(one.state, one.spec.moves_per_hour, *counts, now_ns)


def _of_service(conn: sa.Connection, job_id: str, cluster: str) -> tuple[list[PodNow], int]:
    """Return the service's pods on hosts of the cluster, and how many of them may be taken down now."""
    job = read_job(conn, job_id)
    if job is None:
        return [], 0
    leaves = sa.or_(GOAL_ENDED, RUN_SUPERSEDED, POD.c.state == KILLING).label("leaves")
    has_volume = volume_there(POD.c.job_id, POD.c.instance_id, POD.c.host).label("has_volume")
    query = (
        sa.select(POD.c.instance_id, POD.c.run_id, POD.c.host, POD.c.config_version, leaves, has_volume)
        .where(POD.c.job_id == job_id, POD.c.state.in_(ON_HOST_NUMBERS), POD.c.cluster == cluster)
        .order_by(POD.c.instance_id)
    )
    rows = conn.execute(query).all()
    facts = facts_of(conn, job_id, {row.instance_id: row.config_version for row in rows})
    shapes = _shapes(conn, job, facts)
    update = read_update(conn, job.update_id) if job.update_id else None
    is_updated = update is not None and update.is_active
    found: list[PodNow] = []
    for row in rows:
        own = facts[row.instance_id]
        stays = _immovable_reason(own.shape, bool(row.leaves), bool(row.has_volume), is_updated)
        pod_id = PodId(JobId(job_id), row.instance_id, row.run_id)
        found.append(PodNow(pod_id, Hostname(row.host), shapes[own.shape], own.labels, stays))
    if not found:
        return [], 0
    missing = instances.missing_of(conn, job_id)
    return found, grants_left(job.sla.maximum_unavailable_instances, job.instance_count, len(missing))


def _shapes(conn: sa.Connection, job: JobRecord, facts: dict[int, InstanceFacts]) -> dict[PodShape, PodShape]:
    """Return the shapes of the facts, as seen by placement."""
    binding = binding_of_job(conn, job)
    return {shape: bound(route(shape, job.type), binding) for shape in dict.fromkeys(f.shape for f in facts.values())}


def _immovable_reason(shape: PodShape, leaves: bool, has_volume: bool, is_updated: bool) -> Stays | None:
    if leaves:
        return Stays.LEAVING
    if has_volume or shape.volume_mib:
        return Stays.VOLUME
    if shape.revocable:
        return Stays.REVOCABLE
    return Stays.UPDATE if is_updated else None


def _count_others(conn: sa.Connection, cluster: str) -> dict[Hostname, dict[Stays, int]]:
    query = (
        sa.select(POD.c.host, JOB.c.type, sa.func.count())
        .join(JOB, JOB.c.job_id == POD.c.job_id)
        .where(IS_ACTIVE, sa.not_(_SERVICE), POD.c.state.in_(ON_HOST_NUMBERS), POD.c.cluster == cluster)
        .group_by(POD.c.host, JOB.c.type)
    )
    found: dict[Hostname, dict[Stays, int]] = {}
    for host, type_, count in conn.execute(query):
        found.setdefault(Hostname(host), {})[_WHY_OTHERS_STAY[type_]] = count
    return found


def _waiting_of(conn: sa.Connection, job_id: str, cluster: str, now_ns: int) -> list[WaitingPods]:
    """Return READY pods outside gangs, by shape, labels and preferred host, if that is in the cluster."""
    counts: Counter[tuple[PodShape, tuple[Label, ...], str]] = Counter()
    waited_s: dict[tuple[PodShape, tuple[Label, ...], str], float] = {}
    preferred_left = PREFERRED_MAX
    for gang in ready_gangs(conn, job_id, WAITING_PODS_MAX, now_ns):
        preferred_left -= bool(gang.desired_host)
        is_local = not gang.desired_host or (preferred_left >= 0 and gang.desired_cluster == cluster)
        if is_local and (gang.waited_s >= WAITED_MIN_S or gang.vain_count):
            key = gang.shape, gang.labels, gang.desired_host
            counts[key] += 1
            waited_s[key] = max(waited_s.get(key, 0.0), gang.waited_s)
    return [
        WaitingPods(JobId(job_id), shape, count, labels, waited_s[shape, labels, home], Hostname(home))
        for (shape, labels, home), count in counts.items()
    ]
