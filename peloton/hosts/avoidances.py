"""Avoidance of hosts by all jobs or by one: records of runs that failed there, and of hosts that came back.

The records are bounded, with old entries dropped, and lost with the leader.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from peloton.hosts.effects import Effect, HostAvoided, event
from peloton.lifecycle.avoidance import (
    FAILED_HOSTS_MAX,
    FOR_ALL,
    FOR_ONE,
    NO_AVOIDANCE,
    HostAvoidance,
    Record,
    RunEnd,
    after_failure,
    after_success,
    count_failed,
    is_own_fault,
    limit_avoided,
)
from peloton.lifecycle.flapping import Returns, after_return
from peloton.model.ids import Hostname, JobId
from peloton.model.misfit import Misfit, Refused

HOSTS_MAX = 50_000
JOBS_MAX = 10_000
"""Limits of recorded hosts and jobs with failures; the ones with the oldest failures are dropped."""
NUMBERED_MAX = 3
"""Limit of avoided hosts for which a reason lists each; more are counted under one rule."""
NEW = Record()
NEVER = Returns()


class HostAvoidances:
    """Records of failures and returns of hosts. Times are of the monotonic clock."""

    def __init__(self, host_count: Callable[[], int], effects: list[Effect] | None = None) -> None:
        """``host_count`` returns the number of registered hosts. ``effects`` gets each avoidance that starts."""
        self._host_count, self._effects = host_count, effects if effects is not None else []
        self._hosts: OrderedDict[Hostname, Record] = OrderedDict()
        self._jobs: OrderedDict[JobId, dict[Hostname, Record]] = OrderedDict()
        self._avoided: dict[Hostname, Record | Returns] = {}  # by all jobs: at most a share of the hosts
        self._there: frozenset[Hostname] = frozenset()  # hosts of the cluster
        self._gone: OrderedDict[Hostname, float] = OrderedDict()  # hosts that left -> time of departure
        self._maintained: frozenset[Hostname] = frozenset()  # as of the last report of hosts
        self._excused: set[Hostname] = set()  # hosts that left and were maintained then or since
        self._returns: OrderedDict[Hostname, Returns] = OrderedDict()

    @event(HostAvoided)
    def take(self, ends: Iterable[RunEnd], now_s: float) -> None:
        """Record ended runs, and avoid hosts on which too many failed."""
        ends = [end for end in ends if end.host and (end.is_failure or end.is_success)]
        if not ends:
            return
        host_count = self._host_count()
        for end in ends:
            if end.is_failure:
                self._record_failure(end, now_s, host_count)
            else:
                self._record_success(end, now_s)

    def _record_failure(self, end: RunEnd, now_s: float, host_count: int) -> None:
        job_id, host = end.pod_id.job_id, end.host
        self._forget_old(now_s)
        own = self._jobs[job_id] = _select_recorded(self._jobs.get(job_id, {}), now_s)
        self._jobs.move_to_end(job_id)
        if len(self._jobs) > JOBS_MAX:
            self._jobs.popitem(last=False)
        count_before = count_failed(own.values(), now_s)
        if len(own) <= FAILED_HOSTS_MAX or host in own:
            own[host] = after_failure(own.get(host, NEW), end, FOR_ONE, now_s, may_avoid=end.is_batch)
        count = count_failed(own.values(), now_s)
        if is_own_fault(count, host_count):
            if count > count_before:
                self._exonerate(job_id)
            return
        self._drop_expired(now_s)
        may_avoid = len(self._avoided) < limit_avoided(host_count)
        record = after_failure(self._hosts.get(host, NEW), end, FOR_ALL, now_s, may_avoid)
        self._hosts[host] = record
        self._hosts.move_to_end(host)
        if len(self._hosts) > HOSTS_MAX:
            self._avoided.pop(self._hosts.popitem(last=False)[0], None)
        if record.is_avoided(now_s) and host not in self._avoided:
            self._avoid(host, record, now_s)

    def saw(self, hosts: Collection[Hostname], maintained: Collection[Hostname], now_s: float) -> None:
        """Record the hosts of the cluster. A return from a maintenance is no flapping; the maintenance has mostly
        ended when the host is seen again, so it is recorded at the departure. More returns at once than hosts may be
        avoided are attributed to the cluster."""
        there, before = frozenset(hosts), self._there
        in_maintenance, maintained_before = frozenset(maintained), self._maintained
        self._there, self._maintained = there, in_maintenance
        gone = before - there
        self._gone.update(dict.fromkeys(sorted(gone), now_s))
        self._excused |= (gone & maintained_before) | (self._gone.keys() & in_maintenance)
        if there == before:
            return
        back = [host for host in sorted(there - before) if host in self._gone]
        for host in back:
            del self._gone[host]
        while len(self._gone) > HOSTS_MAX:
            self._excused.discard(self._gone.popitem(last=False)[0])
        suspect = [host for host in back if host not in self._excused]
        self._excused.difference_update(back)
        most = limit_avoided(len(there))
        if len(suspect) <= most:
            for host in suspect:
                self._came_back(host, now_s, most)

    def _came_back(self, host: Hostname, now_s: float, most: int) -> None:
        self._drop_expired(now_s)
        while self._returns and next(iter(self._returns.values())).is_over(now_s):
            self._returns.popitem(last=False)
        record = after_return(self._returns.get(host, NEVER), now_s, len(self._avoided) < most)
        self._returns[host] = record
        self._returns.move_to_end(host)
        if len(self._returns) > HOSTS_MAX:
            self._returns.popitem(last=False)
        if record.is_avoided(now_s) and host not in self._avoided:
            self._avoid(host, record, now_s)

    def _avoid(self, host: Hostname, record: Record | Returns, now_s: float) -> None:
        self._avoided[host] = record
        self._effects.append(HostAvoided(host, record.why, record.until_s - now_s))

    def _exonerate(self, job_id: JobId) -> None:
        """Remove the failures of the job from hosts, because the job itself is broken."""
        for host in self._jobs[job_id]:
            if record := self._hosts.get(host):
                self._hosts[host] = replace(record, failures=tuple(f for f in record.failures if f.job_id != job_id))

    def _record_success(self, end: RunEnd, now_s: float) -> None:
        if record := self._hosts.get(end.host):
            self._hosts[end.host] = after_success(record, now_s)
        own = self._jobs.get(end.pod_id.job_id)
        if own and end.host in own and not own[end.host].is_avoided(now_s):
            del own[end.host]

    def _forget_old(self, now_s: float) -> None:
        """Drop expired records, the oldest failures first."""
        while self._hosts and next(iter(self._hosts.values())).is_over(FOR_ALL, now_s):
            self._avoided.pop(self._hosts.popitem(last=False)[0], None)
        while self._jobs and not _select_recorded(next(iter(self._jobs.values())), now_s):
            self._jobs.popitem(last=False)

    def _drop_expired(self, now_s: float) -> None:
        for host in [host for host, record in self._avoided.items() if not record.is_avoided(now_s)]:
            del self._avoided[host]

    def of_job(self, job_id: JobId, now_s: float) -> HostAvoidance:
        self._drop_expired(now_s)
        own = self._jobs.get(job_id, {})
        avoided = {host: record.why for host, record in self._avoided.items()}
        if len(avoided) > NUMBERED_MAX:
            avoided = {host: Refused(why.rule) for host, why in avoided.items()}
        if is_own_fault(count_failed(own.values(), now_s), self._host_count()):
            own = {}
        avoided |= {host: record.why for host, record in own.items() if record.is_avoided(now_s)}
        deprioritized = frozenset(host for host, record in own.items() if record.is_deprioritized(now_s))
        return HostAvoidance(avoided, deprioritized) if avoided or deprioritized else NO_AVOIDANCE

    def list_avoided(self, now_s: float) -> dict[Hostname, tuple[Misfit, float]]:
        """Return the avoided hosts, with the reason and the remaining seconds."""
        self._drop_expired(now_s)
        return {host: (record.why, record.until_s - now_s) for host, record in self._avoided.items()}

    def list_gone(self, within_s: float, now_s: float) -> dict[Hostname, float]:
        """Return the hosts that left the cluster since this process leads and are not back, and how many seconds
        ago."""
        return {host: now_s - at_s for host, at_s in self._gone.items() if now_s - at_s <= within_s}


def _select_recorded(own: dict[Hostname, Record], now_s: float) -> dict[Hostname, Record]:
    return {host: record for host, record in own.items() if not record.is_over(FOR_ONE, now_s)}
