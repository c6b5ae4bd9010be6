"""Reader of the change log, which returns the current state of changed objects, and the filters of watchers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from peloton.access.caller import CLUSTER
from peloton.api import convert_v1
from peloton.api.v1alpha import peloton_pb2
from peloton.api.v1alpha.watch import watch_pb2
from peloton.api.v1alpha.watch.svc.watch_svc_pb2 import WatchRequest, WatchResponse
from peloton.errors import InvalidArgument
from peloton.model.ids import JobId, PodName
from peloton.model.pod import PodRecord
from peloton.model.respool import pool_paths
from services.access.caller import CALLER
from services.access.visible import is_in, readable_paths
from services.api.v1.ids import job_id_of, pod_name_of
from services.storage.storage import Storage

NAMES_MAX = 10_000
"""Maximum number of ids or labels in one filter."""
THE_JOB = -1
"""Instance number in changes of the job itself."""

Key = tuple[JobId, int]
Labels = frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Change:
    """Change of a job or pod; ``labels`` is None if the object is gone, or if no filter uses labels."""

    revision: int
    key: Key
    response: WatchResponse
    labels: Labels | None = None
    pool: str = ""  # path; empty if the job is gone, or if each watcher may read all pools


@dataclass(frozen=True, slots=True)
class Filter:
    """Conditions of a watch that must all hold; an empty one always does."""

    is_of_pods: bool
    job_ids: frozenset[JobId] = frozenset()
    pods: frozenset[Key] = frozenset()
    labels: Labels = frozenset()
    readable: tuple[str, ...] | None = None  # paths of pools; None: all

    def admits(self, change: Change) -> bool:
        """Return whether the change matches; an object that is gone has no labels, so it passes every label filter."""
        job_id, instance_id = change.key
        return (
            self.is_of_pods == (instance_id != THE_JOB)
            and (not self.job_ids or job_id in self.job_ids)
            and (not self.pods or change.key in self.pods)
            and (change.labels is None or self.labels <= change.labels)
            and self._may_see(change)
        )

    def _may_see(self, change: Change) -> bool:
        """Return whether the watcher may read the object; one that is gone has no pool, and must be named."""
        if change.pool:
            return is_in(change.pool, self.readable)
        return self.readable is None or change.key[0] in self.job_ids


def filter_of(request: WatchRequest) -> Filter:
    """Convert the filter of a request to one for its caller. Raises InvalidArgument."""
    return replace(_parse_filter(request), readable=readable_paths(CALLER.get()))


def _parse_filter(request: WatchRequest) -> Filter:
    if request.HasField("pod_filter"):
        return _pod_filter(request.pod_filter)
    if request.HasField("stateless_job_filter"):
        wanted = request.stateless_job_filter
        _check_count("jobs", len(wanted.job_ids))
        ids = frozenset(job_id_of(wire) for wire in wanted.job_ids)
        return Filter(False, ids, labels=_labels(wanted.labels))
    raise InvalidArgument("not supported watch type")


def _pod_filter(wanted: watch_pb2.PodFilter) -> Filter:
    _check_count("pods", len(wanted.pod_names))
    ids = frozenset([job_id_of(wanted.job_id)]) if wanted.job_id.value else frozenset()
    names = [pod_name_of(wire) for wire in wanted.pod_names]
    return Filter(True, ids, frozenset((name.job_id, name.instance_id) for name in names), _labels(wanted.labels))


def _check_count(what: str, count: int) -> None:
    if count > NAMES_MAX:
        raise InvalidArgument(f"the filter names {count} {what}, at most {NAMES_MAX} are allowed")


def _labels(wires: Sequence[peloton_pb2.Label]) -> Labels:
    _check_count("labels", len(wires))
    return frozenset((wire.key, wire.value) for wire in wires)


@dataclass(frozen=True, slots=True)
class Wants:
    """Kinds of objects that the filters of watchers use."""

    jobs: bool = False
    pods: bool = False
    pod_labels: bool = False
    pools: bool = False

    @classmethod
    def of(cls, filters: Iterable[Filter]) -> Wants:
        filters = tuple(filters)
        kinds = {(wanted.is_of_pods, bool(wanted.labels)) for wanted in filters}
        has_limits = any(wanted.readable is not None for wanted in filters)
        has_pods = any(is_of_pods for is_of_pods, _ in kinds)
        return cls(any(not is_of_pods for is_of_pods, _ in kinds), has_pods, (True, True) in kinds, has_limits)


@dataclass(frozen=True, slots=True)
class Batch:
    """Changes by rising revision, one per object. ``upto`` is the last revision read."""

    changes: tuple[Change, ...]
    upto: int
    is_last: bool
    has_gap: bool
    cancelled: frozenset[str] = frozenset()  # watches of any api that have to be cancelled


class ChangeReader:
    """Blocking reader. It reads the log before the objects, so no object is older than its revision."""

    def __init__(self, records: Storage) -> None:
        self._records = records

    def bounds(self) -> tuple[int, int]:
        return self._records.watch_log.bounds()

    def read(self, after: int, limit: int, wants: Wants) -> Batch:
        rows = self._records.watch_log.after(after, limit)
        revisions: dict[Key, int] = {}
        for seq, job_id, instance_id in rows:
            revisions.pop((job_id, instance_id), None)
            revisions[job_id, instance_id] = seq
        changes = sorted(self._changes(revisions, wants), key=lambda change: change.revision)
        has_gap = bool(rows) and rows[0][0] != after + 1
        upto, cancelled = rows[-1][0] if rows else after, frozenset(self._records.watch_log.cancels())
        return Batch(tuple(changes), upto, len(rows) < limit, has_gap, cancelled)

    def ask_cancel(self, watch_id: str) -> None:
        self._records.watch_log.ask_cancel(watch_id, time.time_ns())

    def cancels(self) -> set[str]:
        return self._records.watch_log.cancels()

    def drop_cancel(self, watch_id: str) -> bool:
        return self._records.watch_log.drop_cancel(watch_id)

    def _changes(self, revisions: dict[Key, int], wants: Wants) -> Iterator[Change]:
        by_job: dict[JobId, list[int]] = {}
        for job_id, instance_id in revisions:
            by_job.setdefault(job_id, []).append(instance_id)
        pools = self._pools_of(by_job) if wants.pools else {}
        for job_id, instances in by_job.items():
            pool = pools.get(job_id, "")
            if wants.jobs and THE_JOB in instances:
                yield replace(self._job_change(job_id, revisions[job_id, THE_JOB]), pool=pool)
            named = sorted(i for i in instances if i != THE_JOB)
            if wants.pods and named:
                found = self._pod_changes(job_id, named, revisions, wants.pod_labels)
                yield from (replace(change, pool=pool) for change in found) if pool else found

    def _pools_of(self, job_ids: Iterable[JobId]) -> dict[JobId, str]:
        """Return the paths of the pools of jobs that exist."""
        paths = pool_paths(self._records.pools.specs())
        return {job_id: paths.get(pool, CLUSTER) for job_id, pool in self._records.jobs.pools_of(list(job_ids)).items()}

    def _job_change(self, job_id: JobId, revision: int) -> Change:
        job = self._records.jobs.get(job_id)
        if job is None:
            gone = [peloton_pb2.JobID(value=job_id)]
            response = WatchResponse(revision=revision, stateless_jobs_not_found=gone)
            return Change(revision, (job_id, THE_JOB), response)
        update = self._records.updates.get(job.update_id) if job.update_id else None
        summary = convert_v1.job_summary(job, update)
        response = WatchResponse(revision=revision, stateless_jobs=[summary])
        return Change(revision, (job_id, THE_JOB), response, frozenset(job.labels))

    def _pod_changes(
        self, job_id: JobId, instances: list[int], revisions: dict[Key, int], with_labels: bool
    ) -> Iterator[Change]:
        pods = {pod.instance_id: pod for pod in self._pods(job_id, instances)}
        labels = self._pod_labels(job_id, list(pods.values())) if with_labels else {}
        for instance in instances:
            revision, pod = revisions[job_id, instance], pods.get(instance)
            if pod is None:
                gone = [peloton_pb2.PodName(value=str(PodName(job_id, instance)))]
                response = WatchResponse(revision=revision, pods_not_found=gone)
            else:
                response = WatchResponse(revision=revision, pods=[convert_v1.pod_summary(pod)])
            yield Change(revision, (job_id, instance), response, labels.get(instance))

    def _pods(self, job_id: JobId, instances: list[int]) -> Iterator[PodRecord]:
        """Read pods, adjacent ones together."""
        start = previous = instances[0]
        for instance in [*instances[1:], None]:
            if instance is not None and instance == previous + 1:
                previous = instance
                continue
            yield from self._records.pods.page(job_id, start, previous + 1)
            if instance is not None:
                start = previous = instance

    def _pod_labels(self, job_id: JobId, pods: list[PodRecord]) -> dict[int, Labels]:
        by_version: dict[int, list[int]] = {}
        for pod in pods:
            by_version.setdefault(pod.config_version, []).append(pod.instance_id)
        return {
            instance: frozenset((label.key, label.value) for label in task.labels)
            for version, mine in by_version.items()
            for instance, task in self._records.configs.task_configs(job_id, version, mine).items()
        }
