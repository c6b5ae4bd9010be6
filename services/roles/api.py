"""Composition of role api."""

from __future__ import annotations

import asyncio
import logging

from peloton.lifecycle.worker_ramp import Promotion
from services.roles.shared import Shared, bounds_of, host_managers_of, make_sweep, opening_wakers, quotas_of
from services.storage.jobs.jobs import Jobs
from services.wakers.wake_line import Rank

log = logging.getLogger(__name__)

SERVER_GRACE_S = 2.0


async def run_api(shared: Shared, stop: asyncio.Event) -> None:
    from services.access.compose import make_access
    from services.api import server
    from services.api.private_calls import UNSERVED
    from services.audit.compose import make_recorder
    from services.schedules import Schedules
    from services.temporal.watch import TemporalWatch
    from services.temporal.worker_admin import WorkerAdmin

    access = make_access(shared.settings, shared.channels.transport, UNSERVED)
    settings, promotion = shared.settings, Promotion(shared.settings.worker_promote)
    async with opening_wakers(shared, Rank.PEOPLE) as wakers:
        address = f"{settings.host}:{settings.port}"
        api = await server.start(
            shared.storage,
            wakers,
            shared.channels.leader,
            address,
            bounds=bounds_of(settings),
            quotas=quotas_of(settings),
            clusters=shared.channels.clusters,
            targets=host_managers_of(shared),
            temporal=shared.read_temporal(),
            workers=WorkerAdmin(shared.temporal, promotion),
            watch=TemporalWatch(shared.temporal),
            schedules=Schedules(shared.temporal, shared.policies),
            transport=shared.channels.transport,
            access=access,
            recorder=make_recorder(settings, shared.storage.audit, is_enforced=access is not None),
        )
        log.info("API at %s", address)
        await make_sweep(shared, wakers).once()  # jobs stored just before a crash have no workflow yet
        await wakers.wake_active()
        shared.health.note("api", "")
        deleting = asyncio.create_task(_end_deletions(shared.storage.jobs), name="deletions that were broken off")
        await stop.wait()
        deleting.cancel()
        await api.stop(SERVER_GRACE_S)


async def _end_deletions(jobs: Jobs) -> None:
    """Continue the deletions of jobs that an api began before it died. Deletions under way in another api may be among
    them.
    """
    try:
        for job_id in await asyncio.to_thread(jobs.half_deleted):
            log.info("resuming the deletion of job %s", job_id)
            await asyncio.to_thread(jobs.delete, job_id)
    except Exception as error:  # storage is unavailable: the next api that starts finds them
        log.warning("interrupted deletions not resumed, retrying: %s", error)
