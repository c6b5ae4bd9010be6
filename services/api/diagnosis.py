"""Checks of the control plane by an api: each has a deadline, and all run at once."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import fields
from typing import Any

import grpc.aio

from peloton.api.private import hostmgr_pb2, hostmgr_pb2_grpc, resmgr_pb2, resmgr_pb2_grpc
from peloton.errors import PelotonError, Unavailable
from peloton.lifecycle import diagnosis
from peloton.model.diagnosis import Check, ProcessRecord
from peloton.model.ids import HOSTMGR_ROLE
from peloton.model.problem import Problem
from peloton.model.times import NS_PER_S
from services.api.backlog import Bounds
from services.api.calls import Calls
from services.api.channels import AsyncLeaderChannels
from services.api.forward import RESMGR
from services.storage.jobs.search import Backlog
from services.storage.overview import LeaseRow
from services.storage.storage import Storage

log = logging.getLogger(__name__)

CHECK_S = 10.0
"""Seconds for each check."""
ANSWER_S = 3.0
"""Seconds for the answer of a role."""
Found = Check | Sequence[Check]


class Diagnosis:
    """Calls at the same time share one run, so that callers cannot add up its load."""

    def __init__(
        self,
        storage: Storage,
        channels: AsyncLeaderChannels,
        calls: Calls,
        bounds: Bounds,
        workflow_problems: Callable[[], Awaitable[Sequence[Problem]]],
        expires_at: Callable[[], float | None],
        wall_s: Callable[[], float] = time.time,
        check_s: float = CHECK_S,
    ) -> None:
        """``workflow_problems`` reads those of Temporal, ``expires_at`` the end of the certificate in unix seconds."""
        self._storage, self._channels, self._calls, self._bounds = storage, channels, calls, bounds
        self._workflow_problems, self._expires_at = workflow_problems, expires_at
        self._wall_s, self._check_s = wall_s, check_s
        self._running: asyncio.Task[list[Check]] | None = None
        self._rules: asyncio.Task[Check] | None = None

    async def run(self) -> list[Check]:
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run(), name="diagnosis")
        return await asyncio.shield(self._running)

    async def _run(self) -> list[Check]:
        checks: dict[str, Callable[[], Awaitable[Found]]] = {
            "database": self._check_database,
            "clock of the database": self._check_clock,
            "schema": self._check_schema,
            "disk": self._check_disk,
            "leases": self._check_leases,
            "roles": self._check_roles,
            "versions of the processes": self._check_versions,
            "settings of the processes": self._check_settings,
            "Temporal and workflows": self._check_workflows,
            "backlog": self._check_backlog,
            "certificate of the api": self._check_certificate,
            "rules between rows": self._check_rules,
        }
        found = await asyncio.gather(*(self._bound(name, check) for name, check in checks.items()))
        return [one for some in found for one in ([some] if isinstance(some, Check) else some)]

    async def _bound(self, name: str, check: Callable[[], Awaitable[Found]]) -> Found:
        try:
            async with asyncio.timeout(self._check_s):
                return await check()
        except TimeoutError:
            return diagnosis.report_late(name, self._check_s)
        except (PelotonError, OSError, grpc.aio.AioRpcError) as error:
            return diagnosis.report_error(name, str(error))
        except Exception as error:  # a bug in one check hides no other one
            log.exception("check %s failed", name)
            return diagnosis.report_error(name, f"{type(error).__name__}: see the log of the api")

    async def _check_database(self) -> Check:
        began_s = time.perf_counter()
        await self._calls.run(self._storage.diagnosis.clock_s)
        return diagnosis.check_latency(time.perf_counter() - began_s)

    async def _check_clock(self) -> Check:
        began_s = self._wall_s()
        theirs_s = await self._calls.run(self._storage.diagnosis.clock_s)
        return diagnosis.check_clock("clock of the database", theirs_s - (began_s + self._wall_s()) / 2)

    async def _check_schema(self) -> Check:
        return diagnosis.check_schema(*await self._calls.run(self._storage.diagnosis.schema))

    async def _check_disk(self) -> Found:
        found = await self._calls.run(self._storage.diagnosis.disk)
        return [] if found is None else diagnosis.check_disk(*found)

    async def _check_leases(self) -> Found:
        rows = {row.role: row for row in await self._calls.run(self._storage.overview.leases)}
        roles = {RESMGR, *rows, *(HOSTMGR_ROLE + cluster for cluster in await self._channels.clusters())}
        now_s = self._wall_s()
        leases = [rows.get(role, LeaseRow(role, "", now_s)) for role in sorted(roles)]
        return [diagnosis.check_lease(one.role, one.address, one.expires_s - now_s) for one in leases]

    async def _check_roles(self) -> Found:
        clusters = await self._channels.clusters()
        hosts = (self._check_answer(HOSTMGR_ROLE + one, self._ask_hostmgr(one)) for one in clusters)
        return await asyncio.gather(self._check_answer(RESMGR, self._ask_resmgr()), *hosts)

    @staticmethod
    async def _check_answer(role: str, question: Awaitable[object]) -> Check:
        began_s = time.perf_counter()
        try:
            await question
        except (Unavailable, grpc.aio.AioRpcError):
            return diagnosis.check_answer(role, None)
        return diagnosis.check_answer(role, time.perf_counter() - began_s)

    async def _ask_resmgr(self) -> None:
        stub: Any = resmgr_pb2_grpc.ProblemsStub(await self._channels.to(RESMGR))
        await stub.FindProblems(resmgr_pb2.FindProblemsRequest(), timeout=ANSWER_S)

    async def _ask_hostmgr(self, cluster: str) -> None:
        stub: Any = hostmgr_pb2_grpc.ViewsStub(await self._channels.to_cluster(cluster))
        await stub.DescribeCluster(hostmgr_pb2.DescribeClusterRequest(), timeout=ANSWER_S)

    async def _check_versions(self) -> Check:
        return diagnosis.check_versions(await self._list_processes())

    async def _check_settings(self) -> Found:
        return diagnosis.check_settings(await self._list_processes())

    async def _list_processes(self) -> list[ProcessRecord]:
        return await self._calls.run(self._storage.processes.list_running, int(self._wall_s() * NS_PER_S))

    async def _check_workflows(self) -> Found:
        return diagnosis.check_workflows(await self._workflow_problems())

    async def _check_backlog(self) -> Check:
        found = await self._calls.run(self._storage.search.backlog)
        names = [field.name for field in fields(Backlog)]
        return diagnosis.check_backlog([(name, getattr(found, name), getattr(self._bounds, name)) for name in names])

    async def _check_certificate(self) -> Check:
        expires_s = self._expires_at()
        return diagnosis.check_certificate(None if expires_s is None else expires_s - self._wall_s())

    async def _check_rules(self) -> Check:
        """Check the rules between rows. A check of a large database outlasts its deadline, and the next diagnosis waits
        for the same one.
        """
        if self._rules is None or self._rules.done():
            self._rules = asyncio.create_task(self._find_broken_rules(), name="rules between rows")
            self._rules.add_done_callback(lambda task: task.cancelled() or task.exception())  # retrieved
        return await asyncio.shield(self._rules)

    async def _find_broken_rules(self) -> Check:
        return diagnosis.check_rules(*await self._calls.run(self._storage.diagnosis.broken_rules))
