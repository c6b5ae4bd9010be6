"""Priority classes of pods, and nodes."""

from __future__ import annotations

from typing import Any

from tests.conformance.kubernetes.lab import Lab, pod
from tests.kubernetes.client import MERGE, STRATEGIC


def priority(lab: Lab) -> None:
    classes, name = "/apis/scheduling.k8s.io/v1/priorityclasses", lab.named("urgent")
    with lab.node() as node:
        lab.ask("a class", "POST", classes, {"metadata": {"name": name}, "value": 1000, "preemptionPolicy": "Never"})
        lab.await_answer(201, "POST", lab.pods, pod("try", node, priorityClassName=name))
        lab.ask("gives its value", "POST", lab.pods, pod("p1", node, priorityClassName=name), show=_priority)
        lab.ask("a value of one's own", "POST", lab.pods, pod("p2", node, priorityClassName=name, priority=5))
        lab.ask(
            "the same value", "POST", lab.pods, pod("p3", node, priorityClassName=name, priority=1000), show=_priority
        )
        lab.ask("a value without a class", "POST", lab.pods, pod("p4", node, priority=5), show=_reason)
        lab.ask("none", "POST", lab.pods, pod("p5", node), show=_priority)
        lab.ask("delete", "DELETE", f"{classes}/{name}")


def nodes(lab: Lab) -> None:
    with lab.node() as node:
        one = f"/api/v1/nodes/{node}"
        lab.ask("again", "POST", "/api/v1/nodes", {"metadata": {"name": node}})
        lab.ask("read", "GET", one, show=_node)
        lab.ask("cordon", "PATCH", one, {"spec": {"unschedulable": True}}, MERGE, show=_unschedulable)
        lab.ask("a pod comes all the same", "POST", lab.pods, pod("n1", node), show=lambda body: body["status"])
        lab.ask("uncordon", "PATCH", one, {"spec": {"unschedulable": None}}, STRATEGIC, show=_unschedulable)
        taint = {"spec": {"taints": [{"key": "peloton.io/dedicated", "value": "yes", "effect": "NoSchedule"}]}}
        lab.ask("taint", "PATCH", one, taint, STRATEGIC, show=_unschedulable)
        lab.ask(
            "a bad effect",
            "PATCH",
            one,
            {"spec": {"taints": [{"key": "x", "effect": "Never"}]}},
            STRATEGIC,
            show=_reason,
        )
        lab.ask(
            "label",
            "PATCH",
            one,
            {"metadata": {"labels": {"zone": "a"}}},
            MERGE,
            show=lambda body: body["metadata"]["labels"],
        )
        status = {"status": {"allocatable": {"cpu": "3"}, "capacity": {"cpu": "8"}}}
        lab.ask("status", "PATCH", f"{one}/status", status, STRATEGIC, show=lambda body: body["status"]["allocatable"])
        lab.ask("delete", "DELETE", one, show=lambda body: body["kind"])
        lab.ask("its pod stays a while", "GET", f"{lab.pods}/n1", show=lambda body: body["status"]["phase"])
        lab.ask("delete again", "DELETE", one)


def _priority(body: Any) -> Any:
    return {key: body["spec"].get(key) for key in ("priority", "priorityClassName", "preemptionPolicy")}


def _node(body: Any) -> Any:
    status = body["status"]
    conditions = {condition["type"]: condition["status"] for condition in status["conditions"]}
    kept = {key: status[key] for key in ("allocatable", "capacity", "addresses")}
    return {
        "kind": body["kind"],
        "labels": body["metadata"]["labels"],
        "spec": body["spec"],
        **kept,
        "conditions": conditions,
    }


def _unschedulable(body: Any) -> Any:
    """The node's scheduling fields, without the taints of controllers, which follow, and without times."""
    keys = ("key", "value", "effect")
    own = [taint for taint in body["spec"].get("taints", []) if not taint["key"].startswith("node.kubernetes.io/")]
    taints = [{key: taint.get(key) for key in keys} for taint in own]
    return {"unschedulable": body["spec"].get("unschedulable"), "taints": taints}


def _reason(body: Any) -> Any:
    return {key: body.get(key) for key in ("kind", "status", "reason", "code")}


SCENARIOS = (priority, nodes)
