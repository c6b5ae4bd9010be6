"""Binding and eviction of pods."""

from __future__ import annotations

from typing import Any

from tests.unit.lab.kubernetes.cluster import PODS, Cluster, pod

BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


def binding(name: str, node: str, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, **metadata},
        "target": {"kind": "Node", "name": node},
    }


def running(cluster: Cluster, name: str, is_ready: bool = True, **labels: str) -> None:
    body = pod(name)
    body["metadata"]["labels"] = labels
    cluster.create(PODS, body)
    ready = [{"type": "Ready", "status": "True" if is_ready else "False"}]
    cluster.patch(f"{PODS}/{name}/status", {"status": {"phase": "Running", "conditions": ready}})


def evict(cluster: Cluster, name: str, **options: Any) -> Any:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, "deleteOptions": options}
    return cluster.create(f"{PODS}/{name}/eviction", body)


def test_a_binding_gives_a_pod_its_node_once(cluster: Cluster) -> None:
    """A binding sets the node and the annotations of a pod; a second binding is a conflict, to the same node too."""
    cluster.create(PODS, pod("a", node=""))

    first = cluster.create(f"{PODS}/a/binding", binding("a", "n1", annotations={"run": "7"}))
    again = cluster.create(f"{PODS}/a/binding", binding("a", "n1"))

    body = cluster.get(f"{PODS}/a").json
    assert (first.status, first.json["status"]) == (201, "Success")
    assert (body["spec"]["nodeName"], body["metadata"]["annotations"]) == ("n1", {"run": "7"})
    assert [(one["type"], one["status"]) for one in body["status"]["conditions"]] == [("PodScheduled", "True")]
    assert again.status == 409
    assert again.json["message"] == (
        'Operation cannot be fulfilled on pods/binding "a": pod a is already assigned to node "n1"'
    )


def test_a_binding_of_another_run_is_a_conflict(cluster: Cluster) -> None:
    """The uid shows that another pod has the name now; a gated pod is not bound, an unknown one not found."""
    cluster.create(PODS, pod("a", node="", schedulingGates=[{"name": "x/y"}]))

    other = cluster.create(f"{PODS}/a/binding", binding("a", "n1", uid="nope"))
    gated = cluster.create(f"{PODS}/a/binding", binding("a", "n1"))
    cluster.patch(f"{PODS}/a", {"spec": {"schedulingGates": []}})

    assert (other.status, "Precondition failed: UID in precondition: nope" in other.json["message"]) == (409, True)
    assert (gated.status, "non-empty .spec.schedulingGates" in gated.json["message"]) == (409, True)
    assert cluster.create(f"{PODS}/a/binding", binding("a", "n1")).status == 201
    assert cluster.create(f"{PODS}/b/binding", binding("b", "n1")).status == 404


def test_an_eviction_reports_why_and_deletes_with_grace(cluster: Cluster) -> None:
    """The condition is written before the deletion: there are two events."""
    running(cluster, "a")
    with cluster.watch(f"{PODS}?watch=1") as watch:
        watch.next()
        done = evict(cluster, "a", gracePeriodSeconds=7)
        (_, first), (_, second) = watch.take(2)

    assert done.status == 201
    reasons = [one.get("reason") for one in first["status"]["conditions"] if one["type"] == "DisruptionTarget"]
    assert (reasons, "deletionTimestamp" in first["metadata"]) == (["EvictionByEvictionAPI"], False)
    assert second["metadata"]["deletionGracePeriodSeconds"] == 7


def test_a_budget_lets_no_more_go_than_it_can_spare(cluster: Cluster) -> None:
    """A second eviction at once is answered with 429 and the numbers; pods that are not running or not ready pass."""
    for name in "ab":
        running(cluster, name, app="web")
    running(cluster, "sick", is_ready=False, app="web")
    cluster.create(BUDGETS, {"metadata": {"name": "web"}, "spec": {"minAvailable": 1, "selector": {}}})

    answers = [evict(cluster, name) for name in ("sick", "a", "b")]

    assert [answer.status for answer in answers] == [201, 201, 429]
    assert answers[2].json["reason"] == "TooManyRequests"
    assert answers[2].json["details"]["causes"] == [
        {
            "reason": "DisruptionBudget",
            "message": "The disruption budget web needs 1 healthy pods and has 1 currently",
        }
    ]
    cluster.patch(f"{PODS}/b/status", {"status": {"phase": "Succeeded"}})
    assert evict(cluster, "b").status == 201
