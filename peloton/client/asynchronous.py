"""Client of the public API for an event loop: as ``Client``, with calls to be awaited.

    async with AsyncClient("localhost:5397") as client:
        job_id = (await client.jobs.Create(request)).jobId

It belongs to the event loop in which its first call is made.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
import grpc.aio

from peloton.api.mesos_access import OPEN, MesosAccess
from peloton.client.credentials import Credentials, find_headers
from peloton.client.repeats import WATCH_POLICY, Repeats, RetryPolicy, is_safe
from peloton.client.services import CHANNEL_OPTIONS, DEFAULT_ADDRESS, DEFAULT_TIMEOUT_S, Metadata, Services, target
from peloton.client.tls import Tls
from peloton.errors import Unavailable

if TYPE_CHECKING:
    from peloton.api.v1alpha.job.stateless.stateless_pb2 import JobSummary, UpdateSpec, WorkflowStatus
    from peloton.api.v1alpha.pod.pod_pb2 import PodSummary
    from peloton.api.v1alpha.watch.svc.watch_svc_pb2 import WatchRequest, WatchResponse
    from peloton.client.operations import JobLike, Progress
    from peloton.client.steps import Step, Steps
    from peloton.client.watching import Changes, Resumption, Selection

T = TypeVar("T")


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
        tls: Tls | None = None,
        agents: MesosAccess = OPEN,
        metadata: Metadata | None = None,
        token: str = "",
        token_file: str = "",
        username: str = "",
        password: str = "",
    ) -> None:
        given = Credentials(token, token_file, username, password)
        super().__init__(address, timeout_s, overrides, tls, metadata or find_headers(address, given))
        self.agents = agents
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
            self._channels[service, streams_end] = self.opens.open_async(
                target(address),
                CHANNEL_OPTIONS,
                interceptors=[UnaryCalls(defaults), Watches(defaults), StreamedRequests(defaults)],
            )
        return self._channels[service, streams_end]

    # -- operations

    async def submit(self, pool: str, config: JobLike, *, job_id: str = "") -> str:
        """Do the same as ``Client.submit``."""
        from peloton.client import operations

        return await self.run(operations.submit(pool, config, job_id))

    async def progress(self, job_id: str) -> Progress:
        """Do the same as ``Client.progress``."""
        from peloton.client import operations

        return await self.run(operations.read_progress(job_id))

    async def wait(self, job_id: str, timeout_s: float | None = None, policy: RetryPolicy = WATCH_POLICY) -> Progress:
        """Do the same as ``Client.wait``."""
        from peloton.client import operations

        return await self.run(operations.wait(job_id, timeout_s, policy))

    async def logs(self, job_id: str, instance: int = 0, file: str = "stdout", run_id: str = "") -> str:
        """Do the same as ``Client.logs``."""
        from peloton.client import operations

        return await self.run(operations.read_log(job_id, instance, file, run_id))

    async def stop(self, job_id: str, instances: Sequence[int] = ()) -> None:
        """Do the same as ``Client.stop``."""
        from peloton.client import operations

        await self.run(operations.stop(job_id, instances))

    async def scale(self, job_id: str, instance_count: int, update: UpdateSpec | None = None) -> str:
        """Do the same as ``Client.scale``."""
        from peloton.client import operations

        return await self.run(operations.scale(job_id, instance_count, update))

    async def wait_for_update(
        self, job_id: str, update_key: str, timeout_s: float | None = None, policy: RetryPolicy = WATCH_POLICY
    ) -> WorkflowStatus:
        """Do the same as ``Client.wait_for_update``."""
        from peloton.client import operations

        return await self.run(operations.wait_for_update(job_id, update_key, timeout_s, policy))

    async def run(self, steps: Steps[T]) -> T:
        """Do the steps of an operation and return its result."""
        try:
            step = next(steps)
            while True:
                try:
                    result = await self._do(step)
                except (grpc.RpcError, OSError) as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(result)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    async def _do(self, step: Step) -> Any:
        from peloton.client.steps import Call, Sleep, fetch

        if isinstance(step, Call):
            answer = getattr(getattr(self, step.service), step.method)(step.request)
            return [each async for each in answer] if step.is_stream else await answer
        return await (
            self.sleep(step.seconds) if isinstance(step, Sleep) else asyncio.to_thread(fetch, step, self.agents)
        )

    # -- watches

    def watch(self, request: WatchRequest, policy: RetryPolicy = WATCH_POLICY) -> AsyncGenerator[WatchResponse, None]:
        """Do the same as ``Client.watch``."""
        from peloton.client.watching import Resumption

        return self._resume(Resumption(request, self.retry, policy))

    def watch_pods(
        self, job_id: str, *, since: int = 0, policy: RetryPolicy = WATCH_POLICY
    ) -> AsyncGenerator[Changes[PodSummary], None]:
        """Do the same as ``Client.watch_pods``."""
        from peloton.client.watching import PodSelection

        return self._watch_changes(PodSelection(job_id), since, policy)

    def watch_jobs(
        self,
        job_ids: Sequence[str] = (),
        *,
        labels: Mapping[str, str] | None = None,
        since: int = 0,
        policy: RetryPolicy = WATCH_POLICY,
    ) -> AsyncGenerator[Changes[JobSummary], None]:
        """Do the same as ``Client.watch_jobs``."""
        from peloton.client.watching import JobSelection

        return self._watch_changes(JobSelection(job_ids, labels or {}), since, policy)

    async def _watch_changes(
        self, selection: Selection, since: int, policy: RetryPolicy
    ) -> AsyncGenerator[Changes[Any], None]:
        from peloton.client.steps import list_all
        from peloton.client.watching import Resumption, changes_of

        watch = Resumption(selection.request(since), self.retry, policy, lists=True)
        async with aclosing(self._resume(watch)) as messages:
            async for message in messages:
                listed = None
                if watch.must_list:
                    listed = await self.run(list_all(policy, selection.listing))
                yield changes_of(watch, selection, message, listed)

    async def _resume(self, watch: Resumption) -> AsyncGenerator[WatchResponse, None]:
        while True:
            stream = self.watches.Watch(watch.request)
            try:
                async for message in stream:
                    if watch.note(message):
                        yield message
                raise Unavailable("the API ended the watch without a reason")
            except grpc.RpcError as error:
                wait_s = watch.next_wait_s(error)
                if wait_s is None:
                    raise
            finally:
                stream.cancel()
            await self.sleep(wait_s)


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

    async def fill_in(self, details: grpc.aio.ClientCallDetails, timeout_s: float | None) -> grpc.aio.ClientCallDetails:
        client, service = self.client, self.service
        client.last_address = self.address
        headers = await asyncio.to_thread(client.headers_of, service) if client.renews else client.headers_of(service)
        return grpc.aio.ClientCallDetails(
            method=details.method,
            timeout=timeout_s if details.timeout is None else details.timeout,
            metadata=grpc.aio.Metadata(*(details.metadata or ()), *headers),
            credentials=details.credentials,
            wait_for_ready=details.wait_for_ready,
        )


# grpc takes an interceptor for one kind of calls only, the first of its base classes.
@dataclass(frozen=True)
class UnaryCalls(grpc.aio.UnaryUnaryClientInterceptor):
    defaults: CallDefaults

    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        details = await self.defaults.fill_in(client_call_details, self.defaults.client.timeout_s)
        method = details.method.decode() if isinstance(details.method, bytes) else details.method
        return await self.defaults.repeat(lambda: continuation(details, request), is_safe(method, request))


@dataclass(frozen=True)
class Watches(grpc.aio.UnaryStreamClientInterceptor):
    defaults: CallDefaults

    async def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        details = await self.defaults.fill_in(client_call_details, self.defaults.stream_timeout_s)
        return await continuation(details, request)


@dataclass(frozen=True)
class StreamedRequests(grpc.aio.StreamUnaryClientInterceptor):
    defaults: CallDefaults

    async def intercept_stream_unary(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        """Repeat the call if its messages are no iterator, and so can be sent again."""
        details = await self.defaults.fill_in(client_call_details, self.defaults.stream_timeout_s)
        if isinstance(request_iterator, Iterator | AsyncIterator):
            return await continuation(details, request_iterator)
        return await self.defaults.repeat(lambda: continuation(details, request_iterator), is_repeatable=False)
