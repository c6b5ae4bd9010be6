"""Requests about external pods: bindings, evictions, conditions and events."""

from __future__ import annotations

import time

import orjson

from peloton.model.ids import PodId
from services.hostmgr.kubernetes.apiserver.wire import MERGE_PATCH, STRATEGIC_PATCH, Answer, Json, Request
from services.hostmgr.kubernetes.external.gate import ADMITTED, admission_request, is_by_gate, run_of, write_now
from services.hostmgr.kubernetes.pods.launches import RUN as RUN

MESSAGE_MAX = 1_000
"""Limit in characters; an Event allows 1,024."""


def pod_path(pod: Json) -> str:
    meta = pod["metadata"]
    return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"


def launch_request(pod: Json, run: PodId, node: str) -> Request:
    """Return the removal of the pod's gate, or the binding of a pod without one."""
    return admission_request(pod, run, node) if is_by_gate(pod) else binding_request(pod, run, node)


def binding_request(pod: Json, run: PodId, node: str) -> Request:
    meta = pod["metadata"]
    names = {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]}
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {**names, "annotations": {RUN: str(run)}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    return Request("POST", f"{pod_path(pod)}/binding", orjson.dumps(body))


def get_request(pod: Json) -> Request:
    """Return a request for a list of one pod, as the right to list pods is required anyway."""
    meta = pod["metadata"]
    return Request("GET", f"/api/v1/namespaces/{meta['namespace']}/pods?fieldSelector=metadata.name%3D{meta['name']}")


def read_answer(answer: Answer | OSError) -> Json | None:
    """Return the pod in the answer to a list request; None if there is none. Raises OSError."""
    if isinstance(answer, OSError):
        raise answer
    if not answer.is_ok:
        raise OSError(answer.message)
    return next(iter(answer.json()["items"]), None)


def is_launched_as(pod: Json, run: PodId, uid: str) -> bool:
    return pod["metadata"]["uid"] == uid and run_of(pod) == str(run)


def eviction_request(pod: Json) -> Request:
    """Return an eviction with the pod's own grace period."""
    meta = pod["metadata"]
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
        "deleteOptions": {"preconditions": {"uid": meta["uid"]}},
    }
    return Request("POST", f"{pod_path(pod)}/eviction", orjson.dumps(body))


def read_condition(pod: Json) -> tuple[str, str]:
    """Return reason and message of Peloton's condition, if that is False."""
    return read_false(pod, ADMITTED if is_by_gate(pod) else "PodScheduled")


def read_false(thing: Json, kind: str) -> tuple[str, str]:
    """Return reason and message of an object's condition of this type, if that is False."""
    for condition in (thing.get("status") or {}).get("conditions") or ():
        if condition.get("type") == kind and condition.get("status") == "False":
            return condition.get("reason", ""), condition.get("message", "")
    return "", ""


def condition_request(pod: Json, reason: str, message: str) -> Request:
    """Return the patch of Peloton's condition. PodScheduled of a pod that Peloton places has other writers."""
    if is_by_gate(pod):
        return show_admission_request(pod, False, reason, message)
    return false_condition_request(pod_path(pod), pod, "PodScheduled", reason, message)


def false_condition_request(path: str, thing: Json, kind: str, reason: str, message: str) -> Request:
    """Return the patch that sets a condition of an object to False. It has all conditions and the version at which they
    were read, so that of two writers one is rejected."""
    conditions = (thing.get("status") or {}).get("conditions") or ()
    body = {
        "metadata": {"resourceVersion": thing["metadata"]["resourceVersion"]},
        "status": {
            "conditions": [
                *(each for each in conditions if each.get("type") != kind),
                _make_condition(kind, False, reason, message),
            ]
        },
    }
    return Request("PATCH", f"{path}/status", orjson.dumps(body), MERGE_PATCH)


def show_admission_request(pod: Json, is_admitted: bool, reason: str, message: str) -> Request:
    own = _make_condition(ADMITTED, is_admitted, reason, message)
    body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": {"conditions": [own]}}
    return Request("PATCH", f"{pod_path(pod)}/status", orjson.dumps(body), STRATEGIC_PATCH)


def describe_launch(pod: Json, node: str, was_explained: bool) -> list[Request]:
    """Return the requests that show the launch at the pod. The scheduler of a gated pod writes an event of its own, so
    that Peloton's are only for pods that show why they waited."""
    if not is_by_gate(pod):
        return [event_request(pod, "Normal", "Scheduled", f"Peloton bound the pod to node {node}")]
    if not was_explained:
        return []
    text = f"its pool admits it, and node {node} has room" if node else "its pool admits it, and no node has room yet"
    return [show_admission_request(pod, True, "Admitted", text), event_request(pod, "Normal", "PelotonAdmitted", text)]


def _make_condition(kind: str, is_true: bool, reason: str, message: str) -> Json:
    return {
        "type": kind,
        "status": str(is_true),
        "reason": reason,
        "message": message[:MESSAGE_MAX],
        "lastTransitionTime": write_now(),
    }


def event_request(pod: Json, kind: str, reason: str, message: str) -> Request:
    """Return an event of a pod; ``kind`` is Normal or Warning."""
    return event_about(make_reference(pod, "v1", "Pod"), kind, reason, message)


def make_reference(thing: Json, api_version: str, kind: str) -> Json:
    """Return a reference to the object."""
    meta = thing["metadata"]
    names = {"namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]}
    return {"apiVersion": api_version, "kind": kind, **names}


def event_about(thing: Json, kind: str, reason: str, message: str) -> Request:
    """Return an event of the object of this reference."""
    now = write_now()
    body = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{thing['name']}.{time.time_ns():x}", "namespace": thing["namespace"]},
        "involvedObject": thing,
        "type": kind,
        "reason": reason,
        "message": message[:MESSAGE_MAX],
        "source": {"component": "peloton"},
        "reportingComponent": "peloton",
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    return Request("POST", f"/api/v1/namespaces/{thing['namespace']}/events", orjson.dumps(body))
