"""Daemons: the assignment of instances to hosts, and the instances that are not on their host yet."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby

import sqlalchemy as sa

from peloton.api.convert import JOB_STATE_NUMBERS, JOB_TYPE_NUMBERS
from peloton.lifecycle.daemon import FollowPlan, follow_hosts
from peloton.lifecycle.job import is_ending
from peloton.lifecycle.pod_machine import Event
from peloton.lifecycle.pod_terms import GOAL_ALIVE, INITIALIZED, READY
from peloton.model.daemon import Daemon, Neighbour, Seat, WaitingDaemonPod
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.job import JobRecord, JobState, JobType
from peloton.model.pod import PodState
from peloton.model.ranges import as_ranges
from peloton.model.resources import compute_needed
from services.storage.engine import Repository, reading, writing
from services.storage.jobs.configs import facts_of, read_facts
from services.storage.jobs.rows import hold_job
from services.storage.jobs.steering import steer_pods, touch_job
from services.storage.pods.creation import insert_service_pods
from services.storage.pods.scope import ENDING_NUMBERS, KILLING, ON_HOST_NUMBERS, Chosen
from services.storage.pods.sql import GOAL_ENDED, RUN_SUPERSEDED, where
from services.storage.pods.writes import fire
from services.storage.tables import DAEMON_HOST, IS_ACTIVE, JOB, POD

CAME_BACK, LEFT = "Its host matches again", "Its host no longer matches"
PASSED = "Its host has free resources for it"
_BATCH, _DAEMON = JOB_TYPE_NUMBERS[JobType.BATCH], JOB_TYPE_NUMBERS[JobType.DAEMON]
_RUNS = JOB_STATE_NUMBERS[JobState.RUNNING]
_SAME = sa.and_(POD.c.job_id == DAEMON_HOST.c.job_id, POD.c.instance_id == DAEMON_HOST.c.instance_id)
_WAITS = where((INITIALIZED | READY) & GOAL_ALIVE)


class Daemons(Repository):
    # -- reading

    @reading
    def list_wanted(self, conn: sa.Connection) -> list[Daemon]:
        """Return daemons whose goal is RUNNING, with the shape of their newest configuration."""
        query = sa.select(JOB.c.job_id, JOB.c.config_version, JOB.c.desired_state_version).where(
            JOB.c.type == _DAEMON, JOB.c.goal == _RUNS, IS_ACTIVE
        )
        rows = conn.execute(query.order_by(JOB.c.job_id)).all()
        facts = ((row, read_facts(conn, row.job_id, row.config_version, (0, -1))[0]) for row in rows)
        return [
            Daemon(JobId(row.job_id), own.shape, row.desired_state_version) for row, own in facts if own is not None
        ]

    @reading
    def on_hosts(self, conn: sa.Connection, cluster: str) -> list[tuple[PodId, Hostname]]:
        """Return pods of daemons that are launched or run on hosts of the cluster."""
        columns = (POD.c.job_id, POD.c.instance_id, POD.c.run_id, POD.c.host)
        alive = sa.and_(JOB.c.type == _DAEMON, IS_ACTIVE)
        query = sa.select(*columns).join_from(JOB, POD, JOB.c.job_id == POD.c.job_id)
        query = query.where(alive, POD.c.state.in_(ON_HOST_NUMBERS), POD.c.cluster == cluster)
        return [(PodId(JobId(job), instance, run), Hostname(host)) for job, instance, run, host in conn.execute(query)]

    @reading
    def waiting(
        self, conn: sa.Connection, job_id: JobId, cluster: str, after: int, limit: int
    ) -> list[WaitingDaemonPod]:
        """Return instances above ``after`` that are assigned to hosts of the cluster and not on them yet, rising."""
        mine = sa.and_(DAEMON_HOST.c.job_id == job_id, DAEMON_HOST.c.cluster == cluster, DAEMON_HOST.c.gone_ns == 0)
        columns = (POD.c.instance_id, POD.c.desired_run_id, POD.c.config_version, DAEMON_HOST.c.hostname)
        query = sa.select(*columns).join_from(DAEMON_HOST, POD, _SAME).where(mine, _WAITS, POD.c.instance_id > after)
        rows = conn.execute(query.order_by(POD.c.instance_id).limit(limit)).all()
        facts = facts_of(conn, job_id, {row.instance_id: row.config_version for row in rows})
        return [
            WaitingDaemonPod(instance, run, Hostname(host), facts[instance].shape) for instance, run, _, host in rows
        ]

    def neighbours(self, cluster: str, hostnames: Collection[Hostname]) -> dict[Hostname, list[Neighbour]]:
        """Return the pods on these hosts of a cluster, by host.

        Each call scans the pods of all jobs that have not ended, so callers should request many hosts at once.
        """
        leaves = sa.or_(GOAL_ENDED, RUN_SUPERSEDED, POD.c.state == KILLING).label("leaves")
        columns = (POD.c.job_id, POD.c.instance_id, POD.c.run_id, POD.c.host, POD.c.started_ns, POD.c.config_version)
        alive = sa.and_(IS_ACTIVE, POD.c.state.in_(ON_HOST_NUMBERS), POD.c.cluster == cluster)
        query = sa.select(*columns, JOB.c.priority, JOB.c.type, leaves).join_from(
            JOB, POD, JOB.c.job_id == POD.c.job_id
        )
        query = query.where(alive, POD.c.host.in_(hostnames)).order_by(POD.c.job_id, POD.c.instance_id)

        def work(conn: sa.Connection) -> dict[Hostname, list[Neighbour]]:
            found: dict[Hostname, list[Neighbour]] = {hostname: [] for hostname in hostnames}
            for job_id, rows in groupby(conn.execute(query).all(), key=lambda row: row.job_id):
                pods = list(rows)
                facts = facts_of(conn, job_id, {pod.instance_id: pod.config_version for pod in pods})
                for pod in pods:
                    shape, pod_id = facts[pod.instance_id].shape, PodId(JobId(job_id), pod.instance_id, pod.run_id)
                    asked = compute_needed(shape.resources)
                    holds = replace(asked, cpu_milli=0) if shape.revocable else asked
                    leave = shape.preemptible, bool(pod.leaves), pod.type == _BATCH
                    one = Neighbour(pod_id, pod.priority, pod.started_ns, holds, *leave)
                    found[Hostname(pod.host)].append(one)
            return found

        return self._db.read(work) if hostnames else {}

    # -- writing

    def follow(self, job_id: JobId, cluster: str, matching: Collection[Hostname], now_ns: int) -> FollowPlan:
        """Assign the instances of a daemon to the matching hosts of a cluster, a bounded number per call.

        Returns the changes; there are none when the daemon is ending.
        """
        work = partial(_follow, job_id=job_id, cluster=cluster, matching=matching, now_ns=now_ns)
        return self._db.write(work)

    @writing
    def skip_queue(self, conn: sa.Connection, job_id: JobId, instance_ids: Sequence[int], now_ns: int) -> None:
        """Move these instances, rising, to READY without queueing: their hosts have the resources."""
        if hold_job(conn, job_id) is not None:
            touch_job(conn, job_id, now_ns)
            fire(conn, Chosen(job_id, instance_ids), Event.SKIP_QUEUE, now_ns, message=PASSED)


# -- within a transaction ----------------------------------------------------------------------------------------------


def _follow(
    conn: sa.Connection, job_id: JobId, cluster: str, matching: Collection[Hostname], now_ns: int
) -> FollowPlan:
    job = hold_job(conn, job_id)
    if job is None or job.type is not JobType.DAEMON or is_ending(job):
        return FollowPlan()
    plan = follow_hosts(cluster, matching, _seats(conn, job_id), now_ns)
    if not plan.count:
        return plan
    _leave(conn, job, plan.gone, now_ns)
    _return(conn, job, cluster, plan.back, now_ns)
    _take(conn, job, cluster, plan.taken, now_ns)
    _add(conn, job, cluster, plan.fresh, now_ns)
    return plan


def _seats(conn: sa.Connection, job_id: JobId) -> list[Seat]:
    columns = (DAEMON_HOST.c.instance_id, DAEMON_HOST.c.hostname, DAEMON_HOST.c.cluster, DAEMON_HOST.c.gone_ns)
    ends = POD.c.goal.in_(ENDING_NUMBERS)
    query = sa.select(*columns, ends).join_from(DAEMON_HOST, POD, _SAME).where(DAEMON_HOST.c.job_id == job_id)
    found = conn.execute(query.order_by(DAEMON_HOST.c.instance_id))
    return [Seat(instance, Hostname(host), of, gone_ns, not ended) for instance, host, of, gone_ns, ended in found]


def _leave(conn: sa.Connection, job: JobRecord, instances: Sequence[int], now_ns: int) -> None:
    for start, count in as_ranges(instances):
        mine = sa.and_(DAEMON_HOST.c.job_id == job.job_id, DAEMON_HOST.c.instance_id.between(start, start + count - 1))
        known = mine & (DAEMON_HOST.c.gone_ns == 0)  # else it left before
        conn.execute(sa.update(DAEMON_HOST).where(known).values(gone_ns=now_ns))
        steer_pods(conn, job, (start, count), PodState.KILLED, now_ns, LEFT)


def _return(conn: sa.Connection, job: JobRecord, cluster: str, instances: Sequence[int], now_ns: int) -> None:
    for start, count in as_ranges(sorted(instances)):
        mine = sa.and_(DAEMON_HOST.c.job_id == job.job_id, DAEMON_HOST.c.instance_id.between(start, start + count - 1))
        conn.execute(sa.update(DAEMON_HOST).where(mine).values(gone_ns=0, cluster=cluster))
        steer_pods(conn, job, (start, count), PodState.RUNNING, now_ns, CAME_BACK)


def _take(
    conn: sa.Connection, job: JobRecord, cluster: str, taken: Sequence[tuple[int, Hostname]], now_ns: int
) -> None:
    if not taken:
        return
    mine = sa.and_(DAEMON_HOST.c.job_id == job.job_id, DAEMON_HOST.c.instance_id == sa.bindparam("of"))
    statement = sa.update(DAEMON_HOST).where(mine).values(hostname=sa.bindparam("host"), gone_ns=0, cluster=cluster)
    conn.execute(statement, [{"of": instance, "host": host} for instance, host in taken])
    for start, count in as_ranges(sorted(instance for instance, _ in taken)):
        steer_pods(conn, job, (start, count), PodState.RUNNING, now_ns, CAME_BACK)


def _add(conn: sa.Connection, job: JobRecord, cluster: str, hosts: Sequence[Hostname], now_ns: int) -> None:
    if not hosts:
        return
    first, job_id = job.instance_count, job.job_id
    rows = [
        {"job_id": job_id, "instance_id": instance, "hostname": host, "cluster": cluster, "gone_ns": 0}
        for instance, host in enumerate(hosts, first)
    ]
    conn.execute(DAEMON_HOST.insert(), rows)
    insert_service_pods(conn, job, job.config_version, first, len(hosts), now_ns)
    count = first + len(hosts)
    conn.execute(sa.update(JOB).where(JOB.c.job_id == job_id).values(instance_count=count, updated_ns=now_ns))
    touch_job(conn, job_id, now_ns)
