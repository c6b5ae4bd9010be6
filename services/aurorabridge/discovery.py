"""Registration of a bridge in ZooKeeper, where Aurora's clients look for a scheduler: a member of a ServerSet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import orjson
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

log = logging.getLogger(__name__)

PREFIX = "member_"
NODE = "_aurorabridge_node"
"""The node that the original keeps next to the members."""
CHECK_S = 2.0
"""Time between checks of the member, in seconds."""
SESSION_S = 10.0


class Member:
    """Member of one bridge. ``address``: zk://HOSTS/PATH. The node is ephemeral: it goes with the session."""

    def __init__(self, address: str, host: str, port: int, new_client: Callable[..., Any] = KazooClient) -> None:
        hosts, _, path = address.removeprefix("zk://").partition("/")
        endpoint = {"host": host, "port": port}
        member = {"serviceEndpoint": endpoint, "additionalEndpoints": {"http": endpoint}, "status": "ALIVE"}
        self._path = f"/{path}"
        self._data = orjson.dumps(member)
        self._client = new_client(hosts=hosts, timeout=SESSION_S)
        self._client.start_async()

    def check(self) -> None:
        """Create the member unless it is there for the present session. Raises KazooException."""
        if not self._client.connected:
            return
        session = self._client.client_id[0]
        self._client.ensure_path(f"{self._path}/{NODE}")
        for name in self._client.get_children(self._path):
            found = self._client.exists(f"{self._path}/{name}") if name.startswith(PREFIX) else None
            if found is not None and found.ephemeralOwner == session:
                return
        made = self._client.create(f"{self._path}/{PREFIX}", self._data, ephemeral=True, sequence=True)
        log.info("registered in ZooKeeper as %s", made)

    def close(self) -> None:
        """End the session, and with it the member."""
        self._client.stop()
        self._client.close()


async def keep_registered(member: Member) -> None:
    """Check the member again and again until this is cancelled; ZooKeeper may be away, or end the session."""
    fault = ""
    try:
        while True:
            try:
                await asyncio.to_thread(member.check)
                fault = ""
            except (KazooException, KazooTimeoutError) as error:
                if str(error) != fault:
                    log.warning("not registered in ZooKeeper, retrying: %s %s", type(error).__name__, error)
                fault = str(error)
            await asyncio.sleep(CHECK_S)
    finally:
        await asyncio.to_thread(member.close)
