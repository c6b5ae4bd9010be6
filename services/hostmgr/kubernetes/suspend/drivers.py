"""Pods that the driver of a held owner makes, such as executors of Spark: they are gated, as a driver is no operator.

A gated pod takes the place of a stand-in if its controller is a driver of an admitted owner, or that owner, and if it
asks for no more than the stand-in. Its references prove nothing, and need not: it gets no room that is not admitted.
"""

from __future__ import annotations

from collections.abc import Iterable

import orjson

from services.hostmgr.kubernetes.apiserver.wire import STRATEGIC_PATCH, Json, Request
from services.hostmgr.kubernetes.external.external_requests import pod_path
from services.hostmgr.kubernetes.external.external_specs import controller_of
from services.hostmgr.kubernetes.external.gate import ADMITTED_AT, GATE
from services.hostmgr.kubernetes.pods.launches import BY_SUSPEND, HELD, RUN
from services.hostmgr.kubernetes.pods.statuses import sum_occupied
from services.hostmgr.kubernetes.suspend.held_owner import HeldOwner
from services.hostmgr.kubernetes.suspend.owner_kinds import OwnerKind


def may_be_of_driver(pod: Json, kinds: Iterable[OwnerKind]) -> bool:
    """Return whether the controller of the pod is a pod, or an owner of one of these kinds that has a driver."""
    made_by = controller_of(pod)
    return made_by is not None and made_by.kind in {"Pod", *(kind.kind for kind in kinds if kind.has_driver)}


def find_places(owner: HeldOwner, pod: Json) -> set[int]:
    """Return the numbers of the stand-ins that ask for no less than the pod, of an owner that has a driver."""
    if not owner.kind.has_driver or pod["metadata"]["namespace"] != owner.object["metadata"]["namespace"]:
        return set()
    if {RUN, ADMITTED_AT} & (pod["metadata"].get("annotations") or {}).keys():
        return set()  # forged: these are of pods that their gate has admitted
    wanted = sum_occupied(pod)
    different = {id(template): template for _, template in owner.templates}
    wide = {each for each, template in different.items() if wanted.fits_in(sum_occupied(template))}
    return {number for number, (_, template) in enumerate(owner.templates) if id(template) in wide}


def join_request(pod: Json) -> Request:
    """Return the patch that removes the gate of a pod, and marks it as that of a held owner."""
    body = {
        "metadata": {"uid": pod["metadata"]["uid"], "annotations": {HELD: BY_SUSPEND}},
        "spec": {"schedulingGates": [{"$patch": "delete", "name": GATE}]},
    }
    return Request("PATCH", pod_path(pod), orjson.dumps(body), STRATEGIC_PATCH)
