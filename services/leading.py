"""Life cycle of a role with a leader: it stands by, leads while it holds the lease, and resigns."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from opentelemetry.metrics import Observation

from peloton.errors import PelotonError
from services.election.port import Election
from services.telemetry.metrics import counter, register_gauge

log = logging.getLogger(__name__)

_CHANGES = counter("peloton.leader.changes")


@dataclass(frozen=True)
class Leading:
    """A role at work: where it listens, and how to end it."""

    port: int
    end: Callable[[], Awaitable[None]]
    failed: asyncio.Future[None] | None = None  # done when it cannot go on


async def lead_when_elected(
    election: Election,
    role: str,
    advertised: str,
    stop: asyncio.Event,
    lead: Callable[[], Awaitable[Leading]],
    note: Callable[[str], None] = lambda _: None,
) -> None:
    """Stand by, lead, and resign. ``advertised``: the host under which others reach this one. ``note`` receives what
    the role waits for: a standby and a leader at work are ready, and wait for nothing.
    """
    if await _first(election.win(partial(note, "")), stop):
        return
    note("it has the lease and does not serve yet")
    _CHANGES.add(1, {"lease": role, "change": "won"})
    register_gauge("peloton.leader.leads", lambda _: [Observation(int(not holding.done()), {"lease": role})])
    holding = asyncio.create_task(election.hold(), name=f"{role} lease")
    holding.add_done_callback(_end_with_the_lease)
    try:
        leading = await lead()
        await election.announce(f"{advertised}:{leading.port}")
        note("")
        try:
            await (stop.wait() if leading.failed is None else _first(leading.failed, stop))
        except PelotonError:
            await leading.end()
            raise
        await leading.end()  # the lease is renewed until all work of the leader has ended
    finally:
        holding.cancel()
        _CHANGES.add(1, {"lease": role, "change": "lost"})
        await election.resign()


def _end_with_the_lease(holding: asyncio.Task[None]) -> None:
    """A leader that lost its lease ends at once, whatever its threads are doing: another one may lead already."""
    if not holding.cancelled():
        end_process(str(holding.exception()))


def end_process(why: str) -> None:
    """End this process at once, from any thread."""
    log.warning("%s; exiting", why)
    logging.shutdown()
    os._exit(1)


async def _first(work: Awaitable[None], stop: asyncio.Event) -> bool:
    """Wait for the work or for the stop; returns whether it was the stop. An error of the work is raised."""
    working = asyncio.ensure_future(work)
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
        return stop.is_set()
    finally:
        stopping.cancel()
        if not working.done():
            working.cancel()
