"""Avoidance of hosts on which pods fail soon after their start: the rules, and the duration.

A broken host looks empty, since no pod runs there for long, so all waiting pods would be placed there and fail. Two
rules apply, one for all jobs and one for a single job:

* ``FOR_ALL``: pods of several jobs fail there within seconds of their start. A single job may be broken itself.
* ``FOR_ONE``: several pods of a batch job do so. Only this job avoids the host, because its attempts are bounded. A
  service retries without a bound, and its pods fail more often because of the version rolled out.

Each repetition doubles the time for which the host is avoided. Each run that succeeds there offsets one failure. A job
that fails on most hosts (``is_own_fault``) does not count against any host.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from peloton.lifecycle.endings import RULES
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.job import JobType
from peloton.model.misfit import FailedPods, HostRule, Misfit, Refused
from peloton.model.pod import Cause, PodRecord, PodState
from peloton.model.times import NS_PER_S

QUICK_S = 10.0
"""Maximum seconds from the start of a run to its failure for the failure to count against the host."""
WINDOW_S = 300.0
"""Seconds after which a failure no longer counts."""
FAILURES_MAX = 50
"""Maximum failures kept per host."""
AVOIDED_SHARE = 0.25
"""Share of the hosts that all jobs avoid at a time, at least one: failures on more hosts have another cause."""
FAILED_HOSTS_MAX = 100
"""Maximum hosts kept per job; a job that fails on more is broken itself."""
DEPRIORITIZED_S = 600.0
"""Seconds for which a job tries a host last after one of its pods failed there."""


@dataclass(frozen=True, slots=True)
class RunEnd:
    """End of a run on a host: a failure counts against the host, a success for it, other endings for neither."""

    pod_id: PodId
    host: Hostname
    is_failure: bool = False
    is_success: bool = False
    ran_s: float = 0.0
    is_batch: bool = True


def run_end(pod: PodRecord, cause: Cause, job_type: JobType) -> RunEnd:
    """Return the end of the pod's run, which ended for this cause."""
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
"""Rule for one job, with a longer first time, since other jobs may still use the host."""


@dataclass(frozen=True, slots=True)
class Failure:
    at_s: float
    job_id: JobId
    instance_id: int
    ran_s: float


@dataclass(frozen=True, slots=True)
class Record:
    """Failures on a host, of all jobs or of one. ``times``: recent number of times that the host was avoided."""

    failures: tuple[Failure, ...] = ()
    failed_s: float = 0.0  # time of the last failure, quick or not
    times: int = 0
    until_s: float = 0.0
    why: Misfit = Refused(HostRule.AVOIDED)  # noqa: RUF009 - frozen

    def is_avoided(self, now_s: float) -> bool:
        return now_s < self.until_s

    def is_deprioritized(self, now_s: float) -> bool:
        """True if a pod of the record's job failed there recently."""
        return now_s - self.failed_s < DEPRIORITIZED_S

    def is_over(self, rule: Rule, now_s: float) -> bool:
        """True if the record equals a new one: its failures and its last avoidance are too old to count."""
        return not self.is_deprioritized(now_s) and (not self.times or now_s - self.until_s > rule.longest_s)


def after_failure(record: Record, end: RunEnd, rule: Rule, now_s: float, may_avoid: bool = True) -> Record:
    """Return the record with one more failure. Unless ``may_avoid``, the failure is only counted."""
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
    why = FailedPods(len(pods), len(jobs), within_s)
    return Record((), now_s, times, now_s + seconds, why)


def after_success(record: Record, now_s: float) -> Record:
    """Return the record after a success, which offsets the oldest failure and one avoidance. A success while the host
    is avoided does not count, because the run started before."""
    if record.is_avoided(now_s):
        return record
    return replace(record, failures=record.failures[1:], times=max(record.times - 1, 0))


def count_failed(records: Iterable[Record], now_s: float) -> int:
    """Return the number of hosts that a job avoids or tries last because its pods failed there."""
    return sum(record.is_deprioritized(now_s) or record.is_avoided(now_s) for record in records)


def is_own_fault(failed_host_count: int, host_count: int) -> bool:
    """Return whether the failures of a job are its own fault: it failed recently on ``failed_host_count`` hosts, which
    are too many of all hosts, or all of a few."""
    return failed_host_count >= host_count or failed_host_count > min(max(2, host_count // 4), FAILED_HOSTS_MAX)


def limit_avoided(host_count: int) -> int:
    return max(1, int(host_count * AVOIDED_SHARE))


@dataclass(frozen=True, slots=True)
class HostAvoidance:
    """Hosts that a job avoids, with the reason, while other hosts can take its pods; and hosts that it tries last."""

    avoided: Mapping[Hostname, Misfit] = field(default_factory=dict)
    deprioritized: frozenset[Hostname] = frozenset()

    def is_last(self, host: Hostname) -> bool:
        return host in self.deprioritized or host in self.avoided


NO_AVOIDANCE = HostAvoidance()
