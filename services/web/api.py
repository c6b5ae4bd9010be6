"""Access of the pages to Peloton: its public API, over one channel to role api."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, cast

import grpc.aio

from peloton.api.v0.access.access_pb2_grpc import AccessServiceStub
from peloton.api.v0.explain.explain_pb2_grpc import ExplainServiceStub
from peloton.api.v0.history.history_pb2_grpc import HistoryServiceStub
from peloton.api.v0.host.svc.host_svc_pb2_grpc import HostServiceStub
from peloton.api.v0.maintenance.maintenance_pb2_grpc import MaintenanceServiceStub
from peloton.api.v0.overview.overview_pb2_grpc import OverviewServiceStub
from peloton.api.v0.schedule.schedule_pb2_grpc import ScheduleServiceStub
from peloton.api.v0.short_names.task_pb2_grpc import TaskManagerStub
from peloton.api.v0.table.table_pb2_grpc import JobTableServiceStub
from peloton.api.v0.volume.svc.volume_svc_pb2_grpc import VolumeServiceStub
from peloton.api.v1alpha.job.stateless.svc.stateless_svc_pb2_grpc import JobServiceStub
from peloton.api.v1alpha.pod.svc.pod_svc_pb2_grpc import PodServiceStub
from peloton.client import CHANNEL_OPTIONS, target
from services.access.forwarded import UserChannel
from services.tls.transport import PLAINTEXT, Transport

if TYPE_CHECKING:
    from peloton.api.v0.access.access_pb2_grpc import AccessServiceAsyncStub
    from peloton.api.v0.explain.explain_pb2_grpc import ExplainServiceAsyncStub
    from peloton.api.v0.history.history_pb2_grpc import HistoryServiceAsyncStub
    from peloton.api.v0.host.svc.host_svc_pb2_grpc import HostServiceAsyncStub
    from peloton.api.v0.maintenance.maintenance_pb2_grpc import MaintenanceServiceAsyncStub
    from peloton.api.v0.overview.overview_pb2_grpc import OverviewServiceAsyncStub
    from peloton.api.v0.schedule.schedule_pb2_grpc import ScheduleServiceAsyncStub
    from peloton.api.v0.short_names.task_pb2_grpc import TaskManagerAsyncStub
    from peloton.api.v0.table.table_pb2_grpc import JobTableServiceAsyncStub
    from peloton.api.v0.volume.svc.volume_svc_pb2_grpc import VolumeServiceAsyncStub
    from peloton.api.v1alpha.job.stateless.svc.stateless_svc_pb2_grpc import JobServiceAsyncStub
    from peloton.api.v1alpha.pod.svc.pod_svc_pb2_grpc import PodServiceAsyncStub

TIMEOUT_S = 20.0
"""Default timeout of calls, in seconds."""


class Api:
    """Client of the public API for one event loop.

    ``addresses`` are HOST:PORT, or several separated by commas. Raises InvalidArgument.
    """

    def __init__(self, addresses: str, transport: Transport = PLAINTEXT) -> None:
        self._target, self._transport = target(addresses), transport

    @cached_property
    def channel(self) -> grpc.aio.Channel:
        """Return the channel, created in the event loop that uses it. Its calls carry the credentials of viewers."""
        channel = UserChannel(self._transport.open_async(self._target, CHANNEL_OPTIONS))
        return cast("grpc.aio.Channel", channel)

    @property
    def proves_role(self) -> bool:
        """Return whether calls without credentials of a viewer have the rights of role web."""
        return self._transport.proves_roles

    @cached_property
    def access(self) -> AccessServiceAsyncStub:
        return AccessServiceStub(self.channel)

    async def close(self) -> None:
        await self.channel.close()

    @cached_property
    def explain(self) -> ExplainServiceAsyncStub:
        return ExplainServiceStub(self.channel)

    @cached_property
    def history(self) -> HistoryServiceAsyncStub:
        return HistoryServiceStub(self.channel)

    @cached_property
    def maintenance(self) -> MaintenanceServiceAsyncStub:
        return MaintenanceServiceStub(self.channel)

    @cached_property
    def hosts(self) -> HostServiceAsyncStub:
        return HostServiceStub(self.channel)

    @cached_property
    def overview(self) -> OverviewServiceAsyncStub:
        return OverviewServiceStub(self.channel)

    @cached_property
    def services(self) -> JobServiceAsyncStub:
        return JobServiceStub(self.channel)

    @cached_property
    def job_table(self) -> JobTableServiceAsyncStub:
        return JobTableServiceStub(self.channel)

    @cached_property
    def schedules(self) -> ScheduleServiceAsyncStub:
        return ScheduleServiceStub(self.channel)

    @cached_property
    def volumes(self) -> VolumeServiceAsyncStub:
        return VolumeServiceStub(self.channel)

    @cached_property
    def tasks(self) -> TaskManagerAsyncStub:
        return TaskManagerStub(self.channel)

    @cached_property
    def pods(self) -> PodServiceAsyncStub:
        return PodServiceStub(self.channel)
