"""Composition of role hostmgr."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from typing import TYPE_CHECKING

from peloton.errors import Unavailable
from peloton.model.ids import hostmgr_role
from peloton.ports import ImagePrefetcher
from services.leading import Leading
from services.roles.shared import Shared, as_candidate, lead_role, make_sweep, opening_wakers
from services.wakers.wakers import Wakers

if TYPE_CHECKING:
    from services.hostmgr.advisor import AdvisorSettings
    from services.hostmgr.external_adoption import ExternalAdoption
    from services.hostmgr.kubernetes.pools.pool_controller import PoolController
    from services.hostmgr.maintenance import MaintenanceController
    from services.hostmgr.manager import HostManagerCore
    from services.hostmgr.qos import QosController

SERVER_GRACE_S = 2.0
SWITCH_S = 0.001
"""Seconds for which a thread of a host manager may hold the interpreter. A thread that sends pods releases it with each
of them, and by default would wait 5 ms for it each time while statuses arrive.
"""


async def run_hostmgr(shared: Shared, stop: asyncio.Event) -> None:
    from services import cluster_drivers, host_monitors
    from services.hostmgr.drain_watch import DrainWatch
    from services.hostmgr.image_prefetch import prefetcher
    from services.hostmgr.maintenance import MaintenanceController
    from services.hostmgr.manager import HostManagerCore, HostManagerSettings
    from services.hostmgr.qos import QosController
    from services.resmgr.client import ResourceManagerClient
    from services.resmgr.pool_client import PoolClient

    sys.setswitchinterval(SWITCH_S)
    shared, election = as_candidate(shared, hostmgr_role(shared.settings.cluster))
    settings, storage, fence = shared.settings, shared.storage, election.fence
    qos_settings, advisor_settings = host_monitors.read_monitor_settings(settings)
    endpoint = prefetcher(settings.prefetch_url)
    evictor = ResourceManagerClient(fence.guard(shared.channels.channel("resmgr")))
    pool_client = PoolClient(fence.guard(shared.channels.channel("resmgr")), f"kubernetes/{settings.cluster}")
    core_settings = HostManagerSettings(
        cluster=settings.cluster,
        lease_s=settings.host_lease_s,
        uses_host_pools=settings.host_pools,
        reserve_after_s=settings.host_reservation_after_s,
        reservation_s=settings.host_reservation_s,
        pods_api=settings.pods_api,
    )
    new_driver = cluster_drivers.cluster_driver_of(settings, storage.hosts, storage.external_pods, fence.refusal)
    loop = asyncio.get_running_loop()
    async with opening_wakers(shared) as wakers:

        async def lead() -> Leading:
            watch = DrainWatch(wakers.pods, wakers)
            failed: asyncio.Future[None] = loop.create_future()
            give_up = partial(_fail, loop, failed)
            core = HostManagerCore(
                core_settings, storage, watch, new_driver(), give_up, evictor=evictor, daemons=wakers.daemons
            )
            adoption = cluster_drivers.make_external_adoption(
                settings, storage, core.driver, watch, why=evictor.job_why, unsettled=core.host_returned
            )
            maintenance = MaintenanceController(
                core,
                maintenance=storage.maintenance,
                pods=storage.host_pods,
                disrupts=storage.disruptions,
                host_pools=storage.host_pools,
                jobs=wakers.jobs,
                hosts=wakers,
                watch=watch,
                cluster=settings.cluster,
                share=settings.maintenance_share,
            )
            await make_sweep(shared, wakers).once()  # wake-ups of reports may have died with a predecessor
            await asyncio.to_thread(core.start)
            await asyncio.to_thread(maintenance.start)
            qos = QosController(qos_settings, core, storage.host_pods, evictor, wakers.jobs)
            images = cluster_drivers.image_prefetcher_of(settings, core.driver, endpoint)
            return await _serve_hosts(
                shared,
                wakers,
                core,
                maintenance,
                qos=qos,
                advisor_settings=advisor_settings,
                images=images,
                adoption=adoption,
                pool_objects=cluster_drivers.make_pool_controller(settings, pool_client, storage.audit),
                failed=failed,
            )

        await lead_role(shared, election, stop, lead)


async def _serve_hosts(
    shared: Shared,
    wakers: Wakers,
    core: HostManagerCore,
    maintenance: MaintenanceController,
    qos: QosController,
    advisor_settings: AdvisorSettings,
    images: ImagePrefetcher,
    adoption: ExternalAdoption | None,
    pool_objects: PoolController | None,
    failed: asyncio.Future[None],
) -> Leading:
    """Serve a host manager that has started, with its periodic controllers."""
    from services import host_monitors
    from services.hostmgr.host_pool_controller import HostPoolController
    from services.hostmgr.rebalancer import Rebalancer
    from services.hostmgr.servicer import serve
    from services.hostmgr.views import ClusterViews

    settings, storage = shared.settings, shared.storage
    advisor, samples, latencies = host_monitors.advising(
        settings, advisor_settings, storage.jobs, core, qos, shared.channels.transport.http_context()
    )
    host_pools = None
    if settings.host_pools:
        deadline_s = settings.maintenance_deadline_s
        host_pools = HostPoolController(core, storage.host_pools, storage.host_pods, maintenance, deadline_s)
    rebalancer = Rebalancer(
        core.cache,
        storage.rebalances,
        settings.cluster,
        coming_back=storage.host_pods.coming_back,
        lifecycles=wakers.jobs,
        count_domains=core.count_domains,
        kill_evicted=core.kill_evicted,
    )
    server, port = serve(
        core,
        maintenance,
        images,
        samples.uses,
        f"{settings.host}:{settings.hostmgr_port}",
        deadline_s=settings.maintenance_deadline_s,
        rebalancer=rebalancer,
        advisor=advisor,
        views=ClusterViews(settings.cluster, core, advisor, samples.uses, storage.overview),
        host_pools=host_pools,
        direct_calls=settings.direct_calls,
        transport=shared.channels.transport,
    )
    for controller in (samples, host_pools, adoption, pool_objects):
        if controller is not None:
            controller.start()

    async def end() -> None:
        for source in (pool_objects, adoption, latencies, samples):
            if source is not None:
                await asyncio.to_thread(source.stop)
        await asyncio.to_thread(server.stop(SERVER_GRACE_S).wait)
        for part in (host_pools, maintenance, core):
            if part is not None:
                await asyncio.to_thread(part.stop)

    return Leading(port, end, failed)


def _fail(loop: asyncio.AbstractEventLoop, failed: asyncio.Future[None], why: str) -> None:
    """Make the future fail, from any thread."""

    def fail() -> None:
        if not failed.done():
            failed.set_exception(Unavailable(why))

    loop.call_soon_threadsafe(fail)
