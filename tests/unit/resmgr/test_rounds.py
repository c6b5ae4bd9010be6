"""Rounds of the resource manager are repeated, and continue while a service that they call is unavailable."""

from __future__ import annotations

import asyncio
import logging

import pytest

from peloton.errors import Unavailable
from services.resmgr.rounds import Outage, repeat

AWAY = Unavailable("no hostmgr leads at present")


def test_an_outage_is_reported_once_it_lasts(caplog: pytest.LogCaptureFixture) -> None:
    """An outage is not logged at a start or a change of leaders; later it is logged once a minute, and when it is over.
    The next outage starts from zero.
    """
    now_s = [100.0]
    outage = Outage("capacity round", lambda: now_s[0])

    with caplog.at_level(logging.INFO, "services.resmgr.rounds"):
        for second in (0, 9, 10, 11, 69, 70):
            now_s[0] = 100.0 + second
            outage.log_failure(AWAY)
        outage.is_over()
        now_s[0] += 1
        outage.log_failure(AWAY)
        outage.is_over()

    assert [
        ("WARNING", "capacity round failing for 10 s: no hostmgr leads at present"),
        ("WARNING", "capacity round failing for 70 s: no hostmgr leads at present"),
        ("INFO", "capacity round recovered after 70 s"),
    ] == [(record.levelname, record.getMessage()) for record in caplog.records]


async def test_rounds_continue_whatever_fails(caplog: pytest.LogCaptureFixture) -> None:
    """Short outages are not logged, internal errors are."""
    outcomes = [None, AWAY, RuntimeError("ours"), None]
    done = asyncio.Event()

    async def some_round() -> None:
        if not outcomes:
            done.set()
            await asyncio.Event().wait()
        if (outcome := outcomes.pop(0)) is not None:
            raise outcome

    task = asyncio.create_task(repeat(some_round, 0.001))
    async with asyncio.timeout(120):
        await done.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert ["some round failed, retrying"] == [record.getMessage() for record in caplog.records]
