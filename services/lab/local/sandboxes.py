"""Removes the sandboxes of deleted jobs. Emulated agents do not know jobs, so the database is queried for the jobs that
exist."""

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
"""Path that lists sandboxes by job: the name of an executor is JOB-INSTANCE-RUN, of which the last two parts are
cut."""


async def remove_periodically(database: str, masters: Sequence[str], token: str) -> None:
    """Remove sandboxes periodically until cancelled. A cluster that does not answer is retried after PERIOD_S."""
    while True:
        for master in masters:
            try:
                await asyncio.to_thread(remove_deleted, database, master, token)
            except PelotonError as error:
                log.info("could not remove sandboxes of %s, retrying: %s", master, error)
        await asyncio.sleep(PERIOD_S)


def is_job(name: str) -> bool:
    try:
        uuid.UUID(name)
    except ValueError:
        return False
    return True


def remove_deleted(database: str, master: str, token: str) -> list[str]:
    """Remove the sandboxes of deleted jobs, and return the jobs. Raises PelotonError."""
    # Only executors of Peloton are named by the id of a job.
    jobs = [job for job in ask("minicluster", master, token, "GET", PATH)["executors"] if is_job(job)]
    if not jobs:
        return []
    storage = Storage(database, pool_size=1)
    try:
        stored = {record.job_id for record in storage.jobs.get_many(jobs)}
    finally:
        storage.close()
    deleted = sorted(set(jobs) - stored)
    if deleted:
        ask("minicluster", master, token, "POST", PATH, {"executors": deleted})
    return deleted
