"""Maintenance of hosts from end to end: pods leave, the host goes down and comes back, whatever is killed meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from click.testing import CliRunner

from cli.main import peloton
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.host import host_pb2
from peloton.api.v0.host.svc import host_svc_pb2
from peloton.api.v0.maintenance import maintenance_pb2 as pb
from peloton.api.v0.overview import overview_pb2
from peloton.api.v0.respool import respool_pb2
from peloton.api.v0.task import task_pb2
from peloton.model.ids import ROOT_POOL_ID, JobId
from services.storage.storage import Storage
from tests.e2e.local import Cluster, shell
from tests.e2e.shared import SIMULATED, Lend
from tests.nightly import nightly

pytestmark = pytest.mark.xdist_group("simulated")
HOSTS = 10
PODS = 40
CAPACITY: dict[Cluster, float] = {}
"""The capacity of clusters when all of their hosts are there."""


@pytest.fixture(scope="module")
def cluster(lend: Lend) -> Iterator[Cluster]:
    with lend(SIMULATED) as running:
        CAPACITY[running] = running.capacity()
        yield running


@pytest.fixture
def job(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """Pods on every host that run until they are killed."""
    cluster.wait(lambda: set(states(cluster).values()) == {("UP", "UP")}, "all hosts back from the story before")
    cluster.wait(lambda: cluster.capacity() >= CAPACITY[cluster], "their capacity")
    pool = cluster.pool(request.node.name.replace("[", "-").replace("]", ""))
    task = shell("sleep 1000", cpu=host_cpus(cluster) / 8, memory=16)
    job = cluster.submit(pool, instanceCount=PODS, defaultConfig=task)
    cluster.wait(lambda: cluster.counts(job) == {"RUNNING": PODS}, "all pods running")
    yield job
    stop = task_pb2.StopRequest(jobId=peloton_pb2.JobID(value=job))
    cluster.wait(
        lambda: bool(cluster.client.tasks.Stop(stop)), "a call that stops it"
    )  # a killed process may not respond yet
    assert cluster.finish(job) == "KILLED"


def host_cpus(cluster: Cluster) -> float:
    return cluster.capacity() / HOSTS


def hosts_of(cluster: Cluster, job: str) -> Counter[str]:
    """Running pods by host."""
    return Counter(t.runtime.host for t in cluster.tasks(job).values() if t.runtime.host)


def run_elsewhere(cluster: Cluster, job: str, host: str) -> bool:
    """Return whether all pods run, and none on the host: the counts of a job follow its pods a moment later."""
    return cluster.counts(job) == {"RUNNING": PODS} and host not in hosts_of(cluster, job)


def states(cluster: Cluster) -> dict[str, tuple[str, str]]:
    """Host -> state, goal."""
    infos = cluster.client.hosts.QueryHosts(host_svc_pb2.QueryHostsRequest()).host_infos

    def name(state: host_pb2.HostState.ValueType) -> str:
        return host_pb2.HostState.Name(state).removeprefix("HOST_STATE_")

    return {info.hostname: (name(info.state), name(info.goal_state)) for info in infos}


def wait_state(cluster: Cluster, state: str, *hosts: str) -> None:
    cluster.wait(lambda: all(states(cluster).get(host, ("",))[0] == state for host in hosts), f"{hosts} {state}")


def query_maintenance(cluster: Cluster) -> dict[str, pb.HostMaintenance]:
    return {host.hostname: host for host in cluster.client.maintenance.Query(pb.QueryRequest()).hosts}


def start(cluster: Cluster, *hosts: str, **options: Any) -> list[str]:
    """Start a maintenance; return what hosts wait for, each in its place."""
    answer = cluster.client.maintenance.Start(pb.StartRequest(hostnames=hosts, **options))
    return [host.waiting_for for host in answer.hosts]


def complete(cluster: Cluster, *hosts: str) -> None:
    cluster.client.maintenance.Complete(pb.CompleteRequest(hostnames=hosts))
    wait_state(cluster, "UP", *hosts)


def test_a_host_goes_through_the_whole_cycle(cluster: Cluster, job: str) -> None:
    """Pods of the host go back to the queue and run elsewhere without a failure; a DOWN host counts for nothing; once
    it is UP again it takes pods."""
    capacity = cluster.capacity()
    host, before = next(iter(hosts_of(cluster, job))), cluster.tasks(job)
    moved = {i for i, t in before.items() if t.runtime.host == host}

    cluster.client.hosts.StartMaintenance(host_svc_pb2.StartMaintenanceRequest(hostname=host))
    cluster.client.hosts.StartMaintenance(host_svc_pb2.StartMaintenanceRequest(hostname=host))

    wait_state(cluster, "DOWN", host)
    cluster.wait(lambda: run_elsewhere(cluster, job, host), "all pods running elsewhere")
    assert cluster.run_ids(job) == {i: 2 if i in moved else 1 for i in range(PODS)}
    assert failures_of_evicted(cluster, job) == dict.fromkeys(moved, 0)
    cluster.wait(lambda: cluster.capacity() < capacity, "a smaller root pool")
    assert query_maintenance(cluster)[host].state == host_pb2.HOST_STATE_DOWN
    assert "which is what the hosts that are up have" in a_pool_of(cluster, capacity)

    cluster.client.hosts.CompleteMaintenance(host_svc_pb2.CompleteMaintenanceRequest(hostname=host))

    wait_state(cluster, "UP", host)
    cluster.wait(lambda: cluster.capacity() == capacity, "the whole cluster")
    assert query_maintenance(cluster) == {}
    with pytest.raises(grpc.RpcError, match="Host is not DOWN"):
        cluster.client.hosts.CompleteMaintenance(host_svc_pb2.CompleteMaintenanceRequest(hostname=host))
    assert cluster.takes_pods(cluster.pool("after the cycle"), host)
    reported = [event for event in cluster.host_events(host) if event[0] not in ("CHANGED", "DRAIN_PROGRESS")]
    kinds = [kind for kind, _ in reported]
    asked = kinds.index("MAINTENANCE_ASKED")
    assert ["MAINTENANCE_ASKED", "DRAINING", "DRAINED"] == kinds[asked : asked + 3]
    assert {"DOWN", "LEFT", "COMPLETED", "JOINED", "UP"} == set(kinds[asked + 3 :])
    (left,) = [text for kind, text in reported[asked:] if kind == "LEFT"]
    assert left.endswith("for its maintenance")
    said = CliRunner().invoke(peloton, ["-a", cluster.local.address, "host", "events", host, "--kind", "left"])
    assert left in said.stdout, said.output


def a_pool_of(cluster: Cluster, cpus: float) -> str:
    """Create a pool with this cpu limit; return the warnings."""
    config = respool_pb2.ResourcePoolConfig(name=f"of {cpus} cpus")
    config.parent.value = ROOT_POOL_ID
    config.resources.add(kind="cpu", limit=cpus, share=1)
    answer = cluster.client.respools.CreateResourcePool(respool_pb2.CreateRequest(config=config))
    assert not answer.HasField("error"), answer
    return "".join(answer.warnings)


def test_the_whole_at_a_glance(cluster: Cluster, job: str) -> None:
    """The overview shows the clusters' capacity, the leaders, each pod's place, and no problem."""
    service, held = cluster.client.overview, hosts_of(cluster, job)

    def read_overview() -> overview_pb2.GetOverviewResponse:
        return service.GetOverview(overview_pb2.GetOverviewRequest())

    cluster.wait(lambda: read_overview().pods["RUNNING"] == PODS, "a count of all pods")
    found = read_overview()
    (here,) = found.clusters
    assert here.amounts[0].capacity == cluster.capacity()
    assert {"UP": HOSTS} == dict(here.hosts.states)
    assert ["hostmgr/local", "resmgr"] == [role.role for role in found.roles if role.address]
    cluster.wait(
        lambda: not read_overview().problems, "that nothing is wrong, as heartbeats may be late on a busy machine"
    )

    cluster.wait(lambda: sum(read_host_map(cluster).pod_counts) == PODS, "all pods on the map")
    hosts = read_host_map(cluster)
    assert {host: count for host, count in zip(hosts.hostnames, hosts.pod_counts, strict=True) if count} == held
    for host, count in held.items():
        pods = service.GetHostPods(overview_pb2.GetHostPodsRequest(hostname=host)).pods
        assert [(job, "RUNNING")] * count == [(pod.job_id, task_pb2.TaskState.Name(pod.state)) for pod in pods]
        (info,) = cluster.client.hosts.QueryHosts(host_svc_pb2.QueryHostsRequest(hostnames=[host])).host_infos
        assert host == info.hostname
    arguments = ["-a", cluster.local.address, "overview"]
    cluster.wait(
        lambda: CliRunner().invoke(peloton, arguments).stdout.startswith("Nothing is wrong"), "the same of the command"
    )


def read_host_map(cluster: Cluster) -> overview_pb2.HostMap:
    (found,) = cluster.client.overview.GetHostMap(overview_pb2.GetHostMapRequest()).maps
    return found


def test_a_gang_leaves_whole_and_comes_back_whole(cluster: Cluster) -> None:
    """A gang has each member on a host of its own: one host goes, all members run again together, elsewhere."""
    pool = cluster.pool("gang")
    task = shell("sleep 1000", cpu=host_cpus(cluster) * 0.9, memory=16)
    gang = cluster.submit(pool, instanceCount=3, defaultConfig=task, sla={"minimumRunningInstances": 3})
    cluster.wait(lambda: cluster.counts(gang) == {"RUNNING": 3}, "the gang running")
    assert len(hosts_of(cluster, gang)) == 3
    host = cluster.task(gang, 1).runtime.host

    start(cluster, host)

    wait_state(cluster, "DOWN", host)
    cluster.wait(lambda: cluster.counts(gang) == {"RUNNING": 3}, "the gang running again")
    assert cluster.run_ids(gang) == dict.fromkeys(range(3), 2)
    assert host not in hosts_of(cluster, gang)
    complete(cluster, host)
    cluster.client.tasks.Stop(task_pb2.StopRequest(jobId=peloton_pb2.JobID(value=gang)))
    assert cluster.finish(gang) == "KILLED"


def failures_of_evicted(cluster: Cluster, job: str) -> dict[int, int]:
    """Instances that a maintenance evicted -> failures counted."""
    storage = Storage(cluster.local.database)
    try:
        pods = storage.pods.page(JobId(job))
        events = {pod.instance_id: storage.pods.events(pod.job_id, pod.instance_id, None, 0) for pod in pods}
        reason = "EvictionReason_HOST_MAINTENANCE"
        return {p.instance_id: p.failure_count for p in pods if any(e.reason == reason for e in events[p.instance_id])}
    finally:
        storage.close()


ROLES = ["api", "worker", "resmgr", "hostmgr", "temporal"]
VICTIMS = [nightly(["hostmgr"]), nightly(["worker"]), nightly(["temporal"]), ROLES]


@pytest.mark.parametrize("victims", VICTIMS, ids=["hostmgr", "worker", "temporal", "everything"])
def test_a_maintenance_survives_the_death_of(victims: list[str], cluster: Cluster, job: str) -> None:
    """Killed right after the start, and again half-way up: the host goes DOWN and comes UP all the same."""
    host = next(iter(hosts_of(cluster, job)))

    start(cluster, host)
    kill(cluster, victims)
    wait_state(cluster, "DOWN", host)
    cluster.wait(lambda: run_elsewhere(cluster, job, host), "all pods running elsewhere")
    cluster.client.maintenance.Complete(pb.CompleteRequest(hostnames=[host]))
    kill(cluster, victims)

    wait_state(cluster, "UP", host)
    cluster.wait(lambda: query_maintenance(cluster) == {}, "the end of the maintenance")


def kill(cluster: Cluster, victims: list[str]) -> None:
    for victim in victims:
        cluster.kill(victim)


def test_no_more_hosts_are_away_than_the_bound(cluster: Cluster, job: str) -> None:
    """One of ten at a time: the others wait in the order of the call and say so; a call may allow more."""
    first, second, third = sorted(hosts_of(cluster, job))[:3]

    assert start(cluster, second, first) == ["", "its turn: 1 of at most 1 hosts are draining or down"]
    wait_state(cluster, "DOWN", second)
    reported = cluster.client.hosts.StartMaintenance(host_svc_pb2.StartMaintenanceRequest(hostname=first))
    assert reported.waiting_for == "its turn: 1 of at most 1 hosts are draining or down"
    assert states(cluster)[first] == ("UP", "DOWN")
    assert query_maintenance(cluster)[first].waiting_for == "its turn: 1 of at most 1 hosts are draining or down"
    start(cluster, third, at_most=3)
    assert query_maintenance(cluster)[third].waiting_for == (
        "its turn: 1 of at most 3 hosts are draining or down, 1 wait before it"
    )
    complete(cluster, second)
    wait_state(cluster, "DOWN", first, third)

    complete(cluster, first, third)
    cluster.wait(lambda: cluster.counts(job) == {"RUNNING": PODS}, "all pods running")


def test_cancel_half_way(cluster: Cluster) -> None:
    """A drain that a pod holds up is cancelled: the host is UP and takes pods; so does one that waited for its turn."""
    pool = cluster.pool("slow")
    slow = shell("sleep 1000", memory=1, killGracePeriodSeconds=600)
    job = cluster.submit(pool, instanceCount=1, defaultConfig=slow)
    cluster.wait(lambda: cluster.counts(job) == {"RUNNING": 1}, "a running pod")
    host = cluster.task(job).runtime.host
    other = next(name for name in states(cluster) if name != host)

    cluster.stop_part("worker")
    start(cluster, host, other)
    assert (states(cluster)[host], states(cluster)[other]) == (("DRAINING", "DOWN"), ("UP", "DOWN"))
    cluster.client.maintenance.Cancel(pb.CancelRequest(hostnames=[host, other]))
    cluster.start_part("worker")

    wait_state(cluster, "UP", host, other)
    assert query_maintenance(cluster) == {}
    assert cluster.run_ids(job) == {0: 1}
    assert cluster.takes_pods(pool, host)


BAD: dict[str, tuple[str, object, str, str]] = {
    "unknown host": (
        "Start",
        pb.StartRequest(hostnames=["nowhere"]),
        "ABORTED",
        "host is not a Peloton agent: nowhere",
    ),
    "one of them": ("Start", None, "ABORTED", "host is not a Peloton agent: nowhere"),
    "none": ("Start", pb.StartRequest(), "INVALID_ARGUMENT", "no host is named"),
    "not down": ("Complete", pb.CompleteRequest(hostnames=["nowhere"]), "NOT_FOUND", "Host is not DOWN"),
    "not begun": ("Cancel", pb.CancelRequest(hostnames=["h"]), "NOT_FOUND", "host h is not in maintenance"),
    "no force": ("Force", pb.ForceRequest(hostnames=["h"]), "NOT_FOUND", "host h is not in maintenance"),
}


@pytest.mark.parametrize(("method", "request_", "code", "text"), BAD.values(), ids=BAD.keys())
def test_bad_input(method: str, request_: object, code: str, text: str, cluster: Cluster) -> None:
    """The error names the rule, and nothing has changed."""
    asked = request_ or pb.StartRequest(hostnames=[next(iter(states(cluster))), "nowhere"])

    with pytest.raises(grpc.RpcError) as refused:
        getattr(cluster.client.maintenance, method)(asked)

    assert (refused.value.code().name, refused.value.details()) == (code, text)
    assert query_maintenance(cluster) == {}


@pytest.mark.parametrize("what", ["ListHostPools", "CreateHostPool", "DeleteHostPool", "ChangeHostPool", "MoveHosts"])
def test_there_are_no_host_pools(what: str, cluster: Cluster) -> None:
    """The original's answer of an installation without them."""
    request = getattr(host_svc_pb2, f"{what}Request")()

    with pytest.raises(grpc.RpcError) as refused:
        getattr(cluster.client.hosts, what)(request)

    assert (refused.value.code().name, refused.value.details()) == ("UNIMPLEMENTED", "host pools not enabled")


def test_bad_input_of_v0(cluster: Cluster) -> None:
    """Errors have the original's texts; its list of hosts continues after errors and has all of them."""
    hosts, known = cluster.client.hosts, next(iter(states(cluster)))
    start_, complete_ = host_svc_pb2.StartMaintenanceRequest, host_svc_pb2.CompleteMaintenanceRequest
    unknown = "host is not a Peloton agent"
    refused: dict[tuple[str, str], Callable[[], object]] = {
        ("ABORTED", f"{unknown}: nowhere"): lambda: hosts.StartMaintenance(start_(hostname="nowhere")),
        ("NOT_FOUND", "Host is not DOWN"): lambda: hosts.CompleteMaintenance(complete_(hostname=known)),
        ("ABORTED", f"{unknown}: a; {unknown}: b"): lambda: hosts.StartMaintenance(start_(hostnames=["a", "b"])),
        ("INVALID_ARGUMENT", "no host is named"): lambda: hosts.StartMaintenance(start_()),
    }

    for expected, call in refused.items():
        with pytest.raises(grpc.RpcError) as error:
            call()
        assert (error.value.code().name, error.value.details()) == expected
    assert query_maintenance(cluster) == {}
