"""Peloton's LookupService: jobs, pools and hosts that match a text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from peloton.access.caller import CLUSTER
from peloton.api import convert
from peloton.api.convert_time import rfc3339
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.lookup import lookup_pb2
from peloton.errors import InvalidArgument
from peloton.model.ids import RespoolId
from peloton.model.respool import pool_paths
from services.access.caller import CALLER
from services.access.visible import is_in, readable_paths
from services.api.calls import Calls
from services.storage.hosts.hosts import Hosts
from services.storage.jobs.search import FoundJob, JobName, Search
from services.storage.pools import Pools

LIMIT_DEFAULT, LIMIT_MAX = 10, 100
CONSIDERED_MAX = 1_000
"""Limit of the matches that are read for a caller who may not read all pools, before the others are filtered out."""
PREFIX_MIN = 4
"""Minimum length of id prefixes in lookups: shorter ones match too many jobs."""
TEXT_MAX = 8_000
"""Maximum length of a pool's path and a job's name in characters."""
_ID_SHAPE = "0" * 8 + "-0000" * 3 + "-" + "0" * 12


class LookupService:
    def __init__(self, search: Search, pools: Pools, hosts: Hosts, calls: Calls) -> None:
        self._search, self._pools, self._hosts = search, pools, hosts
        self._calls = calls

    async def FindJobs(self, request: lookup_pb2.FindJobsRequest, context: Any) -> lookup_pb2.FindJobsResponse:
        _check(request.text, "no job")
        limit = min(request.limit or LIMIT_DEFAULT, LIMIT_MAX)
        return await self._calls.run(self._find_jobs, request.text, request.begins, limit)

    async def Find(self, request: lookup_pb2.FindRequest, context: Any) -> lookup_pb2.FindResponse:
        _check(request.text, "nothing")
        if not request.text:
            return lookup_pb2.FindResponse()
        return await self._calls.run(self._find, request.text, min(request.limit or LIMIT_DEFAULT, LIMIT_MAX))

    def _find(self, text: str, limit: int) -> lookup_pb2.FindResponse:
        paths = pool_paths(self._pools.specs())
        jobs = self._jobs(text, True, limit, paths)
        pools = pools_meant(text, paths.values())
        hosts = self._hosts.like(text, limit + 1)
        return lookup_pb2.FindResponse(
            jobs=jobs.jobs,
            poolPaths=pools[:limit],
            hosts=[lookup_pb2.FoundHost(hostname=name, cluster=cluster) for name, cluster in hosts[:limit]],
            hasMoreJobs=jobs.hasMore,
            hasMorePools=len(pools) > limit,
            hasMoreHosts=len(hosts) > limit,
        )

    def _find_jobs(self, text: str, begins: bool, limit: int) -> lookup_pb2.FindJobsResponse:
        return self._jobs(text, begins, limit, pool_paths(self._pools.specs()))

    def _jobs(self, text: str, begins: bool, limit: int, paths: Mapping[RespoolId, str]) -> lookup_pb2.FindJobsResponse:
        names = names_meant(text, paths)
        digits = id_digits(text)
        readable = readable_paths(CALLER.get())
        most = limit + 1 if readable is None else CONSIDERED_MAX
        if begins:
            found = self._search.recent_jobs_beginning(names, most)
        else:
            found = self._search.jobs_named([each for each in names if each[1]], most)
        if digits and (begins or not found):
            known = {job.job_id for job in found}
            found += [job for job in self._search.jobs_with_id_prefix(digits, most) if job.job_id not in known]
        found = [job for job in found if is_in(paths.get(job.respool_id, CLUSTER), readable)]
        jobs = [_wire(job, paths) for job in found[:limit]]
        return lookup_pb2.FindJobsResponse(jobs=jobs, hasMore=len(found) > limit)


def _check(text: str, what: str) -> None:
    if "\0" in text or len(text) > TEXT_MAX:
        raise InvalidArgument(f"{what} has that name: want at most {TEXT_MAX} characters and no NUL")


def pools_meant(text: str, paths: Iterable[str]) -> list[str]:
    """Return paths that contain the text, paths that begin with it first."""
    lower = text.lower()
    found = [path for path in paths if path and lower in path.lower()]
    return sorted(
        found, key=lambda path: (not path.lower().removeprefix("/").startswith(lower.removeprefix("/")), path)
    )


def names_meant(text: str, paths: Mapping[RespoolId, str]) -> list[JobName]:
    """List the readings of a text: as a name, and as the path of a pool and a name, which may contain slashes."""
    whole = "/" + text.removeprefix("/")
    inside = ((str(pool), f"{path}/") for pool, path in paths.items() if path)
    return [("", text), *((pool, whole.removeprefix(path)) for pool, path in inside if whole.startswith(path))]


def id_digits(text: str) -> str:
    """Return the hexadecimal digits of an id prefix with or without its dashes; "" for any other text."""
    lower = text.lower()
    if len(lower) < PREFIX_MIN or not re.fullmatch("[0-9a-f-]+", lower):
        return ""
    digits = lower.replace("-", "")
    shaped = "".join("-" if mark == "-" else "0" for mark in lower)
    is_shaped = shaped == _ID_SHAPE[: len(lower)] or (lower == digits and len(digits) <= _ID_SHAPE.count("0"))
    return digits if is_shaped else ""


def _wire(job: FoundJob, paths: Mapping[RespoolId, str]) -> lookup_pb2.FoundJob:
    return lookup_pb2.FoundJob(
        id=peloton_pb2.JobID(value=job.job_id),
        name=job.name,
        poolPath=paths.get(job.respool_id, ""),
        state=convert.JOB_STATE_NUMBERS[job.state],  # type: ignore[arg-type]
        creationTime=rfc3339(job.created_ns),
        type=convert.JOB_TYPE_NUMBERS[job.type],
    )
