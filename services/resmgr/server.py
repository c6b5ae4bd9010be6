"""The resource manager as a running gRPC server. Only the leader runs one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import grpc.aio

from peloton.api.private import resmgr_pb2_grpc
from peloton.api.service_names import EXPLAIN_SERVICE, MOVER_SERVICE, RESOURCE_MANAGER, add_under_all_names
from peloton.model.host import ClusterSums
from peloton.ports import Lifecycles
from services.resmgr.capacity_source import CapacitySource
from services.resmgr.explain.service import ExplainService, ExplainsWorkflows
from services.resmgr.explain.unfit import UnfitJobs, UnfitPods
from services.resmgr.host_mover import HostMover, HostTotals
from services.resmgr.loop import AdmissionLoop
from services.resmgr.metrics import PoolGauges
from services.resmgr.mover_service import MoverService
from services.resmgr.pool_service import PoolService
from services.resmgr.problems import ProblemsServicer
from services.resmgr.recorder import Recorder
from services.resmgr.servicer import AdmissionServicer
from services.resmgr.settings import LoopSettings, MoverSettings, RecorderSettings
from services.resmgr.wanted_hosts import find_wanted_hosts
from services.servers.grpc_bounds import CALLS_OF_ROLE_MAX, Receive
from services.servers.grpc_requests import SERVER_OPTIONS, Requests
from services.servers.grpc_status import ErrorsToStatus
from services.servers.role_surface import roles_only
from services.storage.storage import Storage
from services.telemetry.calls import measure_calls
from services.tls.transport import PLAINTEXT, Transport

DRAIN_S = 5.0
OPTIONS = (("grpc.so_reuseport", 0), *SERVER_OPTIONS)


@dataclass(frozen=True)
class ResmgrServer:
    loop: AdmissionLoop
    port: int
    _server: grpc.aio.Server
    _mover: HostMover | None = None
    _recorder: Recorder | None = None

    async def stop(self) -> None:
        """Refuse new calls, finish the ones under way, then stop the loop."""
        await self._server.stop(DRAIN_S)
        if self._mover is not None:
            await self._mover.stop()
        if self._recorder is not None:
            await self._recorder.stop()
        await self.loop.stop()


async def serve(
    storage: Storage,
    lifecycles: Lifecycles,
    capacity_source: CapacitySource,
    address: str,
    settings: LoopSettings | None = None,
    host_totals: HostTotals | None = None,
    mover_settings: MoverSettings | None = None,
    cluster_sums: Callable[[], Mapping[str, ClusterSums]] | None = None,
    recorder_settings: RecorderSettings | None = None,
    workflows: ExplainsWorkflows | None = None,
    direct_calls: bool = True,
    transport: Transport = PLAINTEXT,
    others: Sequence[tuple[object, tuple[str, ...]]] = (),
) -> ResmgrServer:
    """Read memory from storage, begin to admit, and listen on ``address`` (``host:0`` picks a free port).

    ``host_totals`` is for the mover of host pools, ``cluster_sums`` for the recorder of time series; without it there
    is none. ``workflows`` is for explanations. Without ``direct_calls`` only other roles may call
    public services. ``others`` are further servicers of the leader, with the names of their services.
    """
    loop = AdmissionLoop(storage, lifecycles, capacity_source, settings)
    pools = PoolService(loop, storage.pools, storage.jobs)
    await asyncio.to_thread(pools.load)
    await loop.start()
    around = [Receive(), *roles_only(transport, direct_calls), *measure_calls()]
    around += [ErrorsToStatus("resource manager"), Requests()]
    server = grpc.aio.server(interceptors=around, options=OPTIONS, maximum_concurrent_rpcs=CALLS_OF_ROLE_MAX)
    resmgr_pb2_grpc.add_AdmissionServicer_to_server(AdmissionServicer(loop), server)
    add_under_all_names(server, pools, RESOURCE_MANAGER)
    add_under_all_names(server, ExplainService(loop, storage, capacity_source, workflows), EXPLAIN_SERVICE)
    recorder = None
    if cluster_sums is not None:
        period = recorder_settings or RecorderSettings()
        recorder = Recorder(lambda: loop.state, loop.tally, cluster_sums, storage.history, period)
    unfit = UnfitJobs(storage, UnfitPods(storage, capacity_source))
    resmgr_pb2_grpc.add_ProblemsServicer_to_server(ProblemsServicer(lambda: loop.state, unfit, recorder), server)
    mover = None
    if host_totals is not None:
        mover = HostMover(
            lambda: loop.state.list_unplaced(),
            storage.host_pools,
            storage.mover,
            storage.pods,
            host_pods=storage.host_pods,
            hosts=host_totals,
            settings=mover_settings,
            queued=lambda: find_wanted_hosts(loop.state),
        )
        add_under_all_names(server, MoverService(mover, storage.mover), MOVER_SERVICE)
        mover.start()
    for servicer, names in others:
        add_under_all_names(server, servicer, names)
    port = transport.bind(server, address)
    await server.start()
    PoolGauges(lambda: loop.state)
    if recorder is not None:
        recorder.start()
    return ResmgrServer(loop, port, server, mover, recorder)
