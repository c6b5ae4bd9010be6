"""Reading pods and their events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import sqlalchemy as sa

from peloton.api.convert import POD_STATES
from peloton.model.ids import JobId, PodId
from peloton.model.pod import Label, PodEvent, PodRecord, PodState
from services.storage.codec import pod_event, pod_record
from services.storage.engine import lock_jobs
from services.storage.jobs.configs import read_facts
from services.storage.pods.sql import STAYS
from services.storage.pods.writes import add_output
from services.storage.repository import KILLED, ON_HOST_NUMBERS, TERMINAL_NUMBERS, Store, among, numbers
from services.storage.tables import FINISHED_STATES, JOB, POD, POD_EVENT

PAGE_PODS = 5_000
_FAILED = numbers({PodState.FAILED, PodState.LOST})
LIVING_JOBS = sa.select(JOB.c.job_id).where(JOB.c.state.not_in(FINISHED_STATES)).order_by(JOB.c.job_id)


class Pods(Store):
    def pod(self, job_id: JobId, instance_id: int) -> PodRecord | None:
        return next(iter(self.pods(job_id, instance_id, instance_id + 1)), None)

    def pods(self, job_id: JobId, start: int = 0, stop: int | None = None, limit: int = 1_000) -> list[PodRecord]:
        """Instances from ``start`` on, below ``stop``, by instance id. The next page starts after the last one."""
        query = sa.select(POD).where(POD.c.job_id == job_id, POD.c.instance_id >= start)
        if stop is not None:
            query = query.where(POD.c.instance_id < stop)
        query = query.order_by(POD.c.instance_id).limit(limit)
        return self.db.read(lambda conn: [pod_record(row) for row in conn.execute(query)])

    def pod_counts(self, job_id: JobId) -> dict[PodState, int]:
        """Pods of a job by state, counted now; the job's own record may be a settle behind."""
        query = sa.select(POD.c.state, sa.func.count()).where(POD.c.job_id == job_id).group_by(POD.c.state)
        return self.db.read(lambda conn: {POD_STATES[state]: count for state, count in conn.execute(query)})

    def pod_counts_by_version(self, job_id: JobId) -> dict[int, dict[PodState, int]]:
        """Pods of a job by the configuration that they run and by state, counted now."""
        query = sa.select(POD.c.config_version, POD.c.state, sa.func.count()).where(POD.c.job_id == job_id)
        query = query.group_by(POD.c.config_version, POD.c.state)
        counts: dict[int, dict[PodState, int]] = {}
        for version, state, count in self.db.read(lambda conn: list(conn.execute(query))):
            counts.setdefault(version, {})[POD_STATES[state]] = count
        return counts

    def instances_by_version(self, job_id: JobId, instance_ids: Sequence[int]) -> dict[int, list[int]]:
        """Configuration -> which of these instances are to run it."""

        def work(conn: sa.Connection) -> dict[int, list[int]]:
            query = sa.select(POD.c.config_version, POD.c.instance_id).where(among(conn, job_id, instance_ids))
            found: dict[int, list[int]] = {}
            for version, instance in conn.execute(query.order_by(POD.c.instance_id)):
                found.setdefault(version, []).append(instance)
            return found

        return self.db.read(work) if instance_ids else {}

    def failed_pods(self, job_id: JobId, limit: int, only_waiting: bool = False) -> list[PodRecord]:
        """The first pods that ended FAILED or LOST, or KILLED though nobody wanted that, or, in whichever way, wait for
        their next run (``only_waiting``: these alone); by instance."""
        waits = sa.and_(POD.c.state.in_(TERMINAL_NUMBERS), POD.c.next_run != 0, POD.c.due_ns > 0)
        ended = sa.or_(POD.c.state.in_(_FAILED), sa.and_(POD.c.state == KILLED, STAYS), waits)
        query = sa.select(POD).where(POD.c.job_id == job_id, waits if only_waiting else ended)
        query = query.order_by(POD.c.instance_id).limit(limit)
        return self.db.read(lambda conn: [pod_record(row) for row in conn.execute(query)])

    def pod_events(
        self, job_id: JobId, instance_id: int, run_id: int | None = None, run_limit: int = 1
    ) -> list[PodEvent]:
        """Events of one run, or of the newest ``run_limit`` runs (0: all), newest first."""
        mine = sa.and_(POD_EVENT.c.job_id == job_id, POD_EVENT.c.instance_id == instance_id)
        query = sa.select(POD_EVENT).where(mine)
        if run_id is not None:
            query = query.where(POD_EVENT.c.run_id == run_id)
        elif run_limit:
            runs = sa.select(POD_EVENT.c.run_id).where(mine).distinct()
            newest = runs.order_by(POD_EVENT.c.run_id.desc()).limit(run_limit).subquery()
            query = query.where(POD_EVENT.c.run_id.in_(sa.select(newest.c.run_id)))
        query = query.order_by(POD_EVENT.c.revision.desc())
        return self.db.read(lambda conn: [pod_event(row) for row in conn.execute(query)])

    def add_output(self, texts: Sequence[tuple[PodId, str]]) -> None:
        """Add to the messages of runs that failed what they wrote; once, however often it is said."""
        self.db.write(partial(_add_output, texts=texts))

    def delete_pod_events(self, job_id: JobId, instance_id: int, upto_run: int, from_run: int = 0) -> int:
        """Forget the events of runs ``from_run .. upto_run``; returns how many there were."""
        statement = sa.delete(POD_EVENT).where(
            POD_EVENT.c.job_id == job_id,
            POD_EVENT.c.instance_id == instance_id,
            POD_EVENT.c.run_id.between(from_run, upto_run),
        )
        return self.db.write(lambda conn: conn.execute(statement).rowcount)

    def pods_on_hosts(self, cluster: str = "") -> Iterator[Sequence[tuple[PodId, str, str, PodState]]]:
        """Pages of ``(pod id, host, agent id, state)`` of all pods that a host of the cluster may know, for
        reconciliation."""
        page: list[tuple[PodId, str, str, PodState]] = []
        for job_id in self.db.read(lambda conn: list(conn.execute(LIVING_JOBS).scalars())):
            start = 0
            while True:
                found = self._on_hosts(job_id, start, cluster)
                page += found
                if len(page) >= PAGE_PODS:
                    yield page
                    page = []
                if len(found) < PAGE_PODS:
                    break
                start = found[-1][0].instance_id + 1
        if page:
            yield page

    def labelled_pods(self, cluster: str = "") -> Iterator[list[tuple[PodId, str, tuple[Label, ...]]]]:
        """``(pod id, host, labels)`` of pods on hosts of the cluster that carry labels, job by job, at most PAGE_PODS
        at a time."""
        for job_id in self.db.read(lambda conn: list(conn.execute(LIVING_JOBS).scalars())):
            start: int | None = 0
            while start is not None:
                found, start = self.db.read(partial(_labelled, job_id=job_id, start=start, cluster=cluster))
                if found:
                    yield found

    def _on_hosts(self, job_id: str, start: int, cluster: str) -> list[tuple[PodId, str, str, PodState]]:
        query = sa.select(POD.c.instance_id, POD.c.run_id, POD.c.host, POD.c.agent_id, POD.c.state).where(
            POD.c.job_id == job_id,
            POD.c.instance_id >= start,
            POD.c.state.in_(ON_HOST_NUMBERS),
            POD.c.cluster == cluster,
        )
        query = query.order_by(POD.c.instance_id).limit(PAGE_PODS)

        def work(conn: sa.Connection) -> list[tuple[PodId, str, str, PodState]]:
            return [
                (
                    PodId(
                        JobId(job_id),
                        instance,
                        run,
                    ),
                    host,
                    agent,
                    POD_STATES[state],
                )
                for instance, run, host, agent, state in conn.execute(query)
            ]

        return self.db.read(work)


