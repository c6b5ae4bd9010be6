"""Two clusters under one Peloton: one database, one resource manager, one api, a host manager for each."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from click.testing import CliRunner

from cli.main import peloton
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.host import host_pb2
from peloton.api.v0.host.svc import host_svc_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.maintenance import maintenance_pb2 as pb
from peloton.api.v0.task import task_pb2
from peloton.api.v0.update import update_pb2
from peloton.api.v0.update.svc import update_svc_pb2
from tests.e2e.local import Cluster, bound_to, shell, temporary
from tests.messages import instance_range
from tests.nightly import NIGHTLY

pytestmark = pytest.mark.xdist_group("clusters")
A, B = "local", "b"
HOSTS, CPUS = 4, 4
"""Hosts of each cluster, and cpus of each host."""
CPU = 3
"""The cpus of a pod: one fits on a host."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = temporary(tmp_path_factory.mktemp("clusters"), simulate=HOSTS, more_clusters=(B,))
    with Cluster(settings) as cluster:
        yield cluster


@pytest.fixture
def cluster(running: Cluster) -> Cluster:
    """A cluster with all hosts of both clusters, and nothing on them."""
    running.wait(lambda: running.capacity() == HOSTS * CPUS * 2, "the capacity of both clusters")
    running.wait(lambda: free_cpus(running) == {A: HOSTS * CPUS, B: HOSTS * CPUS}, "all of it free")
    return running


@pytest.fixture
def start(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Callable[..., str]]:
    """Create a job whose pods run until they are stopped."""
    pool, jobs = cluster.pool(request.node.name), []

    def create(count: int, cpu: float = CPU, task: dict[str, Any] | None = None, **config: Any) -> str:
        jobs.append(
            cluster.submit(pool, instanceCount=count, defaultConfig=shell("sleep 1000", cpu, **(task or {})), **config)
        )
        return jobs[-1]

    yield create
    for job in jobs:
        cluster.client.tasks.Stop(task_pb2.StopRequest(jobId=peloton_pb2.JobID(value=job)))
        assert cluster.finish(job) == "KILLED"


def infos(cluster: Cluster) -> host_svc_pb2.QueryHostsResponse:
    return cluster.client.hosts.QueryHosts(host_svc_pb2.QueryHostsRequest())


def free_cpus(cluster: Cluster) -> dict[str, float]:
    free: defaultdict[str, float] = defaultdict(float)
    for info in infos(cluster).host_infos:
        free[info.cluster] += info.free.cpu
    return dict(free)


def clusters_of(cluster: Cluster, job: str) -> Counter[str]:
    """Pods on hosts by cluster."""
    return Counter(t.runtime.cluster for t in cluster.tasks(job).values() if t.runtime.host)


def pod_hosts(cluster: Cluster, job: str) -> dict[int, str]:
    return {i: t.runtime.host for i, t in cluster.tasks(job).items()}


def wait_running(cluster: Cluster, job: str, count: int) -> None:
    cluster.wait(lambda: cluster.counts(job).get("RUNNING", 0) == count, f"{count} pods running")


def in_cluster(name: str) -> dict[str, object]:
    return bound_to("peloton/cluster", name)


def of_kind(name: str) -> dict[str, object]:
    return bound_to("peloton/cluster-kind", name)


