"""Connections from the api to the leaders of other roles."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping

import grpc.aio

from peloton.api.limits import MESSAGE_BYTES_MAX, MESSAGE_SIZES
from peloton.errors import Unavailable
from services.servers.role_surface import AGENT_OPTION
from services.tls.transport import PLAINTEXT, Transport

LeaderLookup = Callable[[str], str | None]
"""Role -> ``host:port`` of its leader, None without one. Lookups may block, so they are called in a thread."""

ClusterLookup = Callable[[], Mapping[str, str]]
"""Cluster -> ``host:port`` of its host manager, "" without one, for all clusters. Lookups may block."""

ANSWER_BYTES_MAX = MESSAGE_BYTES_MAX - 2**20
"""Maximum size of an answer, which leaves space for the fields around it."""
CHANNELS_MAX = 64
"""Maximum number of open channels; leaders move rarely, so the oldest lead to former leaders."""

CLOSE_GRACE_S = 30.0
"""Time for calls in flight on a closed channel to end, in seconds."""

CHANNEL_OPTIONS = (
    *MESSAGE_SIZES,
    AGENT_OPTION,
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
    ("grpc.min_reconnect_backoff_ms", 5_000),  # for a leader briefly without cpu
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)


class AsyncLeaderChannels:
    """Channels shared by all calls, one per address. For one event loop only."""

    def __init__(self, leader: LeaderLookup, clusters: ClusterLookup = dict, transport: Transport = PLAINTEXT) -> None:
        self._transport = transport
        self._leader = leader
        self._clusters = clusters
        self._channels: OrderedDict[str, grpc.aio.Channel] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    async def to(self, role: str) -> grpc.aio.Channel:
        """Return the channel to the leader of ``role``. Raises Unavailable without a known leader."""
        address = await asyncio.to_thread(self._leader, role)
        if not address:
            raise Unavailable(f"no leader of role {role} is known: it is starting or being replaced, try again")
        return self._at(address)

    async def clusters(self) -> Mapping[str, str]:
        return await asyncio.to_thread(self._clusters)

    async def to_cluster(self, cluster: str) -> grpc.aio.Channel:
        """Return the channel to the host manager of a cluster. Raises Unavailable without a known one."""
        address = (await self.clusters()).get(cluster)
        if not address:
            which = f" of cluster {cluster}" if cluster else ""
            raise Unavailable(f"no host manager{which} is known: it is starting or being replaced, try again")
        return self._at(address)

    def _at(self, address: str) -> grpc.aio.Channel:
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = self._transport.open_async(address, CHANNEL_OPTIONS)
        self._channels.move_to_end(address)
        while len(self._channels) > CHANNELS_MAX:
            _, oldest = self._channels.popitem(last=False)
            self._close_soon(oldest)
        return channel

    async def close(self) -> None:
        channels = list(self._channels.values())
        self._channels.clear()
        for channel in channels:
            await channel.close()
        await asyncio.gather(*self._closing)

    def _close_soon(self, channel: grpc.aio.Channel) -> None:
        task = asyncio.create_task(channel.close(CLOSE_GRACE_S))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
