"""Pods are bound to a node: by a Binding, or never."""

from __future__ import annotations

from typing import Any

from services.lab.kubernetes.resources import Json
from tests.conformance.kubernetes.lab import Lab, pod
from tests.kubernetes.client import MERGE


def bind(lab: Lab) -> None:
    with lab.node("node-1") as node, lab.node("node-2") as other:
        lab.ask("create without a node", "POST", lab.pods, pod("b1"), show=_shown)
        wrong = _binding("b1", node, uid="00000000-0000-0000-0000-000000000000")
        lab.ask("with a wrong uid", "POST", f"{lab.pods}/b1/binding", wrong, show=_without_message)
        lab.ask("bind", "POST", f"{lab.pods}/b1/binding", _binding("b1", node))
        lab.ask("it is bound", "GET", f"{lab.pods}/b1", show=_shown)
        lab.ask("again, the same node", "POST", f"{lab.pods}/b1/binding", _binding("b1", node))
        lab.ask("to another", "POST", f"{lab.pods}/b1/binding", _binding("b1", other))

        lab.ask("gated", "POST", lab.pods, pod("b2", schedulingGates=[{"name": "peloton.io/wait"}]), show=_shown)
        lab.ask("bind gated", "POST", f"{lab.pods}/b2/binding", _binding("b2", node))
        gates: Json = {"spec": {"schedulingGates": []}}
        lab.ask("ungate", "PATCH", f"{lab.pods}/b2", gates, MERGE, show=_shown)
        lab.ask("bind ungated", "POST", f"{lab.pods}/b2/binding", _binding("b2", node))

        lab.must("POST", lab.pods, pod("b3"))
        lab.ask("to a node that is not there", "POST", f"{lab.pods}/b3/binding", _binding("b3", lab.named("nowhere")))
        lab.ask("a pod that is not there", "POST", f"{lab.pods}/b4/binding", _binding("b4", node))
        lab.ask("a binding of another name", "POST", f"{lab.pods}/b3/binding", _binding("b9", node))

        lab.must("POST", lab.pods, pod("b5"))
        noted = _binding("b5", node)
        noted["metadata"]["annotations"] = {"peloton.io/placed-by": "a test"}
        lab.ask("with annotations", "POST", f"{lab.pods}/b5/binding", noted)
        lab.ask("they are the pod's", "GET", f"{lab.pods}/b5", show=_shown)

        lab.must("POST", lab.pods, pod("b6"))
        lab.ask(
            "a node by patch", "PATCH", f"{lab.pods}/b6", {"spec": {"nodeName": node}}, MERGE, show=_without_message
        )
        body = lab.must("GET", f"{lab.pods}/b6")
        uid = body["metadata"]["uid"]
        lab.ask("with the right uid", "POST", f"{lab.pods}/b6/binding", _binding("b6", node, uid=uid))
        lab.must("POST", lab.pods, pod("b7"))
        lab.must("DELETE", f"{lab.pods}/b7")
        lab.ask("a pod that is gone", "POST", f"{lab.pods}/b7/binding", _binding("b7", node))


def _binding(name: str, node: str, uid: str = "") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, **({"uid": uid} if uid else {})},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


def _shown(body: Any) -> Any:
    return {"metadata": body["metadata"], "node": body["spec"].get("nodeName"), "status": body["status"]}


def _without_message(body: Any) -> Any:
    return {key: value for key, value in body.items() if key != "message"} | {"details": body["details"]["name"]}


SCENARIOS = (bind,)
