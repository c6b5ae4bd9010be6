"""Answers of the API about a small cluster, for tests of `peloton top`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from peloton.api.v0.explain import explain_pb2
from peloton.api.v0.host import host_pb2
from peloton.api.v0.host.svc import host_svc_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.maintenance import maintenance_pb2
from peloton.api.v0.overview import overview_pb2
from peloton.api.v0.respool import respool_pb2
from peloton.api.v0.schedule import schedule_pb2
from peloton.api.v0.table import table_pb2
from peloton.api.v0.task import task_pb2
from tests.unit.cli.fake_api import FakeApi

NOW = datetime.now(UTC)
BATCH, SERVICE, BROKEN = (f"{n}1b1b8e5-2ba8-11e7-bc23-0242ac11000d" for n in "123")


def ago(**duration: float) -> str:
    return (NOW - timedelta(**duration)).strftime("%Y-%m-%dT%H:%M:%SZ")


def tree() -> explain_pb2.PoolTreeResponse:
    answer = explain_pb2.PoolTreeResponse()
    root = answer.pools.add(path="/", queuedInstances=3)
    root.amounts.add(kind="cpu", reservation=12, limit=12, entitlement=12, allocation=6, demand=3)
    root.amounts.add(kind="memory", reservation=24576, limit=24576, entitlement=24576, allocation=6144)
    eng = answer.pools.add(path="/eng", depth=1, isLeaf=True, queuedInstances=3)
    eng.amounts.add(kind="cpu", reservation=4, limit=6, entitlement=6, allocation=6, demand=3)
    eng.amounts.add(kind="memory", reservation=0, limit=float("inf"), entitlement=24576, allocation=6144)
    ads = answer.pools.add(path="/ads", depth=1, isLeaf=True)
    ads.amounts.add(kind="cpu", reservation=2, limit=float("inf"), entitlement=6)
    return answer


def pools() -> respool_pb2.QueryResponse:
    answer = respool_pb2.QueryResponse()
    for path in ("/", "/eng", "/ads"):
        pool = answer.resourcePools.add()
        pool.id.value, pool.path.value = f"id of {path}", path
    return answer


JOBS = {
    BATCH: ("tiles", "/eng", "maps", "RUNNING", "BATCH", {"RUNNING": 6, "PENDING": 3, "SUCCEEDED": 1}, 120),
    SERVICE: ("search", "/ads", "ads", "RUNNING", "SERVICE", {"RUNNING": 2}, 90_000),
    BROKEN: ("broken", "/eng", "maps", "FAILED", "BATCH", {"FAILED": 1, "KILLED": 1}, 600),
}


def jobs(request: table_pb2.ListJobsRequest) -> table_pb2.ListJobsResponse:
    """Answers with the jobs of the requested pool, states and name."""
    answer, wanted = table_pb2.ListJobsResponse(), request.filter
    states = {job_pb2.JobState.Name(number) for number in wanted.states}
    for job_id, (name, pool, owner, state, kind, counts, age_s) in JOBS.items():
        is_asked = pool.startswith(wanted.pool) and wanted.namePart in name
        if not is_asked or (states and state not in states):
            continue
        job = answer.jobs.add(name=name, owner=owner, poolPath=pool, instanceCount=sum(counts.values()))
        job.id.value, job.type, job.state = job_id, job_pb2.JobType.Value(kind), job_pb2.JobState.Value(state)
        job.creationTime = ago(seconds=age_s)
        if state == "FAILED":
            job.completionTime = ago(seconds=age_s - 60)
        job.taskStats.update(counts)
    return answer


def job(request: job_pb2.GetRequest) -> job_pb2.GetResponse:
    name, pool, owner, state, kind, counts, age_s = JOBS[request.id.value]
    answer = job_pb2.GetResponse()
    info = answer.jobInfo
    info.id.value, info.config.name, info.config.owningTeam = request.id.value, name, owner
    info.config.respoolID.value, info.config.type = f"id of {pool}", job_pb2.JobType.Value(kind)
    info.config.instanceCount = sum(counts.values())
    info.runtime.state = job_pb2.JobState.Value(state)
    info.runtime.goalState, info.runtime.creationTime = job_pb2.JobState.Value("SUCCEEDED"), ago(seconds=age_s)
    info.runtime.taskStats.update(counts)
    return answer


def tasks(request: task_pb2.QueryRequest) -> task_pb2.QueryResponse:
    """Answers with up to three tasks of each job, of the requested states."""
    answer = task_pb2.QueryResponse()
    states = {task_pb2.TaskState.Name(number) for number in request.spec.taskStates}
    for instance, state in enumerate(("RUNNING", "FAILED", "PENDING")):
        if states and state not in states:
            continue
        info = answer.records.add(instanceId=instance)
        info.jobId.value, info.config.name = request.jobId.value, "worker"
        runtime = info.runtime
        runtime.state = task_pb2.TaskState.Value(state)
        if state != "PENDING":
            runtime.host, runtime.startTime = "host-1", ago(seconds=100)
            runtime.mesosTaskId.value = f"{request.jobId.value}-{instance}-2"
        if state == "FAILED":
            runtime.message, runtime.completionTime = "exit code 3", ago(seconds=10)
    answer.pagination.total = len(answer.records)
    return answer


def events(request: task_pb2.GetPodEventsRequest) -> task_pb2.GetPodEventsResponse:
    answer = task_pb2.GetPodEventsResponse()
    for state, message in (("FAILED", "exit code 3"), ("RUNNING", ""), ("PENDING", "queued")):
        event = answer.result.add(actualState=state, goalState="SUCCEEDED", hostname="host-1", message=message)
        event.taskId.value, event.timestamp = f"{request.jobId.value}-{request.instanceId}-2", ago(seconds=9)
    return answer


def hosts() -> host_svc_pb2.QueryHostsResponse:
    answer = host_svc_pb2.QueryHostsResponse()
    for name, free, state, marked in (
        ("host-1", 1, "UP", "RED: cpu 97 % of 4 cores"),
        ("host-2", 2, "UP", ""),
        ("host-3", 3, "DOWN", ""),
    ):
        info = answer.host_infos.add(hostname=name, ip="10.0.0.1", current_pool="default", marked=marked)
        info.state = host_pb2.HostState.Value(f"HOST_STATE_{state}")
        info.labels.add(key="rack", value=f"r{name[-1]}")
        if state == "UP":
            info.capacity.cpu, info.capacity.memory_mib, info.capacity.disk_mib = 4, 8192, 10240
            info.free.cpu, info.free.memory_mib, info.free.disk_mib = free, 4096, 10240
            info.used.cpu = 0.5
    return answer


def overview() -> overview_pb2.GetOverviewResponse:
    answer = overview_pb2.GetOverviewResponse(counted_time=ago(seconds=5), jobs={"RUNNING": 2, "FAILED": 1})
    answer.pods.update({"RUNNING": 8, "PENDING": 3})
    cluster = answer.clusters.add(cluster="local", cluster_kind="mesos")
    cluster.amounts.add(kind="cpu", capacity=12, away=4, allocation=6, used=1, measured_capacity=8, slack=2)
    cluster.amounts.add(kind="memory", capacity=24576, allocation=6144)
    cluster.amounts.add(kind="gpu")
    cluster.hosts.states.update({"UP": 2, "DOWN": 1})
    answer.roles.add(role="resmgr", address="10.0.0.1:5394", seconds_left=8)
    critical, warning = overview_pb2.SEVERITY_CRITICAL, overview_pb2.SEVERITY_WARNING
    host, role = overview_pb2.SUBJECT_KIND_HOST, overview_pb2.SUBJECT_KIND_ROLE
    gone = "Host host-3 left cluster local 3 min ago and is not back"
    answer.problems.add(
        severity=critical, text=gone, subject_kind=host, subject_id="host-3", since=ago(minutes=3), cluster="local"
    )
    answer.problems.add(
        severity=warning, text="Host host-1 is marked RED: cpu 97 %", subject_kind=host, subject_id="host-1"
    )
    answer.problems.add(severity=warning, text="The resource manager is slow", subject_kind=role, subject_id="resmgr")
    return answer


def host_pods(request: overview_pb2.GetHostPodsRequest) -> overview_pb2.GetHostPodsResponse:
    answer = overview_pb2.GetHostPodsResponse()
    for instance, (job_id, workload) in enumerate(((BATCH, "shared"), (SERVICE, "stateless"))):
        pod = answer.pods.add(
            pod_id=f"{job_id}-{instance}-1", job_id=job_id, job_name=JOBS[job_id][0], pool_path=JOBS[job_id][1]
        )
        pod.instance_id, pod.state, pod.since = instance, task_pb2.TaskState.Value("RUNNING"), ago(seconds=70)
        pod.workload, pod.asked.cpu, pod.asked.memory_mib = workload, 1, 512
    return answer


def host_events(request: overview_pb2.ListHostEventsRequest) -> overview_pb2.ListHostEventsResponse:
    answer = overview_pb2.ListHostEventsResponse()
    kind = overview_pb2.HOST_EVENT_KIND_JOINED
    answer.events.add(
        number=7, hostname=request.hostname, kind=kind, text="Came back after 3 min", time="2026-01-02T03:04:05Z"
    )
    return answer


def schedules() -> schedule_pb2.ListSchedulesResponse:
    answer = schedule_pb2.ListSchedulesResponse()
    night = answer.schedules.add(name="night", pool_path="/eng", next_times=[ago(hours=-3)])
    night.times.crons.append("0 6 * * 1-5")
    night.times.time_zone = "Europe/Berlin"
    night.runs.add(state="FAILED", job_id=BATCH, start_time=ago(hours=5))
    sweep = answer.schedules.add(name="sweep", pool_path="/ads", paused=True, note="the source moves")
    sweep.times.interval_s = 21_600
    sweep.next_times.append(ago(hours=-1))
    return answer


def give_cluster(api: FakeApi) -> None:
    """Set the answers of an API with all services."""
    api.answers |= {
        "explain.PoolTree": [tree()],
        "explain.PoolWhy": [explain_pb2.PoolWhyResponse(text="/eng: 3 gangs wait\n  cpu 1 wanted, 0 left of 6")],
        "explain.JobWhy": [explain_pb2.JobWhyResponse(text="3 instances wait: cpu 1 wanted, 0 left of 6")],
        "respools.Query": [pools()],
        "job_table.ListJobs": [jobs],
        "schedules.ListSchedules": [schedules()],
        "jobs.Get": [job],
        "tasks.Query": [tasks],
        "tasks.GetPodEvents": [events],
        "hosts.QueryHosts": [hosts()],
        "maintenance.Query": [maintenance_pb2.QueryResponse()],
        "overview.GetOverview": [overview()],
        "overview.GetHostPods": [host_pods],
        "overview.ListHostEvents": [host_events],
    }
