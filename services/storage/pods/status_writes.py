"""The host manager's part: launches, statuses, kills. Each call is one transaction over many pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import sqlalchemy as sa

from peloton.api.convert import POD_STATE_NUMBERS
from peloton.lifecycle import pod_terms as terms
from peloton.lifecycle.avoidance import RunEnd, run_end
from peloton.lifecycle.backoff import Backoff
from peloton.lifecycle.pod import Applied, Orphan, apply_status, is_eviction
from peloton.lifecycle.pod_machine import Event, next_pod
from peloton.lifecycle.pod_terms import UNWANTED
from peloton.lifecycle.retry import after_end
from peloton.model.host import ComingBack
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.job import JobRecord, JobType
from peloton.model.pod import PodRecord, PodState, PodStatus
from services.storage.admission.admission import STATUS_SEQ
from services.storage.codec import job_record, pod_record
from services.storage.engine import key_table, key_values, lock_job, lock_jobs, take_numbers
from services.storage.jobs.configs import read_facts
from services.storage.pods.sql import LAUNCHABLE, STAYS, where
from services.storage.pods.writes import Chosen, fire, fire_each, write_reported
from services.storage.repository import Store, among
from services.storage.tables import FRAMEWORK, HOST, POD, STATUS_LOG

LaunchRow = tuple[int, int, str, str, dict[str, int]]
"""Instance, run, host, agent id, ports by name."""
KillRow = tuple[PodId, str, str, int]
"""Pod, host, agent id, seconds of grace."""


@dataclass(frozen=True, slots=True)
class StatusOutcome:
    """What a batch of statuses did. ``orphans`` are to be killed on their hosts; ``ended`` are in the status log, and
    ``ends`` says how each ended."""

    changed_jobs: list[JobId] = field(default_factory=list)
    orphans: list[PodId] = field(default_factory=list)
    ended: list[PodId] = field(default_factory=list)
    ends: list[RunEnd] = field(default_factory=list, compare=False)


class Hosts(Store):
    def mark_launched(self, job_id: JobId, rows: Sequence[LaunchRow], now_ns: int, cluster: str = "") -> set[int]:
        """READY -> LAUNCHED in a cluster; returns the instances that took it.

        Refused: pods that are to be killed, that await another run, or that an earlier call launched; members of a gang
        unless all of them take it; and pods on hosts in maintenance, whatever a leader that has been replaced believes
        of them.
        """
        work = partial(_mark_launched, job_id=job_id, rows=rows, now_ns=now_ns, cluster=cluster)
        return self.db.write(work) if rows else set()

    def apply_status(self, statuses: Sequence[PodStatus], cluster: str = "") -> StatusOutcome:
        """Apply statuses in their order, write what changed with its events, and log what ended, in one transaction.

        Ids of jobs, orphans and ended pods come in order of job, and of their statuses. ``cluster``: who reports.
        """
        work = partial(_apply_status, statuses=statuses, cluster=cluster, batch_backoff=self.batch_backoff)
        return self.db.write(work) if statuses else StatusOutcome()

    def mark_killing(self, job_id: JobId, limit: int, again: bool = False, cluster: str = "") -> list[KillRow]:
        """Pods on hosts of a cluster that must end become KILLING; returns those, at most ``limit``, with their grace.

        ``again`` also returns those that are KILLING already.
        """
        work = partial(_mark_killing, job_id=job_id, limit=limit, again=again, cluster=cluster, now_ns=self.clock_ns())
        return self.db.write(work)

    def coming_back(self, job_id: JobId, instance_ids: Sequence[int]) -> list[ComingBack]:
        """Of these pods those that are to have their next run where they are or were."""
        return self.db.read(partial(_coming_back, job_id=job_id, chosen=instance_ids)) if instance_ids else []

    def framework_id(self, cluster: str) -> str | None:
        query = sa.select(FRAMEWORK.c.framework_id).where(FRAMEWORK.c.cluster == cluster)
        return self.db.read(lambda conn: conn.execute(query).scalar())

    def set_framework_id(self, cluster: str, framework_id: str) -> None:
        insert = self.db.upsert(FRAMEWORK).values(cluster=cluster, framework_id=framework_id)
        statement = insert.on_conflict_do_update(index_elements=["cluster"], set_={"framework_id": framework_id})
        self.db.write(lambda conn: conn.execute(statement))


# -- launch --------------------------------------------------------------------------------------------------------


def _mark_launched(conn: sa.Connection, job_id: str, rows: Sequence[LaunchRow], now_ns: int, cluster: str) -> set[int]:
    row = lock_job(conn, job_id)
    if row is None:
        return set()
    in_maintenance = sa.select(HOST.c.hostname).where(HOST.c.cluster == cluster, HOST.c.drained_from_ns > 0)
    away = set(conn.execute(in_maintenance).scalars())
    asked = {row[0]: row for row in rows if row[2] not in away}
    query = sa.select(POD.c.instance_id, POD.c.desired_run_id).where(among(conn, job_id, list(asked)), LAUNCHABLE)
    taken = {instance for instance, run in conn.execute(query) if asked[instance][1] == run}
    gang_size = job_record(row).gang_size
    members = {instance for instance in taken if instance < gang_size}
    if len(members) < gang_size:
        taken -= members
    if not taken:
        return taken
    given = {
        instance: {"host": host, "agent_id": agent, "cluster": cluster, "ports": ports}
        for instance, _, host, agent, ports in asked.values()
        if instance in taken
    }
    fire_each(conn, job_id, Event.LAUNCH, now_ns, given)
    return taken


# -- statuses ------------------------------------------------------------------------------------------------------


def _apply_status(
    conn: sa.Connection, statuses: Sequence[PodStatus], cluster: str, batch_backoff: Backoff
) -> StatusOutcome:
    jobs = {row.job_id: job_record(row) for row in lock_jobs(conn, [s.pod_id.job_id for s in statuses])}
    pods = _read_pods(conn, statuses)
    final = _not_to_run_again(conn, jobs, pods, statuses)
    outcome = StatusOutcome()
    rounds: list[dict[tuple[str, int], PodRecord]] = []
    depth: dict[tuple[str, int], int] = {}
    for status in statuses:
        key = (status.pod_id.job_id, status.pod_id.instance_id)
        job, is_final = jobs.get(status.pod_id.job_id), key in final
        after = _decide(job, pods.get(key), status, cluster, outcome, batch_backoff, is_final)
        if after is None:
            continue
        pods[key] = after
        # Of several changes of one pod in a batch each is written, and has its event: one round per change.
        at = depth.get(key, 0)
        depth[key] = at + 1
        if at == len(rounds):
            rounds.append({})
        rounds[at][key] = after
    for changes in rounds:
        write_reported(conn, list(changes.values()))
    _log_ended(conn, outcome, pods)
    outcome.changed_jobs.extend(sorted({JobId(job) for job, _ in depth}))
    return outcome


def _read_pods(conn: sa.Connection, statuses: Iterable[PodStatus]) -> dict[tuple[str, int], PodRecord]:
    dialect = conn.dialect.name
    keys = key_values(dialect, sorted({(s.pod_id.job_id, s.pod_id.instance_id) for s in statuses}))
    return {(row.job_id, row.instance_id): pod_record(row) for row in conn.execute(_reading(dialect), keys)}


@cache
def _reading(dialect: str) -> sa.Select[Any]:
    keys = key_table(dialect)
    same = sa.and_(POD.c.job_id == keys.c.job_id, POD.c.instance_id == keys.c.instance_id)
    return sa.select(POD).select_from(keys.join(POD, same))


def _not_to_run_again(
    conn: sa.Connection,
    jobs: Mapping[str, JobRecord],
    pods: Mapping[tuple[str, int], PodRecord],
    statuses: Iterable[PodStatus],
) -> set[tuple[str, int]]:
    """Of the pods that others sent away those with killOnPreempt; what one member of a gang asks for is for all."""
    evicted = {(s.pod_id.job_id, s.pod_id.instance_id) for s in statuses if is_eviction(s)}
    by_config: dict[tuple[JobId, int], list[int]] = {}
    for job_id, instance in sorted(evicted & pods.keys()):
        if job_id in jobs:
            by_config.setdefault((job_id, pods[job_id, instance].config_version), []).append(instance)
    found: set[tuple[str, int]] = set()
    for (job_id, version), instances in by_config.items():
        gang = range(jobs[job_id].gang_size)
        default, own = read_facts(conn, job_id, version, (0, max(instances[-1], len(gang) - 1)))
        assert default is not None, f"job {job_id} has no configuration {version}"
        kills = {instance for instance in {*instances, *gang} if own.get(instance, default).kill_on_preempt}
        if not kills.isdisjoint(gang):
            kills |= {*gang}
        found |= {(job_id, instance) for instance in kills.intersection(instances)}
    return found


def _decide(
    job: JobRecord | None,
    pod: PodRecord | None,
    status: PodStatus,
    cluster: str,
    outcome: StatusOutcome,
    batch_backoff: Backoff,
    is_final: bool,
) -> PodRecord | None:
    job_type = job.type if job else JobType.BATCH
    decision = apply_status(pod if job else None, status, job_type, cluster, kill_on_preempt=is_final)
    if isinstance(decision, Orphan):
        outcome.orphans.append(status.pod_id)
    if not isinstance(decision, Applied):
        return None
    if not decision.ended:
        return decision.pod
    outcome.ended.append(status.pod_id)
    outcome.ends.append(run_end(decision.pod, status.cause, job_type))
    ending = after_end(
        decision.pod,
        job_type,
        cause=status.cause,
        launch_lost=decision.launch_lost,
        batch_backoff=batch_backoff,
    )
    if ending.is_rest:
        return decision.pod
    next_run, due_ns = ending.next_run, ending.due_ns
    again = next_pod(decision.pod, Event.RUN_AGAIN, status.time_ns, next_run=next_run, due_ns=due_ns)
    assert again is not None, f"{status.pod_id} is to rest, and to run again: {ending}"
    return again


def _log_ended(conn: sa.Connection, outcome: StatusOutcome, pods: dict[tuple[str, int], PodRecord]) -> None:
    if not outcome.ended:
        return
    first = take_numbers(conn, STATUS_SEQ, len(outcome.ended))
    rows = [
        {
            "seq": seq,
            "job_id": pod.job_id,
            "instance_id": pod.instance_id,
            "run_id": pod.run_id,
            "state": POD_STATE_NUMBERS[pods[pod.job_id, pod.instance_id].state],
        }
        for seq, pod in enumerate(outcome.ended, first)
    ]
    conn.execute(STATUS_LOG.insert(), rows)


# -- pods that come back --------------------------------------------------------------------------------------------


def _coming_back(conn: sa.Connection, job_id: str, chosen: Sequence[int]) -> list[ComingBack]:
    query = sa.select(POD.c.instance_id, POD.c.desired_host, POD.c.desired_config_version).where(
        among(conn, job_id, chosen), STAYS, POD.c.desired_host != ""
    )
    pods = list(conn.execute(query.order_by(POD.c.instance_id)))
    if not pods:
        return []
    span = (pods[0].instance_id, pods[-1].instance_id)
    facts = {version: read_facts(conn, job_id, version, span) for version in {p.desired_config_version for p in pods}}
    found = []
    for pod in pods:
        default, overridden = facts[pod.desired_config_version]
        own = overridden.get(pod.instance_id, default)
        assert own is not None, f"job {job_id} has no configuration {pod.desired_config_version}"
        host = Hostname(pod.desired_host)
        found.append(ComingBack(JobId(job_id), pod.instance_id, host, own.shape.resources, own.grace_s))
    return found


# -- kill ----------------------------------------------------------------------------------------------------------


def _mark_killing(
    conn: sa.Connection, job_id: str, limit: int, again: bool, cluster: str, now_ns: int
) -> list[KillRow]:
    if lock_job(conn, job_id) is None:
        return []
    chosen = where(UNWANTED | terms.KILLING if again else UNWANTED)
    mine = sa.and_(POD.c.job_id == job_id, POD.c.cluster == cluster)
    query = sa.select(POD).where(mine, chosen).order_by(POD.c.instance_id).limit(limit)
    pods = [pod_record(row) for row in conn.execute(query)]
    told = [pod.instance_id for pod in pods if pod.state is not PodState.KILLING]
    if told:
        fire(conn, Chosen(job_id, told), Event.KILL, now_ns)
    return _with_grace(conn, job_id, pods)


def _with_grace(conn: sa.Connection, job_id: str, pods: Sequence[PodRecord]) -> list[KillRow]:
    if not pods:
        return []
    span = (pods[0].instance_id, pods[-1].instance_id)
    facts = {version: read_facts(conn, job_id, version, span) for version in {pod.config_version for pod in pods}}
    rows: list[KillRow] = []
    for pod in pods:
        default, overridden = facts[pod.config_version]
        own = overridden.get(pod.instance_id, default)
        assert own is not None, f"job {job_id} has no configuration {pod.config_version}"
        rows.append((pod.pod_id, pod.host, pod.agent_id, own.grace_s))
    return rows
