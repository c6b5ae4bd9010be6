"""A cluster of Dask whose workers are the instances of a job.

    with PelotonCluster("localhost:5397", "/science") as cluster, Client(cluster) as client:
        cluster.scale(20)                       # or cluster.adapt(minimum=0, maximum=100)
        client.submit(sum, [1, 2, 3]).result()

The scheduler runs in this process, which the hosts must reach.
"""

from __future__ import annotations

import asyncio
import logging
import math
import shlex
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import grpc

from peloton.client import DEFAULT_ADDRESS, Client
from peloton.errors import PelotonError
from peloton.extras import missing_extra
from peloton.integrations.instances import Instances, InstanceSpec, local_address

try:
    from distributed import Scheduler
    from distributed.core import Status
    from distributed.deploy.cluster import Cluster
    from distributed.deploy.spec import SpecCluster
    from tornado.ioloop import PeriodicCallback
except ImportError as missing:
    raise missing_extra("dask", "distributed", "PelotonCluster") from missing

log = logging.getLogger(__name__)
T = TypeVar("T")

TICK_S = 0.2
END_S = 5.0
"""Seconds in which workers end by themselves before the job is stopped."""
POLL_S = 5.0
"""Seconds between polls of the job."""
LEAVING = (Status.closing_gracefully, Status.closing, Status.closed)
WORKER = Path(__file__).with_name("dask_worker.py")
SOURCE = "PELOTON_DASK_WORKER"
BYTES_PER_MIB = 1 << 20
MEMORY_SHARE = 0.95
"""Part of the memory of an instance that its worker uses, as the limit of the pod includes the interpreter."""


