"""Objects are changed: kinds of patches, conflicts, immutable fields, the status subresource."""

from __future__ import annotations

from typing import Any

from tests.conformance.kubernetes.lab import Lab, pod, with_labels
from tests.kubernetes.client import JSON_PATCH, MERGE, STRATEGIC


def patch(lab: Lab) -> None:
    with lab.node() as node:
        lab.must("POST", lab.pods, with_labels(pod("p1", node), a="1", b="2"))
        one = f"{lab.pods}/p1"
        lab.ask("merge", "PATCH", one, {"metadata": {"labels": {"a": None, "c": "3"}}}, MERGE, show=_metadata)
        lab.ask("merge that changes nothing", "PATCH", one, {"metadata": {"labels": {"c": "3"}}}, MERGE, show=_metadata)
        lab.ask("strategic", "PATCH", one, {"metadata": {"annotations": {"x": "y"}}}, STRATEGIC, show=_metadata)
        add = [
            {"op": "add", "path": "/metadata/labels/d", "value": "4"},
            {"op": "remove", "path": "/metadata/labels/b"},
        ]
        lab.ask("JSON patch", "PATCH", one, add, JSON_PATCH, show=_metadata)
        test = [{"op": "test", "path": "/metadata/labels/d", "value": "5"}]
        lab.ask("a test that fails", "PATCH", one, test, JSON_PATCH, show=_reason)
        absent = [{"op": "remove", "path": "/metadata/labels/none"}]
        lab.ask("what is not there", "PATCH", one, absent, JSON_PATCH, show=_reason)
        lab.ask("another pod", "PATCH", f"{lab.pods}/p2", {"metadata": {}}, MERGE)
        lab.ask("another content type", "PATCH", one, {}, show=_reason)
        lab.ask("no JSON", "PATCH", one, b"{", MERGE, show=_reason)
        lab.ask("another name inside", "PATCH", one, {"metadata": {"name": "p9"}}, MERGE, show=_reason)
        old = lab.must("GET", one)["metadata"]["resourceVersion"]
        lab.must("PATCH", one, {"metadata": {"labels": {"e": "5"}}}, MERGE)
        stale = {"metadata": {"resourceVersion": old, "labels": {"f": "6"}}}
        lab.ask("with an old version", "PATCH", one, stale, MERGE)
        wrong = {"metadata": {"uid": "nope", "labels": {"f": "6"}}}
        lab.ask("with another uid", "PATCH", one, wrong, MERGE, show=_reason)


def may_not_change(lab: Lab) -> None:
    with lab.node() as node:
        lab.must("POST", lab.pods, pod("p1"))
        one = f"{lab.pods}/p1"
        lab.ask("node", "PATCH", one, {"spec": {"nodeName": node}}, MERGE, show=_reason)
        container = {"spec": {"containers": [{"name": "main", "command": ["true"]}]}}
        lab.ask("command", "PATCH", one, container, STRATEGIC, show=_reason)
        lab.ask("priority", "PATCH", one, {"spec": {"priority": 5}}, MERGE, show=_reason)
        image = {"spec": {"containers": [{"name": "main", "image": "busybox:2"}]}}
        lab.ask("image may", "PATCH", one, image, STRATEGIC, show=lambda body: body["spec"]["containers"][0]["image"])
        deadline = {"spec": {"activeDeadlineSeconds": 100}}
        lab.ask(
            "a deadline may come",
            "PATCH",
            one,
            deadline,
            MERGE,
            show=lambda body: body["spec"]["activeDeadlineSeconds"],
        )
        lab.ask("a later deadline", "PATCH", one, {"spec": {"activeDeadlineSeconds": 200}}, MERGE, show=_reason)
        more = [{"op": "add", "path": "/spec/tolerations/-", "value": {"key": "x", "operator": "Exists"}}]
        lab.ask("a toleration may come", "PATCH", one, more, JSON_PATCH, show=lambda body: body["spec"]["tolerations"])
        less = [{"op": "remove", "path": "/spec/tolerations/0"}]
        lab.ask("but not go", "PATCH", one, less, JSON_PATCH, show=_reason)


