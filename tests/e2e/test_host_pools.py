"""Host pools from end to end: hosts move whatever is killed meanwhile, and follow a spike of services."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cli.main import peloton
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.host.svc import host_svc_pb2
from peloton.api.v0.maintenance import maintenance_pb2 as pb
from peloton.api.v0.mover import mover_pb2
from peloton.api.v0.task import task_pb2
from tests.e2e.local import Cluster, shell, temporary
from tests.e2e.service import Service
from tests.e2e.test_maintenance import hosts_of, kill, query_maintenance, run_elsewhere, states
from tests.nightly import NIGHTLY, nightly

pytestmark = pytest.mark.xdist_group("host pools")
HOSTS, PODS = 10, 40
QUICK_MOVER = {
    "PELOTON_MOVER_PERIOD_S": "0.5",
    "PELOTON_MOVER_TAKE_AFTER_URGENT_S": "1",
    "PELOTON_MOVER_RETURN_AFTER_S": "2",
    "PELOTON_MOVER_SETTLE_S": "1",
}


@contextmanager
def divide(folder: Path, count: int, **settings: Any) -> Iterator[Cluster]:
    """Two hosts are for services, the others for batch jobs, of which the mover may take one."""
    environment = {"PELOTON_HOST_POOLS": "true", **QUICK_MOVER}
    with Cluster(temporary(folder, environment=environment, **settings)) as running:
        running.wait(lambda: len(states(running)) == count, "all hosts")
        hosts = running.client.hosts
        hosts.CreateHostPool(host_svc_pb2.CreateHostPoolRequest(name="services", serves=["stateless"]))
        batch = host_svc_pb2.CreateHostPoolRequest(name="batch", serves=["batch", "shared"], minimum=count - 3)
        hosts.CreateHostPool(batch)
        for at, host in enumerate(sorted(states(running))):
            pool = "services" if at < 2 else "batch"
            hosts.ChangeHostPool(
                host_svc_pb2.ChangeHostPoolRequest(hostname=host, sourcePool="default", destinationPool=pool)
            )
        yield running


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of Mesos."""
    with divide(tmp_path_factory.mktemp("host-pools"), HOSTS, simulate=HOSTS) as running:
        yield running


@pytest.fixture(params=["mesos", nightly("kubernetes")])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    if request.param == "mesos":
        yield request.getfixturevalue("cluster")
        return
    with divide(tmp_path, 4, kubernetes=4, no_mesos=True) as running:
        yield running


