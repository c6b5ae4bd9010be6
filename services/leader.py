"""Leadership and discovery by a lease row: at most one live leader per role, and everybody can find it.

A leader that cannot renew gives up before its lease runs out, so there are never two that believe in themselves. One
that was stopped meanwhile, with its machine or alone, asks once whether anybody took its place, and goes on if not.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Protocol

import grpc

from peloton.api.limits import MESSAGE_SIZES
from peloton.errors import Unavailable

log = logging.getLogger(__name__)

RENEWALS_PER_TTL = 4
LATE_TRY_TTLS = 0.125
"""Of its ttl a leader that is late gives the last attempt: on time, that is still before its lease runs out."""
LOOKUP_CACHE_S = 1.0
CHANNELS_MAX = 64
"""Every new leader may have a new address; the oldest ones are long gone."""


class Leases(Protocol):
    """The part of storage that holds lease rows. Times are unix seconds."""

    def acquire_lease(self, role: str, owner: str, address: str, ttl_s: float, now_s: float) -> bool: ...
    def renew_lease(self, role: str, owner: str, address: str, ttl_s: float, now_s: float) -> bool: ...
    def release_lease(self, role: str, owner: str) -> bool: ...
    def leader(self, role: str, now_s: float) -> str | None: ...
    def clusters(self, now_s: float) -> dict[str, str]: ...


class LeaderElection:
    def __init__(self, leases: Leases, role: str, ttl_s: float) -> None:
        self._leases = leases
        self._role = role
        self._ttl_s = ttl_s
        self._address = ""  # a leader that does not serve yet cannot be found
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self._renewed_s = 0.0  # on the monotonic clock: when the last successful attempt began
        self._turn = asyncio.Lock()  # a renewal with the old address must not overtake an announcement

    async def win(self) -> None:
        """Return when this process leads."""
        waited = False
        while not await self._try(self._leases.acquire_lease):
            if not waited:
                log.info("%s: another process leads; standing by", self._role)
            waited = True
            await asyncio.sleep(self._ttl_s / RENEWALS_PER_TTL)

    async def announce(self, address: str) -> None:
        """Let everybody find this leader; raises Unavailable when leadership is lost already."""
        self._address = address
        if not await self._try(self._leases.renew_lease):
            raise Unavailable(f"{self._role}: leadership lost")
        log.info("%s leads at %s", self._role, address)

    async def hold(self) -> None:
        """Renew until leadership is lost; then raise Unavailable. The process must stop acting as leader at once."""
        is_late = False
        while not is_late:
            await asyncio.sleep(max(min(self._ttl_s / RENEWALS_PER_TTL, self._safe_s()), 0.0))
            left_s = self._safe_s()
            is_late = left_s <= 0
            try:
                # Storage that does not answer must not keep us from noticing that the lease runs out.
                async with asyncio.timeout(self._ttl_s * LATE_TRY_TTLS if is_late else left_s):
                    if not await self._try(self._leases.renew_lease):
                        break
                    is_late = False
            except Exception as error:
                log.warning("%s: lease not renewed: %s", self._role, str(error) or type(error).__name__)
        raise Unavailable(f"{self._role}: leadership lost")

    async def resign(self) -> None:
        """Let the next one lead at once. When storage is away, the lease runs out by itself."""
        release = asyncio.to_thread(self._leases.release_lease, self._role, self._owner)
        try:
            async with asyncio.timeout(self._ttl_s):
                await release
        except Exception as error:
            log.warning("%s: lease not released: %s", self._role, str(error) or type(error).__name__)

    def _safe_s(self) -> float:
        """Seconds for which nobody else can lead, with a margin."""
        return self._renewed_s + self._ttl_s * (1 - 1 / RENEWALS_PER_TTL) - time.monotonic()

    async def _try(self, attempt: Callable[[str, str, str, float, float], bool]) -> bool:
        async with self._turn:
            started_s = time.monotonic()
            won = await asyncio.to_thread(attempt, self._role, self._owner, self._address, self._ttl_s, time.time())
            if won:
                self._renewed_s = started_s
            return won


class LeaderChannels:
    """gRPC channels to the leaders of roles. Thread-safe; leaders are looked up at most once per LOOKUP_CACHE_S."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases
        self._lock = threading.Lock()
        self._found: dict[str, tuple[float, str | None]] = {}
        self._channels: dict[str, grpc.Channel] = {}  # the last used last
        self._clusters: tuple[float, dict[str, str]] = (0.0, {})

    def leader(self, role: str) -> str | None:
        with self._lock:
            looked_s, address = self._found.get(role, (0.0, None))
        if address is None or time.monotonic() - looked_s > LOOKUP_CACHE_S:
            address = self._leases.leader(role, time.time()) or None
            with self._lock:
                self._found[role] = (time.monotonic(), address)
        return address

    def channel(self, role: str) -> Callable[[], grpc.Channel]:
        def find() -> grpc.Channel:
            address = self.leader(role)
            if address is None:
                raise Unavailable(f"no {role} leads at present")
            return self._to(address)

        return find

    def clusters(self) -> Mapping[str, str]:
        """Every cluster -> address of its host manager, empty while none leads."""
        with self._lock:
            looked_s, found = self._clusters
        if not any(found.values()) or time.monotonic() - looked_s > LOOKUP_CACHE_S:
            found = self._leases.clusters(time.time())
            with self._lock:
                self._clusters = (time.monotonic(), found)
        return found

    def cluster_channel(self, cluster: str) -> Callable[[], grpc.Channel]:
        """As ``channel``, to the host manager of a cluster."""

        def find() -> grpc.Channel:
            if address := self.clusters().get(cluster):
                return self._to(address)
            raise Unavailable(f"no host manager of cluster {cluster} leads at present")

        return find

    def _to(self, address: str) -> grpc.Channel:
        with self._lock:
            if address not in self._channels:
                while len(self._channels) >= CHANNELS_MAX:
                    self._channels.pop(next(iter(self._channels))).close()
                self._channels[address] = grpc.insecure_channel(
                    address, options=[*MESSAGE_SIZES, ("grpc.max_reconnect_backoff_ms", 1000)]
                )
            channel = self._channels[address] = self._channels.pop(address)
            return channel

    def close(self) -> None:
        with self._lock:
            for channel in self._channels.values():
                channel.close()
            self._channels.clear()
