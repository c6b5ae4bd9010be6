"""Leadership by a lease row: at most one process leads a role at a time, and any process can find it.

A leader whose storage does not answer resigns before its lease expires. A leader whose renewals are late, because
storage is slow or because its process or machine was stopped, asks storage whether another process has taken the lease,
and continues to lead if not.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import socket
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from peloton.errors import Unavailable
from peloton.ports import LeaseRecords
from services.fence import Fence, boot_s
from services.telemetry.metrics import counter

log = logging.getLogger(__name__)

_LATE = counter("peloton.leader.late_renewals")

T = TypeVar("T", bound=int)

RENEWALS_PER_TTL = 4
LATE_TRY_TTLS = 0.125
"""Fraction of the ttl after which a late leader asks storage once whether it still leads, and for which it waits for
the answer before it resigns. The first question precedes the expiry of its lease, so that two processes never lead
together for longer than twice this time.
"""


class LeaderElection:
    def __init__(
        self,
        leases: LeaseRecords,
        role: str,
        ttl_s: float,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        lost: Callable[[str], None] = log.error,
    ) -> None:
        """``clock``: that of the event loop. ``wall``: of the lease rows. ``lost``: called with the reason by the fence
        that finds another leader."""
        self._leases = leases
        self._role = role
        self._ttl_s = ttl_s
        self._clock = clock
        self._wall = wall
        self._address = ""  # a leader that does not serve yet cannot be found
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self.fence = Fence(role, self._owner, ttl_s, self._renew_now, lost)
        self._renewed_s = 0.0  # when the last successful attempt began
        self._turn = asyncio.Lock()  # a renewal with the old address must not overtake an announcement
        # Separate threads: other work of the process must not delay a renewal, nor must renewals that hang, each in
        # its thread, delay the read of the leader.
        self._threads = ThreadPoolExecutor(2, thread_name_prefix=f"{role} lease")
        self._asking = ThreadPoolExecutor(1, thread_name_prefix=f"{role} lease question")

    async def win(self, stand_by: Callable[[], None] = lambda: None) -> None:
        """Return when this process has the lease; call ``stand_by`` when another process has it."""
        waited = False
        while not (epoch := await self._try(self._leases.acquire)):
            if not waited:
                log.info("%s: another process is the leader, standing by", self._role)
                stand_by()
            waited = True
            await asyncio.sleep(self._ttl_s / RENEWALS_PER_TTL)
        self.fence.begin(epoch)

    async def announce(self, address: str) -> None:
        """Publish the address of this leader. Raises Unavailable when leadership is already lost."""
        self._address = address
        if not await self._try(self._leases.renew):
            raise Unavailable(f"{self._role}: leadership lost")
        log.info("%s: became leader at %s, epoch %d", self._role, address, self.fence.epoch)

    async def hold(self) -> None:
        """Renew until leadership is lost; then raise Unavailable. The process must stop acting as leader at once."""
        renewal: asyncio.Task[bool] | None = None
        began_s, asked_s = 0.0, -math.inf
        try:
            while True:
                if renewal is None:
                    await asyncio.sleep(self._pause_s(asked_s))
                    renewal, began_s = asyncio.create_task(self._try(self._leases.renew)), self._clock()
                await asyncio.wait({renewal}, timeout=self._question_due_s(asked_s))
                if renewal.done():
                    if self._outcome(renewal) is False:
                        break
                    renewal = None
                elif self._clock() - began_s > self._ttl_s:
                    renewal.cancel()  # its connection may be dead
                    renewal = None
                if not self._question_due_s(asked_s):
                    asked_s = self._clock()
                    if not await self._leads_still():
                        break
        finally:
            if renewal is not None:
                renewal.cancel()
        raise Unavailable(f"{self._role}: leadership lost")

    def _outcome(self, renewal: asyncio.Task[bool]) -> bool | None:
        """Return whether the lease was renewed; None for a failed attempt."""
        if error := renewal.exception():
            _LATE.add(1, {"lease": self._role})
            log.warning("%s: lease not renewed: %s", self._role, str(error) or type(error).__name__)
            return None
        return renewal.result()

    async def _leads_still(self) -> bool:
        """Return whether no other process has taken the lease. Storage may answer this read while it is too busy for a
        renewal; when it does not answer at all, another process may still reach it.
        """
        loop = asyncio.get_running_loop()
        asked = loop.run_in_executor(self._asking, self._leases.holds, self._role, self._owner)
        if await self._is_answered(asked) and not asked.exception():
            if asked.result():
                _LATE.add(1, {"lease": self._role})
                log.warning("%s: lease expired and not renewed; no other process is leader", self._role)
            return asked.result()
        asked.cancel()
        log.warning("%s: cannot read the leader from storage", self._role)
        return False

    async def _is_answered(self, question: asyncio.Future[bool]) -> bool:
        """Wait for the answer; return whether it came in time. Time in which the whole process was stopped does not
        count.
        """
        grace_s = self._ttl_s * LATE_TRY_TTLS
        while True:
            began_s = self._clock()
            await asyncio.wait({question}, timeout=grace_s)
            stood_still_s = self._clock() - began_s - grace_s
            if question.done() or stood_still_s < grace_s:
                return question.done()

    async def resign(self) -> None:
        """Release the lease, so that the next process leads at once. The lease expires by itself when storage is
        unavailable.
        """
        self.fence.end()
        release = asyncio.to_thread(self._leases.release, self._role, self._owner)
        try:
            async with asyncio.timeout(self._ttl_s):
                await release
        except Exception as error:
            log.warning("%s: lease not released: %s", self._role, str(error) or type(error).__name__)
        self._threads.shutdown(wait=False)
        self._asking.shutdown(wait=False)

    def _safe_s(self) -> float:
        """Seconds for which no other process can lead, with a margin."""
        return self._renewed_s + self._ttl_s * (1 - 1 / RENEWALS_PER_TTL) - self._clock()

    def _question_due_s(self, asked_s: float) -> float:
        """Return the seconds until this leader must ask whether it still leads. An answer is as old as its question."""
        return max(self._safe_s(), asked_s + self._ttl_s * LATE_TRY_TTLS - self._clock(), 0.0)

    def _pause_s(self, asked_s: float) -> float:
        """Return the seconds until the next renewal."""
        return min(self._ttl_s / RENEWALS_PER_TTL, self._question_due_s(asked_s))

    async def _try(self, attempt: Callable[[str, str, str, float, float], T]) -> T:
        """Attempt to acquire or renew. The lease begins with the attempt."""
        async with self._turn:
            started_s, booted_s = self._clock(), boot_s()
            won = await self._run(attempt, self._role, self._owner, self._address, self._ttl_s, self._wall())
            if won:
                self._renewed_s = max(self._renewed_s, started_s)
                self.fence.extend(booted_s + self._ttl_s)
            return won

    def _renew_now(self) -> bool:
        """Renew on the thread of the caller, which must not act outside the lease. An address announced meanwhile is
        written again by the next renewal."""
        booted_s = boot_s()
        won = self._leases.renew(self._role, self._owner, self._address, self._ttl_s, self._wall())
        if won:
            self.fence.extend(booted_s + self._ttl_s)
        return won

    async def _run(self, call: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, *args)
