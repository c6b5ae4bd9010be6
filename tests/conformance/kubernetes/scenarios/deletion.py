"""Pods go: with grace, at once, held by finalizers, many at a time, by eviction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.conformance.kubernetes.lab import Lab, has, pod, with_labels
from tests.kubernetes.client import MERGE, STRATEGIC, Json


def delete(lab: Lab) -> None:
    with lab.node() as node, lab.watching(lab.pods) as watching:
        lab.must("POST", lab.pods, pod("d1", node))
        lab.ask("default grace", "DELETE", f"{lab.pods}/d1")
        lab.ask("again", "DELETE", f"{lab.pods}/d1", show=_deletion)
        lab.ask("shorter", "DELETE", f"{lab.pods}/d1", {"gracePeriodSeconds": 5}, show=_deletion)
        lab.ask("longer changes nothing", "DELETE", f"{lab.pods}/d1?gracePeriodSeconds=60", show=_deletion)
        lab.ask("at once", "DELETE", f"{lab.pods}/d1?gracePeriodSeconds=0", show=_deletion)
        lab.ask("once more", "DELETE", f"{lab.pods}/d1")

        lab.must("POST", lab.pods, pod("d2", node, terminationGracePeriodSeconds=7))
        lab.ask("its own grace", "DELETE", f"{lab.pods}/d2", show=_deletion)
        lab.must("POST", lab.pods, pod("d3", node))
        lab.ask("a wrong uid", "DELETE", f"{lab.pods}/d3", {"preconditions": {"uid": "nope"}})
        lab.ask(
            "a wrong version", "DELETE", f"{lab.pods}/d3", {"preconditions": {"resourceVersion": "1"}}, show=_reason
        )
        found = lab.must("GET", f"{lab.pods}/d3")
        options = {"preconditions": {"uid": found["metadata"]["uid"]}, "gracePeriodSeconds": 0}
        lab.ask("the right uid", "DELETE", f"{lab.pods}/d3", options, show=_deletion)
        lab.must("POST", lab.pods, pod("d4"))
        lab.ask("without a node", "DELETE", f"{lab.pods}/d4", show=_deletion)
        lab.must("POST", lab.pods, pod("d5", node))
        lab.must("PATCH", f"{lab.pods}/d5/status", {"status": {"phase": "Succeeded"}}, MERGE)
        lab.ask("a pod that is over", "DELETE", f"{lab.pods}/d5", show=_deletion)
        lab.must("POST", lab.pods, pod("d6", node))
        lab.ask("one that never was", "DELETE", f"{lab.pods}/d7")
        watching.note_until("what a watch saw", _ends_with("ADDED", "d6"))


def delete_held(lab: Lab) -> None:
    with lab.node() as node, lab.watching(lab.pods) as watching:
        held = {**pod("h1", node), "metadata": {"name": "h1", "finalizers": ["peloton.io/hold"]}}
        lab.must("POST", lab.pods, held)
        lab.ask("with a finalizer, at once", "DELETE", f"{lab.pods}/h1?gracePeriodSeconds=0", show=_deletion)
        lab.ask("it stays", "GET", f"{lab.pods}/h1", show=_deletion)
        more = {"metadata": {"finalizers": ["peloton.io/hold", "peloton.io/more"]}}
        lab.ask("no new finalizer", "PATCH", f"{lab.pods}/h1", more, MERGE, show=_reason)
        none = {"metadata": {"finalizers": None}}
        lab.ask("let it go", "PATCH", f"{lab.pods}/h1", none, MERGE, show=_deletion)
        lab.ask("it is gone", "GET", f"{lab.pods}/h1")

        held["metadata"]["name"] = "h2"
        lab.must("POST", lab.pods, held)
        lab.ask("with grace", "DELETE", f"{lab.pods}/h2", show=_deletion)
        lab.ask("finalizer off first", "PATCH", f"{lab.pods}/h2", none, MERGE, show=_deletion)
        lab.ask("it waits for its kubelet", "GET", f"{lab.pods}/h2", show=_deletion)
        lab.ask("which lets it go", "DELETE", f"{lab.pods}/h2?gracePeriodSeconds=0", show=_deletion)
        watching.note_until("what a watch saw", has(2, "DELETED"))


def delete_many(lab: Lab) -> None:
    with lab.node() as node:
        for i in range(3):
            lab.must("POST", lab.pods, with_labels(pod(f"m{i}", node), job="a"))
        lab.must("POST", lab.pods, with_labels(pod("m3", node), job="b"))
        lab.must("PATCH", f"{lab.pods}/m0/status", {"status": {"phase": "Failed"}}, MERGE)
        query = "labelSelector=job%3Da"
        lab.ask("with grace", "DELETE", f"{lab.pods}?{query}", show=_names)
        lab.ask("what is left", "GET", lab.pods, show=_names)
        lab.ask("at once", "DELETE", f"{lab.pods}?{query}&gracePeriodSeconds=0", show=_names)
        lab.ask("the other is left", "GET", lab.pods, show=_names)
        lab.ask("none", "DELETE", f"{lab.pods}?{query}", show=_names)


def owners(lab: Lab) -> None:
    maps = lab.path("configmaps")
    owner = lab.must("POST", maps, {"metadata": {"name": "owner"}})
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    owned = {**pod("o1"), "metadata": {"name": "o1", "ownerReferences": [reference]}}
    lab.ask("owned", "POST", lab.pods, owned, show=lambda body: body["metadata"])
    with lab.watching(lab.pods) as watching:
        lab.ask("the owner goes", "DELETE", f"{maps}/owner")
        watching.note_until("its pod goes too", has(1, "DELETED"))


def evict(lab: Lab) -> None:
    budgets = lab.path("poddisruptionbudgets", "policy/v1")
    with lab.node() as node:
        for name in ("e1", "e2"):
            lab.must("POST", lab.pods, with_labels(pod(name, node), app="guarded"))
            _run(lab, name)
        body = {
            "metadata": {"name": "pdb"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}},
        }
        lab.ask("a budget", "POST", budgets, body)
        with lab.watching(f"{lab.pods}?fieldSelector=metadata.name%3De1") as watching:
            lab.await_answer(201, "POST", f"{lab.pods}/e1/eviction", _eviction("e1"))  # once the budget is counted
            watching.note_until(
                "what a watch saw",
                lambda events: "deletionTimestamp" in events[-1]["object"]["metadata"] if events else False,
            )
        lab.ask("it goes with grace", "GET", f"{lab.pods}/e1", show=_deletion)
        lab.ask("the second", "POST", f"{lab.pods}/e2/eviction", _eviction("e2"))
        lab.ask("by hand nobody asks", "DELETE", f"{lab.pods}/e2?gracePeriodSeconds=0", show=_deletion)
        lab.ask("one that is gone", "POST", f"{lab.pods}/e2/eviction", _eviction("e2"))
        lab.must("POST", lab.pods, with_labels(pod("e3", node), app="guarded"))
        lab.ask("one that does not run yet", "POST", f"{lab.pods}/e3/eviction", _eviction("e3"))
        lab.must("POST", lab.pods, with_labels(pod("e4", node), app="guarded"))
        lab.must("PATCH", f"{lab.pods}/e4/status", {"status": {"phase": "Failed"}}, MERGE)
        lab.ask("one that is over", "POST", f"{lab.pods}/e4/eviction", _eviction("e4"))
        lab.ask(
            "a wrong uid",
            "POST",
            f"{lab.pods}/e3/eviction",
            {**_eviction("e3"), "deleteOptions": {"preconditions": {"uid": "nope"}}},
            show=_reason,
        )


def _run(lab: Lab, name: str) -> None:
    ready = [{"type": "Ready", "status": "True"}]
    lab.must("PATCH", f"{lab.pods}/{name}/status", {"status": {"phase": "Running", "conditions": ready}}, STRATEGIC)


def _eviction(name: str) -> Json:
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}


def _ends_with(kind: str, name: str) -> Callable[[list[Json]], bool]:
    return lambda events: (kind, name) in [(one["type"], one["object"]["metadata"]["name"]) for one in events[-1:]]


def _deletion(body: Any) -> Any:
    """The deletion fields of a pod; all of a Status."""
    if body["kind"] != "Pod":
        return body
    names = ("name", "generation", "finalizers", "deletionTimestamp", "deletionGracePeriodSeconds")
    return {**{key: body["metadata"].get(key) for key in names}, "phase": body["status"]["phase"]}


def _reason(body: Any) -> Any:
    return {key: body.get(key) for key in ("kind", "status", "reason", "code")}


def _names(body: Any) -> Any:
    items = body.get("items", [])
    return {
        "kind": body["kind"],
        "pods": {item["metadata"]["name"]: _deletion({"kind": "Pod", **item}) for item in items},
    }


SCENARIOS = (delete, delete_held, delete_many, owners, evict)
