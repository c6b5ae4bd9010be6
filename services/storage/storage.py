"""Storage as one value: everything that is stored.

Synchronous and thread-safe; every method is one transaction (or a chain of bounded ones that may be cut anywhere and
repeated). Create or upgrade the schema with ``services.storage.migrate`` first.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from peloton.lifecycle.backoff import NO_BACKOFF, Backoff
from services.storage.admission.admission import Admission
from services.storage.admission.evictions import Evictions
from services.storage.admission.gangs import Gangs
from services.storage.admission.requeues import Requeues
from services.storage.admission.snapshot import (
    AllocatedRange,
    EvictionOrder,
    EvictionResult,
    HeldRange,
    JobSnapshot,
    PendingRange,
    ResmgrSnapshot,
    RevocablePodRow,
)
from services.storage.engine import POOL_SIZE, Database
from services.storage.hosts.clusters import Clusters
from services.storage.hosts.maintenance import Maintenance
from services.storage.jobs.configs import Configs
from services.storage.jobs.goals import Goals
from services.storage.jobs.jobs import Jobs
from services.storage.jobs.lookup import FoundJob, JobName, Lookup
from services.storage.jobs.queries import Queries
from services.storage.jobs.services import Services
from services.storage.jobs.settling import Settling
from services.storage.jobs.streams import JobStream, Streams, stream_rows
from services.storage.leases import Leases
from services.storage.pods.pods import Pods
from services.storage.pods.ready import Ready
from services.storage.pods.status_writes import Hosts, KillRow, LaunchRow, StatusOutcome
from services.storage.updates.disruptions import Disruptions
from services.storage.updates.pulses import Pulses
from services.storage.updates.rolling import Rolling
from services.storage.updates.updates import Updates
from services.storage.watch_log import Watch

__all__ = [
    "AllocatedRange",
    "EvictionOrder",
    "EvictionResult",
    "FoundJob",
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
    "Storage",
    "stream_rows",
]


class Storage(
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
