"""A Mesos and a Kubernetes under one Peloton, both emulated, with simulated hosts."""

from __future__ import annotations

import http.client
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from cli.main import peloton
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.task import task_pb2
from tests.e2e.daemons import Daemon, come_back, end_maintenance, leave, maintain, watch_daemon
from tests.e2e.local import Cluster, bound_to, shell, temporary
from tests.e2e.test_faults import list_launched_twice
from tests.kubernetes.client import MERGE, Client, login_of
from tests.nightly import NIGHTLY

pytestmark = pytest.mark.xdist_group("both kinds")
MESOS, KUBERNETES = "local", "kubernetes"
HOSTS, CPUS = 20, 4
"""Hosts of each cluster, and cpus of each host: two hosts of a cluster may be maintained at a time."""
PODS = 100
"""More than the hosts of one cluster hold."""
GPUS = 2
"""The gpus of one host of each cluster."""
GPU_HOSTS = ("sim-00000", "kubernetes-sim-00000")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("both")
    simulation = folder / "simulation.yaml"
    simulation.write_text(yaml.safe_dump({"hosts": [{"name": "gpu", "count": 1, "gpus": GPUS}, {"name": "other"}]}))
    settings = temporary(folder / "data", simulate=HOSTS, simulation_file=simulation, kubernetes=HOSTS)
    with Cluster(settings) as running:
        running.wait(lambda: running.capacity() == HOSTS * CPUS * 2, "the capacity of both clusters")
        yield running


