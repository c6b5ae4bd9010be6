"""v0 ResourceManager: creates, changes, deletes and finds pools. Domain errors are part of the answer."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from typing import TypeVar

import grpc
import grpc.aio

from peloton.api.config_bounds import POOL_KINDS
from peloton.api.convert_pool import pool_spec, wire_amount
from peloton.api.v0.peloton_pb2 import ResourcePoolID
from peloton.api.v0.respool import respool_pb2 as pb
from peloton.errors import AlreadyExists, InvalidArgument, NotFound, PelotonError, Reason, Unavailable
from peloton.model.by_hand import shorten_name
from peloton.model.ids import ROOT_POOL_ID, RespoolId
from peloton.model.resources import RESOURCE_KINDS
from peloton.model.text import ID_CHARS_MAX, shorten
from services.access.caller import read_person
from services.resmgr import pool_rules
from services.resmgr.loop import AdmissionLoop
from services.resmgr.state import ResmgrState
from services.servers.grpc_errors import fit_header
from services.storage.jobs.jobs import Jobs
from services.storage.pools import Pools

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[object, object]
Change = tuple[Callable[[], object], Callable[[], None]]
"""A function that stores a change, and one that applies it to memory after that."""


Asked = TypeVar("Asked", ResourcePoolID, pb.ResourcePoolPath)

ACTIVE_JOBS_MAX = 100
"""Limit of the jobs that are counted to explain why a pool is busy."""


class _Refused(PelotonError):
    """An error that ends the call with a message as its answer."""

    def __init__(self, error: pb.DeleteResponse.Error) -> None:
        super().__init__(str(error))
        self.error = error


def _complete(config: pb.ResourcePoolConfig, context: Context) -> pb.ResourcePoolConfig:
    """Return the configuration with defaults and, if known, the name of the user who changes the pool."""
    full = pool_rules.with_defaults(config)
    full.ClearField("changeLog")  # of an earlier change, where the client sends all that it has read
    if person := read_person(context.invocation_metadata()):
        full.changeLog.updatedBy, full.changeLog.updatedAt = shorten_name(person), time.time_ns()
    return full


class PoolService:
    """The servicer: one asynchronous method per RPC, under the RPC's name."""

    def __init__(self, loop: AdmissionLoop, pools: Pools, jobs: Jobs) -> None:
        self._loop = loop
        self._pools, self._jobs = pools, jobs
        self._configs: dict[RespoolId, pb.ResourcePoolConfig] = {}

    def load(self) -> None:
        """Read the configurations: they hold more than the pools in memory, which have only what admission needs."""
        self._configs = self._pools.configs()

    @property
    def _state(self) -> ResmgrState:
        return self._loop.state

    # -- changes ----------------------------------------------------------------------------------------------------

    async def CreateResourcePool(self, request: pb.CreateRequest, context: Context) -> pb.CreateResponse:
        pool_id = RespoolId(str(uuid.uuid4()))
        wire_id = ResourcePoolID(value=pool_id)
        invalid = pb.CreateResponse.Error
        if not request.HasField("config"):
            error = pb.InvalidResourcePoolConfig(id=wire_id, message="resource pool config cannot be <nil>")
            return pb.CreateResponse(error=invalid(invalidResourcePoolConfig=error))
        await self._ensure_capacity(context)
        config = _complete(request.config, context)
        try:
            await self._loop.change_pools(lambda: self._put(pool_id, config, check=True))
        except AlreadyExists as refusal:
            taken = pb.ResourcePoolAlreadyExists(id=wire_id, message=refusal.message)
            return pb.CreateResponse(error=invalid(alreadyExists=taken))
        except InvalidArgument as refusal:
            error = pb.InvalidResourcePoolConfig(id=wire_id, message=refusal.message)
            return pb.CreateResponse(error=invalid(invalidResourcePoolConfig=error))
        warnings = pool_rules.beyond_hosts(self._state, pool_spec(pool_id, config))
        return pb.CreateResponse(result=wire_id, warnings=warnings)

    async def UpdateResourcePool(self, request: pb.UpdateRequest, context: Context) -> pb.UpdateResponse:
        pool_id = RespoolId(request.id.value)
        error = pb.UpdateResponse.Error
        fault = ""
        if not pool_id:
            fault = "resource pool ID cannot be <nil>"
        elif not request.HasField("config"):
            fault = "resource pool config cannot be <nil>"
        elif pool_id == ROOT_POOL_ID:
            fault = "cannot override root"
        elif pool_id not in self._state.pools:
            missing = pb.ResourcePoolNotFound(id=_shorten(request.id), message=pool_rules.NOT_FOUND)
            return pb.UpdateResponse(error=error(notFound=missing))
        if not fault:
            await self._ensure_capacity(context)
            config = _complete(request.config, context)
            try:
                await self._loop.change_pools(lambda: self._put(pool_id, config, check=not request.Force))
            except NotFound as refusal:
                missing = pb.ResourcePoolNotFound(id=_shorten(request.id), message=refusal.message)
                return pb.UpdateResponse(error=error(notFound=missing))
            except (AlreadyExists, InvalidArgument) as refusal:
                fault = refusal.message
        if fault:
            invalid = pb.InvalidResourcePoolConfig(id=_shorten(request.id), message=fault)
            return pb.UpdateResponse(error=error(invalidResourcePoolConfig=invalid))
        return pb.UpdateResponse(warnings=pool_rules.beyond_hosts(self._state, pool_spec(pool_id, config)))

    async def DeleteResourcePool(self, request: pb.DeleteRequest, context: Context) -> pb.DeleteResponse:
        try:
            await self._loop.change_pools(lambda: self._delete(request))
        except _Refused as refused:
            return pb.DeleteResponse(error=refused.error)
        except Exception:
            log.exception("resource pool %s not deleted", request.path.value)
            message = "resource pool could not be deleted"
            failed = pb.ResourcePoolNotDeleted(message=message)
            return pb.DeleteResponse(error=pb.DeleteResponse.Error(notDeleted=failed))
        return pb.DeleteResponse()

    def _put(self, pool_id: RespoolId, config: pb.ResourcePoolConfig, check: bool) -> Change:
        state = self._state
        if check:
            pool_rules.check_config(state, pool_id, config, state.pools)
        elif pool_id not in state.pools:
            raise NotFound(pool_rules.NOT_FOUND).because(Reason.POOL_NOT_FOUND)
        else:
            pool_rules.check_values(config)  # force accepts no invalid numbers,
            config.parent.value = state.pools[pool_id].parent_id  # and moves no pool
        spec = pool_spec(pool_id, config)

        def change() -> None:
            self._state.put_pool(spec)
            self._configs[pool_id] = config

        def store() -> None:
            parent = spec.parent_id
            if check and pool_id not in state.pools and parent != ROOT_POOL_ID and (jobs := self._active_jobs(parent)):
                raise InvalidArgument(f"resource pool {state.path_of(parent)} cannot get child pools: {jobs}")
            self._pools.put(pool_id, config)

        return store, change

    def _delete(self, request: pb.DeleteRequest) -> Change:
        state, path, error = self._state, request.path, pb.DeleteResponse.Error
        try:
            pool_id = pool_rules.find(state, pool_rules.check_path(path.value if request.HasField("path") else None))
        except (NotFound, InvalidArgument) as refusal:
            missing = pb.ResourcePoolPathNotFound(path=_shorten(path), message=pool_rules.NOT_FOUND)
            raise _Refused(error(notFound=missing)) from refusal
        row, wire_id = state.tree.row[pool_id], ResourcePoolID(value=pool_id)
        if not state.tree.is_leaf[row]:
            raise _Refused(error(isNotLeaf=pb.ResourcePoolIsNotLeaf(id=wire_id, message="resource pool is not leaf")))
        if pool_id == ROOT_POOL_ID:
            failed = pb.ResourcePoolNotDeleted(id=wire_id, message="cannot delete root resource pool")
            raise _Refused(error(notDeleted=failed))

        def busy(why: str) -> _Refused:
            return _Refused(error(isBusy=pb.ResourcePoolIsBusy(id=wire_id, message=f"resource pool is busy: {why}")))

        if not state.accounts.is_idle(row):
            raise busy(pool_rules.load_text(state, row))

        def store() -> None:
            if jobs := self._active_jobs(pool_id):
                raise busy(jobs)
            self._pools.delete(pool_id)

        def change() -> None:
            self._state.drop_pool(pool_id)
            self._configs.pop(pool_id, None)

        return store, change

    def _active_jobs(self, pool_id: RespoolId) -> str:
        """Name jobs of a pool that have not ended; they need not have pods in a queue at present."""
        jobs = self._jobs.active_in_pool(pool_id, ACTIVE_JOBS_MAX + 1)
        many = f"{ACTIVE_JOBS_MAX} jobs or more have" if len(jobs) > ACTIVE_JOBS_MAX else f"{len(jobs)} jobs have"
        return f"{many if len(jobs) > 1 else '1 job has'} not ended, the first is {jobs[0]}" if jobs else ""

    async def _ensure_capacity(self, context: Context) -> None:
        """Learn the capacity, if it is unknown: the root is the cluster, and first-level pools are compared with it."""
        if self._state.capacity is None:
            try:
                await self._loop.learn_capacity()
            except Unavailable as error:
                reason = f"the capacity of the cluster is not known yet: {error.message}"
                await context.abort(grpc.StatusCode.UNAVAILABLE, fit_header(reason))

    # -- queries ----------------------------------------------------------------------------------------------------

    async def GetResourcePool(self, request: pb.GetRequest, context: Context) -> pb.GetResponse:
        pool_id = RespoolId(request.id.value or ROOT_POOL_ID)
        if pool_id not in self._state.tree.row:
            missing = pb.ResourcePoolNotFound(id=_shorten(request.id), message=pool_rules.NOT_FOUND)
            return pb.GetResponse(error=pb.GetResponse.Error(notFound=missing))
        if pool_id == ROOT_POOL_ID:
            await self._ensure_capacity(context)
        view = _View(self._state, self._configs)
        children = view.children(pool_id) if request.includeChildPools else []
        return pb.GetResponse(poolinfo=view.info(pool_id), childPools=[view.info(child) for child in children])

    async def LookupResourcePoolID(self, request: pb.LookupRequest, context: Context) -> pb.LookupResponse:
        error = pb.LookupResponse.Error
        try:
            path = pool_rules.check_path(request.path.value if request.HasField("path") else None)
            return pb.LookupResponse(id=ResourcePoolID(value=pool_rules.find(self._state, path)))
        except InvalidArgument as refusal:
            invalid = pb.InvalidResourcePoolPath(path=_shorten(request.path), message=refusal.message)
            return pb.LookupResponse(error=error(invalidPath=invalid))
        except NotFound as refusal:
            missing = pb.ResourcePoolPathNotFound(path=_shorten(request.path), message=refusal.message)
            return pb.LookupResponse(error=error(notFound=missing))

    async def Query(self, request: pb.QueryRequest, context: Context) -> pb.QueryResponse:
        """Return all pools; the root has no resources while the capacity of the cluster is unknown."""
        view = _View(self._state, self._configs)
        return pb.QueryResponse(resourcePools=[view.info(pool_id) for pool_id in self._state.tree.ids])


