"""A stand-in for the controllers of owners that are not built here: it makes the pods of owners that are not suspended,
deletes them on suspension, and writes the end of an owner into its status.

It makes the pods that the table of kinds expects, of ``kinds`` on all namespaces, and plays their drivers.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from types import TracebackType

from services.hostmgr.kubernetes.suspend.owner_kinds import (
    OwnerKind,
    is_ended,
    is_suspended,
    pod_sets,
    reference_path,
)
from tests.kubernetes.client import MERGE, Client, Json, Login

OWNER_LABEL = "owner-controller/owner"
"""Label of the pods that it makes; its value is the uid of the owner."""
TURN_S = 0.1
IMAGE = "registry.example/work:1"
_DELETE_NOW = {"gracePeriodSeconds": 0}


class OwnerController:
    def __init__(self, login: Login, kinds: Sequence[OwnerKind]) -> None:
        self._kinds = kinds
        self._client = Client(login)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="owner controller", daemon=True)
        self.trouble = ""
        """The error of the last turn, which the next turn repeats."""

    def __enter__(self) -> OwnerController:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._closed.set()
        self._thread.join()
        self._client.close()

    def _run(self) -> None:
        while not self._closed.wait(TURN_S):
            try:
                self._turn()
                self.trouble = ""
            except (OSError, http.client.HTTPException, AssertionError) as error:
                self.trouble = repr(error)

    def _turn(self) -> None:
        pods: dict[str, list[Json]] = {}
        for pod in self._list(f"/api/v1/pods?labelSelector={OWNER_LABEL}"):
            pods.setdefault(pod["metadata"]["labels"][OWNER_LABEL], []).append(pod)
        for kind in self._kinds:
            for owner in self._list(f"/apis/{kind.api_version}/{kind.plural}"):
                if not is_ended(kind, owner) and not owner["metadata"].get("deletionTimestamp"):
                    self._reconcile(kind, owner, pods.get(owner["metadata"]["uid"], []))

    def _reconcile(self, kind: OwnerKind, owner: Json, pods: Sequence[Json]) -> None:
        if is_suspended(kind, owner):
            for pod in pods:
                self._ask("DELETE", _path_of(pod), _DELETE_NOW)
            return
        wanted = list(self._pods_of(kind, owner))
        there = {pod["metadata"]["name"]: pod for pod in pods}
        for pod in wanted:
            if kind.has_driver and pod is not wanted[0]:
                if (driver := there.get(wanted[0]["metadata"]["name"])) is None:
                    break
                own = {"apiVersion": "v1", "kind": "Pod", "name": driver["metadata"]["name"], "controller": True}
                pod["metadata"]["ownerReferences"] = [{**own, "uid": driver["metadata"]["uid"]}]
            if pod["metadata"]["name"] not in there:
                self._ask("POST", f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods", pod)
        phases = {pod["status"]["phase"] for pod in pods if not pod["metadata"].get("deletionTimestamp")}
        if "Failed" in phases or (phases == {"Succeeded"} and len(there) == len(wanted)):
            self._write_end(kind, owner, phases == {"Succeeded"})

    def _pods_of(self, kind: OwnerKind, owner: Json) -> Iterator[Json]:
        meta = owner["metadata"]
        reference = reference_path(kind, owner)
        referenced = self._ask("GET", reference) if reference else None
        controller = {"apiVersion": kind.api_version, "kind": kind.kind, "name": meta["name"], "uid": meta["uid"]}
        for each in pod_sets(kind, owner, referenced):
            own = each.template.get("metadata") or {}
            containers = [{"image": IMAGE, **container} for container in each.template["spec"]["containers"]]
            for number in range(each.count - each.spare):
                yield {
                    "metadata": {
                        "name": f"{meta['name']}-{each.name.lower()}-{number}",
                        "namespace": meta["namespace"],
                        "labels": {**(own.get("labels") or {}), OWNER_LABEL: meta["uid"]},
                        "annotations": own.get("annotations") or {},
                        "ownerReferences": [{**controller, "controller": True, "blockOwnerDeletion": True}],
                    },
                    "spec": {"restartPolicy": "Never", **each.template["spec"], "containers": containers},
                }

    def _write_end(self, kind: OwnerKind, owner: Json, is_success: bool) -> None:
        """Write the first sign of the kind's end for a success, else the last; a kind without an end has no sign."""
        meta, end = owner["metadata"], kind.end
        number = 0 if is_success else -1
        status: Json = {}
        if end.conditions:
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            told = {"status": "True", "lastTransitionTime": now, "reason": "Ended", "message": "its pods have ended"}
            status["conditions"] = [{"type": end.conditions[number], **told}]
        elif end.states:
            _, *path = end.state_path.split(".")
            value: object = end.states[number]
            for name in reversed(path):
                value = {name: value}
            assert isinstance(value, dict)
            status = value
            if kind.kind == "SparkApplication":
                status["driverInfo"] = {}  # its schema requires it
        else:
            return
        path_of_status = f"/apis/{kind.api_version}/namespaces/{meta['namespace']}/{kind.plural}/{meta['name']}/status"
        self._ask("PATCH", path_of_status, {"status": status}, MERGE)

    def _list(self, path: str) -> list[Json]:
        """Return the objects; none of a kind that is not served yet, for which the answer is a text."""
        reply = self._client.ask("GET", path)
        if reply.status == http.client.NOT_FOUND:
            return []
        assert reply.status == http.client.OK, f"GET {path}: {reply.status} {reply.body[:500]!r}"
        found: list[Json] = reply.json()["items"]
        return found

    def _ask(self, method: str, path: str, body: Json | None = None, content_type: str = "application/json") -> Json:
        reply = self._client.ask(method, path, body, content_type)
        assert reply.status in (200, 201, 202, 404, 409), f"{method} {path}: {reply.status} {reply.body[:500]!r}"
        return reply.json()


def _path_of(pod: Json) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
