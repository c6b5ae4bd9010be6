"""A daemon on hosts of both kinds of clusters, with the actions and conditions that its stories use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from http import HTTPStatus
from typing import Any

from peloton.api.convert import POD_STATES
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.host import host_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.maintenance import maintenance_pb2
from peloton.api.v0.task.task_pb2 import TaskState
from peloton.api.v0.update import update_pb2
from peloton.api.v0.update.svc import update_svc_pb2
from peloton.model.pod import ON_HOST, PodState
from tests.availability import Tale
from tests.e2e.local import Cluster, shell
from tests.kubernetes.client import Client, login_of

SLEEP = "sleep 1000"


class Daemon:
    """Created with its first sentence."""

    def __init__(self, cluster: Cluster, pool: str, cpu: float = 0.1, **task: Any) -> None:
        self.cluster = cluster
        config = shell(SLEEP, cpu=cpu, memory=1, **task)
        self.id = cluster.submit(pool, type="DAEMON", sla={"preemptible": False}, defaultConfig=config)

    @property
    def pod_hosts(self) -> dict[str, int]:
        """Hosts where it runs -> instance."""
        tasks = self.cluster.tasks(self.id).items()
        return {task.runtime.host: i for i, task in tasks if task.runtime.state == TaskState.RUNNING}

    def until_on(self, hosts: Sequence[str]) -> dict[str, int]:
        """Wait until the daemon runs on exactly these hosts; return them with their instances."""
        self.cluster.wait(
            lambda: self.cluster.counts(self.id).get("RUNNING", 0) == len(hosts), f"{len(hosts)} pods that run"
        )
        self.cluster.wait(lambda: sorted(self.pod_hosts) == sorted(hosts), "pods on these hosts")
        return self.pod_hosts

    def update(self, command: str, batch: int) -> None:
        """Update the daemon and wait until the update has succeeded."""
        config = self.cluster.client.jobs.Get(job_pb2.GetRequest(id=peloton_pb2.JobID(value=self.id))).jobInfo.config
        config.defaultConfig.command.value = command
        asked = update_pb2.UpdateConfig(batchSize=batch)
        request = update_svc_pb2.CreateUpdateRequest(
            jobId=peloton_pb2.JobID(value=self.id), jobConfig=config, updateConfig=asked
        )
        update_id = self.cluster.client.updates.CreateUpdate(request).updateID
        look = update_svc_pb2.GetUpdateRequest(updateId=update_id)
        self.cluster.wait(
            lambda: self.cluster.client.updates.GetUpdate(look).updateInfo.status.state == update_pb2.SUCCEEDED,
            "the end of the update",
        )


def leave(cluster: Cluster, host: str) -> None:
    """Remove a host with all that runs on it, at once."""
    kubernetes = cluster.local.kubernetes
    if kubernetes is None or not host.startswith("kubernetes"):
        cluster.drill(f"agents/{host}/stop", {"now": True})
        return
    kubernetes.act_on_node(host, "stop")
    with Client(login_of(kubernetes.kubeconfig)) as kubectl:
        assert HTTPStatus.OK == kubectl.ask("DELETE", f"/api/v1/nodes/{host}").status


def come_back(cluster: Cluster, host: str) -> None:
    kubernetes = cluster.local.kubernetes
    if kubernetes is None or not host.startswith("kubernetes"):
        cluster.drill(f"agents/{host}/start", {"now": True})
    else:
        kubernetes.act_on_node(host, "start")


def maintain(cluster: Cluster, hosts: Sequence[str]) -> None:
    """Start maintenance of hosts and wait until they are down."""
    cluster.client.maintenance.Start(maintenance_pb2.StartRequest(hostnames=hosts))

    def states() -> set[int]:
        found = cluster.client.maintenance.Query(maintenance_pb2.QueryRequest()).hosts
        return {host.state for host in found if host.hostname in hosts}

    cluster.wait(lambda: states() == {host_pb2.HOST_STATE_DOWN}, f"{hosts} down")


def end_maintenance(cluster: Cluster, hosts: Sequence[str]) -> None:
    cluster.client.maintenance.Complete(maintenance_pb2.CompleteRequest(hostnames=hosts))


class Watched:
    """The changes of a daemon's pods during a block; complete when the block has ended."""

    def __init__(self) -> None:
        self.twice: list[str] = []  # hosts that had two of them, and which
        self.away_most = 0


@contextmanager
def watch_daemon(cluster: Cluster, daemon: Daemon) -> Iterator[Watched]:
    """Each write of a pod meanwhile, in the order of commits. All of them run at the beginning."""
    found, pod_hosts, away = Watched(), {instance: host for host, instance in daemon.pod_hosts.items()}, set[int]()
    with closing(Tale(cluster.local.data_dir / "peloton.db").record()) as tale:
        yield found
        for what, _, line in tale.rest():
            if what != "pod" or line["job_id"] != daemon.id.replace("-", ""):
                continue
            instance, state = line["instance_id"], POD_STATES[line["state"]]
            pod_hosts.pop(instance, None)
            if state in ON_HOST:
                pod_hosts[instance] = line["host"]
                there = [each for each, host in pod_hosts.items() if host == line["host"]]
                found.twice += [f"{line['host']}: {there}"] if len(there) > 1 else []
            away = away - {instance} if state is PodState.RUNNING else away | {instance}
            found.away_most = max(found.away_most, len(away))
    assert daemon.pod_hosts.keys() <= set(pod_hosts.values()), "writes were missed"
