"""Connection to Temporal that follows its credentials: new ones are used without a restart.

An SDK's client has the certificate and the key of its first connection for ever. So the client of a process calls by a
connection that is replaced when the configuration has other credentials.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from google.protobuf.message import Message
from temporalio.client import Client
from temporalio.envconfig import ClientConnectConfig
from temporalio.service import ServiceClient
from temporalio.worker import Worker

from peloton.errors import InvalidArgument
from services.ticks import ticking

log = logging.getLogger(__name__)

PERIOD_S = 5.0
"""Seconds between reads of the configuration."""
CONNECT_S = 10.0
"""Timeout of a new connection, in seconds."""
QUIET_FAILURES = 1
"""Failures in a row that are not logged: a certificate and its key are seldom replaced in the same instant."""
SERVICES = ("workflow_service", "operator_service", "cloud_service", "test_service", "health_service")


class RenewableConnection(ServiceClient):
    """Calls go by the newest connection. The one before ends with its last call."""

    def __init__(self, first: ServiceClient) -> None:
        super().__init__(first.config)
        self._newest = first

    def has_credentials(self) -> bool:
        return bool(self.config.tls or self.config.api_key)

    def uses(self, config: ClientConnectConfig) -> bool:
        """Return whether the newest connection has the credentials of a configuration."""
        return _credentials_of(config) == (self.config.tls, self.config.api_key, self.config.rpc_metadata)

    async def renew(self, config: ClientConnectConfig) -> None:
        """Connect to the same server with the credentials of a configuration. Raises RuntimeError, ValueError and
        TimeoutError; the connection before is kept then.
        """
        tls, api_key, metadata = _credentials_of(config)
        newer = dataclasses.replace(self.config, tls=tls, api_key=api_key, rpc_metadata=metadata, lazy=False)
        async with asyncio.timeout(CONNECT_S):
            connection = await ServiceClient.connect(newer)
        for service in SERVICES:  # they refer to it in turn: it would stay open until garbage is collected
            vars(self._newest).pop(service, None)
        self._newest, self.config = connection, newer

    @property
    def worker_service_client(self) -> Any:
        return self._newest.worker_service_client

    def update_rpc_metadata(self, metadata: Mapping[str, str | bytes]) -> None:
        self._newest.update_rpc_metadata(metadata)

    def update_api_key(self, api_key: str | None) -> None:
        self._newest.update_api_key(api_key)

    async def _rpc_call(
        self,
        rpc: str,
        req: Message,
        resp_type: type[Any],
        *,
        service: str,
        retry: bool,
        metadata: Mapping[str, str | bytes],
        timeout: timedelta | None,
    ) -> Any:
        return await self._newest._rpc_call(
            rpc, req, resp_type, service=service, retry=retry, metadata=metadata, timeout=timeout
        )


def _credentials_of(config: ClientConnectConfig) -> tuple[Any, str | None, Mapping[str, str | bytes]]:
    return config.get("tls"), config.get("api_key"), dict(config.get("rpc_metadata", {}))


@asynccontextmanager
async def renewing(
    client: Client, read: Callable[[], ClientConnectConfig], workers: Sequence[Worker] = (), period_s: float = PERIOD_S
) -> AsyncIterator[None]:
    """Renew the connection of a renewable client, and of the workers that poll by it, until the block ends. ``read``
    reads the configuration. A connection without credentials stays as it is.
    """
    connection = client.service_client
    if not isinstance(connection, RenewableConnection) or not connection.has_credentials():
        yield
        return
    task = asyncio.create_task(
        _follow(client, connection, read, workers, period_s), name="renewal of the connection to Temporal"
    )
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _follow(
    client: Client,
    connection: RenewableConnection,
    read: Callable[[], ClientConnectConfig],
    workers: Sequence[Worker],
    period_s: float,
) -> None:
    failures, behind = 0, list[Worker]()  # workers that poll by an older connection
    with ticking("renewal of the connection to Temporal", period_s) as loop:
        while True:
            await asyncio.sleep(period_s)
            loop.tick()
            try:
                config = await asyncio.to_thread(read)
                if not connection.uses(config):
                    await connection.renew(config)
                    behind = [*workers]
                elif not behind:
                    failures = 0
                    continue
                while behind:
                    behind[-1].client = client
                    behind.pop()
            except (InvalidArgument, RuntimeError, ValueError, OSError) as error:
                failures += 1
                if failures == QUIET_FAILURES + 1:
                    why = str(error) or f"no answer within {CONNECT_S:g} s"
                    log.error("credentials of Temporal have changed and cannot be used, the old ones stay: %s", why)
                continue
            failures = 0
            log.info("credentials of Temporal have changed and are in use at %s", connection.config.target_host)