def run(cluster: Cluster, *arguments: str) -> str:
    result = CliRunner().invoke(peloton, ["-a", cluster.local.address, *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def why(cluster: Cluster, job: str) -> str:
    return run(cluster, "job", "why", job)


def test_a_job_runs_in_both(cluster: Cluster, start: Callable[..., str]) -> None:
    """Pods that do not fit in one cluster run in the other."""
    job = start(HOSTS * 2)

    wait_running(cluster, job, HOSTS * 2)

    assert {A: HOSTS, B: HOSTS} == clusters_of(cluster, job)
    assert {A: HOSTS, B: HOSTS} == Counter(info.cluster for info in infos(cluster).host_infos)
    assert [] == infos(cluster).silent_clusters
    assert dict.fromkeys(range(HOSTS * 2), 1) == cluster.run_ids(job)


def test_jobs_go_where_most_is_free(cluster: Cluster, start: Callable[..., str]) -> None:
    """Four jobs, each half a cluster: two for each."""
    jobs = [start(HOSTS // 2) for _ in range(4)]

    for job in jobs:
        wait_running(cluster, job, HOSTS // 2)

    assert {A: HOSTS, B: HOSTS} == sum((clusters_of(cluster, job) for job in jobs), Counter())


def test_a_gang_is_whole_in_one(cluster: Cluster, start: Callable[..., str]) -> None:
    """A gang that fits in one cluster only goes there; one that only both together could hold waits, and says where it
    was tried."""
    other = start(1, task=in_cluster(A))
    wait_running(cluster, other, 1)

    gang = start(HOSTS, sla={"minimumRunningInstances": HOSTS})

    wait_running(cluster, gang, HOSTS)
    assert {B: HOSTS} == clusters_of(cluster, gang)
    second = start(HOSTS - 1 + 1, cpu=0.9 * CPUS / CPUS, sla={"minimumRunningInstances": HOSTS})
    wait_running(cluster, second, HOSTS)
    assert 1 == len(clusters_of(cluster, second))
    large = start(HOSTS, sla={"minimumRunningInstances": HOSTS})
    cluster.wait(lambda: "cluster b: gang of 4 without a host" in why(cluster, large), "why the large gang waits")
    assert f"cluster {A}: gang of 4 without a host" in why(cluster, large)


def test_a_job_is_bound_by_a_constraint(cluster: Cluster, start: Callable[..., str]) -> None:
    """A job with a constraint stays in its cluster though the other one is empty."""
    job = start(HOSTS + 1, task=in_cluster(B))

    wait_running(cluster, job, HOSTS)

    cluster.wait(
        lambda: f"cluster {A}: no pod may go there: label peloton/cluster" in why(cluster, job), "where it looked"
    )
    assert {B: HOSTS} == clusters_of(cluster, job)
    assert "b-sim-00000" in run(cluster, "host", "query")
    assert '"cluster": "b"' in run(cluster, "--json", "task", "get", job, "0")


def test_a_host_manager_is_killed(cluster: Cluster, start: Callable[..., str]) -> None:
    """Pods run on in both clusters, and each host manager asks for its own only: no pod is lost."""
    job = start(HOSTS * 2)
    wait_running(cluster, job, HOSTS * 2)

    small = [kill_and_run(cluster, start, part) for part in ("hostmgr-b", "hostmgr")]

    assert [{A: 1}, {B: 1}] == [clusters_of(cluster, job) for job in small]
    assert {"RUNNING": HOSTS * 2} == cluster.counts(job)
    assert dict.fromkeys(range(HOSTS * 2), 1) == cluster.run_ids(job)


def kill_and_run(cluster: Cluster, start: Callable[..., str], part: str) -> str:
    """Kill a process while a job in the other cluster starts; then all hosts are announced again, the victim's by a
    new process that has reconciled its pods."""
    starts, reported = cluster.local.part(part).starts, log_lines(cluster, part, "subscribed")
    cluster.kill(part)
    job = start(1, cpu=1, task=in_cluster(A if part == "hostmgr-b" else B))
    wait_running(cluster, job, 1)
    cluster.wait(lambda: cluster.local.part(part).starts > starts, f"{part} started again")
    cluster.wait(lambda: len(infos(cluster).host_infos) == HOSTS * 2, "all hosts, known to a new host manager")
    cluster.wait(lambda: log_lines(cluster, part, "subscribed") > reported, "a new subscription")
    return job


def log_lines(cluster: Cluster, part: str, words: str) -> int:
    return sum(line.startswith(f"{part}: ") and words in line for line in list(cluster.log))


def test_a_cluster_without_a_host_manager(cluster: Cluster, start: Callable[..., str]) -> None:
    """Pods of a cluster without a host manager run on, its hosts are not announced, and pods that may go elsewhere do;
    a stop there takes effect when it is back, and maintenance of a host of it is refused until then."""
    there = start(2, task=in_cluster(B))
    wait_running(cluster, there, 2)
    cluster.stop_part("hostmgr-b", now=True)
    cluster.wait(lambda: list(infos(cluster).silent_clusters) == [B], "the api knowing it")

    job = start(HOSTS)

    wait_running(cluster, job, HOSTS)
    assert {A: HOSTS} == clusters_of(cluster, job)
    assert {"RUNNING": 2} == cluster.counts(there)
    with pytest.raises(grpc.RpcError, match="UNAVAILABLE"):
        cluster.client.maintenance.Start(pb.StartRequest(hostnames=["b-sim-00000", "sim-00000"]))
    assert [] == list(cluster.client.maintenance.Query(pb.QueryRequest()).hosts)
    cluster.client.tasks.Stop(task_pb2.StopRequest(jobId=peloton_pb2.JobID(value=there)))
    cluster.start_part("hostmgr-b")
    cluster.wait(lambda: cluster.counts(there) == {"KILLED": 2}, "the stopped pods ended")


@NIGHTLY
def test_a_master_is_away(cluster: Cluster, start: Callable[..., str]) -> None:
    """Pods are not declared lost while the Mesos of their cluster is down; as their hosts forgot them they run again
    when it is back, and pods of the other cluster were never touched."""
    again = {"restartPolicy": {"maxFailures": 1}}
    here, there = start(HOSTS, task=in_cluster(A)), start(HOSTS, task=in_cluster(B) | again)
    wait_running(cluster, here, HOSTS)
    wait_running(cluster, there, HOSTS)

    cluster.stop_part("minicluster-b", now=True)
    noticed = lambda: any("hostmgr-b" in line and "event stream lost" in line for line in cluster.log)  # noqa: E731
    cluster.wait(noticed, "its host manager without offers")
    small = start(2, cpu=0.5)
    wait_running(cluster, small, 2)

    assert {A: 2} == clusters_of(cluster, small)
    assert {"RUNNING": HOSTS} == cluster.counts(there)
    cluster.start_part("minicluster-b")
    cluster.wait(lambda: set(cluster.run_ids(there).values()) == {2}, "new runs")
    wait_running(cluster, there, HOSTS)
    assert dict.fromkeys(range(HOSTS), 1) == cluster.run_ids(here)


def test_a_host_of_the_second_is_maintained(cluster: Cluster, start: Callable[..., str]) -> None:
    """Asked for together with one of the first: each goes by the bound of its own cluster."""
    job = start(2, task=in_cluster(B))
    wait_running(cluster, job, 2)
    host = pod_hosts(cluster, job)[0]

    answer = cluster.client.maintenance.Start(pb.StartRequest(hostnames=[host, "sim-00000"]))

    assert {host: B, "sim-00000": A} == {one.hostname: one.cluster for one in answer.hosts}
    with pytest.raises(grpc.RpcError, match="host is not a Peloton agent"):
        cluster.client.maintenance.Start(pb.StartRequest(hostnames=["b-sim-00003", "nowhere"]))

    def states() -> dict[str, int]:
        return {info.hostname: info.state for info in infos(cluster).host_infos}

    cluster.wait(lambda: {states()[h] for h in (host, "sim-00000")} == {host_pb2.HOST_STATE_DOWN}, "both down")
    wait_running(cluster, job, 2)
    assert {B: 2} == clusters_of(cluster, job)
    assert host not in pod_hosts(cluster, job).values()
    asked = cluster.client.maintenance.Query(pb.QueryRequest())
    assert (2, HOSTS * 2) == (asked.away_max, asked.host_count)
    cluster.client.maintenance.Complete(pb.CompleteRequest(hostnames=["sim-00000", host]))
    cluster.wait(lambda: set(states().values()) == {host_pb2.HOST_STATE_UP}, "both back")


@NIGHTLY
def test_a_service_is_updated_in_place_in_both(cluster: Cluster, start: Callable[..., str]) -> None:
    """Every instance is updated on its host, in whichever cluster that is, while other pods wait for the resources."""
    web = start(HOSTS * 2, type="SERVICE")
    wait_running(cluster, web, HOSTS * 2)
    before = pod_hosts(cluster, web)
    waiting = start(1, cpu=2)
    config = cluster.client.jobs.Get(job_pb2.GetRequest(id=peloton_pb2.JobID(value=web))).jobInfo.config
    config.defaultConfig.command.value = "sleep 2000"
    asked = update_pb2.UpdateConfig(batchSize=3, inPlace=True)
    request = update_svc_pb2.CreateUpdateRequest(
        jobId=peloton_pb2.JobID(value=web), jobConfig=config, updateConfig=asked
    )

    update_id = cluster.client.updates.CreateUpdate(request).updateID

    look = update_svc_pb2.GetUpdateRequest(updateId=update_id)
    cluster.wait(
        lambda: cluster.client.updates.GetUpdate(look).updateInfo.status.state == update_pb2.SUCCEEDED, "all updated"
    )
    assert dict.fromkeys(range(HOSTS * 2), 2) == cluster.run_ids(web)
    assert before == pod_hosts(cluster, web)
    assert 0 == cluster.counts(waiting).get("RUNNING", 0)


def state_of(cluster: Cluster, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(cluster, "--json", "migration", "status", name))["migrations"][0]
    return found


def clusters_that_serve(cluster: Cluster, job: str) -> Counter[str]:
    tasks = cluster.tasks(job).values()
    return Counter(t.runtime.cluster for t in tasks if t.runtime.state == task_pb2.TaskState.RUNNING)


@NIGHTLY
def test_a_service_migrates_and_back(cluster: Cluster, start: Callable[..., str]) -> None:
    """Instances migrate one by one while resources are free; a rollback, through the end of host manager, worker and
    resource manager, brings back the migrated ones. The second migration completes, and new pods come up in the
    target."""
    pool = "/test_a_service_migrates_and_back"
    run(cluster, "migrate", pool, "--to", A)  # where the pool's pods begin
    cluster.wait(lambda: state_of(cluster, pool)["state"] == "SUCCEEDED", "the pool bound")
    sla = {"maximumUnavailableInstances": 1}
    web = start(HOSTS, cpu=1, task=of_kind("mesos"), type="SERVICE", name="moving", sla=sla)
    wait_running(cluster, web, HOSTS)
    assert {A: HOSTS} == clusters_of(cluster, web)
    released = run(cluster, "migration", "release", pool)
    assert f"was bound to {A}" in released
    plugs = []
    for cpu, count in ((CPU, HOSTS), (1, HOSTS - 2)):  # the large ones first: one on each host
        plugs.append(start(count, cpu=cpu, task=in_cluster(B)))
        wait_running(cluster, plugs[-1], count)

    plan = run(cluster, "migrate", web, "--to", B, "--dry-run", "--force")
    assert f"moving to cluster {B}: {HOSTS} instances of 1 service move" in plan
    assert "No migrations" in run(cluster, "migration", "status", web)
    run(cluster, "migrate", web, "--to", B, "--force")
    cluster.wait(lambda: clusters_that_serve(cluster, web) == {A: 1, B: 2}, "as many as fit")
    run(cluster, "migration", "rollback", web)
    for part in ("hostmgr-b", "worker", "resmgr"):
        cluster.kill(part)
    cluster.wait(lambda: state_of(cluster, web)["state"] == "ROLLED_BACK", "everything back")
    cluster.wait(lambda: clusters_that_serve(cluster, web) == {A: HOSTS}, "all of them serving")

    for plug in plugs:
        cluster.client.tasks.Stop(task_pb2.StopRequest(jobId=peloton_pb2.JobID(value=plug)))
        assert cluster.finish(plug) == "KILLED"
    cluster.wait(lambda: free_cpus(cluster).get(B) == HOSTS * CPUS, "free resources in the target")
    run(cluster, "migrate", web, "--to", B, "--batch", "2")
    cluster.wait(lambda: state_of(cluster, web)["state"] == "SUCCEEDED", "the end of the migration")
    assert {B: HOSTS} == clusters_that_serve(cluster, web)
    assert f"bound to cluster {B} by a migration" in why(cluster, web)
    before = cluster.run_ids(web)[0]
    cluster.client.tasks.Restart(
        task_pb2.RestartRequest(jobId=peloton_pb2.JobID(value=web), ranges=[instance_range(0, 1)])
    )
    cluster.wait(lambda: cluster.run_ids(web)[0] > before, "another run")
    wait_running(cluster, web, HOSTS)
    assert {B: HOSTS} == clusters_of(cluster, web)


def test_a_pool_migrates(cluster: Cluster, start: Callable[..., str]) -> None:
    """Services of a pool migrate one after the other; queued batch pods go to the target, running ones end where
    they are."""
    pool = "/test_a_pool_migrates"
    webs = [start(1, cpu=1, task=of_kind("mesos"), type="SERVICE", name=f"web{i}") for i in range(3)]
    batch = start(1, cpu=1)
    for job in (*webs, batch):
        wait_running(cluster, job, 1)
    home = next(iter(clusters_of(cluster, batch)))
    target = B if home == A else A

    run(cluster, "migrate", pool, "--to", target)
    cluster.wait(lambda: state_of(cluster, pool)["state"] == "SUCCEEDED", "the end of the migration")
    late = start(2, cpu=1)
    wait_running(cluster, late, 2)

    assert [{target: 1}] * 3 == [clusters_that_serve(cluster, job) for job in webs]
    assert [{home: 1}, {target: 2}] == [clusters_of(cluster, job) for job in (batch, late)]
    assert dict.fromkeys(range(1), 1) == cluster.run_ids(batch)
    refused = CliRunner().invoke(peloton, ["-a", cluster.local.address, "migrate", pool, "--to", "nowhere"])
    assert (1, True) == (refused.exit_code, f"unknown cluster nowhere; known clusters: {B}, {A}" in refused.output)
