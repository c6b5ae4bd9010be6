"""Client of the public API for threads: stubs under the names of the wire, with defaults for every call.

    with Client("localhost:5397") as client:
        job_id = client.jobs.Create(request).jobId

Every call carries the headers that the original's servers require, ends after ``timeout_s`` unless the caller sets a
timeout, and is repeated where that is safe: see ``RetryPolicy``. Watches and streams of requests end when the caller
ends them. Errors are ``grpc.RpcError``; the caller has to check for errors inside a response. Thread-safe.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple

import grpc

from peloton.client.repeats import Repeats, RetryPolicy, is_safe
from peloton.client.services import CHANNEL_OPTIONS, DEFAULT_ADDRESS, DEFAULT_TIMEOUT_S, Services, headers, target


class Client(Services):
    """Stubs for the services of one Peloton installation.

    ``address`` may name several APIs, separated by commas: calls go round robin to available ones. ``overrides`` sets
    the address of a service (JOBMGR, RESMGR, HOSTMGR); the others are at ``address``. ``timeout_s`` bounds each
    attempt of a call, ``retry`` the repeats.
    """

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        overrides: Mapping[str, str] | None = None,
        retry: RetryPolicy | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(address, timeout_s, overrides)
        self.retry = retry or RetryPolicy()
        self.sleep = sleep
        self._channels: dict[str, grpc.Channel] = {}

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def channel(self, service: str, streams_end: bool = True) -> grpc.Channel:
        address = self.address_of(service)
        if address not in self._channels:
            self._channels[address] = grpc.insecure_channel(target(address), options=CHANNEL_OPTIONS)
        return grpc.intercept_channel(self._channels[address], CallDefaults(self, service, address, streams_end))


class CallDetails(NamedTuple):
    """Details of a call for grpc, which requires only an object with these attributes."""

    method: str
    timeout: float | None
    metadata: Any
    credentials: grpc.CallCredentials | None
    wait_for_ready: bool | None
    compression: grpc.Compression | None


@dataclass(frozen=True)
class CallDefaults(
    grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor, grpc.StreamUnaryClientInterceptor
):
    """Sets the timeout and the headers, and repeats calls."""

    client: Client
    service: str
    address: str
    streams_end: bool

    def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        is_repeatable = is_safe(client_call_details.method, request)
        return self.repeat(
            lambda: continuation(self.fill_in(client_call_details, self.client.timeout_s), request), is_repeatable
        )

    def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return continuation(self.fill_in(client_call_details, self.stream_timeout_s), request)

    def intercept_stream_unary(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        """Repeat the call if its messages are no iterator, and so can be sent again."""

        def call() -> Any:
            return continuation(self.fill_in(client_call_details, self.stream_timeout_s), iter(request_iterator))

        return call() if isinstance(request_iterator, Iterator) else self.repeat(call, is_repeatable=False)

    @property
    def stream_timeout_s(self) -> float | None:
        return self.client.timeout_s if self.streams_end else None

    def repeat(self, send: Callable[[], Any], is_repeatable: bool) -> Any:
        repeats = Repeats(self.client.retry, is_repeatable)
        while True:
            call = send()
            if call.code() is grpc.StatusCode.OK:
                return call
            wait_s = repeats.next_wait_s(call)
            if wait_s is None:
                return call
            self.client.sleep(wait_s)

    def fill_in(self, details: Any, timeout_s: float | None) -> CallDetails:
        self.client.last_address = self.address
        return CallDetails(
            method=details.method,
            timeout=timeout_s if details.timeout is None else details.timeout,
            metadata=[*(details.metadata or ()), *headers(self.service)],
            credentials=details.credentials,
            wait_for_ready=getattr(details, "wait_for_ready", None),
            compression=getattr(details, "compression", None),
        )
