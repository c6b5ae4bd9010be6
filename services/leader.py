"""Discovery of leaders: gRPC channels to the processes that lead roles."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

import grpc

from peloton.api.limits import MESSAGE_SIZES
from peloton.errors import Unavailable
from services.election.port import Directory
from services.servers.role_surface import AGENT_OPTION
from services.tls.transport import PLAINTEXT, Transport

LOOKUP_CACHE_S = 1.0
CHANNELS_MAX = 64
"""Every new leader may have a new address; the oldest ones are long gone."""


class LeaderChannels:
    """Caches gRPC channels to the leaders of roles. Thread-safe; a leader is read at most once per LOOKUP_CACHE_S."""

    def __init__(self, directory: Directory, transport: Transport = PLAINTEXT) -> None:
        self._directory = directory
        self.transport = transport
        self._lock = threading.Lock()
        self._found: dict[str, tuple[float, str | None]] = {}
        self._channels: dict[str, grpc.Channel] = {}  # the last used last
        self._clusters: tuple[float, dict[str, str]] = (0.0, {})

    def leader(self, role: str) -> str | None:
        with self._lock:
            read_s, address = self._found.get(role, (0.0, None))
        if address is None or time.monotonic() - read_s > LOOKUP_CACHE_S:
            address = self._directory.leader(role, time.time()) or None
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
        """Return the address of each cluster's host manager, empty for a cluster without a leader."""
        with self._lock:
            read_s, found = self._clusters
        if not any(found.values()) or time.monotonic() - read_s > LOOKUP_CACHE_S:
            found = self._directory.clusters(time.time())
            with self._lock:
                self._clusters = (time.monotonic(), found)
        return found

    def cluster_channel(self, cluster: str) -> Callable[[], grpc.Channel]:
        """Return a function like that of ``channel``, for the host manager of a cluster."""

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
                self._channels[address] = self.transport.open(
                    address, options=[*MESSAGE_SIZES, AGENT_OPTION, ("grpc.max_reconnect_backoff_ms", 1000)]
                )
            channel = self._channels[address] = self._channels.pop(address)
            return channel

    def close(self) -> None:
        with self._lock:
            for channel in self._channels.values():
                channel.close()
            self._channels.clear()