def run(cluster: Cluster, *arguments: str) -> str:
    result = CliRunner().invoke(peloton, ["-a", cluster.local.address, *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def stop(cluster: Cluster, job: str) -> None:
    cluster.client.tasks.Stop(task_pb2.StopRequest(jobId=peloton_pb2.JobID(value=job)))
    assert cluster.finish(job) == "KILLED"


def that_run(cluster: Cluster, job: str) -> Counter[str]:
    """Running pods by cluster."""
    tasks = cluster.tasks(job).values()
    return Counter(t.runtime.cluster for t in tasks if t.runtime.state == task_pb2.TaskState.RUNNING)


def kinds(cluster: Cluster) -> Counter[str]:
    hosts = json.loads(run(cluster, "--json", "host", "query"))["hostInfos"]
    labels = [{label["key"]: label["value"] for label in host["labels"]} for host in hosts]
    return Counter(f"{each['peloton/cluster']} is {each['peloton/cluster-kind']}" for each in labels)


def test_one_job_runs_on_mesos_and_on_kubernetes(cluster: Cluster) -> None:
    """Pods of one job run on both clusters, on neither alone; each is launched once."""
    expected = {f"{MESOS} is mesos": HOSTS, f"{KUBERNETES} is kubernetes": HOSTS}
    cluster.wait(lambda: kinds(cluster) == expected, "the hosts of both kinds")
    job = cluster.submit(cluster.pool("large"), instanceCount=PODS, defaultConfig=shell("sleep 1000", cpu=1, memory=1))

    cluster.wait(lambda: cluster.counts(job) == {"RUNNING": PODS}, "all of them running")

    where = that_run(cluster, job)
    assert {MESOS, KUBERNETES} == where.keys()
    assert max(where.values()) <= HOSTS * CPUS
    assert [] == list_launched_twice(cluster, job)
    stop(cluster, job)


def test_a_service_moves_from_mesos_to_kubernetes(cluster: Cluster) -> None:
    """A job for one kind of cluster stays there. A service that may be anywhere moves, and then back."""
    pool = cluster.pool("moving")
    there = cluster.submit(
        pool, instanceCount=5, defaultConfig=shell("sleep 1000", **bound_to("peloton/cluster-kind", "kubernetes"))
    )
    web = cluster.submit(pool, instanceCount=6, type="SERVICE", defaultConfig=shell("sleep 1000"))
    cluster.wait(lambda: cluster.counts(web) == {"RUNNING": 6}, "the service running")
    cluster.wait(lambda: cluster.counts(there) == {"RUNNING": 5}, "the job for Kubernetes running")
    assert {KUBERNETES: 5} == that_run(cluster, there)

    for target in (MESOS, KUBERNETES, MESOS):
        run(cluster, "migrate", web, "--to", target, "--batch", "3")
        cluster.wait(lambda target=target: that_run(cluster, web) == {target: 6}, f"the service in {target}")
        ended = lambda: "SUCCEEDED" in run(cluster, "migration", "status", web, "--limit", "1")  # noqa: E731
        cluster.wait(ended, "the end of the migration")

    refused = CliRunner().invoke(peloton, ["-a", cluster.local.address, "migrate", there, "--to", MESOS, "--now"])
    assert 1 == refused.exit_code
    assert f"no host of cluster {MESOS} could take pods of" in refused.output
    for job in (there, web):
        stop(cluster, job)


@pytest.mark.parametrize(
    ("kind", "host"), [("mesos", "sim-00007"), ("kubernetes", "kubernetes-sim-00007")], ids=["mesos", "kubernetes"]
)
def test_pods_go_to_hosts_that_they_prefer(cluster: Cluster, kind: str, host: str) -> None:
    """Pods fill the host that they prefer most, then others of the kind of cluster that they prefer; none waits."""
    wishes = [(20, "peloton/cluster-kind", kind), (80, "hostname", host)]
    preferences = [{"weight": weight, **bound_to(key, value)} for weight, key, value in wishes]
    task = shell("sleep 1000", cpu=1, memory=1, hostPreferences=preferences)

    job = cluster.submit(cluster.pool(f"fond-of-{kind}"), instanceCount=CPUS + 2, defaultConfig=task)

    cluster.wait(lambda: cluster.counts(job) == {"RUNNING": CPUS + 2}, "all of them running")
    assert CPUS == [task.runtime.host for task in cluster.tasks(job).values()].count(host)
    assert {MESOS if kind == "mesos" else KUBERNETES: CPUS + 2} == that_run(cluster, job)
    shown = run(cluster, "job", "get", job)
    assert ("hostPreferences" in shown, host in shown) == (True, True)
    stop(cluster, job)


def change_node(cluster: Cluster, name: str, body: Any) -> None:
    """Patches a node as an operator of the Kubernetes cluster, or a device plugin there; ``name`` may end with a
    subresource."""
    assert cluster.local.kubernetes is not None
    with Client(login_of(cluster.local.kubernetes.kubeconfig)) as client:
        reply = client.ask("PATCH", f"/api/v1/nodes/{name}", body, MERGE)
    assert http.client.OK == reply.status, reply.body


def with_gpus(count: int) -> dict[str, Any]:
    resource = {"cpuLimit": 0.1, "memLimitMb": 1, "gpuLimit": count}
    return {"command": {"shell": True, "value": "sleep 1000"}, "resource": resource}


def test_gpus_are_used_where_they_are(cluster: Cluster) -> None:
    """Pods use the gpus of both clusters; a shortage on all hosts is named, and the rest of the pool's work runs."""
    change_node(cluster, f"{GPU_HOSTS[1]}/status", {"status": {"allocatable": {"nvidia.com/gpu": str(GPUS)}}})
    cluster.wait(lambda: cluster.capacity("gpu") == 2 * GPUS, "the gpus of both clusters")
    pool = cluster.pool("gpus", gpu=2 * GPUS)
    greedy = cluster.submit(pool, instanceCount=1, defaultConfig=with_gpus(GPUS + 1))
    lacking = f"no host has gpu {GPUS + 1}: the largest of {HOSTS} hosts has {GPUS}"
    named = f"cluster {KUBERNETES}: {lacking}; cluster {MESOS}: {lacking}"
    cluster.wait(lambda: named in run(cluster, "job", "why", greedy), "the reason")
    stop(cluster, greedy)

    job = cluster.submit(pool, instanceCount=2 * GPUS, defaultConfig=with_gpus(1))

    cluster.wait(lambda: cluster.counts(job) == {"RUNNING": 2 * GPUS}, "all of them running")
    hosts = Counter(task.runtime.host for task in cluster.tasks(job).values())
    assert dict.fromkeys(GPU_HOSTS, GPUS) == hosts
    stop(cluster, job)


def hosts_of_both(cluster: Cluster) -> list[str]:
    infos = json.loads(run(cluster, "--json", "host", "query"))["hostInfos"]
    return sorted(info["hostname"] for info in infos)


def hosts_numbered(*numbers: int) -> list[str]:
    """One of each cluster for each number."""
    return [f"{prefix}sim-{number:05}" for number in numbers for prefix in ("", f"{KUBERNETES}-")]


def test_a_daemon_follows_its_hosts(cluster: Cluster) -> None:
    """A daemon runs once on each host of both clusters; its pod goes with a host that leaves, is lost or is maintained,
    and the same instance comes back with it. An update leaves no more hosts without it than its bound says."""
    hosts, some = hosts_of_both(cluster), hosts_numbered(7, 8)
    daemon = Daemon(cluster, cluster.pool("daemon"))
    pod_hosts = daemon.until_on(hosts)
    others = [host for host in hosts if host not in some]

    for host in some:
        leave(cluster, host)
    daemon.until_on(others)
    for host in some:
        come_back(cluster, host)
    assert pod_hosts == daemon.until_on(hosts)

    maintain(cluster, some)
    daemon.until_on(others)
    end_maintenance(cluster, some)
    assert pod_hosts == daemon.until_on(hosts)

    with watch_daemon(cluster, daemon) as seen:
        daemon.update("sleep 2000", batch=10)
    assert 1 <= seen.away_most <= 10
    assert pod_hosts == daemon.until_on(hosts)
    assert {2} == {task.runtime.configVersion for task in cluster.tasks(daemon.id).values()}
    stop(cluster, daemon.id)


@NIGHTLY
def test_preemptible_pods_free_resources_for_a_daemon(cluster: Cluster) -> None:
    """Preemptible pods leave a host of each kind that they fill, and wait in their queue until the daemon has ended."""
    pool, wanted = cluster.pool("room", cpu=1_000), hosts_numbered(9)
    full = [
        cluster.submit(pool, instanceCount=1, defaultConfig=shell("sleep 1000", cpu=CPUS, **bound_to("hostname", host)))
        for host in wanted
    ]
    for job in full:
        cluster.wait(lambda job=job: cluster.counts(job) == {"RUNNING": 1}, "a pod on the whole host")

    daemons = [Daemon(cluster, pool, **bound_to("hostname", host)) for host in wanted]

    for daemon, host in zip(daemons, wanted, strict=True):
        assert {host: 0} == daemon.until_on([host])
    for job in full:
        cluster.wait(lambda job=job: cluster.counts(job) == {"PENDING": 1}, "the evicted pod in its queue")
    for daemon in daemons:
        stop(cluster, daemon.id)
    for job in full:
        cluster.wait(lambda job=job: cluster.counts(job) == {"RUNNING": 1}, "the pod on its host again")
        stop(cluster, job)


@NIGHTLY
def test_a_daemon_is_never_twice_on_a_host(cluster: Cluster) -> None:
    """Hosts of both kinds leave and come back, and what drives it is killed meanwhile; in the end it is on all."""
    hosts = hosts_of_both(cluster)
    daemon = Daemon(cluster, cluster.pool("lives"))
    pod_hosts = daemon.until_on(hosts)
    away: list[str] = []

    with watch_daemon(cluster, daemon) as seen:
        for round_, victim in enumerate(["hostmgr", "worker", f"hostmgr-{KUBERNETES}"]):
            leaving = hosts_numbered(10 + 2 * round_, 11 + 2 * round_)
            for host in leaving:
                leave(cluster, host)
            cluster.kill(victim)
            for host in away:
                come_back(cluster, host)
            away = leaving
            gone = lambda away=away: daemon.pod_hosts.keys().isdisjoint(away)  # noqa: E731
            cluster.wait(gone, f"the end of the pods of hosts that left, after the death of {victim}")
        for host in away:
            come_back(cluster, host)
        assert pod_hosts == daemon.until_on(hosts)

    assert [] == seen.twice
    assert [] == list_launched_twice(cluster, daemon.id, len(hosts))
    stop(cluster, daemon.id)


def test_taints_of_others_keep_pods_away(cluster: Cluster) -> None:
    """Pods avoid a node with another owner's taint, and run on a node with the taint of dedicated nodes."""
    ours, theirs = f"{KUBERNETES}-sim-00001", f"{KUBERNETES}-sim-00002"
    for node, key in ((ours, "peloton.io/dedicated"), (theirs, "example.com/theirs")):
        change_node(cluster, node, {"spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}})
    taint = "it has the taint example.com/theirs:NoSchedule"
    cluster.wait(lambda: taint in run(cluster, "host", "query"), "the host that is kept from us")
    pool = cluster.pool("taints")

    here, there = (
        cluster.submit(pool, instanceCount=1, defaultConfig=shell("sleep 1000", memory=1, **bound_to("hostname", node)))
        for node in (ours, theirs)
    )

    cluster.wait(lambda: cluster.counts(here) == {"RUNNING": 1}, "the pod on the dedicated node")
    refused = f"cluster {KUBERNETES}: 0 of {HOSTS - 1} hosts meet the constraint label hostname={theirs}"
    cluster.wait(lambda: refused in run(cluster, "job", "why", there), "the reason")
    assert {} == that_run(cluster, there)
    for job in (here, there):
        stop(cluster, job)
