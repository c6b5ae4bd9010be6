"""The host manager's part: launches, statuses, kills. Each call is one transaction over many pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import sqlalchemy as sa

from peloton.api.convert import HEALTH_NUMBERS, POD_STATE_NUMBERS, TERMINATION_NUMBERS
from peloton.lifecycle.avoidance import RunEnd, run_end
from peloton.lifecycle.backoff import Backoff
from peloton.lifecycle.pod import Applied, Orphan, apply_status, is_eviction
from peloton.lifecycle.retry import REST, Ending, after_end
from peloton.model.host import ComingBack
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.job import JobRecord, JobType
from peloton.model.pod import ON_HOST, PodRecord, PodState, PodStatus
from services.storage.admission import STATUS_SEQ
from services.storage.codec import job_record, pod_record, ports_to_text, stored_text
from services.storage.configs import read_facts
from services.storage.engine import lock_job, lock_jobs, pod_keys, take_numbers
from services.storage.store import ENDS, KILLING, LAUNCHABLE, STAYS, Store, add_events, among, change_pods, numbers
from services.storage.tables import FRAMEWORK, HOST, POD, STATUS_LOG

LAUNCH_MESSAGE = "Add hostname and ports"
LAUNCH_REASON = "REASON_UPDATE_OFFER"
KILL_MESSAGE = "Killing the task"

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


@dataclass(slots=True)
class _Change:
    pod: PodRecord
    ending: Ending = REST


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
    members = {instance for instance in taken if instance < job_record(row).gang_size}
    if len(members) < job_record(row).gang_size:
        taken -= members
    if not taken:
        return taken
    replaced = POD.c.run_id < POD.c.desired_run_id  # it waited when a new run was asked for, and takes that one
    statement = (
        sa.update(POD)
        .where(POD.c.job_id == job_id, POD.c.instance_id == sa.bindparam("instance"))
        .values(
            state=POD_STATE_NUMBERS[PodState.LAUNCHED],
            prev_run_id=sa.case((replaced, POD.c.run_id), else_=POD.c.prev_run_id),
            run_id=POD.c.desired_run_id,
            host=sa.bindparam("on_host"),
            agent_id=sa.bindparam("on_agent"),
            cluster=cluster,
            ports=sa.bindparam("with_ports"),
            message=LAUNCH_MESSAGE,
            reason=LAUNCH_REASON,
            vain_count=0,
            updated_ns=now_ns,
            revision=POD.c.revision + 1,
        )
    )
    values = [
        {"instance": instance, "on_host": host, "on_agent": agent, "with_ports": ports_to_text(ports)}
        for instance, _, host, agent, ports in asked.values()
        if instance in taken
    ]
    conn.execute(statement, values)
    add_events(conn, among(conn, job_id, sorted(taken)))
    return taken


# -- statuses ------------------------------------------------------------------------------------------------------


def _apply_status(
    conn: sa.Connection, statuses: Sequence[PodStatus], cluster: str, batch_backoff: Backoff
) -> StatusOutcome:
    jobs = {row.job_id: job_record(row) for row in lock_jobs(conn, [s.pod_id.job_id for s in statuses])}
    pods = _read_pods(conn, statuses)
    final = _not_to_run_again(conn, jobs, pods, statuses)
    outcome = StatusOutcome()
    rounds: list[dict[tuple[str, int], _Change]] = []
    depth: dict[tuple[str, int], int] = {}
    for status in statuses:
        key = (status.pod_id.job_id, status.pod_id.instance_id)
        job, is_final = jobs.get(status.pod_id.job_id), key in final
        change = _decide(job, pods.get(key), status, cluster, outcome, batch_backoff, is_final)
        if change is None:
            continue
        pods[key] = change.pod
        # Of several changes of one pod in a batch each is written, and has its event: one round per change.
        at = depth.get(key, 0)
        depth[key] = at + 1
        if at == len(rounds):
            rounds.append({})
        rounds[at][key] = change
    for changes in rounds:
        _write_changes(conn, list(changes.values()))
    _log_ended(conn, outcome, pods)
    outcome.changed_jobs.extend(sorted({JobId(job) for job, _ in depth}))
    return outcome


def _read_pods(conn: sa.Connection, statuses: Iterable[PodStatus]) -> dict[tuple[str, int], PodRecord]:
    keys = pod_keys(conn, sorted({(s.pod_id.job_id, s.pod_id.instance_id) for s in statuses}))
    query = sa.select(POD).select_from(
        keys.join(POD, sa.and_(POD.c.job_id == keys.c.job_id, POD.c.instance_id == keys.c.instance_id))
    )
    return {(row.job_id, row.instance_id): pod_record(row) for row in conn.execute(query)}


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
) -> _Change | None:
    job_type = job.type if job else JobType.BATCH
    decision = apply_status(pod if job else None, status, job_type, cluster, kill_on_preempt=is_final)
    if isinstance(decision, Orphan):
        outcome.orphans.append(status.pod_id)
    if not isinstance(decision, Applied):
        return None
    if not decision.ended:
        return _Change(decision.pod)
    outcome.ended.append(status.pod_id)
    outcome.ends.append(run_end(decision.pod, status.cause, job_type))
    ending = after_end(
        decision.pod,
        job_type,
        cause=status.cause,
        launch_lost=decision.launch_lost,
        batch_backoff=batch_backoff,
    )
    return _Change(decision.pod, ending)


_STATUS_COLUMNS = (
    "state",
    "goal",
    "host",
    "desired_host",
    "agent_id",
    "message",
    "reason",
    "health",
    "failure_count",
    "started_ns",
    "completed_ns",
    "updated_ns",
    "run_seconds",
    "termination",
    "exit_code",
    "signal",
    "next_run",
    "due_ns",
    "revision",
)
_WRITE_STATUS = (
    sa.update(POD)
    .where(POD.c.job_id == sa.bindparam("key_job"), POD.c.instance_id == sa.bindparam("key_instance"))
    .values({name: sa.bindparam(f"new_{name}") for name in _STATUS_COLUMNS})
)


def _write_changes(conn: sa.Connection, changes: Sequence[_Change]) -> None:
    conn.execute(_WRITE_STATUS, [_status_values(change) for change in changes])
    keys = pod_keys(conn, [(change.pod.job_id, change.pod.instance_id) for change in changes])
    same = sa.and_(POD.c.job_id == keys.c.job_id, POD.c.instance_id == keys.c.instance_id)
    add_events(conn, sa.true(), keys.join(POD, same))


def _status_values(change: _Change) -> dict[str, Any]:
    pod, termination = change.pod, change.pod.termination
    return {
        "key_job": pod.job_id,
        "key_instance": pod.instance_id,
        "new_state": POD_STATE_NUMBERS[pod.state],
        "new_goal": POD_STATE_NUMBERS[pod.goal],
        "new_host": pod.host,
        "new_desired_host": pod.desired_host,
        "new_agent_id": pod.agent_id,
        "new_message": stored_text(pod.message),
        "new_reason": stored_text(pod.reason),
        "new_health": HEALTH_NUMBERS[pod.health],
        "new_failure_count": pod.failure_count,
        "new_started_ns": pod.started_ns,
        "new_completed_ns": pod.completed_ns,
        "new_updated_ns": pod.updated_ns,
        "new_run_seconds": pod.run_seconds,
        "new_termination": TERMINATION_NUMBERS[termination.reason] if termination else 0,
        "new_exit_code": termination.exit_code if termination else 0,
        "new_signal": stored_text(termination.signal) if termination else "",
        "new_next_run": int(change.ending.next_run),
        "new_due_ns": change.ending.due_ns,
        "new_revision": pod.revision,
    }


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
    ends = sa.or_(ENDS, POD.c.desired_run_id > POD.c.run_id)
    untold = sa.and_(POD.c.state.in_(numbers(ON_HOST - {PodState.KILLING})), ends)
    chosen = sa.or_(untold, POD.c.state == KILLING) if again else untold
    mine = sa.and_(POD.c.job_id == job_id, POD.c.cluster == cluster)
    query = sa.select(POD).where(mine, chosen).order_by(POD.c.instance_id).limit(limit)
    pods = [pod_record(row) for row in conn.execute(query)]
    told = [pod.instance_id for pod in pods if pod.state is not PodState.KILLING]
    if told:
        scope = among(conn, job_id, told)
        change_pods(conn, scope, sa.true(), {"state": KILLING, "message": KILL_MESSAGE}, now_ns)
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
