"""A story of each kind of job on a real apiserver, as `peloton up --kubeconfig` runs them: all our roles, the service
account of deploy/kubernetes, and nodes without machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.gang import gang_pb2
from peloton.api.v0.respool import respool_pb2
from peloton.api.v0.task import task_pb2
from services.lab.local.own_kubernetes import OwnKubernetes
from tests.e2e.drains import drain_by_another_client
from tests.e2e.local import Cluster, shell, temporary
from tests.e2e.service import SLEEP, Service
from tests.kubernetes.client import Client, Json, login_of
from tests.kubernetes.deployment import documents, host_manager_of, must_apply
from tests.kubernetes.fake_kubelet import FakeKubelets
from tests.kubernetes.fixtures import REAL_KUBERNETES
from tests.nightly import NIGHTLY

pytestmark = REAL_KUBERNETES
NAMESPACE = "stories"
NODES = ["stories-0", "stories-1", "stories-2"]


@pytest.fixture(scope="module")
def cluster(kubernetes: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("real-kubernetes")
    access = host_manager_of(kubernetes, NAMESPACE, folder)
    with Client(login_of(kubernetes)) as client:
        for document in documents("60-resource-pools.yaml"):
            must_apply(client, document)
    environment = {"PELOTON_KUBERNETES_NAMESPACE": NAMESPACE, "PELOTON_KUBERNETES_NODE_SELECTOR": "stories=yes"}
    environment["PELOTON_KUBERNETES_POOL_OBJECTS"] = "true"
    settings = replace(temporary(folder), own_kubernetes=OwnKubernetes(access, "test"), environment=environment)
    with (
        Client(login_of(kubernetes)) as client,
        FakeKubelets(client.login, NODES, labels={"stories": "yes"}) as kubelets,
    ):
        with Cluster(settings) as running:
            yield running
        client.ask("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods?gracePeriodSeconds=0")
        client.ask("DELETE", f"/api/v1/namespaces/{NAMESPACE}")
        for node in kubelets.nodes:
            client.ask("DELETE", f"/api/v1/nodes/{node}")


@pytest.fixture
def pool(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    return cluster.pool(request.node.name)


def _hosts(cluster: Cluster, job: str) -> Counter[str]:
    return Counter(task.runtime.host for task in cluster.tasks(job).values())


def _names(client: Client, job: str) -> set[str]:
    """Return the names that DNS gives the members of a gang."""
    path = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
    found = client.ask("GET", f"{path}?labelSelector=kubernetes.io%2Fservice-name%3Dgang-{job}").json()["items"]
    return {each.get("hostname", "") for one in found for each in one["endpoints"]}


def test_a_batch_job(cluster: Cluster, pool: str) -> None:
    """Instances end as their commands say, failed ones are tried again, and an override holds for one."""
    job = cluster.submit(
        pool,
        instanceCount=30,
        defaultConfig=shell("sleep 0.1", cpu=0.1, restartPolicy={"maxFailures": 2}),
        instanceConfig={4: {"command": {"shell": True, "value": "exit 3"}}},
    )

    assert "FAILED" == cluster.finish(job)
    assert {"SUCCEEDED": 29, "FAILED": 1} == cluster.counts(job)
    assert (2, 3) == (cluster.run_ids(job)[4], cluster.task(job, 4).runtime.terminationStatus.exit_code)


def test_a_gang(cluster: Cluster, pool: str, kubernetes: Path) -> None:
    """A member on each node, all at once, and a DNS name for each; a stop ends all of them."""
    config = shell(SLEEP, cpu=3)
    job = cluster.submit(pool, instanceCount=3, defaultConfig=config, sla={"minimumRunningInstances": 3})
    cluster.wait(lambda: cluster.counts(job) == {"RUNNING": 3}, "the gang running")
    assert dict.fromkeys(NODES, 1) == _hosts(cluster, job)
    gang = cluster.client.gangs.GetGang(gang_pb2.GetGangRequest(jobId=peloton_pb2.JobID(value=job)))
    named = {member.address.partition(".")[0] for member in gang.members}
    with Client(login_of(kubernetes)) as client:
        cluster.wait(lambda: _names(client, job) == named, "endpoints of the Service with the names of the members")
        pod = cluster.task(job, 2).runtime.mesosTaskId.value
        found = client.ask("GET", f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}").json()["spec"]["containers"][0]["env"]
    assert [f"instance-{i}.gang-{job}.{NAMESPACE}.svc" for i in range(3)] == [each.address for each in gang.members]
    peers = ",".join(each.address for each in gang.members)
    assert peers == next(each["value"] for each in found if each["name"] == "PELOTON_GANG_PEERS")

    cluster.client.tasks.Stop(task_pb2.StopRequest(jobId=peloton_pb2.JobID(value=job)))

    assert "KILLED" == cluster.finish(job)


def test_a_service(cluster: Cluster, pool: str) -> None:
    """The service is rolled out in place: each instance has its new version on the node where it was."""
    service = Service(cluster, pool, 4).create().wait_running().wait_update("SUCCEEDED")
    before = {i: pod.host for i, pod in service.pods().items()}

    service.replace("sleep 1001", batch_size=2, in_place=True)
    service.wait_update("SUCCEEDED")

    assert ([2] * 4, dict.fromkeys(range(4), 2)) == (service.versions(), service.runs())
    assert before == {i: pod.host for i, pod in service.pods().items()}
    service.delete(force=True)
    service.wait(lambda: not service.pods(), "the end of its pods")


def test_an_object_is_a_pool(cluster: Cluster, kubernetes: Path) -> None:
    """Jobs run in the pool of an object, whose status follows; a change by the API is a conflict; both end together."""
    path = "/apis/peloton.io/v1/resourcepools"
    resources = [{"kind": kind, "limit": limit} for kind, limit in (("cpu", 4), ("memory", 4096), ("disk", 4096))]
    body: Json = {"apiVersion": "peloton.io/v1", "kind": "ResourcePool"}
    body |= {"metadata": {"name": "of-object"}, "spec": {"resources": resources}}
    with Client(login_of(kubernetes)) as client:

        def status() -> dict[str, Any]:
            found: dict[str, Any] = client.ask("GET", f"{path}/of-object").json().get("status") or {}
            return found

        def reason() -> str:
            return str((status().get("conditions") or [{"reason": ""}])[0]["reason"])

        assert 201 == client.ask("POST", path, body).status
        cluster.wait(lambda: reason() == "Synced", "the pool of the object")
        lookup = respool_pb2.LookupRequest(path=respool_pb2.ResourcePoolPath(value="/of-object"))
        pool_id = cluster.client.respools.LookupResourcePoolID(lookup).id.value
        job = cluster.submit(pool_id, instanceCount=2, defaultConfig=shell(SLEEP, cpu=1))
        cluster.wait(lambda: status().get("resources", [{}])[0].get("allocation") == 2, "the allocation in the status")
        config = cluster.client.respools.GetResourcePool(
            respool_pb2.GetRequest(id=peloton_pb2.ResourcePoolID(value=pool_id))
        ).poolinfo.config
        next(one for one in config.resources if one.kind == "cpu").limit = 3
        update = respool_pb2.UpdateRequest(id=peloton_pb2.ResourcePoolID(value=pool_id), config=config)
        assert not cluster.client.respools.UpdateResourcePool(update).HasField("error")
        cluster.wait(lambda: reason() == "Conflict", "the conflict")

        assert "limit of cpu is 3, here 4" in status()["conditions"][0]["message"]
        client.ask("DELETE", f"{path}/of-object")
        cluster.wait(lambda: reason() == "Deleting", "the refusal while a job is in it")
        cluster.client.tasks.Stop(task_pb2.StopRequest(jobId=peloton_pb2.JobID(value=job)))
        cluster.wait(lambda: client.ask("GET", f"{path}/of-object").status == 404, "the end of the object")


@NIGHTLY
def test_a_user_drains_a_node(cluster: Cluster, pool: str, kubernetes: Path) -> None:
    """Pods of a service leave no faster than its SLA allows and come back elsewhere; pods of a batch job leave at once,
    also without retries."""
    with Client(login_of(kubernetes)) as kubectl:
        drain_by_another_client(cluster, pool, kubectl, NAMESPACE)
