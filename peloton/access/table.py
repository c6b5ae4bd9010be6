"""The table of permissions: a rule for every method that a port of Peloton serves to clients.

A method without a row is refused. Services have their first names; other names of a service have the same rules.
"""

from __future__ import annotations

from collections.abc import Mapping

from peloton.access.caller import Role
from peloton.access.rules import Find, MethodRule, Needs, Source, Without

READER, SUBMITTER, OPERATOR, ADMIN = Role.READER, Role.SUBMITTER, Role.OPERATOR, Role.ADMIN
ANYWHERE, FILTERED = Without.ANYWHERE, Without.FILTERED
Row = tuple[Role, tuple[Source, ...], Without] | Needs


def _row(role: Role, *sources: Source, without: Without = Without.CLUSTER) -> Row:
    return role, sources, without


def _job(field: str) -> Source:
    return Source(Find.JOB, f"{field}.value")


def _pod(field: str) -> Source:
    return Source(Find.POD, f"{field}.value")


def _pool(field: str) -> Source:
    return Source(Find.POOL, field)


_JOB, _JOB_V1, _ID = _job("jobId"), _job("job_id"), _job("id")
_POD = _pod("pod_name")
_UPDATE = Source(Find.UPDATE, "updateId.value")
_NAMED_SCHEDULE = Source(Find.SCHEDULE, "name")
_MIGRATION = Source(Find.MIGRATION, "id")
_CONFIG, _SPEC = _pool("config.respoolID.value"), _pool("spec.respool_id.value")
_READS_JOB, _WRITES_JOB = _row(READER, _ID), _row(SUBMITTER, _ID)
_READS_TASK, _WRITES_TASK = _row(READER, _JOB), _row(SUBMITTER, _JOB)
_READS_V1, _WRITES_V1 = _row(READER, _JOB_V1), _row(SUBMITTER, _JOB_V1)
_READS_POD, _WRITES_POD = _row(READER, _POD), _row(SUBMITTER, _POD)
_STEERS_UPDATE = _row(SUBMITTER, _UPDATE)
_STEERS_MIGRATION = _row(OPERATOR, _MIGRATION)
_STEERS_SCHEDULE = _row(SUBMITTER, _NAMED_SCHEDULE)
_ANY_READER = _row(READER, without=ANYWHERE)
_ALL_READER = _row(READER)
_ADMINISTERS = _row(ADMIN)

_HOST_SERVICE: Mapping[str, Row] = {
    **dict.fromkeys(("QueryHosts", "ListHostPools"), _ANY_READER),
    **dict.fromkeys(("StartMaintenance", "CompleteMaintenance", "ChangeHostPool"), _ADMINISTERS),
    **dict.fromkeys(("CreateHostPool", "DeleteHostPool", "UpdateHostPool"), _ADMINISTERS),
}

