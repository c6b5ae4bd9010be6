"""Pods on hosts, as used by host managers: launches, status reports, kills, evictions and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import groupby
from operator import attrgetter
from typing import Any

import sqlalchemy as sa

from peloton.api.convert import JOB_TYPES, POD_STATES
from peloton.lifecycle import pod_terms as terms
from peloton.lifecycle.backoff import NO_BACKOFF, Backoff
from peloton.lifecycle.migration import may_be_in
from peloton.lifecycle.pod_machine import Event
from peloton.lifecycle.pod_terms import UNWANTED
from peloton.model.admission import RevocableRun
from peloton.model.host import ComingBack
from peloton.model.host_pool import Occupancy
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.maintenance import HostedPod
from peloton.model.pod import Label, PodState, PodStatus
from peloton.model.resources import Resources, ordinary
from peloton.model.times import NS_PER_S
from peloton.model.volume import VolumeSpec
from services.storage.admission.evictions import evict_from_host
from services.storage.codec import InstanceFacts, pod_record, ports_in
from services.storage.engine import Database, Repository, key_table, key_values, lock_job, lock_jobs, reading
from services.storage.jobs.configs import facts_of
from services.storage.jobs.rows import hold_job
from services.storage.moves.bindings import binding_of_job
from services.storage.pods.scope import ENDING_NUMBERS, KILLING, LIVING_JOBS, ON_HOST_NUMBERS, Chosen, in_scope, within
from services.storage.pods.sql import GOAL_ALIVE, GOAL_ENDED, LAUNCHABLE, RUN_SUPERSEDED, where
from services.storage.pods.status_writes import Retry, StatusOutcome, apply_statuses, read_retries
from services.storage.pods.writes import add_output, fire, fire_each
from services.storage.tables import HOST, IS_ACTIVE, JOB, POD
from services.storage.volumes.rows import take_volumes, volume_there, volumes_of

PAGE_PODS = 5_000
HOSTS_PER_QUERY = 500
LaunchRow = tuple[int, int, str, str, dict[str, int]]
"""Instance, run, host, agent id, ports by name."""
NO_VOLUMES: Mapping[int, VolumeSpec] = {}
KillRow = tuple[PodId, str, str, int]
"""Pod, host, agent id, seconds of grace."""


class HostPods(Repository):
    """Repository of pods on hosts; ``batch_backoff`` delays the next run of failed batch pods."""

    def __init__(self, db: Database, batch_backoff: Backoff = NO_BACKOFF) -> None:
        super().__init__(db)
        self.batch_backoff = batch_backoff

    # -- writing

    def mark_launched(
        self,
        job_id: JobId,
        rows: Sequence[LaunchRow],
        now_ns: int,
        cluster: str = "",
        volumes: Mapping[int, VolumeSpec] = NO_VOLUMES,
    ) -> set[int]:
        """Move pods from READY to LAUNCHED in a cluster; returns the launched instances.

        ``volumes`` are the volumes that instances require; an instance without one gets it on the host of the launch. A
        launch is refused for pods that will be killed, that await another run, or that an earlier call launched; for
        gang members unless the whole gang is launched; for pods on hosts in maintenance, whatever a former leader
        requests; for jobs that were bound to another cluster since the placement; and for pods whose volume is on
        another host.
        """
        work = partial(_mark_launched, job_id=job_id, rows=rows, now_ns=now_ns, cluster=cluster, volumes=volumes)
        return self._db.write(work) if rows else set()

    def apply_status(
        self, statuses: Sequence[PodStatus], cluster: str = "", no_other_host: Collection[PodId] = ()
    ) -> StatusOutcome:
        """Apply statuses in their order in one transaction: write the changes with their events, and log ended runs.

        Ids of jobs, orphans and ended pods are returned in the order of jobs, then statuses. ``cluster`` is the cluster
        of the hosts. ``no_other_host`` lists runs whose pods fit on no host but their own.
        """
        now_ns, backoff = self._db.clock_ns(), self.batch_backoff
        work = partial(
            apply_statuses,
            statuses=statuses,
            cluster=cluster,
            batch_backoff=backoff,
            now_ns=now_ns,
            no_other_host=no_other_host,
        )
        return self._db.write(work) if statuses else StatusOutcome()

    def mark_killing(self, job_id: JobId, limit: int, again: bool = False, cluster: str = "") -> list[KillRow]:
        """Move unwanted pods on hosts of a cluster to KILLING; returns at most ``limit``, with their grace periods.

        ``again`` also returns pods that are KILLING already.
        """
        work = partial(
            _mark_killing, job_id=job_id, limit=limit, again=again, cluster=cluster, now_ns=self._db.clock_ns()
        )
        return self._db.write(work)

    def add_output(self, texts: Sequence[tuple[PodId, str]]) -> None:
        """Append output to the messages of failed runs; a repeated call adds nothing."""
        self._db.write(partial(_add_output, texts=texts))

    def evict_from_host(self, job_id: JobId, hostname: str, now_ns: int, for_move: bool = False) -> list[int]:
        """Evict the pods of a job from a host in maintenance, or one that moves to another host pool; returns the
        instances.

        A gang member takes its whole gang with it. Pods that are leaving already are skipped.
        """
        return self._db.write(
            partial(evict_from_host, job_id=job_id, hostname=hostname, now_ns=now_ns, for_move=for_move)
        )

    # -- reading

    def retries(self, failed: Sequence[PodStatus]) -> list[Retry]:
        """Return the failing runs whose pods belong to batch jobs and have attempts left."""
        return self._db.read(partial(read_retries, failed=failed)) if failed else []

    def coming_back(self, job_id: JobId, instance_ids: Sequence[int]) -> list[ComingBack]:
        """Return the pods whose next run has to be on their current or former host."""
        return self._db.read(partial(_read_coming_back, job_id=job_id, chosen=instance_ids)) if instance_ids else []

    def instances_by_version(self, job_id: JobId, instance_ids: Sequence[int]) -> dict[int, list[int]]:
        """Return configuration version -> the instances that will run it."""

        def work(conn: sa.Connection) -> dict[int, list[int]]:
            dialect, found = conn.dialect.name, dict[int, list[int]]()
            named = Chosen(job_id, instance_ids).bind(dialect)
            for version, instance in conn.execute(_select_versions(dialect), named):
                found.setdefault(version, []).append(instance)
            return found

        return self._db.read(work) if instance_ids else {}

    def on_hosts(self, cluster: str = "") -> Iterator[Sequence[tuple[PodId, str, str, PodState]]]:
        """Yield pages of ``(pod id, host, agent id, state)`` of all pods on hosts of the cluster, for
        reconciliation."""
        page: list[tuple[PodId, str, str, PodState]] = []
        for job_id in self._db.read(lambda conn: list(conn.execute(LIVING_JOBS).scalars())):
            start = 0
            while True:
                found = self._page_on_hosts(job_id, start, cluster)
                page += found
                if len(page) >= PAGE_PODS:
                    yield page
                    page = []
                if len(found) < PAGE_PODS:
                    break
                start = found[-1][0].instance_id + 1
        if page:
            yield page

    def list_labelled(self, cluster: str = "") -> Iterator[list[tuple[PodId, str, tuple[Label, ...]]]]:
        """Yield ``(pod id, host, labels)`` of labelled pods on hosts of the cluster, job by job, at most PAGE_PODS at a
        time."""
        for job_id in self._db.read(lambda conn: list(conn.execute(LIVING_JOBS).scalars())):
            start: int | None = 0
            while start is not None:
                found, start = self._db.read(partial(_read_labelled, job_id=job_id, start=start, cluster=cluster))
                if found:
                    yield found

    def list_requests(self, cluster: str = "") -> Iterator[list[tuple[PodId, str, Resources]]]:
        """Yield ``(pod id, host, requested resources)`` of pods on hosts of the cluster, without revocable cpu.

        Pods come job by job, at most PAGE_PODS at a time.
        """
        for job_id in self._db.read(lambda conn: list(conn.execute(LIVING_JOBS).scalars())):
            start: int | None = 0
            while start is not None:
                found, start = self._db.read(partial(_read_requested, job_id=job_id, start=start, cluster=cluster))
                if found:
                    yield found

    def hosted_pods(self, hostnames: Collection[str], cluster: str = "") -> dict[Hostname, list[HostedPod]]:
        """Return the pods recorded on these hosts of a cluster.

        Each call scans the pods of unfinished jobs, since no index covers the host of a pod, so callers should request
        many hosts at once.
        """
        found: dict[Hostname, list[HostedPod]] = {Hostname(name): [] for name in hostnames}
        leaves = sa.or_(GOAL_ENDED, RUN_SUPERSEDED, POD.c.state == KILLING).label("leaves")
        has_volume = volume_there(POD.c.job_id, POD.c.instance_id, POD.c.host).label("has_volume")
        query = (
            sa.select(POD.c.host, POD.c.job_id, POD.c.instance_id, JOB.c.type, leaves, has_volume)
            .join(JOB, JOB.c.job_id == POD.c.job_id)
            .where(IS_ACTIVE, POD.c.state.in_(ON_HOST_NUMBERS), POD.c.cluster == cluster)
            .order_by(POD.c.job_id, POD.c.instance_id)
        )

        def work(conn: sa.Connection) -> None:
            names = sorted(found)
            for start in range(0, len(names), HOSTS_PER_QUERY):
                for row in conn.execute(query.where(POD.c.host.in_(names[start : start + HOSTS_PER_QUERY]))):
                    what = JOB_TYPES[row.type], bool(row.leaves), bool(row.has_volume)
                    pod = HostedPod(JobId(row.job_id), row.instance_id, *what)
                    found[Hostname(row.host)].append(pod)

        self._db.read(work)
        return found

    def occupancy(self, hostnames: Collection[str], now_ns: int) -> list[Occupancy]:
        """Return the occupancy of these hosts of any cluster, by name; scans the pods of unfinished jobs."""
        found = {Hostname(name): Occupancy(Hostname(name)) for name in hostnames}
        for job_id in self._db.read(lambda conn: list(conn.execute(LIVING_JOBS).scalars())):
            self._db.read(partial(_add_occupants, job_id=job_id, found=found, now_ns=now_ns))
        return [found[name] for name in sorted(found)]

    def sum_held(self, cluster: str) -> tuple[Resources, Resources]:
        """Return the resources held on hosts of the cluster without revocable cpu, and the revocable cpu.

        The method scans the pods of unfinished jobs.
        """
        held, revocable = Resources(), Resources()
        for job_id in self._db.read(lambda conn: list(conn.execute(LIVING_JOBS).scalars())):
            own, own_revocable = self._db.read(partial(_sum_held, job_id=job_id, cluster=cluster))
            held, revocable = held + own, revocable + own_revocable
        return held, revocable

    def revocable(self, pod_ids: Sequence[PodId]) -> list[RevocableRun]:
        """Return the runs that hold revocable cpu of a host."""
        return self._db.read(partial(_revocable, pod_ids=pod_ids)) if pod_ids else []

    @reading
    def _page_on_hosts(
        self, conn: sa.Connection, job_id: str, start: int, cluster: str
    ) -> list[tuple[PodId, str, str, PodState]]:
        query = sa.select(POD.c.instance_id, POD.c.run_id, POD.c.host, POD.c.agent_id, POD.c.state).where(
            POD.c.job_id == job_id,
            POD.c.instance_id >= start,
            POD.c.state.in_(ON_HOST_NUMBERS),
            POD.c.cluster == cluster,
        )
        query = query.order_by(POD.c.instance_id).limit(PAGE_PODS)
        return [
            (PodId(JobId(job_id), instance, run), host, agent, POD_STATES[state])
            for instance, run, host, agent, state in conn.execute(query)
        ]


# -- writing -----------------------------------------------------------------------------------------------------------


_IN_MAINTENANCE = sa.select(HOST.c.hostname).where(
    HOST.c.cluster == sa.bindparam("of_cluster"), HOST.c.drained_from_ns > 0
)


@cache
def _select_versions(dialect: str) -> sa.Select[Any]:
    mine = in_scope(Chosen.kind, dialect)
    return sa.select(POD.c.config_version, POD.c.instance_id).where(mine).order_by(POD.c.instance_id)


@cache
def _select_launchable(dialect: str) -> sa.Select[Any]:
    return sa.select(POD.c.instance_id, POD.c.desired_run_id).where(in_scope(Chosen.kind, dialect), LAUNCHABLE)


def _mark_launched(
    conn: sa.Connection,
    job_id: str,
    rows: Sequence[LaunchRow],
    now_ns: int,
    cluster: str,
    volumes: Mapping[int, VolumeSpec],
) -> set[int]:
    job = hold_job(conn, job_id)
    if job is None or not may_be_in(cluster, binding_of_job(conn, job)):
        return set()
    away = set(conn.execute(_IN_MAINTENANCE, {"of_cluster": cluster}).scalars())
    asked = {row[0]: row for row in rows if row[2] not in away}
    dialect = conn.dialect.name
    launchable = conn.execute(_select_launchable(dialect), Chosen(job_id, list(asked)).bind(dialect))
    taken = {instance for instance, run in launchable if asked[instance][1] == run}
    members = {instance for instance in taken if instance < job.gang_size}
    if len(members) < job.gang_size:
        taken -= members
    if volumes:
        runs = {instance: (asked[instance][1], asked[instance][2]) for instance in taken}
        taken -= take_volumes(conn, job, runs, volumes, cluster, now_ns)
    if not taken:
        return taken
    given = {
        instance: {"host": host, "agent_id": agent, "cluster": cluster, "ports": ports}
        for instance, _, host, agent, ports in asked.values()
        if instance in taken
    }
    fire_each(conn, job_id, Event.LAUNCH, now_ns, given)
    return taken


def _mark_killing(
    conn: sa.Connection, job_id: str, limit: int, again: bool, cluster: str, now_ns: int
) -> list[KillRow]:
    if lock_job(conn, job_id) is None:
        return []
    chosen = where(UNWANTED | terms.KILLING if again else UNWANTED)
    mine = sa.and_(POD.c.job_id == job_id, POD.c.cluster == cluster)
    query = sa.select(POD).where(mine, chosen).order_by(POD.c.instance_id).limit(limit)
    pods = [pod_record(row) for row in conn.execute(query)]
    asked = [pod.instance_id for pod in pods if pod.state is not PodState.KILLING]
    if asked:
        fire(conn, Chosen(job_id, asked), Event.KILL, now_ns)
    facts = facts_of(conn, job_id, {pod.instance_id: pod.config_version for pod in pods})
    return [(pod.pod_id, pod.host, pod.agent_id, facts[pod.instance_id].grace_s) for pod in pods]


def _add_output(conn: sa.Connection, texts: Sequence[tuple[PodId, str]]) -> None:
    lock_jobs(conn, [pod_id.job_id for pod_id, _ in texts])
    for pod_id, text in texts:
        add_output(conn, pod_id, text)


# -- reading -----------------------------------------------------------------------------------------------------------


def _read_coming_back(conn: sa.Connection, job_id: str, chosen: Sequence[int]) -> list[ComingBack]:
    volumes = volumes_of(conn, job_id, chosen).items()
    volume_hosts = {instance: volume.host for instance, volume in volumes if volume.is_bound}
    returns = sa.or_(POD.c.desired_host != "", POD.c.instance_id.in_(sorted(volume_hosts)))
    query = sa.select(POD.c.instance_id, POD.c.desired_host, POD.c.desired_config_version).where(
        within(conn, Chosen(job_id, chosen)), GOAL_ALIVE, returns
    )
    pods = list(conn.execute(query.order_by(POD.c.instance_id)))
    facts = facts_of(conn, job_id, {pod.instance_id: pod.desired_config_version for pod in pods})
    found: list[ComingBack] = []
    for instance, desired, _ in pods:
        host, own = Hostname(volume_hosts.get(instance, desired)), facts[instance]
        found.append(ComingBack(JobId(job_id), instance, host, own.shape.resources, own.grace_s))
    return found


def _read_labelled(
    conn: sa.Connection, job_id: str, start: int, cluster: str
) -> tuple[list[tuple[PodId, str, tuple[Label, ...]]], int | None]:
    """Return a page of a job's labelled pods on hosts, and the first instance of the next page."""
    pods, following = _page_with_facts(conn, job_id, start, cluster)
    found = [(pod_id, host, facts.labels + labels) for pod_id, host, facts, labels in pods if facts.labels or labels]
    return found, following


