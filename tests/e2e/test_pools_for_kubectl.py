"""Pods that others make in a real Kubernetes, under the pools of a whole Peloton: two teams that stay with kubectl."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cli.main import peloton
from tests.e2e.local import Cluster, temporary
from tests.kubernetes.client import Client, Json
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.fake_kubelet import FakeKubelets
from tests.kubernetes.fixtures import REAL_KUBERNETES

pytestmark = REAL_KUBERNETES
NODES, CPUS = 2, 4
NAMESPACE = "teams"


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """Yield the control plane with the nodes and the namespace of the teams."""
    names = [f"teams-{i}" for i in range(NODES)]
    with Client(control_plane.login) as client, FakeKubelets(client.login, names, labels={"teams": "yes"}):
        assert 201 == client.ask("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}}).status
        yield control_plane
        client.ask("DELETE", f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments?propagationPolicy=Background")
        client.ask("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods?gracePeriodSeconds=0")
        client.ask("DELETE", f"/api/v1/namespaces/{NAMESPACE}")
        for name in names:
            client.ask("DELETE", f"/api/v1/nodes/{name}")


@pytest.fixture(scope="module")
def cluster(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder: Path = tmp_path_factory.mktemp("kubectl")
    environment = {"PELOTON_KUBERNETES": str(plane.kubeconfig), "PELOTON_KUBERNETES_NODE_SELECTOR": "teams=yes"}
    with Cluster(temporary(folder, simulate=1, environment=environment)) as running:
        running.wait(lambda: running.capacity() == NODES * CPUS, "the nodes")
        yield running


class Kubectl:
    def __init__(self, client: Client) -> None:
        self._client = client

    def deploy(self, name: str, pool: str, replicas: int) -> str:
        """Create a deployment of pods of one cpu each; return the uid."""
        container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
        template = {
            "metadata": {"labels": {"app": name, "peloton.io/pool": pool}},
            "spec": {"schedulerName": "peloton", "containers": [container], "terminationGracePeriodSeconds": 1},
        }
        spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
        body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}
        reply = self._client.ask("POST", f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments", body)
        assert 201 == reply.status, reply.body
        return str(reply.json()["metadata"]["uid"])

    def scale(self, name: str, replicas: int) -> None:
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{name}"
        body = {"spec": {"replicas": replicas}}
        assert 200 == self._client.ask("PATCH", path, body, "application/merge-patch+json").status

    def pods(self, name: str) -> list[Json]:
        reply = self._client.ask("GET", f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app%3D{name}")
        found: list[Json] = reply.json()["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def running(self, name: str) -> int:
        return sum(pod["status"]["phase"] == "Running" for pod in self.pods(name))

    def why(self, name: str) -> set[str]:
        """Reasons of the condition of pods that wait."""
        conditions = [c for pod in self.pods(name) for c in pod["status"].get("conditions") or ()]
        return {c["reason"] for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"}


@pytest.fixture
def kubectl(plane: ControlPlane) -> Iterator[Kubectl]:
    with Client(plane.login) as client:
        yield Kubectl(client)


def test_two_teams_lend_to_each_other_by_kubectl(cluster: Cluster, kubectl: Kubectl) -> None:
    """One team fills the cluster; the other reclaims its half by evictions, while the host manager is killed; and the
    first one has it back when the second no longer needs it."""
    half = NODES * CPUS // 2
    cluster.pool("dev", own_cpu=half)
    cluster.pool("ops", own_cpu=half)
    train = kubectl.deploy("train", "dev", 2 * half)
    cluster.wait(lambda: kubectl.running("train") == 2 * half, "a full cluster")
    cluster.wait(lambda: cluster.job_state(train) == "RUNNING", "its job running")

    kubectl.deploy("web", "ops", half)
    cluster.wait(
        lambda: "PelotonQueued" in kubectl.why("web") or kubectl.running("web") > 0, "the other team in its queue"
    )
    cluster.kill("hostmgr")
    cluster.wait(lambda: kubectl.running("web") == half, "the other team's half")
    cluster.wait(lambda: kubectl.running("train") == half, "the rest")
    cluster.wait(lambda: kubectl.why("train") == {"PelotonQueued"}, "the evicted pods in the queue")
    said = why(cluster, train)
    assert f"Deployment {NAMESPACE}/train" in said, said
    assert "/dev" in said, said

    kubectl.scale("web", 0)
    cluster.wait(lambda: kubectl.running("train") == 2 * half, "all of it again")
    assert len(cluster.tasks(train)) <= 4 * half


def why(cluster: Cluster, job: str) -> str:
    arguments: list[Any] = ["-a", cluster.local.address, "job", "why", job]
    result = CliRunner().invoke(peloton, arguments)
    assert 0 == result.exit_code, result.output
    return result.output
