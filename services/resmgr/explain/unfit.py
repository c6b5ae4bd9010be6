"""Pods that not even an empty host could take: of one job, and of jobs that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice

from peloton.errors import Unavailable
from peloton.lifecycle.constraints import may_hold_in
from peloton.lifecycle.host_pools import route
from peloton.lifecycle.migration import bound
from peloton.lifecycle.problems import UnfitJob
from peloton.model.ids import JobId
from peloton.model.job import JobRecord, JobType
from peloton.model.pod import PodShape, PodState, ShapeRange
from peloton.model.reason import Infeasibility
from peloton.scheduling.explain import Unqueued, list_infeasible
from services.resmgr.capacity_source import CapacitySource
from services.resmgr.state import ResmgrState
from services.storage.storage import Storage

EVALUATED_INSTANCES_MAX = 10_000
EVALUATED_SHAPES_MAX = 100
"""Limit of the instances, and of the shapes, of one job that are checked for a host."""
JOBS_MAX = 20
"""Limit of the jobs examined in one round, besides the known ones; a later round takes the next ones."""
KNOWN_MAX = 50
"""Limit of the jobs examined in each round because they had such pods in the last one."""
NOT_ON_HOSTS = (PodState.INITIALIZED, PodState.PENDING, PodState.READY)


class UnfitPods:
    def __init__(self, records: Storage, hosts: CapacitySource) -> None:
        self._records, self._hosts = records, hosts

    async def of(self, job: JobRecord, counts: Mapping[PodState, int]) -> list[Unqueued]:
        """Return the shapes of its instances that fit no host.

        It examines instances that are not on hosts yet, or all while they are being created.
        """
        if job.type is JobType.DAEMON:  # it runs only where it fits
            return []
        is_complete = sum(counts.values()) >= job.instance_count
        if is_complete and not any(counts.get(state) for state in NOT_ON_HOSTS):
            return []
        shapes, binding = await self._read_shapes(job)
        why = await self.evaluate(shapes)
        if why and is_complete:
            count = min(job.instance_count, EVALUATED_INSTANCES_MAX)
            queued = await asyncio.to_thread(self._records.admission.waiting_shapes, job.job_id, 0, count)
            shapes = apply_constraints(queued, job.type, binding) or shapes  # empty while all are being placed
        return list(list_infeasible(shapes, why))

    async def about(self, job: JobRecord) -> list[tuple[int, Infeasibility]]:
        """Return how many pods of each shape fit no host, by the counts of the job's record: it reads no pods.

        Admitted pods are included. The counts are upper bounds, by the desired configuration.
        """
        counts = job.pod_counts
        waiting = sum(counts.get(state, 0) for state in NOT_ON_HOSTS)
        waiting += max(job.instance_count - sum(counts.values()), 0)
        if job.type is JobType.DAEMON or not waiting:
            return []
        shapes, _ = await self._read_shapes(job)
        why = await self.evaluate(shapes)
        return [(min(one.pod_count, waiting), one.infeasible) for one in list_infeasible(shapes, why)]

    async def _read_shapes(self, job: JobRecord) -> tuple[list[ShapeRange], str]:
        """Return the shapes of its configuration, and the cluster that it is bound to."""
        count = min(job.instance_count, EVALUATED_INSTANCES_MAX)
        (shapes,) = await asyncio.to_thread(
            self._records.configs.shapes_of, [(job.job_id, job.config_version, 0, count)]
        )
        binding = await asyncio.to_thread(self._records.migrations.binding, job)
        return apply_constraints(shapes, job.type, binding), binding

    async def evaluate(self, shapes: Sequence[ShapeRange]) -> Mapping[PodShape, Infeasibility]:
        """Return the shapes that not even an empty host could take, and why; none while the hosts are unknown."""
        distinct = list(dict.fromkeys(one.shape for one in shapes))[:EVALUATED_SHAPES_MAX]
        try:
            found = await asyncio.to_thread(self._hosts.evaluate, distinct) if distinct else {}
        except Unavailable:
            return {}
        return {shape: _keep_reachable(shape, why) for shape, why in found.items()}


def _keep_reachable(shape: PodShape, why: Infeasibility) -> Infeasibility:
    """Leave out the clusters that the pod's constraint excludes, unless it excludes all."""
    return tuple(one for one in why if may_hold_in(shape.constraint, one.cluster)) or why


class UnfitJobs:
    """The jobs with such pods among the ones without placement, in backoff, or first in a queue."""

    def __init__(self, records: Storage, pods: UnfitPods) -> None:
        self._records, self._pods = records, pods
        self._known: tuple[JobId, ...] = ()
        self._passed = 0  # number of other candidates passed by earlier rounds

    async def find(self, state: ResmgrState) -> list[UnfitJob]:
        others = self._next_jobs(state) or self._next_jobs(state)  # at the end it starts again
        chosen = dict.fromkeys([*self._known, *others])
        found = [
            UnfitJob(job.job_id, job.name, state.path_of(job.respool_id), job.gang_size, sorts)
            for job in await asyncio.to_thread(self._records.jobs.get_many, chosen)
            if job.is_active and (sorts := await self._pods.about(job))
        ]
        self._known = tuple(JobId(one.job_id) for one in islice(found, KNOWN_MAX))
        return found

    def _next_jobs(self, state: ResmgrState) -> list[JobId]:
        begin = self._passed
        found = list(islice(candidates(state), begin, begin + JOBS_MAX))
        self._passed = begin + JOBS_MAX if found else 0
        return found


def candidates(state: ResmgrState) -> Iterator[JobId]:
    """Yield the jobs to examine, some of them twice."""
    heads = (queue[0].job_id for queues in state.waiting.pools.values() for queue in queues.values() if queue)
    return chain(heads, state.in_backoff, (job_id for job_id, _ in state.list_unplaced()))


def apply_constraints(shapes: Sequence[ShapeRange], job_type: JobType, binding: str = "") -> list[ShapeRange]:
    """Return the shapes as placement sees them, with the constraints of job type and binding."""
    return [replace(one, shape=bound(route(one.shape, job_type), binding)) for one in shapes]
