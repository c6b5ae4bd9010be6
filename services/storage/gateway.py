"""The storage gateway: one object for everything that is stored.

Synchronous and thread-safe; every method is one transaction (or a chain of bounded ones that may be cut anywhere and
repeated). Create or upgrade the schema with ``services.storage.migrate`` first.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from peloton.lifecycle.backoff import NO_BACKOFF, Backoff
from services.storage.admission import Admission
from services.storage.clusters import Clusters
from services.storage.configs import Configs
from services.storage.disruptions import Disruptions
from services.storage.engine import POOL_SIZE, Database
from services.storage.evictions import Evictions
from services.storage.gangs import Gangs
from services.storage.goals import Goals
from services.storage.hosts import Hosts, KillRow, LaunchRow, StatusOutcome
from services.storage.jobs import Jobs
from services.storage.leases import Leases
from services.storage.lookup import FoundJob, JobName, Lookup
from services.storage.maintenance import Maintenance
from services.storage.pods import Pods
from services.storage.pulses import Pulses
from services.storage.queries import Queries
from services.storage.ready import Ready
from services.storage.requeues import Requeues
from services.storage.rolling import Rolling
from services.storage.services import Services
from services.storage.settling import Settling
from services.storage.snapshot import (
    AllocatedRange,
    EvictionOrder,
    EvictionResult,
    HeldRange,
    JobSnapshot,
    PendingRange,
    ResmgrSnapshot,
    RevocablePodRow,
)
from services.storage.streams import JobStream, Streams, stream_rows
from services.storage.updates import Updates
from services.storage.watch import Watch

__all__ = [
    "AllocatedRange",
    "EvictionOrder",
    "EvictionResult",
    "FoundJob",
    "Gateway",
    "HeldRange",
    "JobName",
    "JobSnapshot",
    "JobStream",
    "KillRow",
    "LaunchRow",
    "PendingRange",
    "ResmgrSnapshot",
    "RevocablePodRow",
    "StatusOutcome",
    "stream_rows",
]


class Gateway(
    Jobs,
    Streams,
    Configs,
    Goals,
    Settling,
    Ready,
    Pods,
    Queries,
    Lookup,
    Admission,
    Evictions,
    Gangs,
    Requeues,
    Hosts,
    Leases,
    Clusters,
    Maintenance,
    Updates,
    Pulses,
    Rolling,
    Services,
    Disruptions,
    Watch,
):
    """``url``: ``sqlite:///file.db`` or ``postgresql://user@host/database``. ``clock_ns`` dates writes whose callers
    name no time. ``batch_backoff``: how long batch pods that failed wait for their next run; not at all by default."""

    def __init__(
        self,
        url: str,
        clock_ns: Callable[[], int] = time.time_ns,
        pool_size: int = POOL_SIZE,
        batch_backoff: Backoff = NO_BACKOFF,
    ) -> None:
        super().__init__(Database(url, pool_size), clock_ns, batch_backoff)

    def close(self) -> None:
        self.db.close()
