"""Clients that the roles of one process share, and parts of several roles: wakers, the sweep, leadership."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from temporalio.client import Client
from temporalio.envconfig import ClientConnectConfig

from services.election.lease_row import LeaderElection
from services.election.port import Election
from services.health import ProcessHealth
from services.leader import LeaderChannels
from services.leading import Leading, end_process, lead_when_elected
from services.settings import Settings
from services.storage.storage import Storage
from services.wakers.sweep import Sweep
from services.wakers.wake_line import Rank
from services.wakers.wakers import Wakers
from workflows.policies import Policies

if TYPE_CHECKING:
    from services.access.quotas import Quotas
    from services.api.backlog import Bounds
    from services.election.zookeeper import ZooKeeper
    from services.hostmgr.federation import HostManagers


@dataclass
class Shared:
    """Clients and settings that the roles of one process share."""

    settings: Settings
    storage: Storage
    temporal: Client
    read_temporal: Callable[[], ClientConnectConfig]
    identity: str  # of this process, in histories
    channels: LeaderChannels
    health: ProcessHealth
    policies: Policies = field(default_factory=Policies)
    zookeeper: ZooKeeper | None = None  # None: leaders are elected in the database


def sdk_metrics_address(settings: Settings) -> str:
    """Return where Prometheus scrapes the metrics of Temporal's SDK; empty: nowhere."""
    return f"127.0.0.1:{settings.temporal_metrics_port}" if settings.temporal_metrics_port else ""


def as_candidate(shared: Shared, role: str) -> tuple[Shared, Election]:
    """Return the clients of a role that leads at most once: its writes are fenced by its lease."""
    leases, ttl_s = shared.storage.leases, shared.settings.leader_ttl_s
    election: Election
    if shared.zookeeper is None:
        election = LeaderElection(leases, role, ttl_s, lost=end_process)
    else:
        election = shared.zookeeper.election(leases, role, ttl_s, end_process)
    return replace(shared, storage=shared.storage.with_fence(election.fence)), election


async def lead_role(
    shared: Shared, election: Election, stop: asyncio.Event, lead: Callable[[], Awaitable[Leading]]
) -> None:
    """Stand by, lead, and resign."""
    role = election.fence.role
    note = partial(shared.health.note, role.partition("/")[0])
    await lead_when_elected(election, role, shared.settings.advertised, stop, lead, note)


@asynccontextmanager
async def opening_wakers(shared: Shared, rank: Rank = Rank.CHANGE) -> AsyncIterator[Wakers]:
    wakers = Wakers(shared.temporal, shared.storage, shared.policies, rank=rank, cluster=shared.settings.cluster)
    try:
        yield wakers
    finally:
        await wakers.close()


def make_sweep(shared: Shared, wakers: Wakers) -> Sweep:
    return Sweep(shared.storage.wakes, wakers.jobs.jobs_swept, lambda: wakers.jobs.backlog)


def host_managers_of(shared: Shared) -> HostManagers:
    """Return the host managers of all clusters as one."""
    from services.hostmgr.client import HostManagerClient
    from services.hostmgr.federation import HostManagers

    channels = shared.channels
    return HostManagers(
        channels.clusters,
        lambda cluster: HostManagerClient(channels.cluster_channel(cluster)),
        shared.storage.hosts,
        shared.storage.host_pods,
    )


def quotas_of(settings: Settings) -> Quotas:
    from services.access.quotas import Quotas, read_quotas_file

    file = read_quotas_file(settings.quotas_file) if settings.quotas_file else None
    return Quotas(settings.quota_submissions_per_minute, settings.quota_active_pods, file)


def bounds_of(settings: Settings) -> Bounds:
    from services.api.backlog import Bounds

    return Bounds(settings.jobs_paced, settings.jobs_waiting_max, settings.jobs_active_max, settings.pods_active_max)
