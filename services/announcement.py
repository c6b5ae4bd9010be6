"""Report of a process without a database to the api, by which the doctor compares it with the others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import grpc.aio

from peloton.api.private import processes_pb2 as pb
from peloton.api.private.processes_pb2_grpc import ProcessesStub
from peloton.client import CHANNEL_OPTIONS, target
from peloton.release import read_version
from services.processes import LEAVE_S, PERIOD_S, collect_settings, name_process
from services.settings import Settings
from services.tls.transport import Transport

log = logging.getLogger(__name__)

TIMEOUT_S = 20.0
"""Time for a report in seconds; one that is made while the api starts waits for it."""


@asynccontextmanager
async def announcing(roles: Sequence[str], settings: Settings, transport: Transport) -> AsyncIterator[None]:
    """Report regularly until the block ends; then delete the report, unless the api does not answer.

    Raises InvalidArgument for invalid addresses.
    """
    report = pb.AnnounceRequest(
        process=name_process(),
        role="+".join(roles),
        version=read_version(),
        settings=collect_settings(roles, settings, None),
    )
    channel = transport.open_async(target(settings.api), CHANNEL_OPTIONS)
    task = asyncio.create_task(_announce(channel, report), name="report of the process")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        report.is_ending = True
        with suppress(grpc.aio.AioRpcError):
            await ProcessesStub(channel).Announce(report, timeout=LEAVE_S)
        await channel.close()


async def _announce(channel: grpc.aio.Channel, report: pb.AnnounceRequest) -> None:
    while True:
        try:
            await ProcessesStub(channel).Announce(report, timeout=TIMEOUT_S, wait_for_ready=True)
        except grpc.aio.AioRpcError as error:  # a process works without its report; an older api takes none
            log.debug("process not reported: %s", error.details())
        await asyncio.sleep(PERIOD_S)
