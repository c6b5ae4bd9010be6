"""Gated pods: external pods that wait with Peloton's scheduling gate, and that any scheduler places without it.

Peloton's choice of a node is the fit test of such a pod. The room there is claimed for it, until its scheduler binds it
to the same node or to another one. The patch that removes the gate also writes the run, the node and the time: from
then on the pod itself shows that it was admitted, and as what, whatever happens to Peloton.
"""

from __future__ import annotations

from datetime import UTC, datetime

import orjson

from peloton.model.ids import PodId
from services.hostmgr.kubernetes.apiserver.wire import STRATEGIC_PATCH, Json, Request
from services.hostmgr.kubernetes.pods.launches import RUN, SCHEDULER_NAME
from services.hostmgr.kubernetes.pods.statuses import is_over

GATE = "peloton.io/admission"
"""Name of the scheduling gate."""
FITS_ON = "peloton.io/fits-on"
"""Annotation of an admitted pod: the node of its fit test; empty if no node had room."""
ADMITTED_AT = "peloton.io/admitted-at"
"""Annotation of an admitted pod: the time of its admission."""
ADMITTED = "peloton.io/Admitted"
"""Condition of a gated pod: whether Peloton has admitted it, or why not."""

STAND_IN_FOR = "standInFor"
"""Field that only stand-ins have: the uid of the owner."""


def gates_of(pod: Json) -> set[str]:
    return {gate["name"] for gate in pod.get("spec", {}).get("schedulingGates") or ()}


def is_by_gate(pod: Json) -> bool:
    """Return whether the pod waits with Peloton's gate, or has done so."""
    if pod.get("spec", {}).get("schedulerName") == SCHEDULER_NAME:
        return False  # Peloton places it
    return GATE in gates_of(pod) or ADMITTED_AT in (pod["metadata"].get("annotations") or {})


def is_stand_in(pod: Json) -> bool:
    """Return whether it has the place of a pod whose owner is held suspended: no such pod exists."""
    return STAND_IN_FOR in pod


def wants_launch(pod: Json) -> bool:
    """Return whether Peloton must launch the pod: it has no node, is not being deleted, and has no scheduling gate
    except Peloton's own one, if it is a gated pod."""
    if pod.get("spec", {}).get("nodeName") or pod["metadata"].get("deletionTimestamp") or is_over(pod):
        return False
    gates = gates_of(pod)
    return gates == {GATE} if is_by_gate(pod) else not gates


def run_of(pod: Json) -> str:
    """Return the run as which Peloton has bound or admitted the pod; empty if it has not."""
    run = str((pod["metadata"].get("annotations") or {}).get(RUN, ""))
    is_launched = GATE not in gates_of(pod) if is_by_gate(pod) else bool(pod.get("spec", {}).get("nodeName"))
    return run if is_launched else ""


def node_of_fit(pod: Json) -> str:
    """Return the node on which room is claimed for an admitted pod that its scheduler has not bound; or ""."""
    if pod.get("spec", {}).get("nodeName") or not is_by_gate(pod) or not run_of(pod):
        return ""
    return str(pod["metadata"]["annotations"].get(FITS_ON, ""))


def admission_request(pod: Json, run: PodId, node: str) -> Request:
    """Return the patch that removes Peloton's gate and no other. The uid is its precondition; a repetition changes
    nothing but the time."""
    meta = pod["metadata"]
    body = {
        "metadata": {"uid": meta["uid"], "annotations": {RUN: str(run), FITS_ON: node, ADMITTED_AT: write_now()}},
        "spec": {"schedulingGates": [{"$patch": "delete", "name": GATE}]},
    }
    path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
    return Request("PATCH", path, orjson.dumps(body), STRATEGIC_PATCH)


def write_now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
