"""Controller of Jobs: runs pods until as many as wanted have succeeded, or too many have failed."""

from __future__ import annotations

from services.lab.kubernetes.controllers.workloads import Workloads
from services.lab.kubernetes.pods import is_over
from services.lab.kubernetes.registry import Registry
from services.lab.kubernetes.resources import JOBS, Json
from services.lab.kubernetes.times import stamp
from services.lab.shared.clock import Clock


class Jobs(Workloads):
    def __init__(self, registry: Registry, clock: Clock, retry_s: float) -> None:
        super().__init__(registry, clock, JOBS, retry_s)

    def synchronize(self, body: Json, pods: list[Json]) -> Json:
        spec: Json = body["spec"]
        status: Json = body["status"]
        if status.get("conditions"):
            return status
        phases = [pod["status"].get("phase") for pod in pods]
        succeeded, failed = phases.count("Succeeded"), phases.count("Failed")
        active = [pod for pod in pods if not is_over(pod) and "deletionTimestamp" not in pod["metadata"]]
        found = {"startTime": status.get("startTime") or stamp(), "succeeded": succeeded, "failed": failed}
        if succeeded >= spec["completions"]:
            return {**found, "completionTime": stamp(), **_end_status("Complete", "", "")}
        if failed > spec["backoffLimit"]:
            self.delete_pods(active)
            return {**found, **_end_status("Failed", "BackoffLimitExceeded", f"{failed} pods have failed")}
        wanted = min(spec["parallelism"], spec["completions"] - succeeded)
        self.delete_pods(active[max(wanted, 0) :])
        created = self.create_pods(body, wanted - len(active), {})
        return {**found, "active": min(len(active), wanted) + created}


def _end_status(kind: str, reason: str, message: str) -> Json:
    row = {"type": kind, "status": "True", "lastTransitionTime": stamp(), "reason": reason, "message": message}
    return {"conditions": [{key: value for key, value in row.items() if value}]}
