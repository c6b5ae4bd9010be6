"""Pool paths of the objects that a request names."""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from peloton.access.caller import CLUSTER
from peloton.access.rules import Find
from peloton.errors import InvalidArgument, NotFound
from peloton.model.ids import JobId, parse_job_id
from peloton.model.respool import PoolSpec, pool_paths
from peloton.model.text import ID_CHARS_MAX

JOBS_MAX = 50_000
"""Limit of jobs whose pools are cached."""
JOB_AGE_S = 10.0
"""Time for which the pool of a job is cached. It never changes, but the id of a deleted job may be used again."""
POOLS_AGE_S = 1.0
PATH_CHARS_MAX = 8_000
OBJECTS_MAX = 10_000
"""Limit of the objects of one request."""


class Records(Protocol):
    """Blocking lookups; an object that does not exist is left out, or None."""

    def pools_of_jobs(self, job_ids: Collection[JobId]) -> Mapping[JobId, str]:
        """Return the pools of jobs, and of deleted ones that have left volumes."""
        ...

    def job_of_update(self, update_id: str) -> str | None: ...
    def pool_of_volume(self, volume_id: str) -> str | None: ...
    def object_of_migration(self, migration_id: str) -> tuple[str, bool] | None: ...
    def pools(self) -> tuple[PoolSpec, ...]: ...


Run = Callable[..., Awaitable[Any]]
PoolOfSchedule = Callable[[str], Awaitable[tuple[str, str]]]
"""Name of a schedule -> id of its pool, and the path of the pool when the schedule was created. Raises NotFound."""


class PoolFinder:
    """Finds the pools of objects, with a cache of those of jobs. For one event loop."""

    def __init__(
        self,
        records: Records,
        run: Run,
        pool_of_schedule: PoolOfSchedule,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._records, self._run, self._pool_of_schedule, self._clock_s = records, run, pool_of_schedule, clock_s
        self._jobs: OrderedDict[JobId, tuple[str, float]] = OrderedDict()
        self._paths: Mapping[str, str] = {}
        self._read_at_s = -float("inf")

    async def paths_of(self, named: Iterable[tuple[Find, str]]) -> tuple[str, ...]:
        """Return the paths of the pools of all named objects, sorted; objects that do not exist have none.

        Raises InvalidArgument.
        """
        by_kind = group_by_kind(named)
        owners, pool_ids = await self._follow(by_kind)
        job_ids = [*by_kind[Find.JOB], *(name.rpartition("-")[0] for name in by_kind[Find.POD])]
        pools_of_jobs = await self._pools_of_jobs([*job_ids, *owners])
        pool_ids |= set(pools_of_jobs.values())
        if owners - pools_of_jobs.keys():  # of a deleted job
            pool_ids.add(CLUSTER)
        recorded_paths: set[str] = set()
        for name in by_kind[Find.SCHEDULE]:
            with suppress(NotFound):
                pool_id, path = await self._pool_of_schedule(name)
                (pool_ids if pool_id else recorded_paths).add(pool_id or path or CLUSTER)
        named_pools = {normalize_pool(text) or CLUSTER for text in by_kind[Find.POOL]}  # empty: all pools
        above = {normalize_pool(text) for text in by_kind[Find.ABOVE]}
        await self._read_pools({*pool_ids, *named_pools, *above})
        found = {self._paths.get(pool_id, CLUSTER) for pool_id in pool_ids}  # of a deleted pool: the cluster
        found |= {path for text in named_pools if (path := self._path(text))}
        found |= {path.rpartition("/")[0] or CLUSTER for text in above if (path := self._path(text))}
        return tuple(sorted(found | recorded_paths))

    async def _follow(self, by_kind: Mapping[Find, set[str]]) -> tuple[set[str], set[str]]:
        """Return the ids of jobs and of pools to which the named updates, volumes and migrations lead."""
        job_ids = {await self._run(self._records.job_of_update, text) for text in by_kind[Find.UPDATE]} - {None}
        pool_ids = {await self._run(self._records.pool_of_volume, text) for text in by_kind[Find.VOLUME]} - {None}
        for text in by_kind[Find.MIGRATION]:
            moved = await self._run(self._records.object_of_migration, text)
            if moved is not None:
                object_id, is_pool = moved
                (pool_ids if is_pool else job_ids).add(object_id)
        return job_ids, pool_ids

    async def paths_of_jobs(self, job_ids: Iterable[str]) -> dict[JobId, str]:
        """Return the paths of the pools of the jobs that exist; that of a deleted pool is the cluster."""
        pools = await self._pools_of_jobs(job_ids)
        if pools:
            await self._read_pools(set(pools.values()))
        return {job_id: self._paths.get(pool_id, CLUSTER) for job_id, pool_id in pools.items()}

    def _path(self, text: str) -> str:
        """Return the path of a pool by its id or path, "" for an unknown id. An unknown path stands for itself."""
        return text if text.startswith("/") else self._paths.get(text, "")

    async def _pools_of_jobs(self, texts: Iterable[str]) -> dict[JobId, str]:
        now_s, found, unknown = self._clock_s(), {}, []
        for text in texts:
            try:
                job_id = parse_job_id(text)
            except ValueError:
                continue
            known = self._jobs.get(job_id)
            if known is not None and now_s - known[1] < JOB_AGE_S:
                found[job_id] = known[0]
            else:
                unknown.append(job_id)
        if unknown:
            read: Mapping[JobId, str] = await self._run(self._records.pools_of_jobs, unknown)
            found.update(read)
            for job_id, pool_id in read.items():
                self._jobs[job_id] = pool_id, now_s
                self._jobs.move_to_end(job_id)
            while len(self._jobs) > JOBS_MAX:
                self._jobs.popitem(last=False)
        return found

    async def _read_pools(self, wanted: Collection[str]) -> None:
        """Read the pools when they are old, or do not have a wanted one."""
        age_s = self._clock_s() - self._read_at_s
        is_known = all(each in self._paths or each.startswith("/") for each in wanted)
        if age_s < POOLS_AGE_S and is_known:
            return
        specs: tuple[PoolSpec, ...] = await self._run(self._records.pools)
        paths = pool_paths(specs)
        self._paths = {str(pool_id): path for pool_id, path in paths.items()}
        self._read_at_s = self._clock_s()


def normalize_pool(text: str) -> str:
    """Return the id of a pool, or its path without repeated and trailing slashes."""
    return re.sub("/+", "/", text).rstrip("/") or CLUSTER if text.startswith("/") else text


def group_by_kind(named: Iterable[tuple[Find, str]]) -> dict[Find, set[str]]:
    """Return the texts of each kind. Raises InvalidArgument for too many objects, or a text that is too long."""
    found: dict[Find, set[str]] = {find: set() for find in Find}
    for count, (find, text) in enumerate(named, 1):
        longest = PATH_CHARS_MAX if find in (Find.POOL, Find.ABOVE, Find.SCHEDULE) else ID_CHARS_MAX
        if len(text) > longest:
            raise InvalidArgument(
                f"the name or id of a {find.name.lower()} has {len(text):,} characters, at most {longest:,}"
            )
        found[find].add(text)
        if count > OBJECTS_MAX:
            raise InvalidArgument(f"the request names more than {OBJECTS_MAX:,} objects")
    return found
