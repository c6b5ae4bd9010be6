"""READY pods that await placement."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from functools import reduce

import sqlalchemy as sa

from peloton.lifecycle.constraints import pod_labels_named
from peloton.lifecycle.gang import enough_for_both, outside_gang
from peloton.lifecycle.host_pools import route
from peloton.lifecycle.migration import bound, may_be_in
from peloton.lifecycle.volumes import at_its_volume
from peloton.model.host import ReadyGang
from peloton.model.job import JobRecord
from peloton.model.pod import Label
from peloton.model.times import NS_PER_S
from services.storage.codec import InstanceFacts
from services.storage.jobs.configs import facts_of
from services.storage.jobs.launching import BIG_PODS, JOBS_MAX
from services.storage.jobs.rows import read_job
from services.storage.moves.bindings import binding_of_job
from services.storage.pods.sql import select_launchable
from services.storage.tables import POD
from services.storage.volumes.rows import volumes_of

_Pod = tuple[int, int, int, str, str, int, int]
"""Instance, run, config version, desired host and its cluster, time of the admission, failed placements in a row."""
FIRST_KEPT_NS = 5 * NS_PER_S
"""Time in which pods that begin to wait before the first one are placed after the others."""


class FirstReady:
    """First instance of each big job that was READY at a recent scan: a scan for each batch would read all pods that
    were launched before. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: OrderedDict[str, tuple[int, int]] = OrderedDict()  # until when, instance

    def read(self, conn: sa.Connection, job: JobRecord, limit: int, now_ns: int) -> list[_Pod]:
        """Read up to ``limit`` READY pods that are not in a gang, from the kept instance on if so many are there."""
        start = job.gang_size if job.gang_size > 1 else 0
        if job.instance_count < BIG_PODS:
            return _read_ready(conn, job, start, limit)
        with self._lock:
            until_ns, first = self._found.pop(job.job_id, (0, 0))
        if not 0 < until_ns - now_ns <= FIRST_KEPT_NS:
            until_ns, first = now_ns + FIRST_KEPT_NS, start
        pods = _read_ready(conn, job, first, limit)
        if len(pods) < limit:
            return pods if first == start else _read_ready(conn, job, start, limit)
        with self._lock:
            self._found[job.job_id] = until_ns, pods[0][0]
            if len(self._found) > JOBS_MAX:
                self._found.popitem(last=False)
        return pods


def ready_gangs(
    conn: sa.Connection, job_id: str, limit: int, now_ns: int, first_ready: FirstReady | None = None
) -> list[ReadyGang]:
    job = read_job(conn, job_id)
    if job is None or limit <= 0:
        return []
    pods = (first_ready or FirstReady()).read(conn, job, limit, now_ns)
    facts = facts_of(conn, job_id, {instance: version for instance, _, version, *_ in pods})
    named, binding = _read_constraint_labels(facts), binding_of_job(conn, job)
    shapes = {
        shape: bound(route(outside_gang(shape), job.type), binding)
        for shape in dict.fromkeys(own.shape for own in facts.values())
    }
    volumes = volumes_of(conn, job_id, facts) if any(shape.volume_mib for shape in shapes) else {}
    gangs: list[ReadyGang] = []
    for instance, run, _, host, cluster, admitted_ns, vain_count in pods:
        volume = volumes.get(instance)
        host, cluster = (volume.host, volume.cluster) if volume and volume.is_bound else (host, cluster)
        is_desired = bool(host) and may_be_in(cluster, binding)
        gangs.append(
            ReadyGang(
                at_its_volume(shapes[facts[instance].shape], volume),
                ((instance, run),),
                _labels(facts[instance], named),
                host if is_desired else "",
                desired_cluster=cluster if is_desired else "",
                waited_s=(now_ns - admitted_ns) / NS_PER_S,
                vain_count=vain_count,
            )
        )
    return gangs


def ready_gang(conn: sa.Connection, job_id: str) -> ReadyGang | None:
    job = read_job(conn, job_id)
    if job is None or job.gang_size == 1:
        return None
    pods = [pod for pod in _read_ready(conn, job, 0, job.gang_size) if pod[0] < job.gang_size]
    if len(pods) < job.gang_size:
        return None
    facts = facts_of(conn, job_id, {instance: version for instance, _, version, *_ in pods})
    shape = reduce(enough_for_both, (facts[instance].shape for instance, *_ in pods))
    shape = bound(route(shape, job.type), binding_of_job(conn, job))
    named = _read_constraint_labels(facts)
    labels = {label for own in facts.values() for label in _labels(own, named)}  # as if each member had all of them
    return ReadyGang(shape, tuple((instance, run) for instance, run, *_ in pods), tuple(sorted(labels)))


def _read_constraint_labels(facts: Mapping[int, InstanceFacts]) -> frozenset[Label]:
    """Return the labels that constraints of these pods mention; placement ignores all others."""
    rules = dict.fromkeys(own.shape.constraint for own in facts.values())
    return frozenset().union(*map(pod_labels_named, rules))


def _labels(facts: InstanceFacts, named: frozenset[Label]) -> tuple[Label, ...]:
    return tuple(sorted(named.intersection(facts.labels))) if named else ()


def _read_ready(conn: sa.Connection, job: JobRecord, first: int, limit: int) -> list[_Pod]:
    """Read READY pods from instance ``first`` on."""
    return [tuple(row) for row in conn.execute(_READING, {"of_job": job.job_id, "first": first, "at_most": limit})]


_COLUMNS = (POD.c.desired_run_id, POD.c.config_version, POD.c.desired_host, POD.c.cluster, POD.c.updated_ns)
_READING = select_launchable(POD.c.instance_id, *_COLUMNS, POD.c.vain_count)
