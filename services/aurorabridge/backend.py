"""Access of the bridge to Peloton: calls to role api over one channel."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, cast

import grpc.aio

from peloton.api.private.bulk_reads_pb2_grpc import BulkReadsStub
from peloton.api.v0.access.access_pb2_grpc import AccessServiceStub
from peloton.api.v0.short_names.respool_pb2_grpc import ResourceManagerStub
from peloton.api.v0.short_names.task_pb2_grpc import TaskManagerStub
from peloton.api.v1alpha.job.stateless.svc.stateless_svc_pb2_grpc import JobServiceStub
from peloton.api.v1alpha.pod.svc.pod_svc_pb2_grpc import PodServiceStub
from peloton.api.v1alpha.watch.svc.watch_svc_pb2_grpc import WatchServiceStub
from peloton.client import CHANNEL_OPTIONS, target
from services.access.forwarded import UserChannel
from services.aurorabridge.settings import DEFAULTS, BridgeSettings
from services.tls.transport import PLAINTEXT, Transport

if TYPE_CHECKING:
    from peloton.api.private.bulk_reads_pb2_grpc import BulkReadsAsyncStub
    from peloton.api.v0.access.access_pb2_grpc import AccessServiceAsyncStub
    from peloton.api.v0.short_names.respool_pb2_grpc import ResourceManagerAsyncStub
    from peloton.api.v0.short_names.task_pb2_grpc import TaskManagerAsyncStub
    from peloton.api.v1alpha.job.stateless.svc.stateless_svc_pb2_grpc import JobServiceAsyncStub
    from peloton.api.v1alpha.pod.svc.pod_svc_pb2_grpc import PodServiceAsyncStub
    from peloton.api.v1alpha.watch.svc.watch_svc_pb2_grpc import WatchServiceAsyncStub


class Backend:
    """Client of role api for one event loop. ``addresses`` are HOST:PORT, or several separated by commas.

    Raises InvalidArgument.
    """

    def __init__(self, addresses: str, settings: BridgeSettings = DEFAULTS, transport: Transport = PLAINTEXT) -> None:
        self._target, self._transport = target(addresses), transport
        self.settings = settings
        self.answered: dict[str, None] = {}
        """Ids of the updates whose start this process has answered, the oldest first."""

    @cached_property
    def channel(self) -> grpc.aio.Channel:
        return self._transport.open_async(self._target, CHANNEL_OPTIONS)

    @cached_property
    def user_channel(self) -> grpc.aio.Channel:
        """Return the channel whose calls carry the credentials of clients."""
        return cast("grpc.aio.Channel", UserChannel(self.channel))

    @property
    def proves_role(self) -> bool:
        """Return whether calls without credentials of a client have the rights of the bridge."""
        return self._transport.proves_roles

    @cached_property
    def access(self) -> AccessServiceAsyncStub:
        return AccessServiceStub(self.user_channel)

    async def close(self) -> None:
        await self.channel.close()

    @cached_property
    def jobs(self) -> JobServiceAsyncStub:
        return JobServiceStub(self.user_channel)

    @cached_property
    def pods(self) -> PodServiceAsyncStub:
        return PodServiceStub(self.user_channel)

    @cached_property
    def tasks(self) -> TaskManagerAsyncStub:
        return TaskManagerStub(self.user_channel)

    @cached_property
    def pools(self) -> ResourceManagerAsyncStub:
        return ResourceManagerStub(self.user_channel)

    @cached_property
    def bulk(self) -> BulkReadsAsyncStub:
        return BulkReadsStub(self.user_channel)

    @cached_property
    def watches(self) -> WatchServiceAsyncStub:
        return WatchServiceStub(self.user_channel)
