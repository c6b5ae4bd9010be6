"""Admission of pods, and controllers of nodes, namespaces and owners."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from services.lab.kubernetes.controllers.settings import ControllerSettings
from tests.unit.lab.kubernetes.cluster import PODS, Cluster, pod

QUOTAS = "/api/v1/namespaces/default/resourcequotas"


@pytest.fixture
def hasty(tmp_path: Path) -> Iterator[Cluster]:
    """Yield a cluster with short timeouts for lost nodes."""
    settings = ControllerSettings(node_grace_s=0.05, node_period_s=0.02)
    with Cluster(tmp_path, controllers=settings) as cluster:
        yield cluster


def ready_node(cluster: Cluster, name: str) -> None:
    status = {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}]}
    cluster.create("/api/v1/nodes", {"metadata": {"name": name}, "status": status})


def taints(answer: Any) -> set[tuple[str, str]]:
    found = answer.json["spec"].get("taints", [])
    return {(one["key"].rpartition("/")[2], one["effect"]) for one in found}


def conditions(answer: Any) -> dict[str, str]:
    return {one["type"]: one.get("reason", "") for one in answer.json["status"].get("conditions", [])}


def test_a_quota_of_pods_refuses_with_its_numbers(cluster: Cluster) -> None:
    """A pod that ends frees the quota."""
    cluster.create(QUOTAS, {"metadata": {"name": "rq"}, "spec": {"hard": {"pods": "1", "requests.cpu": "0"}}})
    assert cluster.create(PODS, pod("a")).status == 201

    refused = cluster.create(PODS, pod("b"))

    assert (refused.status, refused.json["reason"]) == (403, "Forbidden")
    numbers = "requested: pods=1, used: pods=1, limited: pods=1"
    assert refused.json["message"] == f'pods "b" is forbidden: exceeded quota: rq, {numbers}'
    cluster.patch(f"{PODS}/a/status", {"status": {"phase": "Succeeded"}})
    assert cluster.create(PODS, pod("b")).status == 201


@pytest.mark.parametrize(
    ("resources", "quality"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m", "memory": "1024Mi"}}, "Guaranteed"),
        ({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}, "Burstable"),
    ],
)
def test_a_priority_class_and_a_quality_of_service(cluster: Cluster, resources: dict[str, Any], quality: str) -> None:
    """The class gives priority and policy; requests and limits give the quality."""
    made = {"metadata": {"name": "batch"}, "value": 1000, "preemptionPolicy": "Never"}
    cluster.create("/apis/scheduling.k8s.io/v1/priorityclasses", made)
    body = pod("a", priorityClassName="batch")
    body["spec"]["containers"][0]["resources"] = resources

    found = cluster.create(PODS, body).json

    assert (found["spec"]["priority"], found["spec"]["preemptionPolicy"]) == (1000, "Never")
    assert found["status"]["qosClass"] == quality


def test_a_node_that_says_nothing_is_lost(hasty: Cluster) -> None:
    """A lost node has unknown conditions, two taints and pods that are not ready; pods that do not tolerate the taints
    are deleted and stay until the node confirms.
    """
    patient = pod("patient", node="n", tolerations=[{"operator": "Exists"}])
    hurried = pod(
        "hurried", node="n", tolerations=[{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}]
    )
    for body in (patient, hurried):
        hasty.create(PODS, body)
        ready = [{"type": "Ready", "status": "True"}]
        hasty.patch(f"{PODS}/{body['metadata']['name']}/status", {"status": {"phase": "Running", "conditions": ready}})
    ready_node(hasty, "n")  # last, since the node is lost at once

    lost = hasty.wait("/api/v1/nodes/n", lambda found: ("unreachable", "NoExecute") in taints(found))
    gone = hasty.wait(f"{PODS}/hurried", lambda found: "deletionTimestamp" in found.json["metadata"])

    assert taints(lost) == {("unreachable", "NoSchedule"), ("unreachable", "NoExecute")}
    assert conditions(lost) == {"Ready": "NodeStatusUnknown"}
    assert conditions(gone)["DisruptionTarget"] == "DeletionByTaintManager"
    assert (gone.json["status"]["phase"], gone.json["metadata"]["deletionGracePeriodSeconds"]) == ("Running", 30)
    kept = hasty.get(f"{PODS}/patient").json
    assert "deletionTimestamp" not in kept["metadata"]
    assert [one["status"] for one in kept["status"]["conditions"] if one["type"] == "Ready"] == ["False"]


def test_a_node_that_comes_back_loses_its_taints(hasty: Cluster) -> None:
    """The taints of a lost node are removed when its condition is ready again."""
    ready_node(hasty, "n")
    hasty.wait("/api/v1/nodes/n", lambda found: ("unreachable", "NoExecute") in taints(found))
    with hasty.watch("/api/v1/nodes?watch=1") as watch:
        watch.next()
        ready = [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:01Z"}]
        hasty.patch("/api/v1/nodes/n/status", {"status": {"conditions": ready}})
        watch.next()

        kind, body = watch.next()

    assert (kind, body["spec"].get("taints")) == ("MODIFIED", None)


def test_a_cordon_is_a_taint_too(cluster: Cluster) -> None:
    """The taint NoSchedule is removed with the cordon; other taints stay."""
    ready_node(cluster, "n")
    own = {"key": "peloton.io/dedicated", "effect": "NoSchedule"}
    cluster.wait("/api/v1/nodes/n", lambda found: not taints(found))
    cluster.patch("/api/v1/nodes/n", {"spec": {"taints": [own], "unschedulable": True}})
    cluster.wait("/api/v1/nodes/n", lambda found: len(taints(found)) == 2)
    cluster.patch("/api/v1/nodes/n", {"spec": {"unschedulable": None}})

    assert taints(cluster.wait("/api/v1/nodes/n", lambda found: len(taints(found)) == 1)) == {
        ("dedicated", "NoSchedule")
    }


def test_a_namespace_goes_when_it_is_empty(cluster: Cluster) -> None:
    """Objects of a namespace are deleted with their grace period; none can be created in it meanwhile."""
    cluster.create("/api/v1/namespaces", {"metadata": {"name": "team"}})
    pods = "/api/v1/namespaces/team/pods"
    cluster.create(pods, pod("a"))
    cluster.create("/api/v1/namespaces/team/configmaps", {"metadata": {"name": "c"}})

    asked = cluster.ask("DELETE", "/api/v1/namespaces/team")
    cluster.wait(f"{pods}/a", lambda found: "deletionTimestamp" in found.json["metadata"])
    refused = cluster.create(pods, pod("b"))

    assert asked.json["status"]["phase"] == "Terminating"
    assert (refused.status, refused.json["details"]["causes"][0]["reason"]) == (403, "NamespaceTerminating")
    assert cluster.get("/api/v1/namespaces/team/configmaps/c").status == 404
    cluster.ask("DELETE", f"{pods}/a?gracePeriodSeconds=0")
    cluster.wait("/api/v1/namespaces/team", lambda found: found.status == 404)


def make_owned_pod(name: str, *owners: tuple[str, str]) -> dict[str, Any]:
    body = pod(name)
    body["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid} for owner, uid in owners
    ]
    return body


def test_what_is_owned_goes_after_its_last_owner(tmp_path: Path) -> None:
    """An owned object is deleted after its last owner, even after a restart; with another owner left only the reference
    is removed, and unknown owners are ignored.
    """
    maps = "/api/v1/namespaces/default/configmaps"
    with Cluster(tmp_path) as cluster:
        uids = {name: cluster.create(maps, {"metadata": {"name": name}}).json["metadata"]["uid"] for name in ("x", "y")}
        cluster.create(PODS, make_owned_pod("of-x", ("x", uids["x"])))
        cluster.create(PODS, make_owned_pod("of-both", ("x", uids["x"]), ("y", uids["y"])))
        cluster.create(PODS, make_owned_pod("of-a-job", ("job", "somewhere-else")))
    with Cluster(tmp_path) as cluster:
        cluster.ask("DELETE", f"{maps}/x")

        cluster.wait(f"{PODS}/of-x", lambda found: "deletionTimestamp" in found.json["metadata"])
        left = cluster.wait(f"{PODS}/of-both", lambda found: len(found.json["metadata"]["ownerReferences"]) == 1)

        assert [one["name"] for one in left.json["metadata"]["ownerReferences"]] == ["y"]
        assert "deletionTimestamp" not in cluster.get(f"{PODS}/of-a-job").json["metadata"]
