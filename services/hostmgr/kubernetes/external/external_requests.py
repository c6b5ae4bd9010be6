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
    kind = ADMITTED if is_by_gate(pod) else "PodScheduled"
    for condition in pod.get("status", {}).get("conditions") or ():
        if condition["type"] == kind and condition["status"] == "False":
            return condition.get("reason", ""), condition.get("message", "")
    return "", ""


def condition_request(pod: Json, reason: str, message: str) -> Request:
    """Return the patch of Peloton's condition. PodScheduled of a pod that Peloton places has other writers: the patch
    has all conditions and the version at which they were read, so that of two writers one is rejected."""
    if is_by_gate(pod):
        return show_admission_request(pod, False, reason, message)
    others = [each for each in pod.get("status", {}).get("conditions") or () if each["type"] != "PodScheduled"]
    own = {
        "type": "PodScheduled",
        "status": "False",
        "reason": reason,
        "message": message[:MESSAGE_MAX],
        "lastTransitionTime": write_now(),
    }
    body = {
        "metadata": {"resourceVersion": pod["metadata"]["resourceVersion"]},
        "status": {"conditions": [*others, own]},
    }
    return Request("PATCH", f"{pod_path(pod)}/status", orjson.dumps(body), MERGE_PATCH)


def show_admission_request(pod: Json, is_admitted: bool, reason: str, message: str) -> Request:
    own = {
        "type": ADMITTED,
        "status": str(is_admitted),
        "reason": reason,
        "message": message[:MESSAGE_MAX],
        "lastTransitionTime": write_now(),
    }
    body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": {"conditions": [own]}}
    return Request("PATCH", f"{pod_path(pod)}/status", orjson.dumps(body), STRATEGIC_PATCH)


def event_request(thing: Json, kind: str, reason: str, message: str, of: tuple[str, str] = ("v1", "Pod")) -> Request:
    """Return an event about an object, by default a pod; ``kind`` is Normal or Warning, ``of`` the version and kind of
    the object."""
    meta = thing["metadata"]
    names = {"namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]}
    return event_about({"apiVersion": of[0], "kind": of[1], **names}, kind, reason, message)


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