def _read_requested(
    conn: sa.Connection, job_id: str, start: int, cluster: str
) -> tuple[list[tuple[PodId, str, Resources]], int | None]:
    """Return a page of a job's pods on hosts, and the first instance of the next page."""
    pods, following = _page_with_facts(conn, job_id, start, cluster)
    shapes = ((pod_id, host, facts.shape) for pod_id, host, facts, _ in pods)
    return [(pod_id, host, ordinary(shape.resources, shape.revocable)) for pod_id, host, shape in shapes], following


def _page_with_facts(
    conn: sa.Connection, job_id: str, start: int, cluster: str
) -> tuple[list[tuple[PodId, str, InstanceFacts, tuple[Label, ...]]], int | None]:
    """Return a page of pods with their facts and the labels of their dynamic ports."""
    query = sa.select(POD.c.instance_id, POD.c.run_id, POD.c.host, POD.c.config_version, POD.c.ports).where(
        POD.c.job_id == job_id,
        POD.c.instance_id >= start,
        POD.c.state.in_(ON_HOST_NUMBERS),
        POD.c.cluster == cluster,
    )
    pods = list(conn.execute(query.order_by(POD.c.instance_id).limit(PAGE_PODS)))
    facts = facts_of(conn, job_id, {pod.instance_id: pod.config_version for pod in pods}) if pods else {}
    found = [
        (PodId(JobId(job_id), pod.instance_id, pod.run_id), pod.host, facts[pod.instance_id], ports_in(pod.ports))
        for pod in pods
    ]
    return found, pods[-1].instance_id + 1 if len(pods) == PAGE_PODS else None


