"""Applies files of deploy/kubernetes, as ``kubectl apply -f`` does."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator
from pathlib import Path

import yaml

from tests.kubernetes.client import APPLY, Client, Json, Login, Reply, login_of

FOLDER = Path(__file__).parents[2] / "deploy/kubernetes"
TIMEOUT_S = 180.0
GATE = "gate/policies.yaml"
"""The admission policies, which concern pods of all users."""
_CLUSTER_WIDE = {"Namespace", "PriorityClass", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"}
_PLURALS = {"PriorityClass": "priorityclasses", "NetworkPolicy": "networkpolicies"}
for _kind in ("MutatingAdmissionPolicy", "ValidatingAdmissionPolicy"):
    _CLUSTER_WIDE |= {_kind, f"{_kind}Binding"}
    _PLURALS[_kind] = f"{_kind.lower()[:-1]}ies"


def documents(*names: str) -> Iterator[Json]:
    """Yield the documents of these files, or of all except the policies of the gate."""
    everything = [path for path in FOLDER.rglob("*.yaml") if path != FOLDER / GATE]
    for path in sorted(FOLDER / name for name in names) if names else sorted(everything):
        yield from yaml.safe_load_all(path.read_text(encoding="utf-8"))


def apply(client: Client, document: Json, *, dry_run: bool = False) -> Reply:
    """Apply a document. Fields that the apiserver does not know are refused."""
    kind, version, metadata = document["kind"], document["apiVersion"], document["metadata"]
    top = f"/apis/{version}" if "/" in version else f"/api/{version}"
    within = "" if kind in _CLUSTER_WIDE else f"/namespaces/{metadata['namespace']}"
    plural = _PLURALS.get(kind, f"{kind.lower()}s")
    query = "fieldManager=tests&fieldValidation=Strict&force=true" + ("&dryRun=All" if dry_run else "")
    return client.ask("PATCH", f"{top}{within}/{plural}/{metadata['name']}?{query}", document, APPLY)


def must_apply(client: Client, document: Json, *, dry_run: bool = False) -> None:
    reply = apply(client, document, dry_run=dry_run)
    assert reply.status in (http.client.OK, http.client.CREATED), (document["kind"], document["metadata"], reply.body)


def token_of(client: Client, namespace: str, account: str) -> str:
    """Return a token of a service account, as its pods have."""
    reply = client.ask("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token", {"spec": {}})
    assert reply.status == http.client.CREATED, reply.body
    return str(reply.json()["status"]["token"])


def login_of_host_manager(client: Client, namespace: str = "peloton") -> Login:
    """Return the login of its service account, once the apiserver has loaded the applied roles and priority classes
    into its caches. ``namespace``: of the pods.
    """
    login = client.login.with_token(token_of(client, "peloton-system", "hostmgr"))
    reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    asked: list[Json] = [{"verb": "create", "resource": "pods", "namespace": namespace}]
    asked.append({"verb": "patch", "resource": "nodes"})
    container = {"name": "main", "image": "busybox"}
    pod = {"metadata": {"name": "try"}, "spec": {"priorityClassName": "peloton", "containers": [container]}}
    until_s = time.monotonic() + TIMEOUT_S
    with Client(login) as account:

        def answers() -> list[bytes]:
            """Return the answers that do not yet have the final result."""
            found = [account.ask("POST", reviews, {"spec": {"resourceAttributes": one}}) for one in asked]
            made = client.ask("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod)
            refused = [one.body for one in found if not one.json().get("status", {}).get("allowed")]
            return [*refused, *([made.body] if made.status != http.client.CREATED else [])]

        while left := answers():
            assert time.monotonic() < until_s, left
    return login


def host_manager_of(kubeconfig: Path, namespace: str, folder: Path) -> Path:
    """A kubeconfig of the host manager's service account, which has its roles of ``deploy/kubernetes`` with
    ``namespace`` for that of the pods. Made with an administrator's kubeconfig."""
    with Client(login_of(kubeconfig)) as client:
        for document in documents("10-cluster.yaml"):
            kind, metadata = document["kind"], document["metadata"]
            if "peloton" in (metadata.get("namespace"), metadata["name"]) and kind != "PriorityClass":
                place = {"name": namespace} if kind == "Namespace" else {**metadata, "namespace": namespace}
                document = {**document, "metadata": place}
            must_apply(client, document)
        token = login_of_host_manager(client, namespace).token
    config = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    for entry in config["clusters"]:
        if "certificate-authority" in entry["cluster"]:
            entry["cluster"]["certificate-authority"] = str(
                (kubeconfig.parent / entry["cluster"]["certificate-authority"]).resolve()
            )
    for entry in config["users"]:
        entry["user"] = {"token": token}
    made = folder / f"{namespace}.kubeconfig"
    made.write_text(yaml.safe_dump(config), encoding="utf-8")
    return made
