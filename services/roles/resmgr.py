"""Composition of role resmgr."""

from __future__ import annotations

import asyncio

from peloton.api.service_names import RETENTION_SERVICE
from peloton.lifecycle.worker_ramp import Promotion
from services.leading import Leading
from services.roles.shared import Shared, as_candidate, host_managers_of, lead_role, make_sweep, opening_wakers


async def run_resmgr(shared: Shared, stop: asyncio.Event) -> None:
    from services.resmgr import server
    from services.resmgr.settings import LoopSettings, RecorderSettings, mover_settings
    from services.retention.composition import open_retention, open_service
    from services.temporal.watch import TemporalWatch
    from services.temporal.worker_versions import VersionController
    from services.wakers.missing_workflows import MissingWorkflows
    from services.wakers.workflow_restarter import WorkflowRestarter

    shared, election = as_candidate(shared, "resmgr")
    settings, capacity, promotion = shared.settings, host_managers_of(shared), Promotion(shared.settings.worker_promote)
    loop_settings = LoopSettings(
        entitlement_period_s=settings.entitlement_period_s,
        preempts=settings.preemption,
        preemption_period_s=settings.preemption_period_s,
        sustained_over_count=settings.preemption_rounds,
        checks_invariants=settings.check_invariants,
        backfill_s=settings.backfill_s,
    )
    async with opening_wakers(shared) as wakers:

        async def lead() -> Leading:
            retention = open_retention(shared.storage, settings)
            running = await server.serve(
                shared.storage,
                wakers.jobs,
                capacity,
                f"{settings.host}:{settings.resmgr_port}",
                loop_settings,
                host_totals=capacity,
                mover_settings=mover_settings(settings),
                cluster_sums=capacity.sums,
                recorder_settings=RecorderSettings(settings.history_period_s),
                workflows=TemporalWatch(shared.temporal),
                direct_calls=settings.direct_calls,
                transport=shared.channels.transport,
                others=[(open_service(retention, shared.storage, settings), RETENTION_SERVICE)],
            )
            sweep = make_sweep(shared, wakers)
            await sweep.once()  # wake-ups of admitted pods may have died with a predecessor
            sweep.start()
            retention.start()
            stored = shared.storage
            missing = MissingWorkflows(shared.temporal, stored.wakes.count_settled, stored.jobs.active_ids)
            versions = VersionController(shared.temporal, promotion)
            restarter = WorkflowRestarter(
                shared.temporal, wakers, missing=missing, current_version=lambda: versions.current
            )

            async def end() -> None:
                await retention.close()
                await sweep.close()
                await restarter.close()
                await versions.close()
                await running.stop()

            return Leading(running.port, end)

        await lead_role(shared, election, stop, lead)