def _add_occupants(conn: sa.Connection, job_id: str, found: dict[Hostname, Occupancy], now_ns: int) -> None:
    """Add the pods of a job to ``found``, in one query: their number is bounded by the size of the job."""
    priority = sa.select(JOB.c.priority).where(JOB.c.job_id == job_id).scalar_subquery().label("priority")
    columns = (POD.c.instance_id, POD.c.host, POD.c.config_version, POD.c.started_ns, priority)
    query = sa.select(*columns).where(POD.c.job_id == job_id, POD.c.state.in_(ON_HOST_NUMBERS))
    pods = [pod for pod in conn.execute(query) if pod.host in found]
    facts = facts_of(conn, job_id, {pod.instance_id: pod.config_version for pod in pods})
    for pod in pods:
        shape, before = facts[pod.instance_id].shape, found[Hostname(pod.host)]
        found[before.hostname] = replace(
            before,
            pod_count=before.pod_count + 1,
            unpreemptible_count=before.unpreemptible_count + (not shape.preemptible),
            controller_count=before.controller_count + shape.controller,
            priority_sum=before.priority_sum + pod.priority,
            run_s_sum=before.run_s_sum + (max(now_ns - pod.started_ns, 0) // NS_PER_S if pod.started_ns else 0),
        )


def _sum_held(conn: sa.Connection, job_id: str, cluster: str) -> tuple[Resources, Resources]:
    query = sa.select(POD.c.instance_id, POD.c.config_version).where(
        POD.c.job_id == job_id, POD.c.state.in_(ON_HOST_NUMBERS), POD.c.cluster == cluster
    )
    pods = list(conn.execute(query.order_by(POD.c.instance_id)))
    facts = facts_of(conn, job_id, {pod.instance_id: pod.config_version for pod in pods})
    counts = Counter((own.shape.resources, own.shape.revocable) for own in facts.values())
    held, revocable = Resources(), Resources()
    for (asked, is_revocable), count in counts.items():
        all_of_it = asked * count
        held += replace(all_of_it, cpu_milli=0) if is_revocable else all_of_it
        revocable += Resources(all_of_it.cpu_milli if is_revocable else 0)
    return held, revocable


def _revocable(conn: sa.Connection, pod_ids: Sequence[PodId]) -> list[RevocableRun]:
    asked = {(pod_id.job_id, pod_id.instance_id): pod_id for pod_id in pod_ids}
    keys = key_table(conn.dialect.name)
    same = sa.and_(POD.c.job_id == keys.c.job_id, POD.c.instance_id == keys.c.instance_id)
    query = (
        sa.select(POD, JOB.c.priority)
        .select_from(keys.join(POD, same).join(JOB, JOB.c.job_id == POD.c.job_id))
        .where(POD.c.state.in_(ON_HOST_NUMBERS))
    )
    found_rows = conn.execute(query, key_values(conn.dialect.name, sorted(asked)))
    rows = [row for row in found_rows if row.run_id == asked[row.job_id, row.instance_id].run_id]
    found: list[RevocableRun] = []
    for job_id, group in groupby(sorted(rows, key=attrgetter("job_id")), key=attrgetter("job_id")):
        mine = sorted(group, key=attrgetter("config_version", "instance_id"))
        facts = facts_of(conn, job_id, {row.instance_id: row.config_version for row in mine})
        for row in mine:
            shape = facts[row.instance_id].shape
            if shape.revocable:
                leaves = row.goal in ENDING_NUMBERS or row.state == KILLING or row.desired_run_id > row.run_id
                pod_id = asked[row.job_id, row.instance_id]
                found.append(RevocableRun(pod_id, row.priority, row.started_ns, shape.resources, leaves))
    return found
