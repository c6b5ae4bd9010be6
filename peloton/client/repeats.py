"""Decisions on repeats of calls: which may be repeated, when, and how often.

A call that a busy server refused, or that was never sent, has done nothing: any may be repeated. A call whose answer
was lost may have been carried out: it is repeated only as ``METHODS`` says.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any

import grpc

from peloton.api.limits import RETRY_AFTER, was_never_sent

BUSY_S = 60.0
AWAY_S = 60.0
WATCH_AWAY_S = 120.0
FIRST_WAIT_S = 0.25
WAIT_S_MAX = 5.0


class Repeat(Enum):
    """Effect of a call that is sent again after its answer was lost."""

    READ = "changes nothing"
    SAME = "has the effect of one call, and the same answer"
    KEYED = "has the effect of one call if the request has an update_key"
    NAMED = "has the effect of one call if the request has the id of the new object; the second is refused as existing"
    ONCE = "may act twice, or is refused although the first call was carried out"


@dataclass(frozen=True)
class RetryPolicy:
    """Bounds of the repeats of one call. 0 s: the error is raised at once.

    ``busy_s`` bounds the time from the first refusal of a busy server, which says itself how long to wait; ``away_s``
    the time for which no server answers. Waits for the latter double from ``first_wait_s`` to ``wait_s_max``, and a
    random part of up to a half is taken off, so that clients do not come back all at once. ``say`` is called with a
    text before a wait.
    """

    busy_s: float = BUSY_S
    away_s: float = AWAY_S
    first_wait_s: float = FIRST_WAIT_S
    wait_s_max: float = WAIT_S_MAX
    say: Callable[[str], None] = field(default=lambda text: None, repr=False)
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)
    chance: Callable[[], float] = field(default=random.random, repr=False)


NO_RETRIES = RetryPolicy(busy_s=0, away_s=0)
WATCH_POLICY = RetryPolicy(away_s=WATCH_AWAY_S, first_wait_s=0.5)
"""Bounds of an outage in watches and waits."""


@dataclass
class Outage:
    """A time without answers: how long it has lasted, and how long to wait next."""

    policy: RetryPolicy
    since_s: float | None = None
    wait_s: float = 0.0

    @property
    def seconds(self) -> float:
        return 0.0 if self.since_s is None else self.policy.clock() - self.since_s

    def next_wait_s(self) -> float | None:
        """Return the seconds until the next attempt; None: the outage has lasted too long."""
        if self.since_s is None:
            self.since_s = self.policy.clock()
        if not self.policy.away_s or self.seconds > self.policy.away_s:
            return None
        self.wait_s = min(2 * self.wait_s, self.policy.wait_s_max) if self.wait_s else self.policy.first_wait_s
        return self.wait_s * (1 - self.policy.chance() / 2)

    def end(self) -> None:
        self.since_s, self.wait_s = None, 0.0


@dataclass
class Repeats:
    """State of one call: how long its errors have lasted. ``is_safe``: it may be repeated after a lost answer."""

    policy: RetryPolicy
    is_safe: bool
    busy_since_s: float | None = None

    def __post_init__(self) -> None:
        self.outage = Outage(self.policy)

    def next_wait_s(self, error: Any) -> float | None:
        """Return the seconds to wait before the call is repeated; None: raise its error."""
        if (wait_s := retry_after_s(error)) is not None:
            wait_s = self._wait_while_busy(wait_s)
        elif error.code() is grpc.StatusCode.UNAVAILABLE and (self.is_safe or was_never_sent(error)):
            wait_s = self.outage.next_wait_s()
        if wait_s is not None:
            self.policy.say(error.details() or "")
        return wait_s

    def _wait_while_busy(self, wait_s: float) -> float | None:
        self.outage.end()
        now_s = self.policy.clock()
        self.busy_since_s = now_s if self.busy_since_s is None else self.busy_since_s
        is_over = not self.policy.busy_s or now_s + wait_s > self.busy_since_s + self.policy.busy_s
        return None if is_over else wait_s


def is_away(error: Any) -> bool:
    """Return whether the error says that no server has answered, or none in time."""
    return error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


def retry_after_s(error: Any) -> float | None:
    """Return the seconds after which a call that a busy server refused may be repeated; None for any other call."""
    if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
        return None
    return next((int(value) / 1000 for key, value in error.trailing_metadata() or () if key == RETRY_AFTER), None)


def is_safe(method: str, request: Any) -> bool:
    """Return whether the request may be sent again after its answer was lost. ``method`` is the path of the call."""
    service, _, name = method.removeprefix("/").rpartition("/")
    repeat = METHODS.get(service, {}).get(name, Repeat.ONCE)
    if repeat is Repeat.KEYED:
        return bool(request.update_key)
    if repeat is Repeat.NAMED:
        return bool(request.id.value)
    return repeat in (Repeat.READ, Repeat.SAME)


def _table(read: str = "", **kinds: str) -> Mapping[str, Repeat]:
    by_kind = {"read": read, **kinds}
    return MappingProxyType({name: Repeat[kind.upper()] for kind, names in by_kind.items() for name in names.split()})


# Services by the names that the client uses. A stop by a version is ONCE: a repeated one is refused with ABORTED
# although the first was carried out. A creation by a name that a person chose is ONCE: ALREADY_EXISTS may mean the
# object of another person.
METHODS: Mapping[str, Mapping[str, Repeat]] = MappingProxyType(
    {
        "peloton.api.job.JobManager": _table(
            "Get Query GetCache GetActiveJobs",
            same="Refresh",
            named="Create",
            once="Delete Update Restart Start Stop",
        ),
        "peloton.api.task.TaskManager": _table(
            "Get List Query BrowseSandbox GetCache GetPodEvents",
            same="Stop Refresh DeletePodEvents",
            once="Start Restart",
        ),
        "peloton.api.v0.bulk.BulkService": _table(once="CreateJob"),
        "peloton.api.v0.gang.GangService": _table("GetGang"),
        "peloton.api.v0.history.HistoryService": _table("GetPoolHistory GetClusterHistory GetUsage"),
        "peloton.api.v0.lookup.LookupService": _table("FindJobs Find"),
        "peloton.api.v0.table.JobTableService": _table("ListJobs GetJob GetInstanceStates GetInstanceUse"),
        "peloton.api.v0.migration.MigrationService": _table("Query", same="Start Pause Resume Rollback Release"),
        "peloton.api.v0.overview.OverviewService": _table(
            "GetOverview GetDiagnosis GetHostMap GetHostPods ListHostEvents"
        ),
        "peloton.api.v0.rebalance.RebalanceService": _table(
            "PlanRebalance QueryRebalance",
            same="StartRebalance PauseRebalance ResumeRebalance StopRebalance",
        ),
        "peloton.api.v0.schedule.ScheduleService": _table(
            "ListSchedules GetSchedule",
            same="PauseSchedule ResumeSchedule BackfillSchedule",
            once="CreateSchedule TriggerSchedule DeleteSchedule",
        ),
        "peloton.api.respool.ResourceManager": _table(
            "GetResourcePool LookupResourcePoolID Query",
            same="UpdateResourcePool",
            once="CreateResourcePool DeleteResourcePool",
        ),
        "peloton.api.v0.explain.ExplainService": _table("JobWhy PoolWhy PoolTree PoolPlan JobPlan"),
        "peloton.api.v0.mover.MoverService": _table("Query", same="Switch"),
        "peloton.api.v0.retention.RetentionService": _table("GetRetention"),
        "peloton.api.v0.workers.WorkerVersionService": _table(
            "QueryWorkerVersions", same="PromoteWorkerVersion", once="RollBackWorkerVersion"
        ),
        "peloton.api.v0.host.svc.HostService": _table(
            "QueryHosts ListHostPools",
            same="UpdateHostPool",
            once="StartMaintenance CompleteMaintenance CreateHostPool DeleteHostPool ChangeHostPool MoveHosts",
        ),
        "peloton.api.v1alpha.host.svc.HostService": _table(
            "QueryHosts ListHostPools",
            same="UpdateHostPool",
            once="StartMaintenance CompleteMaintenance CreateHostPool DeleteHostPool ChangeHostPool",
        ),
        "peloton.private.hostmgr.hostsvc.InternalHostService": _table(same="DisableKillTasks"),
        "peloton.api.v0.maintenance.MaintenanceService": _table(
            "Plan Query", same="Start Move", once="Complete Cancel Force"
        ),
        "peloton.api.v0.advice.AdviceService": _table("Advice"),
        "peloton.api.v0.access.AccessService": _table("WhoAmI CanI", once="SignIn SignOut OpenTerminal"),
        "peloton.api.v0.audit.AuditService": _table("Query"),
        "peloton.api.v0.volume.svc.VolumeService": _table("ListVolumes GetVolume", once="DeleteVolume"),
        "peloton.api.v1alpha.volume.svc.VolumeService": _table("ListVolumes GetVolume", once="DeleteVolume"),
        "peloton.api.v0.update.svc.UpdateService": _table(
            "GetUpdate ListUpdates GetUpdateCache",
            once="CreateUpdate PauseUpdate ResumeUpdate RollbackUpdate AbortUpdate",
        ),
        "peloton.api.v1alpha.job.stateless.svc.JobService": _table(
            "GetJob GetJobIDFromJobName GetWorkflowEvents ListPods QueryPods QueryJobs ListJobs ListJobWorkflows "
            "GetReplaceJobDiff GetJobCache",
            same="PulseJobWorkflow RefreshJob",
            keyed="CreateJob ReplaceJob PatchJob RestartJob",
            once="PauseJobWorkflow ResumeJobWorkflow AbortJobWorkflow StartJob StopJob DeleteJob",
        ),
        "peloton.api.v1alpha.pod.svc.PodService": _table(
            "GetPod GetPodEvents BrowsePodSandbox GetPodFile GetPodCache",
            same="StopPod RefreshPod",
            once="StartPod RestartPod ExchangeWithCommand DeletePodEvents",
        ),
        "peloton.api.v1alpha.watch.svc.WatchService": _table("Watch", once="Cancel"),
        "peloton.api.v1alpha.admin.svc.AdminService": _table("GetLockdown", once="Lockdown RemoveLockdown"),
        "peloton.api.v1alpha.respool.ResourcePoolService": _table(
            "GetResourcePool LookupResourcePoolID QueryResourcePools",
            same="UpdateResourcePool",
            once="CreateResourcePool DeleteResourcePool",
        ),
    }
)