def _labelled(
    conn: sa.Connection, job_id: str, start: int, cluster: str
) -> tuple[list[tuple[PodId, str, tuple[Label, ...]]], int | None]:
    """A page of a job's labelled pods on hosts, and the instance where the next one begins."""
    query = sa.select(POD.c.instance_id, POD.c.run_id, POD.c.host, POD.c.config_version).where(
        POD.c.job_id == job_id,
        POD.c.instance_id >= start,
        POD.c.state.in_(ON_HOST_NUMBERS),
        POD.c.cluster == cluster,
    )
    pods = list(conn.execute(query.order_by(POD.c.instance_id).limit(PAGE_PODS)))
    if not pods:
        return [], None
    span = (pods[0].instance_id, pods[-1].instance_id)
    facts = {version: read_facts(conn, job_id, version, span) for version in {pod.config_version for pod in pods}}
    found = []
    for pod in pods:
        default, overridden = facts[pod.config_version]
        own = overridden.get(pod.instance_id, default)
        if own is not None and own.labels:
            found.append((PodId(JobId(job_id), pod.instance_id, pod.run_id), pod.host, own.labels))
    return found, span[1] + 1 if len(pods) == PAGE_PODS else None


def _add_output(conn: sa.Connection, texts: Sequence[tuple[PodId, str]]) -> None:
    lock_jobs(conn, [pod_id.job_id for pod_id, _ in texts])
    for pod_id, text in texts:
        add_output(conn, pod_id, text)
