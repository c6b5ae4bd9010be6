"""The real control plane and the fake kubelets that other tests use."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.client import MERGE, Client, Json, Login, login_of
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.fake_kubelet import FakeKubelets
from tests.kubernetes.fixtures import REAL_KUBERNETES, running_control_plane
from tests.nightly import NIGHTLY

pytestmark = REAL_KUBERNETES
TIMEOUT_S = 180.0
NAMESPACE = "fake-kubelets"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


@pytest.fixture(scope="module")
def client(kubernetes_login: Login) -> Iterator[Client]:
    with Client(kubernetes_login) as client:
        assert client.ask("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}}).status == 201
        yield client
        client.ask("DELETE", f"/api/v1/namespaces/{NAMESPACE}")


@pytest.fixture(scope="module")
def kubelets(client: Client) -> Iterator[FakeKubelets]:
    with FakeKubelets(client.login, ["fake-0", "fake-1"], taints=[{"key": "fake", "effect": "NoSchedule"}]) as kubelets:
        yield kubelets
        for node in kubelets.nodes:
            client.ask("DELETE", f"/api/v1/nodes/{node}")


def _pod(name: str, command: str, node: str = "fake-0", cpu: str = "1") -> Json:
    container = {"name": "main", "image": "busybox", "command": ["sh", "-c", command]}
    return {
        "metadata": {"name": name},
        "spec": {
            "nodeName": node,
            "restartPolicy": "Never",
            "tolerations": [{"operator": "Exists", "tolerationSeconds": 1, "effect": "NoExecute"}],
            "containers": [{**container, "resources": {"requests": {"cpu": cpu}}}],
        },
    }


def _create(client: Client, pod: Json) -> Json:
    reply = client.ask("POST", PODS, pod)
    assert reply.status == http.client.CREATED, reply.body
    return reply.json()


def _until(ask: Callable[[], Any], good: Callable[[Any], bool]) -> Any:
    until_s = time.monotonic() + TIMEOUT_S
    while not good(found := ask()):
        assert time.monotonic() < until_s, found
        time.sleep(0.05)
    return found


def _has_phase(phase: str) -> Callable[[Json], bool]:
    return lambda pod: bool(pod["status"].get("phase") == phase)


@pytest.mark.parametrize(
    ("command", "phase", "code"),
    [("true", "Succeeded", 0), ("sleep 0.2; exit 3", "Failed", 3)],
)
def test_a_pod_runs_its_command(client: Client, kubelets: FakeKubelets, command: str, phase: str, code: int) -> None:
    """A fake kubelet runs a pod, and reports how it ended."""
    name = f"ends-{phase.lower()}"
    _create(client, _pod(name, command))

    pod = _until(lambda: client.ask("GET", f"{PODS}/{name}").json(), _has_phase(phase))

    [status] = pod["status"]["containerStatuses"]
    assert code == status["state"]["terminated"]["exitCode"]


def test_a_deleted_pod_is_killed_first(client: Client, kubelets: FakeKubelets) -> None:
    """The last state of a pod that was deleted while it ran has the exit code of a kill."""
    _create(client, _pod("deleted", "sleep 300"))
    running = _until(lambda: client.ask("GET", f"{PODS}/deleted").json(), _has_phase("Running"))
    version = running["metadata"]["resourceVersion"]
    query = f"watch=1&resourceVersion={version}&fieldSelector=metadata.name=deleted&timeoutSeconds={TIMEOUT_S:.0f}"
    with client.watch(f"{PODS}?{query}") as watch:
        assert client.ask("DELETE", f"{PODS}/deleted").status == 200
        events = []
        for event in watch:
            events.append(event)
            if event["type"] == "DELETED":
                break

    assert ["MODIFIED", "DELETED"] == [events[0]["type"], events[-1]["type"]]
    last = events[-1]["object"]["status"]
    assert ("Failed", 137) == (last["phase"], last["containerStatuses"][0]["state"]["terminated"]["exitCode"])


def test_a_node_takes_no_more_than_it_has(client: Client, kubelets: FakeKubelets) -> None:
    """A kubelet refuses a pod that does not fit together with the running ones."""
    _create(client, _pod("fits", "sleep 300", "fake-1", cpu="3"))
    _until(lambda: client.ask("GET", f"{PODS}/fits").json(), _has_phase("Running"))
    _create(client, _pod("does-not-fit", "true", "fake-1", cpu="1500m"))

    pod = _until(lambda: client.ask("GET", f"{PODS}/does-not-fit").json(), _has_phase("Failed"))

    assert "OutOfcpu" == pod["status"]["reason"]
    assert client.ask("DELETE", f"{PODS}/fits?gracePeriodSeconds=0").status == 200


@NIGHTLY
def test_pods_of_a_lost_node_wait_for_it() -> None:
    """Pods of a lost node are marked as deleted once their toleration is over, and are removed when the node is
    back.
    """
    name = "on-lost"
    with (
        running_control_plane(node_grace_s=12) as plane,
        Client(plane.login) as client,
        FakeKubelets(plane.login, ["fake-0", "fake-1"]) as kubelets,
    ):
        assert client.ask("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}}).status == 201
        _create(client, _pod(name, "sleep 300", "fake-1"))
        _until(lambda: client.ask("GET", f"{PODS}/{name}").json(), _has_phase("Running"))

        kubelets.lose("fake-1")
        pod = _until(
            lambda: client.ask("GET", f"{PODS}/{name}").json(), lambda pod: "deletionTimestamp" in pod["metadata"]
        )
        assert "Running" == pod["status"]["phase"]
        assert {"Ready": "False", "DisruptionTarget": "True"}.items() <= {
            condition["type"]: condition["status"] for condition in pod["status"]["conditions"]
        }.items()

        kubelets.bring_back("fake-1")
        _until(lambda: client.ask("GET", f"{PODS}/{name}").status, lambda status: bool(status == 404))


def test_a_node_that_was_taken_for_lost_says_that_it_is_not(client: Client, kubelets: FakeKubelets) -> None:
    """A node reports that it is ready, as a kubelet does after a time without cpu or apiserver."""
    unknown = [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]
    patched = client.ask("PATCH", "/api/v1/nodes/fake-0/status", {"status": {"conditions": unknown}}, MERGE)
    assert patched.status == 200, patched.body

    def ready() -> str:
        conditions = client.ask("GET", "/api/v1/nodes/fake-0").json()["status"]["conditions"]
        return next(str(one["status"]) for one in conditions if one["type"] == "Ready")

    _until(ready, lambda status: bool(status == "True"))


def test_an_ordinary_user_needs_a_role(control_plane: ControlPlane) -> None:
    """The second kubeconfig is of a user without permissions in RBAC."""
    with Client(login_of(control_plane.user_kubeconfig)) as user:
        assert 403 == user.ask("GET", "/api/v1/pods").status


@NIGHTLY
def test_nothing_is_left_of_it() -> None:
    """Two control planes share no state, and the processes of a closed one are gone."""
    with running_control_plane() as plane, Client(plane.login) as client:
        assert 404 == client.ask("GET", f"/api/v1/namespaces/{NAMESPACE}").status
        processes = [plane.process_id(part) for part in ("etcd", "kube-apiserver", "kube-controller-manager")]

    assert [] == [pid for pid in processes if Path(f"/proc/{pid}").exists()]
