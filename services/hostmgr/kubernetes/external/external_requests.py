"""Requests about external pods: bindings, evictions, conditions and events."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import orjson

from peloton.model.ids import PodId
from services.hostmgr.kubernetes.apiserver.wire import MERGE_PATCH, Answer, Json, Request

RUN = "peloton.io/run-of"
"""Annotation of a pod that Peloton has bound: the id of the run."""
MESSAGE_MAX = 1_000
"""Limit in characters; an Event allows 1,024."""


def pod_path(pod: Json) -> str:
    meta = pod["metadata"]
    return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"


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


def is_bound_as(pod: Json, run: PodId, uid: str) -> bool:
    meta = pod["metadata"]
    is_bound = bool(pod.get("spec", {}).get("nodeName"))
    return is_bound and meta["uid"] == uid and (meta.get("annotations") or {}).get(RUN) == str(run)


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
    """Return reason and message of the condition PodScheduled, if that is False."""
    for condition in pod.get("status", {}).get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return condition.get("reason", ""), condition.get("message", "")
    return "", ""


def condition_request(pod: Json, reason: str, message: str) -> Request:
    """Return a patch with all conditions and the version at which they were read: of two writers one is rejected."""
    others = [each for each in pod.get("status", {}).get("conditions") or () if each["type"] != "PodScheduled"]
    own = {
        "type": "PodScheduled",
        "status": "False",
        "reason": reason,
        "message": message[:MESSAGE_MAX],
        "lastTransitionTime": _now(),
    }
    body = {
        "metadata": {"resourceVersion": pod["metadata"]["resourceVersion"]},
        "status": {"conditions": [*others, own]},
    }
    return Request("PATCH", f"{pod_path(pod)}/status", orjson.dumps(body), MERGE_PATCH)


def event_request(pod: Json, kind: str, reason: str, message: str) -> Request:
    """Return an event; ``kind`` is Normal or Warning."""
    meta, now = pod["metadata"], _now()
    about = {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": meta["namespace"],
        "name": meta["name"],
        "uid": meta["uid"],
    }
    body = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{meta['name']}.{time.time_ns():x}", "namespace": meta["namespace"]},
        "involvedObject": about,
        "type": kind,
        "reason": reason,
        "message": message[:MESSAGE_MAX],
        "source": {"component": "peloton"},
        "reportingComponent": "peloton",
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    return Request("POST", f"/api/v1/namespaces/{meta['namespace']}/events", orjson.dumps(body))


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
