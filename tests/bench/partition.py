"""A spike of services that takes hosts from batch jobs."""

from __future__ import annotations

import time
from typing import Any

from peloton.api.v0.host.svc import host_svc_pb2 as pb
from peloton.api.v0.mover import mover_pb2
from services.lab.local.cluster import LocalSettings
from tests.bench.cluster import Cluster, cpu_seconds
from tests.e2e.local import shell
from tests.e2e.service import Service

HOSTS, SERVICE_HOSTS, SPIKE_HOSTS, PODS_PER_HOST = 100, 20, 5, 2
BATCH_PODS_PER_HOST = 4
TIMEOUT_S, POLL_S = 600.0, 0.5


def partition_spike(hosts: int = HOSTS, service_hosts: int = SERVICE_HOSTS, spike: int = SPIKE_HOSTS) -> dict[str, Any]:
    """All hosts are full when a service is created that fills some more; the mover is on. ``batch_pods_lost`` ran on
    the moved hosts, and wait.
    """
    settings = LocalSettings(port=0, simulate=hosts, environment={"PELOTON_HOST_POOLS": "true"})
    with Cluster(settings) as cluster:
        _partition(cluster, hosts, service_hosts)
        memory = int(cluster.capacity("memory") / hosts / PODS_PER_HOST)
        pool = cluster.pool("bench")
        pods = (hosts - service_hosts) * BATCH_PODS_PER_HOST
        task = shell("sleep 100000", cpu=cluster.capacity() / hosts / BATCH_PODS_PER_HOST, memory=16)
        batch = cluster.submit(pool, instanceCount=pods, defaultConfig=task, sla={"preemptible": True})
        standing = Service(cluster, pool, service_hosts * PODS_PER_HOST, memoryMb=memory).create()
        _wait(lambda: cluster.counts(batch) == {"RUNNING": pods}, "the batch pods")
        _wait(lambda: _running(standing) == standing.count, "the services")
        cluster.client.mover.Switch(mover_pb2.SwitchRequest(on=True))
        used_cpu = cpu_seconds(cluster)

        started_s = time.monotonic()
        spiking = Service(cluster, pool, spike * PODS_PER_HOST, name="spike", memoryMb=memory).create()
        first_s = _wait(lambda: bool(_query(cluster).made), "a host that goes") - started_s
        placed_s = _wait(lambda: _running(spiking) == spiking.count, "the spike") - started_s
        left = cluster.counts(batch)["RUNNING"]

        used_cpu = {name: round(seconds - used_cpu[name], 1) for name, seconds in cpu_seconds(cluster).items()}
        made = _query(cluster).made
        return {
            "hosts": hosts,
            "batch_pods": pods,
            "spike_pods": spiking.count,
            "spike_hosts": spike,
            "moved_hosts": sum(one.host_count for one in made),
            "first_move_seconds": round(first_s, 2),
            "placed_seconds": round(placed_s, 2),
            "batch_pods_lost": pods - left,
            "service_pods_lost": standing.count - _running(standing),
            "cpu_seconds": used_cpu,
        }


def _partition(cluster: Cluster, hosts: int, service_hosts: int) -> None:
    calls = cluster.client.hosts
    _wait(lambda: len(calls.QueryHosts(pb.QueryHostsRequest()).host_infos) == hosts, "all hosts")
    calls.CreateHostPool(pb.CreateHostPoolRequest(name="services", serves=["stateless"]))
    calls.CreateHostPool(pb.CreateHostPoolRequest(name="batch", serves=["batch", "shared"]))
    names = sorted(info.hostname for info in calls.QueryHosts(pb.QueryHostsRequest()).host_infos)
    for at, host in enumerate(names):
        goes = "services" if at < service_hosts else "batch"
        request = pb.ChangeHostPoolRequest(hostname=host, sourcePool="default", destinationPool=goes)
        calls.ChangeHostPool(request)


def _running(service: Service) -> int:
    return service.status.pod_stats["POD_STATE_RUNNING"]


def _query(cluster: Cluster) -> mover_pb2.QueryResponse:
    answer: mover_pb2.QueryResponse = cluster.client.mover.Query(mover_pb2.QueryRequest())
    return answer


def _wait(condition: Any, what: str) -> float:
    """Return the time at which the condition is true."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s, f"{what} not seen within {TIMEOUT_S:.0f} s"
        time.sleep(POLL_S)
    return time.monotonic()
