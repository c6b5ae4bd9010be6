"""`peloton up --kubeconfig` on a real apiserver: what it refuses and reports before anything starts."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from peloton.errors import InvalidArgument, Unavailable
from services.lab.local.own_kubernetes import OwnKubernetes
from services.settings import Settings
from tests.kubernetes.client import MERGE, Client, login_of
from tests.kubernetes.deployment import host_manager_of
from tests.kubernetes.fake_kubelet import FakeKubelets
from tests.kubernetes.fixtures import REAL_KUBERNETES
from tests.waiting import timeout_s

pytestmark = REAL_KUBERNETES
NAMESPACE = "own"
LACKS = "this user may not create pods/binding in the cluster (external pods)"
SETTINGS = Settings(kubernetes_namespace=NAMESPACE, kubernetes_node_selector="own=yes")


@pytest.fixture(scope="module")
def client(kubernetes: Path) -> Iterator[Client]:
    with Client(login_of(kubernetes)) as client:
        yield client
        client.ask("DELETE", f"/api/v1/namespaces/{NAMESPACE}")


@pytest.fixture(scope="module")
def access(client: Client, kubernetes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the kubeconfig of the service account of the chart, without the permissions for external pods."""
    return host_manager_of(kubernetes, NAMESPACE, tmp_path_factory.mktemp("own"))


def _check(kubeconfig: Path, context: str = "", settings: Settings = SETTINGS) -> list[str]:
    own, said = OwnKubernetes(kubeconfig, context), list[str]()
    own.check(own.settings(settings), said.append)
    return said


def test_a_context_that_is_not_there_is_refused(kubernetes: Path) -> None:
    """The error names the file, and the contexts that it has."""
    with pytest.raises(InvalidArgument, match=rf"{kubernetes}: contexts: has no entry 'kind-kind', only: test"):
        _check(kubernetes, "kind-kind")


def test_an_apiserver_that_does_not_answer_is_refused(kubernetes: Path, tmp_path: Path) -> None:
    """The error names the file and the address."""
    away = tmp_path / "kubeconfig"
    away.write_text(re.sub(r"https://[\w.]+:\d+", "https://127.0.0.1:9", kubernetes.read_text()))

    with pytest.raises(Unavailable, match=rf"{away} \(https://127.0.0.1:9\): .*Connection refused"):
        _check(away)


def test_a_token_that_is_not_taken_is_refused(kubernetes: Path, tmp_path: Path) -> None:
    """The error says that the credentials are at fault."""
    stranger = tmp_path / "kubeconfig"
    stranger.write_text(re.sub(r"token: \w+", "token: stranger", kubernetes.read_text()))

    with pytest.raises(InvalidArgument, match="does not take these credentials: HTTP 401"):
        _check(stranger)


def test_a_user_without_permissions_is_refused(client: Client, access: Path) -> None:
    """The error names each missing verb; permissions in another namespace are of no use."""
    elsewhere = Settings(kubernetes_namespace="default", kubernetes_node_selector="own=yes")

    with pytest.raises(InvalidArgument) as refused:
        _check(access, settings=elsewhere)

    assert "create, get, delete pods in namespace default (launches, ends); create, get" in str(refused.value)
    assert "in the cluster" not in str(refused.value)


def test_a_cluster_without_nodes_is_refused_and_others_are_described(client: Client, access: Path) -> None:
    """A cordoned node takes no pods. With a ready one the report has what this user may not do."""
    binding = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/peloton-external-pods"
    client.ask("DELETE", binding)  # other tests have applied it
    with FakeKubelets(client.login, ["own-0"], labels={"own": "yes"}):
        spec = "/api/v1/nodes/own-0"
        assert 200 == client.ask("PATCH", spec, {"spec": {"unschedulable": True}}, MERGE).status
        with pytest.raises(Unavailable, match="no node for pods: own-0: an operator of the cluster has cordoned it"):
            _check(access)
        assert 200 == client.ask("PATCH", spec, {"spec": {"unschedulable": False}}, MERGE).status

        until_s = time.monotonic() + timeout_s(30)
        while LACKS not in (said := _check(access)):
            assert time.monotonic() < until_s, said

    client.ask("DELETE", spec)
    assert "1 nodes for pods; its cluster is laptop-" in said[0]


def test_pods_end_with_a_temporary_data_folder(client: Client, access: Path) -> None:
    """Pods of this cluster are deleted, and none of other ones."""
    own = OwnKubernetes(access)
    for name, cluster in (("mine", own.cluster), ("other", "east")):
        meta = {"name": name, "labels": {"peloton.io/cluster": cluster}}
        body = {"metadata": meta, "spec": {"containers": [{"name": "main", "image": "busybox"}]}}
        assert 201 == client.ask("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", body).status

    assert 1 == own.remove_pods(NAMESPACE)
    assert 404 == client.ask("GET", f"/api/v1/namespaces/{NAMESPACE}/pods/mine").status
    assert 200 == client.ask("GET", f"/api/v1/namespaces/{NAMESPACE}/pods/other").status
