"""Controller of Deployments, without ReplicaSets: a Deployment owns its pods, and a label has the hash of their
template. A rollout adds one new pod at a time, and deletes an old one when another pod is ready.
"""

from __future__ import annotations

import hashlib

import orjson

from services.lab.kubernetes.controllers.workloads import Workloads
from services.lab.kubernetes.pods import is_over, is_ready, with_condition
from services.lab.kubernetes.registry import Registry
from services.lab.kubernetes.resources import DEPLOYMENTS, Json
from services.lab.kubernetes.times import stamp
from services.lab.shared.clock import Clock

HASH = "pod-template-hash"
HASH_LENGTH = 10


class Deployments(Workloads):
    def __init__(self, registry: Registry, clock: Clock, retry_s: float) -> None:
        super().__init__(registry, clock, DEPLOYMENTS, retry_s)

    def synchronize(self, body: Json, pods: list[Json]) -> Json:
        spec = body["spec"]
        replicas, version = spec["replicas"], hash_of(spec["template"])
        pods = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        self.delete_pods([pod for pod in pods if is_over(pod)])
        live = sorted((pod for pod in pods if not is_over(pod)), key=is_ready, reverse=True)
        new = [pod for pod in live if pod["metadata"]["labels"].get(HASH) == version]
        old = [pod for pod in live if pod["metadata"]["labels"].get(HASH) != version]
        missing, surplus = replicas - len(new), sum(map(is_ready, live)) - replicas
        if old:
            missing = min(missing, replicas + 1 - len(live))
        self.delete_pods(new[replicas:])
        self.delete_pods([pod for pod in old if not is_ready(pod)])
        self.delete_pods([pod for pod in old if is_ready(pod)][: max(surplus, 0)])
        created = self.create_pods(body, missing, {HASH: version})
        return _status(body, live, len(new[:replicas]) + created)


def hash_of(template: Json) -> str:
    """Return the value of the label by which pods of this template are known."""
    return hashlib.sha256(orjson.dumps(template, option=orjson.OPT_SORT_KEYS)).hexdigest()[:HASH_LENGTH]


def _status(body: Json, live: list[Json], updated: int) -> Json:
    replicas, ready = body["spec"]["replicas"], sum(map(is_ready, live))
    is_available = "True" if ready >= replicas else "False"
    known = [one for one in body["status"].get("conditions") or () if one["status"] == is_available]
    condition = {"type": "Available", "status": is_available, "lastTransitionTime": stamp()}
    return with_condition(
        {
            "observedGeneration": body["metadata"]["generation"],
            "replicas": len(live),
            "updatedReplicas": updated,
            "readyReplicas": ready,
            "availableReplicas": ready,
            "unavailableReplicas": max(replicas - ready, 0),
        },
        known[0] if known else condition,
    )
