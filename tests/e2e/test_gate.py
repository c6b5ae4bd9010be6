"""The gate under a whole Peloton, on a real Kubernetes: two teams whose manifests have no word of Peloton."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.gate import gate
from services.hostmgr.kubernetes.external.gate import ADMITTED, GATE, gates_of
from tests.e2e.local import Cluster, temporary
from tests.kubernetes.client import MERGE, Client, Json
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.fake_kubelet import FakeKubelets
from tests.kubernetes.fixtures import REAL_KUBERNETES, running_control_plane

pytestmark = REAL_KUBERNETES
NODES, CPUS = 2, 4
LABELS = {"gates": "yes"}


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """Yield a control plane with kube-scheduler, nodes, the policies, and a namespace for each team."""
    names = [f"gates-{i}" for i in range(NODES)]
    with running_control_plane(scheduler=True) as plane, FakeKubelets(plane.login, names, labels=LABELS):
        done = CliRunner().invoke(gate, ["install", "--kubeconfig", str(plane.kubeconfig)])
        assert 0 == done.exit_code, (done.output, done.exception)
        with Client(plane.login) as client:
            for team in ("dev", "ops"):
                body = {"metadata": {"name": team, "labels": {"peloton.io/pool": team}}}
                assert 201 == client.ask("POST", "/api/v1/namespaces", body).status
        yield plane


@pytest.fixture(scope="module")
def cluster(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder: Path = tmp_path_factory.mktemp("gate")
    environment = {"PELOTON_KUBERNETES": str(plane.kubeconfig), "PELOTON_KUBERNETES_NODE_SELECTOR": "gates=yes"}
    with Cluster(temporary(folder, simulate=1, environment=environment)) as running:
        running.wait(lambda: running.capacity() == NODES * CPUS, "the nodes")
        yield running


class Team:
    """A user of kubectl with a namespace."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self.namespace = client, namespace

    def deploy(self, name: str, replicas: int) -> None:
        container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
        template = {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
        }
        spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
        body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}
        reply = self._client.ask("POST", f"/apis/apps/v1/namespaces/{self.namespace}/deployments", body)
        assert 201 == reply.status, reply.body

    def submit(self, name: str, count: int) -> None:
        """Create a Job with the default backoffLimit."""
        container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
        pod = {"restartPolicy": "Never", "containers": [container], "terminationGracePeriodSeconds": 1}
        body = {
            "metadata": {"name": name},
            "spec": {"parallelism": count, "completions": count, "template": {"spec": pod}},
        }
        reply = self._client.ask("POST", f"/apis/batch/v1/namespaces/{self.namespace}/jobs", body)
        assert 201 == reply.status, reply.body

    def job(self, name: str) -> Json:
        return self._client.ask("GET", f"/apis/batch/v1/namespaces/{self.namespace}/jobs/{name}").json()

    def finish(self) -> None:
        """End all running pods with success."""
        container = {"name": "main", "image": "busybox", "imageID": "", "restartCount": 0, "ready": False}
        container["state"] = {"terminated": {"exitCode": 0, "reason": "Completed"}}
        for pod in self.pods():
            if pod["status"]["phase"] == "Running":
                path = f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}/status"
                self._client.ask(
                    "PATCH", path, {"status": {"phase": "Succeeded", "containerStatuses": [container]}}, MERGE
                )

    def scale(self, name: str, replicas: int) -> None:
        path = f"/apis/apps/v1/namespaces/{self.namespace}/deployments/{name}"
        body = {"spec": {"replicas": replicas}}
        assert 200 == self._client.ask("PATCH", path, body, "application/merge-patch+json").status

    def pods(self) -> list[Json]:
        found: list[Json] = self._client.ask("GET", f"/api/v1/namespaces/{self.namespace}/pods").json()["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def running(self) -> int:
        return sum(pod["status"]["phase"] == "Running" for pod in self.pods())

    def why(self) -> set[str]:
        """Return the reasons why pods wait."""
        conditions = [c for pod in self.pods() for c in pod["status"].get("conditions") or ()]
        return {c["reason"] for c in conditions if c["type"] == ADMITTED and c["status"] == "False"}


def test_two_teams_lend_to_each_other_without_a_word_of_peloton(cluster: Cluster, plane: ControlPlane) -> None:
    """One team fills the cluster; the other reclaims its half by evictions, while the host manager is killed; and the
    first one has it back when the second no longer needs it."""
    half = NODES * CPUS // 2
    cluster.pool("dev", own_cpu=half)
    cluster.pool("ops", own_cpu=half)
    with Client(plane.login) as client:
        dev, ops = Team(client, "dev"), Team(client, "ops")
        dev.deploy("train", 2 * half)
        cluster.wait(lambda: dev.running() == 2 * half, "a full cluster")

        ops.deploy("web", half)
        cluster.wait(lambda: len(ops.pods()) == half, "the other team's pods")
        assert all(GATE in gates_of(pod) or pod["status"]["phase"] == "Running" for pod in ops.pods())
        cluster.kill("hostmgr")
        cluster.wait(lambda: ops.running() == half, "the other team's half")
        cluster.wait(lambda: dev.running() == half, "the rest")
        cluster.wait(lambda: dev.why() == {"PelotonQueued"}, "the evicted pods in the queue")

        ops.scale("web", 0)
        cluster.wait(lambda: dev.running() == 2 * half, "all of it again")

        dev.scale("train", 0)
        ops.scale("web", 0)
        cluster.wait(lambda: not dev.pods() and not ops.pods(), "an empty cluster")


def test_preempted_jobs_succeed_in_the_end(cluster: Cluster, plane: ControlPlane) -> None:
    """Jobs that took the other team's half are suspended when it comes back, while the host manager is killed; they
    run later, and none of their pods has failed."""
    half = NODES * CPUS // 2
    with Client(plane.login) as client:
        dev, ops = Team(client, "dev"), Team(client, "ops")
        names = [f"train-{number}" for number in range(4)]
        for name in names:
            dev.submit(name, half // 2)
        cluster.kill("hostmgr")
        cluster.wait(lambda: dev.running() == 2 * half, "a full cluster")

        ops.submit("report", half)
        cluster.wait(lambda: ops.running() == half, "the other team's half")
        cluster.kill("hostmgr")
        cluster.wait(lambda: dev.running() == half, "the rest")
        held = [name for name in names if dev.job(name)["spec"]["suspend"]]
        assert 2 == len(held)

        ops.finish()
        cluster.wait(lambda: dev.running() == 2 * half, "all of it again")
        dev.finish()
        cluster.wait(lambda: all(dev.job(name)["status"].get("succeeded") == half // 2 for name in names), "the ends")
        assert not any(dev.job(name)["status"].get("failed") for name in names)