def put(lab: Lab) -> None:
    first = lab.must("POST", lab.pods, pod("u1"))
    one = f"{lab.pods}/u1"
    body = with_labels(first, a="1") | {"metadata": {**first["metadata"], "labels": {"a": "1"}}}
    lab.ask("what was read", "PUT", one, body, show=_metadata)
    lab.ask("the same again", "PUT", one, body)
    free = {**body, "metadata": {"name": "u1", "labels": {"b": "2"}}}
    lab.ask("without a version", "PUT", one, free, show=_metadata)
    lab.ask("another name", "PUT", one, {**body, "metadata": {**body["metadata"], "name": "u2"}}, show=_reason)
    lab.ask("one that is not there", "PUT", f"{lab.pods}/u3", pod("u3"), show=_reason)


def status(lab: Lab) -> None:
    with lab.node() as node:
        lab.ask(
            "status is not created", "POST", lab.pods, {**pod("s1", node), "status": {"phase": "Running"}}, show=_status
        )
        one = f"{lab.pods}/s1"
        ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
        lab.ask("nor changed with the rest", "PATCH", one, ready, MERGE, show=_status)
        both = {**ready, "metadata": {"labels": {"a": "1"}}}
        lab.ask("but as a subresource", "PATCH", f"{one}/status", both, STRATEGIC, show=_status)
        more = {"status": {"conditions": [{"type": "ContainersReady", "status": "True"}]}}
        lab.ask("conditions are merged by type", "PATCH", f"{one}/status", more, STRATEGIC, show=_status)
        ended = {"name": "main", "state": {"terminated": {"exitCode": 3, "reason": "Error"}}, "ready": False}
        over = {
            "status": {
                "phase": "Failed",
                "containerStatuses": [{**ended, "image": "busybox", "imageID": "", "restartCount": 0}],
            }
        }
        lab.ask("it ends", "PATCH", f"{one}/status", over, STRATEGIC, show=_status)
        stale = {"metadata": {"uid": "nope"}, "status": {"phase": "Running"}}
        lab.ask("of another uid", "PATCH", f"{one}/status", stale, STRATEGIC, show=_reason)
        lab.ask("a merge replaces lists", "PATCH", f"{one}/status", ready, MERGE, show=_status)
        lab.ask("read it alone", "GET", f"{one}/status", show=_status)


def leases(lab: Lab) -> None:
    all_leases = lab.path("leases", "coordination.k8s.io/v1")
    spec = {"holderIdentity": "one", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"}
    body = lab.ask("make", "POST", all_leases, {"metadata": {"name": "x"}, "spec": spec}).json()
    lab.ask("again", "POST", all_leases, {"metadata": {"name": "x"}, "spec": spec})
    lab.ask("renew", "PUT", f"{all_leases}/x", body)
    body["spec"]["holderIdentity"] = "two"
    lab.ask("take over", "PUT", f"{all_leases}/x", body)
    lab.ask("with an old version", "PUT", f"{all_leases}/x", body)
    lab.ask("a bad duration", "PATCH", f"{all_leases}/x", {"spec": {"leaseDurationSeconds": 0}}, MERGE)
    lab.ask("delete", "DELETE", f"{all_leases}/x")
    lab.ask("is gone", "GET", f"{all_leases}/x")


def _metadata(body: Any) -> Any:
    return body["metadata"]


def _labels(body: Any) -> Any:
    return body["metadata"].get("labels")


def _status(body: Any) -> Any:
    return {"labels": _labels(body), "generation": body["metadata"].get("generation"), "status": body["status"]}


def _reason(body: Any) -> Any:
    return {key: body.get(key) for key in ("kind", "status", "reason", "code")}


SCENARIOS = (patch, may_not_change, put, status, leases)
