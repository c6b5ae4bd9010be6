"""A real apiserver accepts the files of deploy/kubernetes, and they give the host manager exactly the rights that it
needs.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kubernetes.client import MERGE, Client, Login
from tests.kubernetes.deployment import apply, documents, login_of_host_manager, must_apply
from tests.kubernetes.fixtures import REAL_KUBERNETES

pytestmark = REAL_KUBERNETES
MAKE_PODS = ("Deployment", "StatefulSet")


@pytest.fixture(scope="module")
def applied(kubernetes_login: Login) -> Iterator[Client]:
    """Apply all files except workloads, whose pods the tests would wait for."""
    with Client(kubernetes_login) as client:
        for document in documents():
            must_apply(client, document, dry_run=document["kind"] in MAKE_PODS)
        yield client


def test_applying_again_changes_nothing(applied: Client) -> None:
    """A second apply leaves the versions of objects unchanged: the files set all fields that they manage."""
    kept = [document for document in documents() if document["kind"] not in MAKE_PODS]
    versions = [apply(applied, document).json()["metadata"]["resourceVersion"] for document in kept]

    assert versions == [apply(applied, document).json()["metadata"]["resourceVersion"] for document in kept]


@pytest.mark.parametrize("role", ["api", "worker", "resmgr", "hostmgr", "postgres", "temporal", "temporal-ui"])
def test_pods_of_roles_are_admitted(applied: Client, role: str) -> None:
    """The namespace of the roles admits only restricted pods, and the roles' pods are."""
    [template] = [
        document["spec"]["template"]
        for document in documents()
        if document["kind"] in MAKE_PODS and document["metadata"]["name"] == role
    ]
    body = {**template, "metadata": {**template["metadata"], "name": role}}
    reply = applied.ask("POST", "/api/v1/namespaces/peloton-system/pods?dryRun=All&fieldValidation=Strict", body)

    assert 201 == reply.status, reply.body


@pytest.fixture(scope="module")
def hostmgr(applied: Client) -> Iterator[Client]:
    with Client(login_of_host_manager(applied)) as client:
        yield client


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/secrets"),
        ("GET", "/api/v1/namespaces/peloton/secrets/x"),
        ("GET", "/api/v1/namespaces/default/pods/x"),
        ("POST", "/api/v1/namespaces/default/pods"),
        ("POST", "/api/v1/namespaces/peloton-system/pods"),
        ("DELETE", "/api/v1/namespaces/default/pods/x"),
        ("DELETE", "/api/v1/namespaces/peloton/pods"),
        ("DELETE", "/api/v1/nodes/x"),
        ("GET", "/api/v1/nodes/x/proxy/stats/summary"),
        ("POST", "/api/v1/namespaces/peloton-system/pods/x/exec"),
        ("GET", "/api/v1/namespaces/default/pods/x/exec"),
        ("POST", "/api/v1/namespaces/peloton/pods/x/attach"),
        ("POST", "/api/v1/namespaces"),
        ("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x"),
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/x"),
    ],
)
def test_the_host_manager_may_no_more_than_it_does(hostmgr: Client, method: str, path: str) -> None:
    """Requests that its driver never sends are refused to its service account."""
    assert 403 == hostmgr.ask(method, path, None if method == "GET" else {"metadata": {"name": "x"}}).status


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_the_host_manager_may_run_commands_in_its_pods(hostmgr: Client, method: str) -> None:
    """The verb for a WebSocket is that of its method, or create: the answer for a missing pod is not-found."""
    body = None if method == "GET" else {"metadata": {"name": "x"}}
    assert 404 == hostmgr.ask(method, "/api/v1/namespaces/peloton/pods/x/exec?command=ls", body).status


def test_the_host_manager_may_cordon(hostmgr: Client) -> None:
    """A patch of a missing node is not found, rather than forbidden."""
    assert 404 == hostmgr.ask("PATCH", "/api/v1/nodes/x", {"spec": {"unschedulable": True}}, MERGE).status