def _shorten(asked: Asked) -> Asked:
    """Return an id or a path as errors repeat it: whole, unless it is longer than any."""
    return type(asked)(value=shorten(asked.value, ID_CHARS_MAX))


class _View:
    """Pools as the wire shows them. Usage of an inner pool is the present sum of its leaves."""

    def __init__(self, state: ResmgrState, configs: dict[RespoolId, pb.ResourcePoolConfig]) -> None:
        self._state = state
        self._configs = configs
        self._non_slack = state.tree.roll_up(state.accounts.non_slack)
        self._slack = state.tree.roll_up(state.accounts.slack)
        self._children: dict[int, list[RespoolId]] = {}
        for child, parent in enumerate(state.tree.parent.tolist()):
            self._children.setdefault(parent, []).append(state.tree.ids[child])

    def children(self, pool_id: RespoolId) -> list[RespoolId]:
        return self._children.get(self._state.tree.row[pool_id], [])

    def info(self, pool_id: RespoolId) -> pb.ResourcePoolInfo:
        tree = self._state.tree
        row = tree.row[pool_id]
        return pb.ResourcePoolInfo(
            id=ResourcePoolID(value=pool_id),
            config=self._root_config() if row == 0 else self._configs.get(pool_id),
            parent=ResourcePoolID(value=tree.ids[tree.parent[row]]) if row else None,
            children=[ResourcePoolID(value=child) for child in self.children(pool_id)],
            usage=[self._usage(row, kind) for kind in (*POOL_KINDS, *self._list_extras(pool_id))],
            path=pb.ResourcePoolPath(value=tree.paths[row]),
        )

    def _list_extras(self, pool_id: RespoolId) -> tuple[str, ...]:
        """Return the extended resources that the pool names; of the root all that there are."""
        if pool_id == ROOT_POOL_ID:
            return self._state.tree.kinds[len(RESOURCE_KINDS) :]
        return tuple(resource.kind for resource in self._state.pools[pool_id].extras)

    def _usage(self, row: int, kind: str) -> pb.ResourceUsage:
        column = self._state.tree.kinds.index(kind)
        held, slack = int(self._non_slack[row, column]), int(self._slack[row, column])
        return pb.ResourceUsage(kind=kind, allocation=wire_amount(kind, held), slack=wire_amount(kind, slack))

    def _root_config(self) -> pb.ResourcePoolConfig:
        capacity, tree = self._state.capacity, self._state.tree
        amounts = (
            dict(zip(tree.kinds, tree.compute_capacity(capacity).tolist(), strict=True)) if capacity is not None else {}
        )
        resources = []
        for kind in (*POOL_KINDS, *self._list_extras(ROOT_POOL_ID)) if amounts else ():
            amount = wire_amount(kind, amounts[kind])
            resources.append(pb.ResourceConfig(kind=kind, reservation=amount, limit=amount, share=1))
        return pb.ResourcePoolConfig(name="root", policy=pb.PriorityFIFO, resources=resources)
