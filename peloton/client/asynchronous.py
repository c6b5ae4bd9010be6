"""Client of the public API for an event loop: as ``Client``, with calls to be awaited.

    async with AsyncClient("localhost:5397") as client:
        job_id = (await client.jobs.Create(request)).jobId

It belongs to the event loop in which its first call is made.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import grpc
import grpc.aio

from peloton.client.repeats import Repeats, RetryPolicy, is_safe
from peloton.client.services import CHANNEL_OPTIONS, DEFAULT_ADDRESS, DEFAULT_TIMEOUT_S, Services, headers, target


class AsyncClient(Services):
    """Stubs for the services of one Peloton installation. The arguments are those of ``Client``."""

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        overrides: Mapping[str, str] | None = None,
        retry: RetryPolicy | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        super().__init__(address, timeout_s, overrides)
        self.retry = retry or RetryPolicy()
        self.sleep = sleep
        self._channels: dict[tuple[str, bool], grpc.aio.Channel] = {}

    async def close(self) -> None:
        channels = list(self._channels.values())
        self._channels.clear()
        for channel in channels:
            await channel.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def channel(self, service: str, streams_end: bool = True) -> grpc.aio.Channel:
        """Return a channel, whose interceptors grpc wants to know at its creation. Those of one address share its
        connections.
        """
        if (service, streams_end) not in self._channels:
            address = self.address_of(service)
            defaults = CallDefaults(self, service, address, streams_end)
            self._channels[service, streams_end] = grpc.aio.insecure_channel(
                target(address),
                options=CHANNEL_OPTIONS,
                interceptors=[UnaryCalls(defaults), Watches(defaults), StreamedRequests(defaults)],
            )
        return self._channels[service, streams_end]


@dataclass(frozen=True)
class CallDefaults:
    """Sets the timeout and the headers, and repeats calls."""

    client: AsyncClient
    service: str
    address: str
    streams_end: bool

    @property
    def stream_timeout_s(self) -> float | None:
        return self.client.timeout_s if self.streams_end else None

    async def repeat(self, send: Callable[[], Awaitable[Any]], is_repeatable: bool) -> Any:
        repeats = Repeats(self.client.retry, is_repeatable)
        while True:
            call = await send()
            try:
                await call
            except grpc.aio.AioRpcError as error:
                wait_s = repeats.next_wait_s(error)
                if wait_s is None:
                    return call
            else:
                return call
            await self.client.sleep(wait_s)

    def fill_in(self, details: grpc.aio.ClientCallDetails, timeout_s: float | None) -> grpc.aio.ClientCallDetails:
        self.client.last_address = self.address
        return grpc.aio.ClientCallDetails(
            method=details.method,
            timeout=timeout_s if details.timeout is None else details.timeout,
            metadata=grpc.aio.Metadata(*(details.metadata or ()), *headers(self.service)),
            credentials=details.credentials,
            wait_for_ready=details.wait_for_ready,
        )


# grpc takes an interceptor for one kind of calls only, the first of its base classes.
@dataclass(frozen=True)
class UnaryCalls(grpc.aio.UnaryUnaryClientInterceptor):
    defaults: CallDefaults

    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        details = self.defaults.fill_in(client_call_details, self.defaults.client.timeout_s)
        method = details.method.decode() if isinstance(details.method, bytes) else details.method
        return await self.defaults.repeat(lambda: continuation(details, request), is_safe(method, request))


@dataclass(frozen=True)
class Watches(grpc.aio.UnaryStreamClientInterceptor):
    defaults: CallDefaults

    async def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        details = self.defaults.fill_in(client_call_details, self.defaults.stream_timeout_s)
        return await continuation(details, request)


@dataclass(frozen=True)
class StreamedRequests(grpc.aio.StreamUnaryClientInterceptor):
    defaults: CallDefaults

    async def intercept_stream_unary(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        """Repeat the call if its messages are no iterator, and so can be sent again."""
        details = self.defaults.fill_in(client_call_details, self.defaults.stream_timeout_s)
        if isinstance(request_iterator, Iterator | AsyncIterator):
            return await continuation(details, request_iterator)
        return await self.defaults.repeat(lambda: continuation(details, request_iterator), is_repeatable=False)
