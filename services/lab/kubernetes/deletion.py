"""Graceful deletion: the effect of a DELETE on an object, and whether it is removed at once."""

from __future__ import annotations

from dataclasses import dataclass

from services.lab.kubernetes.errors import conflict
from services.lab.kubernetes.pods import GRACE_S, is_over, node_of
from services.lab.kubernetes.resources import NAMESPACES, PODS, Json, Resource
from services.lab.kubernetes.times import stamp


@dataclass(frozen=True)
class DeleteOptions:
    grace_s: int | None = None
    """Grace in seconds; None: the object's own."""
    uid: str = ""
    version: str = ""


def check_preconditions(resource: Resource, body: Json, options: DeleteOptions) -> None:
    """Raise ApiError 409 for a precondition that does not hold."""
    metadata = body["metadata"]
    checks = (
        ("UID", options.uid, metadata["uid"], "deleted and then recreated"),
        ("ResourceVersion", options.version, metadata["resourceVersion"], "modified"),
    )
    for what, wanted, found, happened in checks:
        if wanted and wanted != found:
            why = (
                f"the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). The object "
                f"might have been {happened}"
            )
            raise conflict(resource, metadata["name"], why, kind=resource.kind)


def mark_deleted(resource: Resource, body: Json, options: DeleteOptions, now_s: float) -> tuple[Json, bool]:
    """Return the object with its deletion recorded (the same one without a change), and whether to remove it now."""
    metadata = body["metadata"]
    is_waiting = bool(metadata.get("finalizers")) or resource is NAMESPACES
    if "deletionTimestamp" in metadata:
        # Another DELETE can only shorten the grace.
        if options.grace_s is None or options.grace_s >= metadata.get("deletionGracePeriodSeconds", 0):
            return body, False
        grace_s = 1 if options.grace_s < 0 else options.grace_s
        return _with_deletion(body, grace_s, now_s), not grace_s and not is_waiting
    if resource is not PODS and not is_waiting:
        return body, True
    grace_s = _grace_s(resource, body, options)
    noted = _with_deletion(body, grace_s, now_s)
    if resource is NAMESPACES:
        noted = {**noted, "status": {**(body.get("status") or {}), "phase": "Terminating"}}
    if "generation" in metadata:
        noted["metadata"]["generation"] = metadata["generation"] + 1
    return noted, not grace_s and not is_waiting


def _with_deletion(body: Json, grace_s: int, now_s: float) -> Json:
    until = stamp(now_s + grace_s)
    return {
        **body,
        "metadata": {**body["metadata"], "deletionTimestamp": until, "deletionGracePeriodSeconds": grace_s},
    }


def _grace_s(resource: Resource, body: Json, options: DeleteOptions) -> int:
    """Return the grace in seconds. Only pods that run on a node have one."""
    if resource is not PODS or is_over(body) or not node_of(body):
        return 0
    grace_s = options.grace_s
    if grace_s is None:
        grace_s = body["spec"].get("terminationGracePeriodSeconds", GRACE_S)
    return 1 if grace_s < 0 else int(grace_s)
