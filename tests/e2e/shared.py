"""Clusters that the stories of several modules share: one for each of a few values of settings.

A module's cluster is empty: its predecessor's jobs are stopped, and its resource pools are deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import yaml

from peloton.api.v0 import peloton_pb2 as v0_peloton_pb2
from peloton.api.v0.host import host_pb2
from peloton.api.v0.host.svc import host_svc_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.respool import respool_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha import peloton_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from services.resmgr.audit import BROKEN
from tests.e2e.forked import ForkedCluster
from tests.e2e.local import Cluster, temporary
from tests.ports import free_ports
from tests.sharing import Shared


class Forked(Cluster):
    made_of = ForkedCluster


@dataclass(frozen=True)
class Value:
    """Settings of a cluster, and all that makes two of them the same one."""

    name: str
    hosts: tuple[dict[str, Any], ...] = ()
    """Rows of a hosts file; empty: the hosts that the settings describe."""
    settings: dict[str, Any] = field(default_factory=dict)
    cpus: float = 0
    """The capacity when all hosts are there."""
    ports: tuple[str, ...] = ()
    """Variables of the environment that name a free port each."""

    def start(self, folder: Path) -> Cluster:
        settings = dict(self.settings)
        if self.ports:
            named = dict(zip(self.ports, map(str, free_ports(len(self.ports))), strict=True))
            settings["environment"] = {**settings.get("environment", {}), **named}
        if self.hosts:
            settings["hosts_file"] = folder / "hosts.yaml"
            settings["hosts_file"].write_text(yaml.safe_dump(list(self.hosts)))
        return Forked(temporary(folder / "data", **settings))


def _hosts(count: int, **more: Any) -> tuple[dict[str, Any], ...]:
    return tuple({"name": f"h{n}", "cpus": 4, "mem": 2048, "disk": 20_000, **more} for n in range(count))


THREE_HOSTS = Value("three hosts", _hosts(3, gpus=1), {"web": True, "bridge": True}, cpus=12)
"""Pods are processes; each host has a gpu."""
FIVE_HOSTS = Value("five hosts", _hosts(5), cpus=20)
"""Pods are processes."""
SIMULATED = Value(
    "simulated", settings={"simulate": 10, "environment": {"PELOTON_HISTORY_PERIOD_S": "1"}}, cpus=40
)  # fmt: skip
POD_PLACEMENT_S = 120
FOUR_HOSTS = Value(
    "four hosts",
    settings={
        "simulate": 4,
        "environment": {
            "PELOTON_GANG_PLACEMENT_TIMEOUT_S": "5",
            "PELOTON_GANG_LAUNCH_TIMEOUT_S": "30",
            "PELOTON_POD_PLACEMENT_TIMEOUT_S": str(POD_PLACEMENT_S),
        },
    },
    cpus=16,
)
"""Simulated; gangs that find no hosts are queued again soon, and single pods that could find one later are not."""
LATENCY_PORT = "PELOTON_LATENCY_PORT"
BOTH_KINDS = Value(
    "both kinds",
    settings={
        "simulate": 3,
        "kubernetes": 3,
        "environment": {
            "PELOTON_ADVISOR": "true",
            "PELOTON_ADVISOR_SAMPLES": "2",
            "PELOTON_ADVISOR_HOLD_S": "1",
            "PELOTON_QOS_PERIOD_S": "0.5",
        },
    },
    cpus=24,
    ports=(LATENCY_PORT,),
)
"""A Mesos and a Kubernetes of three simulated hosts each, whose pods are measured often."""
Lend = Callable[[Value], AbstractContextManager[Cluster]]


def lender(shared: Shared, folder: Callable[[str], Path]) -> Lend:
    """Return the function by which a module borrows the cluster of a value, which is started when it is first asked
    for in a group. ``folder`` makes one by a name."""

    @contextmanager
    def lend(value: Value) -> Iterator[Cluster]:
        cluster = shared.get(value.name, lambda: value.start(folder(value.name.replace(" ", "-"))))
        began = len(cluster.log)
        cluster.wait(lambda: cluster.capacity() == value.cpus, "the capacity of all hosts")
        yield cluster
        try:
            clear(cluster)
            cluster.wait(lambda: cluster.capacity() == value.cpus, "the capacity of all hosts, as it was before")
        except BaseException:
            shared.close()  # the next module starts another cluster
            raise
        assert [] == [line for line in cluster.log[began:] if BROKEN in line]

    return lend


def clear(cluster: Cluster) -> None:
    """End all jobs and delete all resource pools, the lowest ones first; all hosts take pods again."""
    cluster.wait(lambda: all(part.is_running for part in cluster.local.parts.values()), "all processes running")
    for job in _active(cluster):
        cluster.wait(lambda job=job: _is_ending(cluster, job), f"a call that ends job {job}")
    cluster.wait(lambda: not _active(cluster), "the end of all jobs")
    cluster.wait(lambda: _are_up(cluster), "all hosts up")
    cluster.wait(lambda: _are_deleted(cluster), "the end of all resource pools")


def _active(cluster: Cluster) -> list[str]:
    return [job.value for job in cluster.client.jobs.GetActiveJobs(job_pb2.GetActiveJobsRequest()).ids]


def _is_ending(cluster: Cluster, job: str) -> bool:
    """Delete a service, with the update that it may be in, or stop another job."""
    wanted = peloton_pb2.JobID(value=job)
    try:
        status = cluster.client.services.GetJob(svc.GetJobRequest(job_id=wanted)).job_info.status
        cluster.client.services.DeleteJob(svc.DeleteJobRequest(job_id=wanted, version=status.version, force=True))
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.ABORTED:
            return False  # its version has changed since
        if error.code() is not grpc.StatusCode.NOT_FOUND:
            raise
        cluster.client.tasks.Stop(task_pb2.StopRequest(jobId=v0_peloton_pb2.JobID(value=job)))
    return True


def _are_up(cluster: Cluster) -> bool:
    infos = cluster.client.hosts.QueryHosts(host_svc_pb2.QueryHostsRequest()).host_infos
    return {info.state for info in infos} == {host_pb2.HOST_STATE_UP}


def _are_deleted(cluster: Cluster) -> bool:
    """Return whether no resource pool is left; one is busy until the resource manager has heard of all ends."""
    found = cluster.client.respools.Query(respool_pb2.QueryRequest()).resourcePools
    paths = sorted((pool.path.value for pool in found if pool.path.value != "/"), key=len, reverse=True)
    for path in paths:
        cluster.client.respools.DeleteResourcePool(
            respool_pb2.DeleteRequest(path=respool_pb2.ResourcePoolPath(value=path))
        )
    return not paths
