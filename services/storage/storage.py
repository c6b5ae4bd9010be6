"""All stored data, as one repository for each owner. ``services.storage.migrate`` creates or upgrades the schema.

Repositories are synchronous and thread-safe; each of their methods is one transaction, or a chain of bounded ones that
can be interrupted anywhere and repeated. Pass each caller only the repositories that it uses.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from functools import partial

from peloton.lifecycle.backoff import NO_BACKOFF, Backoff
from peloton.ports import SecretStore
from services.fence import Fence
from services.storage.activity_reports import ActivityReports
from services.storage.admission.admission import Admission
from services.storage.audit.audit_log import AuditLog
from services.storage.bulk_reads import BulkReads
from services.storage.creators import Creators
from services.storage.daemons.daemons import Daemons
from services.storage.diagnosis import Diagnosis
from services.storage.ended_sessions import EndedSessions
from services.storage.engine import POOL_SIZE, Database
from services.storage.history.history import History
from services.storage.hosts.host_events import HostEvents
from services.storage.hosts.host_pools import HostPoolRecords
from services.storage.hosts.hosts import Hosts
from services.storage.hosts.maintenance import Maintenance
from services.storage.hosts.mover import MoverRecords
from services.storage.jobs.configs import Configs
from services.storage.jobs.job_streams import JobStreams
from services.storage.jobs.job_table import JobTable
from services.storage.jobs.jobs import Jobs
from services.storage.jobs.plain_secrets import PLAIN
from services.storage.jobs.search import Search
from services.storage.jobs.secrets import Secrets
from services.storage.jobs.wakes import JobWakes
from services.storage.leases import Leases, check_epoch
from services.storage.lockdowns import Lockdowns
from services.storage.moves.migrations import Migrations
from services.storage.moves.rebalances import Rebalances
from services.storage.overview import Overview
from services.storage.pods.external_pods import ExternalPods
from services.storage.pods.host_pods import HostPods
from services.storage.pods.pods import Pods
from services.storage.pools import Pools
from services.storage.processes import Processes
from services.storage.restored import Restorations
from services.storage.retention.records import RetentionRecords
from services.storage.updates.disruptions import Disruptions
from services.storage.updates.updates import Updates
from services.storage.volumes.volumes import Volumes
from services.storage.watch_log import WatchLog


class Storage:
    """Repositories of one database.

    ``url`` is ``sqlite:///file.db`` or ``postgresql://user@host/database``. ``clock_ns`` dates writes whose callers
    pass no time. ``batch_backoff`` delays the next run of failed batch pods; by default there is no delay.
    ``secrets`` holds the data of secrets.
    """

    def __init__(
        self,
        url: str,
        clock_ns: Callable[[], int] = time.time_ns,
        pool_size: int = POOL_SIZE,
        batch_backoff: Backoff = NO_BACKOFF,
        secrets: SecretStore = PLAIN,
    ) -> None:
        self._open(Database(url, pool_size, clock_ns), batch_backoff, secrets)

    def with_fence(self, fence: Fence) -> Storage:
        """Return the same storage for a leading role: its write transactions raise LeadershipLost after the loss of the
        lease. Leases themselves are written as before.
        """
        fenced = copy.copy(self)
        fenced._open(self.db.with_fence(partial(check_epoch, fence)), self._batch_backoff, self._secret_store)
        fenced.leases = self.leases
        return fenced

    def _open(self, db: Database, batch_backoff: Backoff, secrets: SecretStore) -> None:
        self.db, self._batch_backoff, self._secret_store = db, batch_backoff, secrets
        self.jobs = Jobs(db, secrets)
        self.job_streams = JobStreams(db)
        self.configs = Configs(db)
        self.search = Search(db)
        self.bulk = BulkReads(db)
        self.job_table = JobTable(db)
        self.secrets = Secrets(db, secrets)
        self.wakes = JobWakes(db)
        self.pods = Pods(db)
        self.host_pods = HostPods(db, batch_backoff)
        self.admission = Admission(db)
        self.external_pods = ExternalPods(db)
        self.daemons = Daemons(db)
        self.pools = Pools(db)
        self.updates = Updates(db, secrets)
        self.disruptions = Disruptions(db)
        self.hosts = Hosts(db)
        self.maintenance = Maintenance(db)
        self.host_events = HostEvents(db)
        self.host_pools = HostPoolRecords(db)
        self.mover = MoverRecords(db)
        self.migrations = Migrations(db)
        self.rebalances = Rebalances(db)
        self.volumes = Volumes(db)
        self.leases = Leases(db)
        self.lockdowns = Lockdowns(db)
        self.restorations = Restorations(db)
        self.activity_reports = ActivityReports(db)
        self.processes = Processes(db)
        self.creators = Creators(db)
        self.ended_sessions = EndedSessions(db)
        self.watch_log = WatchLog(db)
        self.history = History(db)
        self.retention = RetentionRecords(db)
        self.overview = Overview(db)
        self.audit = AuditLog(db)
        self.diagnosis = Diagnosis(db)

    def close(self) -> None:
        self.db.close()
