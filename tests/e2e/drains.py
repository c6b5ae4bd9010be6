"""Drains of a node by another client, in the way of ``kubectl drain``, on an emulated and on a real Kubernetes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from http import HTTPStatus

from peloton.api.v0.host.svc import host_svc_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha.pod import pod_pb2
from tests.e2e.local import Cluster, shell
from tests.e2e.service import SLEEP, Service
from tests.e2e.workloads import failures_of, stop
from tests.kubernetes.client import MERGE, Client, Json

INSTANCES = 4
"""More instances than nodes, so that two of them share a node."""


@dataclass(frozen=True)
class Drain:
    """A drain of a node with pods in a namespace."""

    cluster: Cluster
    kubectl: Client
    namespace: str
    node: str

    def cordon(self, is_on: bool) -> None:
        """Cordon or uncordon the node, and wait until the host manager has seen it: before that an evicted pod may
        return to the node."""
        reply = self.kubectl.ask("PATCH", f"/api/v1/nodes/{self.node}", {"spec": {"unschedulable": is_on}}, MERGE)
        assert HTTPStatus.OK == reply.status, reply.body
        self.cluster.wait(lambda: ("cordon" in self._cordon_reason()) == is_on, "the cordon in the list of hosts")

    def _cordon_reason(self) -> str:
        infos = self.cluster.client.hosts.QueryHosts(host_svc_pb2.QueryHostsRequest()).host_infos
        return next(info.avoided for info in infos if info.hostname == self.node)

    def pods_of(self, job: str, query: str = "") -> list[Json]:
        """Return the pods of a job that are not being deleted."""
        pods = f"/api/v1/namespaces/{self.namespace}/pods?labelSelector=peloton.io/job%3D{job}{query}"
        found = self.kubectl.ask("GET", pods).json()["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def pods_on_node(self, job: str) -> list[Json]:
        return self.pods_of(job, f"&fieldSelector=spec.nodeName%3D{self.node}")

    def evict(self, pod: Json) -> int:
        name = pod["metadata"]["name"]
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        return self.kubectl.ask("POST", f"/api/v1/namespaces/{self.namespace}/pods/{name}/eviction", body).status

    def count_ready(self, job: str) -> int:
        return sum(
            {"type": "Ready", "status": "True"}.items() <= condition.items()
            for pod in self.pods_of(job)
            for condition in pod["status"].get("conditions", ())
        )

    def budget_minimum(self, job: str) -> int | None:
        """Return the minimum of the job's disruption budget, or None without a budget."""
        budgets = f"/apis/policy/v1/namespaces/{self.namespace}/poddisruptionbudgets"
        found = self.kubectl.ask("GET", f"{budgets}?labelSelector=peloton.io/job%3D{job}").json()["items"]
        return found[0]["spec"]["minAvailable"] if found else None

    def is_elsewhere(self, hosts: list[str]) -> bool:
        """Return whether all instances of a job run, on other nodes. ``hosts`` are those of its running instances."""
        return len(hosts) == INSTANCES and self.node not in hosts


def drain_by_another_client(cluster: Cluster, pool: str, kubectl: Client, namespace: str) -> None:
    service = Service(cluster, pool, INSTANCES, sla={"maximumUnavailableInstances": 1}).create().wait_running()
    batch = cluster.submit(pool, instanceCount=INSTANCES, defaultConfig=shell(SLEEP, cpu=0.1))
    cluster.wait(lambda: cluster.counts(batch) == {"RUNNING": INSTANCES}, "the batch job running")
    [(node, _)] = Counter(pod.host for pod in service.pods().values()).most_common(1)
    drain = Drain(cluster, kubectl, namespace, node)
    cluster.wait(lambda: drain.budget_minimum(service.id) == INSTANCES - 1, "the disruption budget of the SLA")
    cluster.wait(lambda: drain.count_ready(service.id) == INSTANCES, "ready pods")
    drain.cordon(True)
    serving_counts: list[int] = []

    def is_empty() -> bool:
        """Evict the pods of the service on the node as far as allowed. Return whether none is left."""
        pods = drain.pods_on_node(service.id)
        serving_counts.extend(drain.count_ready(service.id) for pod in pods if drain.evict(pod) == HTTPStatus.CREATED)
        return not pods

    evicted = [drain.evict(pod) for pod in drain.pods_on_node(batch)]
    cluster.wait(is_empty, "an empty node")

    assert [HTTPStatus.CREATED] * len(evicted) == evicted
    assert min(serving_counts) >= INSTANCES - 1
    cluster.wait(lambda: drain.is_elsewhere(_hosts_serving(service)), "the service elsewhere")
    cluster.wait(lambda: drain.is_elsewhere(_hosts_running(cluster, batch)), "the batch job elsewhere")
    assert 0 == failures_of(cluster, batch)
    drain.cordon(False)
    service.delete(force=True)
    stop(cluster, batch)


def _hosts_serving(service: Service) -> list[str]:
    return [pod.host for pod in service.pods().values() if pod.state == pod_pb2.POD_STATE_RUNNING]


def _hosts_running(cluster: Cluster, job: str) -> list[str]:
    tasks = cluster.tasks(job).values()
    return [task.runtime.host for task in tasks if task.runtime.state == task_pb2.RUNNING]
