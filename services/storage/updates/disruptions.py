"""Disruptions: the SLA of a service is enforced only here, in the transaction that takes its pods down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial

import sqlalchemy as sa

from peloton.api.convert import JOB_TYPE_NUMBERS, TERMINATION_NUMBERS, TERMINATION_REASONS
from peloton.lifecycle import sla
from peloton.lifecycle.pod_machine import Event
from peloton.lifecycle.sla import Grant
from peloton.model.ids import JobId
from peloton.model.job import JobRecord, JobType
from peloton.model.pod import ENDING_GOALS, Termination, TerminationReason
from peloton.model.update import Disruption
from peloton.model.update_text import sla_text
from services.storage.engine import Repository, reading
from services.storage.jobs.rows import hold_job
from services.storage.jobs.wakes import note_wakes
from services.storage.mapper import strip_nul
from services.storage.pods.scope import ON_HOST_NUMBERS, Chosen, within
from services.storage.pods.writes import fire, fire_each
from services.storage.tables import DISRUPTION, IS_ACTIVE, JOB, POD
from services.storage.updates import instances
from services.telemetry.metrics import counter

JOBS_PER_QUERY = 200
_REFUSED = counter("peloton.sla.refused")
_SERVICE = JOB_TYPE_NUMBERS[JobType.SERVICE]
DISRUPTIONS_KEPT = 100
"""Number of granted and refused disruptions kept per job."""


class Disruptions(Repository):
    def disrupt(
        self,
        job_id: JobId,
        instance_ids: Iterable[int],
        *,
        reason: TerminationReason,
        message: str,
        checks_sla: bool,
        now_ns: int,
        host: str = "",
    ) -> Grant:
        """Restart pods on hosts as far as the SLA allows; refused pods stay and may be requested again.

        A pod that is not on a host, or leaves it anyway, is granted without a change. With ``host``, pods that have
        left that host are skipped, neither granted nor refused. The time is the lock time of the job, or ``now_ns`` if
        that is later, so that the event of a disrupted pod follows that of the pod it waited for.
        """
        wanted = frozenset(instance_ids)

        def work(conn: sa.Connection) -> Grant:
            return _disrupt(
                conn,
                job_id,
                wanted,
                reason,
                message=message,
                checks_sla=checks_sla,
                now_ns=max(now_ns, self._db.clock_ns()),
                host=host,
            )

        return self._db.write(work)

    def budgets(self, cluster: str) -> dict[JobId, int]:
        """Return how many pods on hosts of the cluster must stay available, for each service with a limit.

        The pods of JOBS_PER_QUERY services are read at a time.
        """
        limited = sa.select(JOB.c.job_id, JOB.c.maximum_unavailable_instances).where(
            IS_ACTIVE, JOB.c.type == _SERVICE, JOB.c.maximum_unavailable_instances > 0
        )
        jobs = self._db.read(lambda conn: [tuple(row) for row in conn.execute(limited.order_by(JOB.c.job_id))])
        found: dict[JobId, int] = {}
        for start in range(0, len(jobs), JOBS_PER_QUERY):
            maximums = dict(jobs[start : start + JOBS_PER_QUERY])
            found |= self._db.read(partial(_budgets, maximums=maximums, cluster=cluster))
        return found

    @reading
    def recent(self, conn: sa.Connection, job_id: JobId, limit: int = DISRUPTIONS_KEPT) -> list[Disruption]:
        """Return the latest disruptions, newest first, with an entry for each instance."""
        query = sa.select(DISRUPTION).where(DISRUPTION.c.job_id == job_id).order_by(DISRUPTION.c.seq.desc())
        found = [
            Disruption(row.time_ns, instance, TERMINATION_REASONS[row.reason], row.granted, row.message)
            for row in conn.execute(query.limit(limit))
            for instance in sorted(instances.from_text(row.instances))
        ]
        return found[:limit]


def _budgets(conn: sa.Connection, maximums: Mapping[str, int], cluster: str) -> dict[JobId, int]:
    here, missing = Counter[JobId](), Counter[JobId]()
    for job_id, pod, is_here, count in instances.conditions_of(conn, list(maximums), cluster):
        if is_here and pod.goal not in ENDING_GOALS:
            here[job_id] += count
        elif sla.is_missing(pod):
            missing[job_id] += count
    return {job_id: sla.available_min(maximums[job_id], count, missing[job_id]) for job_id, count in here.items()}


def _disrupt(
    conn: sa.Connection,
    job_id: str,
    wanted: frozenset[int],
    reason: TerminationReason,
    message: str,
    checks_sla: bool,
    now_ns: int,
    host: str,
) -> Grant:
    job = hold_job(conn, job_id)
    if host:
        wanted = _filter_on_host(conn, job_id, wanted, host)
    if job is None:
        return Grant(tuple(sorted(wanted)))
    return take_down(conn, job, wanted, reason, message=message, checks_sla=checks_sla, now_ns=now_ns)


def take_down(
    conn: sa.Connection,
    job: JobRecord,
    wanted: frozenset[int],
    reason: TerminationReason,
    message: str,
    checks_sla: bool,
    now_ns: int,
) -> Grant:
    """Restart pods as far as the SLA allows; the caller locks the job."""
    grant = ask(conn, job, wanted, reason, message=message, checks_sla=checks_sla, now_ns=now_ns)
    if grant.granted:
        chosen = Chosen(job.job_id, grant.granted)
        fire(conn, chosen, Event.DISRUPT, now_ns, message=message, why=Termination(reason))
        note_wakes(conn, [job.job_id], now_ns)
    return grant


def move_pods(conn: sa.Connection, job: JobRecord, targets: Mapping[int, tuple[str, str]], now_ns: int) -> Grant:
    """Restart pods on other hosts as far as the SLA allows; the caller locks the job.

    ``targets`` maps instances to their host and the reason for the move.
    """
    reason = TerminationReason.KILLED_HOST_MAINTENANCE
    grant = ask(
        conn, job, frozenset(targets), reason, message="rebalancing of the cluster", checks_sla=True, now_ns=now_ns
    )
    given = {
        instance: {"target": host, "message": why, "why": Termination(reason)}
        for instance, (host, why) in targets.items()
        if instance in grant.granted
    }
    if given:
        fire_each(conn, job.job_id, Event.MOVE, now_ns, given)
        note_wakes(conn, [job.job_id], now_ns)
    return grant


def _filter_on_host(conn: sa.Connection, job_id: str, wanted: frozenset[int], host: str) -> frozenset[int]:
    here = sa.and_(POD.c.state.in_(ON_HOST_NUMBERS), POD.c.host == host)
    query = sa.select(POD.c.instance_id).where(within(conn, Chosen(job_id, sorted(wanted))), here)
    return frozenset(conn.execute(query).scalars())


def ask(
    conn: sa.Connection,
    job: JobRecord,
    wanted: frozenset[int],
    reason: TerminationReason,
    message: str,
    checks_sla: bool,
    now_ns: int,
) -> Grant:
    """Ask the SLA which pods may be taken down, and record the answer; the caller locks the job and takes them down."""
    if job.type is not JobType.SERVICE:
        return Grant(tuple(sorted(wanted)))
    maximum = job.sla.maximum_unavailable_instances if checks_sla else 0
    missing = instances.missing_of(conn, job.job_id) if maximum else ()
    grant = sla.grant(maximum, missing, wanted)
    _note(conn, job.job_id, grant, reason, message, now_ns)
    if grant.refused:
        _REFUSED.add(len(grant.refused))
    return grant


def _note(conn: sa.Connection, job_id: str, grant: Grant, reason: TerminationReason, message: str, now_ns: int) -> None:
    mine = DISRUPTION.c.job_id == job_id
    last = conn.execute(sa.select(DISRUPTION).where(mine).order_by(DISRUPTION.c.seq.desc()).limit(1)).one_or_none()
    number, seq = TERMINATION_NUMBERS[reason], last.seq if last is not None else 0
    refusal = sla_text(grant.refusal) if grant.refusal else ""
    for granted, named, text in ((True, grant.granted, message), (False, grant.refused, refusal)):
        if not named:
            continue
        values = {
            "job_id": job_id,
            "reason": number,
            "granted": granted,
            "instances": instances.to_text(named),
            "message": strip_nul(text),
        }
        if last is not None and all(getattr(last, name) == value for name, value in values.items()):
            conn.execute(sa.update(DISRUPTION).where(mine, DISRUPTION.c.seq == last.seq).values(time_ns=now_ns))
            continue  # repeated request with the same answer
        seq += 1
        conn.execute(DISRUPTION.insert().values(**values, seq=seq, time_ns=now_ns))
    conn.execute(sa.delete(DISRUPTION).where(mine, DISRUPTION.c.seq <= seq - DISRUPTIONS_KEPT))