class PelotonCluster(SpecCluster):  # type: ignore[misc]
    """A scheduler in this process, and workers that are instances of a job in the pool.

    ``spec`` has the resources of a worker and its image; its command is set here. A worker has as many threads as whole
    cores, at least one. ``python`` is the interpreter in the pod: that of this process on the files of the host,
    ``python3`` in an image; it needs the Dask of this process. ``host`` is the address of this process for the workers:
    by default the one from which it reaches the API. ``options`` are those of ``distributed.SpecCluster``.
    """

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        pool: str = "/",
        *,
        n_workers: int = 0,
        spec: InstanceSpec | None = None,
        name: str = "dask",
        owner: str = "",
        python: str = "",
        host: str = "",
        port: int = 0,
        dashboard_address: str = "",
        **options: Any,
    ) -> None:
        self._numbers: set[int] = set()
        self._scaling = asyncio.Lock()
        self._api = Client(address)
        self._worker, self._python = spec or InstanceSpec(), python
        self._job: Instances | None = None
        self._make = lambda worker: Instances(self._api, pool, name, worker, owner=owner)
        host = host or local_address(address)
        where = {"host": host, "port": port, "dashboard_address": dashboard_address or f"{host}:0"}
        self._first_count = n_workers
        super().__init__(workers={}, scheduler={"cls": Scheduler, "options": where}, name=name, **options)

    @property
    def job_id(self) -> str:
        """The id of the job; empty before the first worker."""
        return self._job.job_id if self._job else ""

    @property
    def plan(self) -> set[Any]:
        return set(self._numbers)

    @property
    def requested(self) -> set[Any]:
        return set(self._numbers)

    @property
    def observed(self) -> set[Any]:
        return {number_of(worker["name"]) for worker in self.scheduler_info["workers"].values()}

    def scale(self, n: int = 0, memory: Any = None, cores: Any = None) -> Any:
        """Scale to ``n`` workers by one change of the job. Returns after the answer of the API; workers start later."""
        if memory is not None or cores is not None:
            raise NotImplementedError("scale takes a number of workers, and neither memory nor cores")
        return self.sync(self._scale, n)

    def scale_down(self, workers: Iterable[Any]) -> Any:
        """Stop workers, by name or number. Adaptive scaling has already retired them."""
        return self.sync(self._stop, {number_of(worker) for worker in workers})

    async def _start(self) -> None:
        await super()._start()
        if "job" not in self.periodic_callbacks:
            polling = PeriodicCallback(self._poll_job, POLL_S * 1000)
            self.periodic_callbacks["job"] = polling
            polling.start()
            try:
                await self._scale(self._first_count)
            except Exception:
                await self._close()
                raise

    async def _scale(self, n: int) -> None:
        async with self._scaling:
            if n > len(self._numbers):
                added = await self._ask(self._add, n - len(self._numbers))
                self._numbers.update(added)
        if n < len(self._numbers):
            await self._retire(len(self._numbers) - n)

    def _add(self, count: int) -> list[int]:
        if self._job is None:
            self._job = self._make(worker_spec(self._worker, self._python, self.scheduler_address))  # type: ignore[no-untyped-call, unused-ignore]
        return self._job.add(count)

    async def _retire(self, count: int) -> None:
        """Stop workers: first those that have not arrived or leave anyway, then those that Dask can spare best."""
        workers = self.scheduler.workers.values()
        serving = {number_of(worker.name): worker.name for worker in workers if worker.status not in LEAVING}
        absent = sorted(self._numbers - serving.keys(), reverse=True)[:count]
        names: list[str] = []
        if rest := count - len(absent):
            spare = await self.scheduler_comm.workers_to_close(n=rest, attribute="name")
            known = set(serving.values())
            names = list(dict.fromkeys(name for name in [*spare, *serving.values()] if name in known))[:rest]
            await self.scheduler_comm.retire_workers(names=names, remove=True, close_workers=True)
        await self._stop({*absent, *map(number_of, names)})

    async def _stop(self, numbers: set[int]) -> None:
        async with self._scaling:
            if self._job is not None:
                await self._ask(self._job.stop, numbers)
            self._numbers -= numbers

    async def _poll_job(self) -> None:
        """Notice instances that ended by themselves, and a job that cannot run."""
        if self._job is None or not self._numbers or self._scaling.locked():
            return
        async with self._scaling:
            try:
                counts = await self._ask(self._job.count)
                if counts is None or counts.alive_count == len(self._numbers):
                    return
                seen = await self._ask(self._job.read)
            except (grpc.RpcError, PelotonError) as error:
                log.warning("the API does not answer, retrying: %s", error)
                return
            failed = [one for one in seen if one.state == "FAILED"]
            if counts.has_ended and failed and self._adaptive is not None:
                self._adaptive.stop()
                see = f"`peloton task logs {self.job_id} {failed[0].number} -f stderr` has the reason"
                log.error("all workers of job %s have failed, adaptive scaling ends: %s", self.job_id, see)
            self._numbers = {one.number for one in seen if one.is_wanted and not one.has_ended}

    async def _ask(self, call: Callable[..., T], *arguments: Any) -> T:
        """Call the API on another thread: the loop is the scheduler's."""
        return await asyncio.to_thread(call, *arguments)

    def _update_worker_status(self, op: str, change: Any) -> None:
        """Skip SpecCluster, which would close workers that it has started: this cluster starts none."""
        Cluster._update_worker_status(self, op, change)

    async def _close(self) -> None:
        """Close the scheduler, at which the workers end, and stop the job if some do not."""
        have_arrived, self._numbers = self._numbers == self.observed, set()
        for callback in self.periodic_callbacks.values():
            callback.stop()
        await super()._close()
        try:
            if self._job is not None:
                await self._ask(self._end, END_S if have_arrived else 0)
        except (grpc.RpcError, PelotonError) as error:
            log.warning("job %s may still run: %s", self.job_id, error)
        finally:
            self._api.close()

    def _end(self, wait_s: float) -> None:
        assert self._job is not None
        until_s = time.monotonic() + wait_s
        while (counts := self._job.count()) is not None and not counts.has_ended:
            if time.monotonic() >= until_s:
                self._job.stop_all()
                return
            time.sleep(TICK_S)


def number_of(worker: Any) -> int:
    """Return the instance of a worker, whose name begins with it."""
    return int(str(worker).partition("-")[0])


def worker_spec(spec: InstanceSpec, python: str, scheduler: str) -> InstanceSpec:
    """Return the instance with the command of a worker."""
    python = spec.interpreter(python)
    threads, memory_bytes = max(1, math.floor(spec.cpu)), int(spec.memory_mib * BYTES_PER_MIB * MEMORY_SHARE)
    return replace(
        spec,
        command=f'exec {shlex.quote(python)} -c "${SOURCE}" {shlex.quote(scheduler)} {threads} {memory_bytes}',
        environment={**spec.environment, SOURCE: WORKER.read_text(encoding="utf-8")},
    )
