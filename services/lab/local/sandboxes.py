"""Removal of the sandboxes of deleted jobs. Agents know executors only, so this looks up which jobs are still
stored."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Sequence

from peloton.errors import PelotonError
from services.lab.local.emulated import ask
from services.storage.storage import Storage

log = logging.getLogger(__name__)

PERIOD_S = 10.0
PATH = "/minicluster/sandboxes?cut=2"
"""The path of executors by job: a pod's executor is called JOB-INSTANCE-RUN, and the last two parts are cut."""


async def keep_tidy(database: str, masters: Sequence[str], token: str) -> None:
    """Remove sandboxes until cancelled. A cluster that does not answer is asked again after the period."""
    while True:
        for master in masters:
            try:
                await asyncio.to_thread(tidy, database, master, token)
            except PelotonError as error:
                log.info("sandboxes of %s not looked at: %s", master, error)
        await asyncio.sleep(PERIOD_S)


def is_job(name: str) -> bool:
    try:
        uuid.UUID(name)
    except ValueError:
        return False
    return True


def tidy(database: str, master: str, token: str) -> list[str]:
    """Remove the sandboxes of jobs that were deleted; return these jobs. Raises PelotonError."""
    # Executors of other frameworks have other names.
    jobs = [job for job in ask("minicluster", master, token, "GET", PATH)["executors"] if is_job(job)]
    if not jobs:
        return []
    storage = Storage(database, pool_size=1)
    try:
        stored = {record.job_id for record in storage.jobs.get_many(jobs)}
    finally:
        storage.close()
    gone = sorted(set(jobs) - stored)
    if gone:
        ask("minicluster", master, token, "POST", PATH, {"executors": gone})
    return gone
