"""Deletion: with a grace, with finalizers, with preconditions, of many."""

from __future__ import annotations

from typing import Any

from tests.unit.lab.kubernetes.cluster import PODS, Cluster, pod


def shown(body: Any) -> tuple[str, int, int | None]:
    metadata = body["metadata"]
    return metadata["name"], metadata["generation"], metadata.get("deletionGracePeriodSeconds")


def test_a_pod_on_a_node_waits_for_its_grace(cluster: Cluster) -> None:
    """The pod keeps a deletionTimestamp until its node, or a client with grace 0, deletes it."""
    cluster.create(PODS, pod("a"))
    with cluster.watch(f"{PODS}?watch=1") as watch:
        assert watch.named(1) == [("ADDED", "a")]

        asked = cluster.ask("DELETE", f"{PODS}/a")
        forced = cluster.ask("DELETE", f"{PODS}/a?gracePeriodSeconds=0")

        events = watch.take(3)
    assert (asked.status, shown(asked.json)) == (200, ("a", 2, 30))
    assert (forced.status, shown(forced.json)) == (200, ("a", 2, 0))
    assert [(kind, shown(body)) for kind, body in events] == [
        ("MODIFIED", ("a", 2, 30)),
        ("MODIFIED", ("a", 2, 0)),
        ("DELETED", ("a", 2, 0)),
    ]
    assert forced.json["metadata"]["resourceVersion"] == events[-1][1]["metadata"]["resourceVersion"]
    assert cluster.ask("DELETE", f"{PODS}/a").status == 404


def test_a_pod_that_runs_nowhere_is_gone_at_once(cluster: Cluster) -> None:
    """Pods without a node and pods that have ended are deleted at once."""
    cluster.create(PODS, pod("a", node=""))
    cluster.create(PODS, pod("b"))
    cluster.patch(f"{PODS}/b/status", {"status": {"phase": "Succeeded"}})

    for name in ("a", "b"):
        cluster.ask("DELETE", f"{PODS}/{name}")

    assert [cluster.get(f"{PODS}/{name}").status for name in ("a", "b")] == [404, 404]


def test_a_finalizer_holds_a_pod_even_without_grace(cluster: Cluster) -> None:
    """The pod is deleted when its finalizer is removed: the answer is without it, the last event still has it."""
    body = pod("a")
    body["metadata"]["finalizers"] = ["peloton.io/hold"]
    cluster.create(PODS, body)
    with cluster.watch(f"{PODS}?watch=1") as watch:
        cluster.ask("DELETE", f"{PODS}/a?gracePeriodSeconds=0")
        released = cluster.patch(f"{PODS}/a", {"metadata": {"finalizers": None}})
        events = watch.take(3)

    assert (released.status, "finalizers" in released.json["metadata"]) == (200, False)
    assert [(kind, one["metadata"]["finalizers"]) for kind, one in events] == [
        ("ADDED", ["peloton.io/hold"]),
        ("MODIFIED", ["peloton.io/hold"]),
        ("DELETED", ["peloton.io/hold"]),
    ]
    assert cluster.get(f"{PODS}/a").status == 404


def test_a_precondition_that_does_not_hold_is_a_conflict(cluster: Cluster) -> None:
    """A uid or version that does not match deletes nothing."""
    uid = cluster.create(PODS, pod("a")).json["metadata"]["uid"]

    refused = cluster.ask("DELETE", f"{PODS}/a", {"preconditions": {"uid": "nope"}})

    assert (refused.status, refused.json["details"]) == (409, {"name": "a", "kind": "Pod"})
    assert "the UID in the precondition (nope) does not match" in refused.json["message"]
    assert "deletionTimestamp" not in cluster.get(f"{PODS}/a").json["metadata"]
    assert cluster.ask("DELETE", f"{PODS}/a", {"preconditions": {"uid": uid}}).status == 200


def test_a_collection_is_deleted_by_a_selector(cluster: Cluster) -> None:
    """Selected objects are deleted with the given grace period; the answer lists them."""
    for name, job in (("a", "x"), ("b", "x"), ("c", "y")):
        body = pod(name)
        body["metadata"]["labels"] = {"job": job}
        cluster.create(PODS, body)

    deleted = cluster.ask("DELETE", f"{PODS}?labelSelector=job%3Dx", {"gracePeriodSeconds": 0})

    assert [one["metadata"]["name"] for one in deleted.json["items"]] == ["a", "b"]
    assert [one["metadata"]["name"] for one in cluster.get(PODS).json["items"]] == ["c"]


def test_what_has_no_grace_is_answered_with_a_status(cluster: Cluster) -> None:
    """Nodes and leases are gone at once."""
    uid = cluster.create("/api/v1/nodes", {"metadata": {"name": "n"}}).json["metadata"]["uid"]

    deleted = cluster.ask("DELETE", "/api/v1/nodes/n")

    assert deleted.json["status"] == "Success"
    assert deleted.json["details"] == {"name": "n", "kind": "nodes", "uid": uid}