SERVICES: Mapping[str, Mapping[str, Row]] = {
    # jobs and tasks of v0
    "peloton.api.job.JobManager": {
        "Create": _row(SUBMITTER, _CONFIG, _ID),  # a deleted job of this id may have left volumes
        "Get": _READS_JOB,
        "Query": _row(READER, _pool("respoolID.value"), without=FILTERED),
        "Delete": _WRITES_JOB,
        "Update": _row(SUBMITTER, _ID, _CONFIG),
        **dict.fromkeys(("Restart", "Start", "Stop", "Refresh"), _WRITES_JOB),
        "GetCache": _READS_JOB,
        "GetActiveJobs": _ALL_READER,
    },
    "peloton.api.task.TaskManager": {
        **dict.fromkeys(("Get", "List", "Query", "BrowseSandbox", "GetCache", "GetPodEvents"), _READS_TASK),
        **dict.fromkeys(("Start", "Stop", "Restart", "Refresh"), _WRITES_TASK),
        "DeletePodEvents": _row(OPERATOR, _JOB),
    },
    "peloton.api.v0.bulk.BulkService": {
        "CreateJob": _row(SUBMITTER, _pool("start.config.respoolID.value"), _job("start.id"))
    },
    "peloton.api.v0.gang.GangService": {"GetGang": _READS_TASK},
    "peloton.api.v0.update.svc.UpdateService": {
        "CreateUpdate": _row(SUBMITTER, _JOB, _pool("jobConfig.respoolID.value")),
        "ListUpdates": _row(READER, _job("jobID")),
        **dict.fromkeys(("GetUpdate", "GetUpdateCache"), _row(READER, _UPDATE)),
        **dict.fromkeys(("PauseUpdate", "ResumeUpdate", "RollbackUpdate", "AbortUpdate"), _STEERS_UPDATE),
    },
    "peloton.api.v0.volume.svc.VolumeService": {
        "ListVolumes": _row(READER, _JOB),
        "GetVolume": _row(READER, Source(Find.VOLUME, "id.value")),
        "DeleteVolume": _row(SUBMITTER, Source(Find.VOLUME, "id.value")),
    },
    # searches
    "peloton.api.v0.lookup.LookupService": dict.fromkeys(("FindJobs", "Find"), _row(READER, without=FILTERED)),
    "peloton.api.v0.table.JobTableService": {
        "ListJobs": _row(READER, _pool("filter.pool"), without=FILTERED),
        **dict.fromkeys(("GetJob", "GetInstanceStates", "GetInstanceUse"), _READS_JOB),
    },
    "peloton.api.v0.history.HistoryService": {
        "GetPoolHistory": _row(READER, _pool("paths"), without=ANYWHERE),
        "GetClusterHistory": _ANY_READER,
        "GetUsage": _row(READER, _pool("paths")),
    },
    "peloton.api.v0.overview.OverviewService": {
        **dict.fromkeys(("GetHostMap", "ListHostEvents"), _ANY_READER),
        "GetOverview": _row(READER, without=FILTERED),
        **dict.fromkeys(("GetHostPods", "GetDiagnosis"), _ALL_READER),  # they name jobs of all pools
    },
    # pools
    "peloton.api.respool.ResourceManager": {
        "CreateResourcePool": _row(OPERATOR, _pool("config.parent.value")),
        "UpdateResourcePool": _row(OPERATOR, Source(Find.ABOVE, "id.value"), _pool("config.parent.value")),
        "DeleteResourcePool": _row(OPERATOR, Source(Find.ABOVE, "path.value")),
        **dict.fromkeys(("GetResourcePool", "LookupResourcePoolID", "Query"), _ANY_READER),
    },
    "peloton.api.v1alpha.respool.ResourcePoolService": {
        "CreateResourcePool": _row(OPERATOR, _pool("spec.parent.value")),
        "UpdateResourcePool": _row(OPERATOR, Source(Find.ABOVE, "respool_id.value"), _pool("spec.parent.value")),
        "DeleteResourcePool": _row(OPERATOR, Source(Find.ABOVE, "respool_id.value")),
        **dict.fromkeys(("GetResourcePool", "LookupResourcePoolID", "QueryResourcePools"), _ANY_READER),
    },
    "peloton.api.v0.explain.ExplainService": {
        "JobWhy": _READS_TASK,
        "PoolWhy": _row(READER, _pool("path.value")),
        "PoolTree": _ANY_READER,
        "PoolPlan": _ANY_READER,
        "JobPlan": _row(READER, _CONFIG, _SPEC, without=ANYWHERE),
    },
    "peloton.api.v0.schedule.ScheduleService": {
        "CreateSchedule": _row(SUBMITTER, _pool("job_config.respoolID.value")),
        "ListSchedules": _row(READER, _pool("pool_path"), without=FILTERED),
        "GetSchedule": _row(READER, _NAMED_SCHEDULE),
        **dict.fromkeys(("PauseSchedule", "ResumeSchedule", "TriggerSchedule"), _STEERS_SCHEDULE),
        **dict.fromkeys(("BackfillSchedule", "DeleteSchedule"), _STEERS_SCHEDULE),
    },
    "peloton.api.v0.migration.MigrationService": {
        **dict.fromkeys(("Start", "Release"), _row(OPERATOR, Source(Find.JOB, "job_id"), _pool("pool_path"))),
        **dict.fromkeys(("Pause", "Resume", "Rollback"), _STEERS_MIGRATION),
        "Query": _row(READER, _MIGRATION, Source(Find.JOB, "job_id"), _pool("pool_path")),
    },
    # services of v1alpha
    "peloton.api.v1alpha.job.stateless.svc.JobService": {
        "CreateJob": _row(SUBMITTER, _SPEC, _JOB_V1),
        **dict.fromkeys(("ReplaceJob", "PatchJob"), _row(SUBMITTER, _JOB_V1, _SPEC)),
        **dict.fromkeys(("RestartJob", "StartJob", "StopJob", "DeleteJob", "RefreshJob"), _WRITES_V1),
        **dict.fromkeys(("PauseJobWorkflow", "ResumeJobWorkflow"), _WRITES_V1),
        **dict.fromkeys(("AbortJobWorkflow", "PulseJobWorkflow"), _WRITES_V1),
        **dict.fromkeys(("GetJob", "GetWorkflowEvents", "ListPods", "QueryPods", "ListJobWorkflows"), _READS_V1),
        "GetJobCache": _READS_V1,
        "GetReplaceJobDiff": _row(READER, _JOB_V1, _SPEC),
        "GetJobIDFromJobName": _row(READER, without=FILTERED),
        "QueryJobs": _row(READER, _pool("spec.respool.value"), without=FILTERED),
        "ListJobs": _row(READER, without=FILTERED),
    },
    "peloton.api.v1alpha.pod.svc.PodService": {
        **dict.fromkeys(("StartPod", "StopPod", "RestartPod", "RefreshPod", "ExchangeWithCommand"), _WRITES_POD),
        **dict.fromkeys(("GetPod", "GetPodEvents", "BrowsePodSandbox", "GetPodFile", "GetPodCache"), _READS_POD),
        "DeletePodEvents": _row(OPERATOR, _POD),
    },
    "peloton.api.v1alpha.watch.svc.WatchService": {
        "Watch": _row(
            READER,
            _job("stateless_job_filter.job_ids"),
            _job("pod_filter.job_id"),
            _pod("pod_filter.pod_names"),
            without=FILTERED,
        ),
        "Cancel": _ANY_READER,
    },
    "peloton.api.v1alpha.volume.svc.VolumeService": {
        "ListVolumes": _row(READER, _JOB_V1),
        "GetVolume": _row(READER, Source(Find.VOLUME, "volume_id.value")),
        "DeleteVolume": _row(SUBMITTER, Source(Find.VOLUME, "volume_id.value")),
    },
    # the cluster
    "peloton.api.v0.host.svc.HostService": {**_HOST_SERVICE, "MoveHosts": _ADMINISTERS},
    "peloton.api.v1alpha.host.svc.HostService": _HOST_SERVICE,
    "peloton.api.v0.maintenance.MaintenanceService": {
        **dict.fromkeys(("Plan", "Query"), _ALL_READER),
        **dict.fromkeys(("Start", "Complete", "Move", "Cancel", "Force"), _ADMINISTERS),
    },
    "peloton.api.v0.advice.AdviceService": {"Advice": _ANY_READER},
    "peloton.api.v0.mover.MoverService": {"Query": _ANY_READER, "Switch": _ADMINISTERS},
    "peloton.api.v0.rebalance.RebalanceService": {
        **dict.fromkeys(("PlanRebalance", "QueryRebalance"), _ALL_READER),
        **dict.fromkeys(("StartRebalance", "PauseRebalance", "ResumeRebalance", "StopRebalance"), _ADMINISTERS),
    },
    "peloton.api.v0.retention.RetentionService": {"GetRetention": _ANY_READER},
    "peloton.api.v0.workers.WorkerVersionService": {
        "QueryWorkerVersions": _ANY_READER,
        **dict.fromkeys(("PromoteWorkerVersion", "RollBackWorkerVersion"), _ADMINISTERS),
    },
    "peloton.api.v1alpha.admin.svc.AdminService": {
        "GetLockdown": _ANY_READER,
        **dict.fromkeys(("Lockdown", "RemoveLockdown"), _ADMINISTERS),
    },
    "peloton.api.v0.audit.AuditService": {"Query": _ADMINISTERS},
    "peloton.private.hostmgr.hostsvc.InternalHostService": {"DisableKillTasks": _ADMINISTERS},
    # identity, the calls of other processes, and what gRPC brings
    "peloton.api.v0.access.AccessService": {
        **dict.fromkeys(("WhoAmI", "CanI", "SignIn", "SignOut"), Needs.NOTHING),
        "OpenTerminal": _row(SUBMITTER, Source(Find.POD, "pod_name")),
    },
    "peloton.private.reads.BulkReads": {  # of the Aurora bridge, which passes the credentials of its clients on
        "ListJobs": _row(READER, without=FILTERED),
        **dict.fromkeys(("ListPods", "ListUpdates"), _row(READER, Source(Find.JOB, "job_ids"), without=FILTERED)),
    },
    "peloton.private.publisher.EventPublisher": {"Lease": Needs.PELOTON},
    "peloton.private.processes.Processes": {"Announce": Needs.PELOTON},
    "grpc.health.v1.Health": dict.fromkeys(("Check", "List", "Watch"), Needs.NOTHING),
    "grpc.reflection.v1alpha.ServerReflection": {"ServerReflectionInfo": Needs.NOTHING},
}
"""Service -> method -> rule."""


def _make_rule(service: str, name: str, row: Row) -> MethodRule:
    method = f"{service}/{name}"
    if isinstance(row, Needs):
        return MethodRule(method, Role.READER, needs=row)
    role, sources, without = row
    return MethodRule(method, role, sources, without)


RULES: Mapping[str, MethodRule] = {
    rule.method: rule
    for service, rows in SERVICES.items()
    for rule in (_make_rule(service, name, row) for name, row in rows.items())
}
"""``service/method``, with the first name of the service -> its rule."""


def make_refused_rule(method: str) -> MethodRule:
    """Return the rule of a method that is refused by its name: a reader is answered with what serves instead."""
    return MethodRule(method, Role.READER, without=Without.ANYWHERE)