@pytest.fixture
def job(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """Batch pods on all hosts for batch jobs, that run until they are killed."""
    pool = cluster.pool(request.node.name.replace("[", "-").replace("]", ""))
    task = shell("sleep 1000", cpu=cluster.capacity() / HOSTS / 10, memory=16)
    job = cluster.submit(pool, instanceCount=PODS, defaultConfig=task, sla={"preemptible": True})
    cluster.wait(lambda: cluster.counts(job) == {"RUNNING": PODS}, "all pods running")
    yield job
    stop = task_pb2.StopRequest(jobId=peloton_pb2.JobID(value=job))
    cluster.wait(lambda: bool(cluster.client.tasks.Stop(stop)), "a call that stops it")
    assert cluster.finish(job) == "KILLED"


def host_pools(cluster: Cluster) -> dict[str, str]:
    """Each host is in one."""
    answer = cluster.client.hosts.ListHostPools(host_svc_pb2.ListHostPoolsRequest())
    places = [(host, pool.name) for pool in answer.pools for host in pool.hosts]
    assert len(places) == len(dict(places))
    return dict(places)


VICTIMS = [["hostmgr"], ["worker"], ["api", "worker", "resmgr", "hostmgr", "temporal"]]


@NIGHTLY
@pytest.mark.parametrize("victims", VICTIMS, ids=["hostmgr", "worker", "everything"])
def test_a_move_survives_the_death_of(victims: list[str], cluster: Cluster, job: str) -> None:
    """Killed right after the call, and again on the way: the host is drained, in its new host pool, and takes its pods;
    it was never in two, and its batch pods run elsewhere."""
    host = next(iter(hosts_of(cluster, job)))

    cluster.client.maintenance.Move(pb.MoveRequest(hostnames=[host], host_pool="services", at_most=3))
    kill(cluster, victims)
    cluster.wait(
        lambda: states(cluster).get(host, ("",))[0] != "UP" or host_pools(cluster)[host] == "services", "a drain"
    )
    kill(cluster, victims)

    cluster.wait(lambda: host_pools(cluster)[host] == "services", "the host in its new host pool")
    cluster.wait(lambda: query_maintenance(cluster) == {}, "the end of the move")
    cluster.wait(lambda: states(cluster).get(host) == ("UP", "UP"), "the host to take pods")
    cluster.wait(lambda: run_elsewhere(cluster, job, host), "all pods running elsewhere")
    cluster.client.hosts.ChangeHostPool(
        host_svc_pb2.ChangeHostPoolRequest(hostname=host, sourcePool="services", destinationPool="batch")
    )


def test_a_spike_of_services_takes_hosts_from_batch_and_gives_them_back(cluster: Cluster, job: str) -> None:
    """A service's pods fill two hosts; the mover lends it one more, and the batch pods there run elsewhere. The
    deciding and moving processes are killed on the way there and on the way back: their successors report what was
    done, with the reason, and no host was ever in two host pools."""
    memory = cluster.capacity("memory") / HOSTS
    service = Service(cluster, cluster.pool("spike"), 6, memoryMb=int(memory * 0.4)).create()
    cluster.wait(lambda: service.status.pod_stats["POD_STATE_RUNNING"] == 4, "as many pods as fit")
    cluster.client.mover.Switch(mover_pb2.SwitchRequest(on=True))
    cluster.wait(lambda: query_maintenance(cluster) != {} or len(list_moves(cluster)) == 1, "a host on its way")
    kill(cluster, ["resmgr", "hostmgr"])

    cluster.wait(lambda: service.status.pod_stats["POD_STATE_RUNNING"] == 6, "all pods of the service")

    cluster.wait(lambda: len(list_moves(cluster)) == 1, "the mover")
    (there,) = list_moves(cluster)
    (lent,) = there.hostnames
    assert ("batch", "services", "WAITING") == (there.source, there.destination, there.rule)
    assert {lent: "services"}.items() <= host_pools(cluster).items()
    cluster.wait(lambda: run_elsewhere(cluster, job, lent), "all batch pods running elsewhere")

    service.stop()
    cluster.wait(lambda: len(list_moves(cluster)) == 2, "a host that goes back")
    kill(cluster, ["resmgr", "hostmgr"])
    cluster.wait(lambda: host_pools(cluster)[lent] == "batch", "the host back in its host pool")
    cluster.wait(lambda: query_maintenance(cluster) == {}, "the end of the move")
    cluster.wait(lambda: list_moves(cluster) != [], "the mover")
    assert ("SPARE", [lent]) == (list_moves(cluster)[0].rule, list(list_moves(cluster)[0].hostnames))
    assert Counter(services=2, batch=HOSTS - 2) == Counter(host_pools(cluster).values())
    reported = [
        text.partition(":")[0] for kind, text in cluster.host_events(lent) if kind in ("POOL_WANTED", "POOL_CHANGED")
    ]
    assert [
        "To move from host pool batch to services once it is drained, by the mover",
        "Moved from host pool batch to services, drained",
        "To move from host pool services to batch once it is drained, by the mover",
        "Moved from host pool services to batch, drained",
    ] == reported[-4:], "each once, whoever was killed"
    cluster.client.mover.Switch(mover_pb2.SwitchRequest(on=False))


def list_moves(cluster: Cluster) -> list[mover_pb2.Shift]:
    return list(cluster.client.mover.Query(mover_pb2.QueryRequest()).made)


def cli(cluster: Cluster, *arguments: str) -> str:
    result = CliRunner().invoke(peloton, ["-a", cluster.local.address, *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def host_cpus(cluster: Cluster, host: str) -> float:
    """The cpus of a host as its host pool announces them."""
    infos = json.loads(cli(cluster, "--json", "host", "query"))["hostInfos"]
    return float(next(info for info in infos if info["hostname"] == host)["capacity"]["cpu"])


def test_host_pools_by_the_command_line(either: Cluster) -> None:
    """A host in a host pool with a factor takes a pod that is larger than the host is, and a service goes to the hosts
    for services; what cannot be is refused with names and numbers, and changes nothing."""
    cluster = either
    host = next(host for host, pool in sorted(host_pools(cluster).items()) if pool == "batch")
    cpus = host_cpus(cluster, host)
    cli(cluster, "host", "pool", "create", "dense", "--serves", "shared", "--cpu", "1.5")
    cli(cluster, "host", "pool", "move", host, "--from", "batch", "--to", "dense")
    assert {host} == {name for name, pool in host_pools(cluster).items() if pool == "dense"}
    assert cpus * 1.5 == host_cpus(cluster, host)

    pool = cluster.pool("dense")
    batch = cluster.submit(pool, instanceCount=1, defaultConfig=shell("sleep 1000", cpu=cpus * 1.2))
    service = Service(cluster, pool, 2).create()
    cluster.wait(lambda: cluster.counts(batch) == {"RUNNING": 1}, "the large pod running")
    cluster.wait(lambda: service.status.pod_stats["POD_STATE_RUNNING"] == 2, "the service running")
    assert {host} == set(hosts_of(cluster, batch))
    assert {"services"} == {host_pools(cluster)[name] for name in hosts_of(cluster, service.id)}

    before = cli(cluster, "host", "pool", "list")
    refusals = {
        ("create", "dense"): "host pool dense exists already",
        ("create", "wide", "--cpu", "11"): "11.0 is not in the range 1.0<=x<=10.0",
        ("create", "wide", "--serves", "cooking"): "cooking",
        ("move", "nowhere", "--to", "dense"): 'host "nowhere" not found',
        ("move", host, "--to", "none"): "there is no host pool none",
        ("move", host, "--from", "batch", "--to", "services"): f"host {host} is in host pool dense, not in batch",
        ("delete", "default"): "it cannot be deleted",
    }
    for arguments, reported in refusals.items():
        result = CliRunner().invoke(peloton, ["-a", cluster.local.address, "host", "pool", *arguments])
        assert reported in result.output
        assert result.exit_code > 0
    assert before == cli(cluster, "host", "pool", "list")

    assert "factors: cpu 2" in cli(cluster, "host", "pool", "update", "dense", "--cpu", "2")
    assert cpus * 2 == host_cpus(cluster, host)
    cli(cluster, "host", "pool", "delete", "dense")
    assert "default" == host_pools(cluster)[host]
    assert {"RUNNING": 1} == cluster.counts(batch)  # it stays
    cluster.client.tasks.Stop(task_pb2.StopRequest(jobId=peloton_pb2.JobID(value=batch)))
    assert "KILLED" == cluster.finish(batch)
    cli(cluster, "host", "pool", "move", host, "--to", "batch")
