"""Eviction of preemptible pods from hosts on which a daemon has lacked free resources for a while."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping

from peloton.errors import Unavailable
from peloton.lifecycle.daemon import choose_evictions
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.pod import PodShape
from peloton.model.reason import QosReason, QosRule
from peloton.model.resources import compute_needed
from peloton.ports import Evictor
from services.hostmgr.hosts.host_cache import HostCache
from services.storage.daemons.daemons import Daemons

log = logging.getLogger(__name__)

EVICT_AFTER_S = 10.0
"""Seconds within which returned resources are offered again; preemptible pods are evicted afterwards."""
HOSTS_AT_ONCE_MAX = 100
PODS_AT_ONCE_MAX = 1_000


class DaemonEvictions:
    """Evictions for daemons in one cluster. Any thread may call; steps of one daemon do not overlap."""

    def __init__(
        self,
        cluster: str,
        records: Daemons,
        cache: HostCache,
        evictor: Evictor,
        kill: Callable[[Iterable[JobId]], None],
    ) -> None:
        self._cluster = cluster
        self._records = records
        self._cache = cache
        self._evictor = evictor
        self._kill = kill
        self._since: dict[JobId, dict[Hostname, float]] = {}  # daemon -> hosts too full for it, since when
        self._tried: dict[JobId, set[Hostname]] = {}  # hosts of these from which pods were evicted, if any could be
        self._due_s: dict[JobId, float] = {}  # daemon -> when the next host is due for its first eviction

    def note(
        self, job_id: JobId, examined: Collection[Hostname], short: Mapping[Hostname, PodShape], now_s: float
    ) -> int:
        """Record which of the examined hosts lack free resources for the daemon (``short``). Returns the number of
        pods whose eviction starts."""
        before, seen = self._since.get(job_id, {}), set(examined)
        since = {hostname: before.get(hostname, now_s) for hostname in short}
        since |= {hostname: at_s for hostname, at_s in before.items() if hostname not in seen}
        due = sorted(
            hostname for hostname, at_s in since.items() if hostname in short and now_s - at_s >= EVICT_AFTER_S
        )
        due = due[:HOSTS_AT_ONCE_MAX]
        self._since[job_id] = {hostname: now_s if hostname in due else at_s for hostname, at_s in since.items()}
        tried = self._tried[job_id] = self._tried.get(job_id, set()).intersection(since).union(due)
        self._due_s.pop(job_id, None)
        if fresh := [at_s for hostname, at_s in since.items() if hostname not in tried]:
            self._due_s[job_id] = min(fresh) + EVICT_AFTER_S
        return self._evict(due, short) if due else 0

    def keep(self, wanted: set[JobId]) -> None:
        """Remove daemons that are no longer wanted."""
        for known in (self._since, self._tried, self._due_s):
            for job_id in known.keys() - wanted:
                known.pop(job_id, None)

    def take_due(self, now_s: float) -> set[JobId]:
        """Return daemons whose hosts have lacked free resources for the timeout. Each host counts once."""
        due = {job_id for job_id, due_s in list(self._due_s.items()) if due_s <= now_s}
        for job_id in due:
            self._due_s.pop(job_id, None)
        return due

    @property
    def due_at_s(self) -> float:
        """Return the time at which the next daemon is due."""
        return min(list(self._due_s.values()), default=math.inf)

    def _evict(self, due: list[Hostname], short: Mapping[Hostname, PodShape]) -> int:
        chosen: list[tuple[PodId, QosReason]] = []
        for hostname, neighbours in self._records.neighbours(self._cluster, due).items():
            host = self._cache.host(hostname)
            if host is not None and len(chosen) < PODS_AT_ONCE_MAX:
                leaving = choose_evictions(compute_needed(short[hostname].resources), host.capacity, neighbours)
                why = QosReason(QosRule.DAEMON, hostname, 0, 0)
                chosen += [(pod_id, why) for pod_id in leaving]
        if not chosen:
            return 0
        try:
            evicted = self._evictor.evict(chosen[:PODS_AT_ONCE_MAX])
        except Unavailable as error:
            log.info("pods not evicted for a daemon, retrying: %s", error)
            return 0
        log.info("evicted %d of %d pods to free resources for a daemon", evicted, len(chosen))
        self._kill(pod_id.job_id for pod_id, _ in chosen)
        return evicted
