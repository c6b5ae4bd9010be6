"""Hosts on which pods fail as soon as they start: from when on pods rather go elsewhere, and for how long.

A sick host looks empty, for nothing runs there for long, so that all that waits would go there and fail. Two rules, for
all jobs and for one:

* ``FOR_ALL``: pods of several jobs fail there within seconds of their start. One job alone may be broken itself.
* ``FOR_ONE``: several pods of a batch job do so. It is the job that keeps away: its attempts are bounded. A service
  tries for ever, and more often fails for what was rolled out.

Each time it happens again the host is avoided for twice as long. Each run that succeeds there makes up for a failure.
A job that fails wherever it goes (``is_own_fault``) speaks against no host.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from peloton.lifecycle.endings import RULES
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.job import JobType
from peloton.model.pod import Cause, PodRecord, PodState
from peloton.model.reason import HostRule, Misfit
from peloton.model.times import NS_PER_S

QUICK_S = 10.0
"""A run that fails later than this after its start does not speak against its host."""
WINDOW_S = 300.0
"""Failures longer ago are forgotten."""
FAILURES_MAX = 50
"""Failures that are kept of a host."""
AVOIDED_SHARE = 0.25
"""Share of the hosts that all jobs avoid at a time, at least one: beyond that it is not the hosts."""
FAILED_HOSTS_MAX = 100
"""Hosts that are kept of a job; one that fails on more is broken itself."""
SHUNNED_S = 600.0
"""A host on which a pod of a job failed comes last for the others for so long."""


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How a run on a host ended: whether that speaks against the host, for it, or neither."""

    pod_id: PodId
    host: Hostname
    is_failure: bool = False
    is_success: bool = False
    ran_s: float = 0.0
    is_batch: bool = True


def run_end(pod: PodRecord, cause: Cause, job_type: JobType) -> RunEnd:
    """Of a pod that has ended for this cause."""
    is_failure = pod.state is PodState.FAILED and RULES[cause].blames_host
    ran_s = (pod.completed_ns - pod.started_ns) / NS_PER_S if pod.started_ns else 0.0
    is_success = pod.state is PodState.SUCCEEDED
    return RunEnd(pod.pod_id, Hostname(pod.host), is_failure, is_success, ran_s, job_type.runs_to_end)


@dataclass(frozen=True, slots=True)
class Rule:
    pods_min: int
    jobs_min: int
    first_s: float
    longest_s: float


FOR_ALL = Rule(pods_min=3, jobs_min=2, first_s=60.0, longest_s=3_600.0)
FOR_ONE = Rule(pods_min=3, jobs_min=1, first_s=600.0, longest_s=3_600.0)
"""Longer: whom it does not concern may use the host meanwhile."""


@dataclass(frozen=True, slots=True)
class Failure:
    at_s: float
    job_id: JobId
    instance_id: int
    ran_s: float


@dataclass(frozen=True, slots=True)
class Record:
    """What is remembered of a host, of all jobs or of one. ``times``: how often it has been avoided lately."""

    failures: tuple[Failure, ...] = ()
    failed_s: float = 0.0  # when a pod failed last, however late
    times: int = 0
    until_s: float = 0.0
    why: Misfit = Misfit(HostRule.AVOIDED)  # noqa: RUF009 - frozen

    def is_avoided(self, now_s: float) -> bool:
        return now_s < self.until_s

    def is_shunned(self, now_s: float) -> bool:
        """A pod of the job whose record this is failed there lately."""
        return now_s - self.failed_s < SHUNNED_S

    def is_over(self, rule: Rule, now_s: float) -> bool:
        """A new record would say as much: the failures are old, and so is the last time that it was avoided."""
        return not self.is_shunned(now_s) and (not self.times or now_s - self.until_s > rule.longest_s)


def after_failure(record: Record, end: RunEnd, rule: Rule, now_s: float, may_avoid: bool = True) -> Record:
    """The record with a failure more. ``may_avoid``: else it is only remembered."""
    record = replace(record, failed_s=now_s)
    if end.ran_s > QUICK_S or record.is_avoided(now_s):
        return record
    pod = end.pod_id
    failure = Failure(now_s, pod.job_id, pod.instance_id, max(end.ran_s, 0.0))
    failures = (*(f for f in record.failures if now_s - f.at_s <= WINDOW_S), failure)[-FAILURES_MAX:]
    pods = {(f.job_id, f.instance_id) for f in failures}
    jobs = {f.job_id for f in failures}
    if len(pods) < rule.pods_min or len(jobs) < rule.jobs_min or not may_avoid:
        return replace(record, failures=failures)
    times = record.times + 1 if now_s - record.until_s <= rule.longest_s else 1
    seconds = min(rule.first_s * 2.0 ** (times - 1), rule.longest_s)
    longest_s = max(f.ran_s for f in failures)
    within_s = max(round(longest_s), 1)
    why = Misfit(HostRule.AVOIDED, wanted=len(pods), bound=len(jobs), left=within_s)
    return Record((), now_s, times, now_s + seconds, why)


def after_success(record: Record, now_s: float) -> Record:
    """A success makes up for the oldest failure, and for one time that the host was avoided. What ends well while it is
    avoided began before."""
    if record.is_avoided(now_s):
        return record
    return replace(record, failures=record.failures[1:], times=max(record.times - 1, 0))


def failed_lately(records: Iterable[Record], now_s: float) -> int:
    """Of the hosts on which pods of a job failed those from which it would keep away for that now."""
    return sum(record.is_shunned(now_s) or record.is_avoided(now_s) for record in records)


def is_own_fault(failed_host_count: int, host_count: int) -> bool:
    """A job fails on so many of all hosts, or on each of few, that they are not to blame. ``failed_host_count``: those
    on which it failed lately."""
    return failed_host_count >= host_count or failed_host_count > min(max(2, host_count // 4), FAILED_HOSTS_MAX)


def avoided_max(host_count: int) -> int:
    return max(1, int(host_count * AVOIDED_SHARE))


@dataclass(frozen=True, slots=True)
class Aversion:
    """Hosts that a job avoids, with the reason, while other hosts could take its pods; and those that it takes last."""

    avoided: Mapping[Hostname, Misfit] = field(default_factory=dict)
    shunned: frozenset[Hostname] = frozenset()

    def is_last(self, host: Hostname) -> bool:
        return host in self.shunned or host in self.avoided


NO_AVERSION = Aversion()
