"""Rounds of the controller of pool objects against a scripted apiserver."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from peloton.api.v0.explain import explain_pb2
from peloton.api.v0.peloton_pb2 import ResourcePoolID
from peloton.api.v0.respool import respool_pb2 as pb
from peloton.errors import Unavailable
from services.hostmgr.kubernetes.apiserver.wire import Json
from services.hostmgr.kubernetes.pools.pool_controller import FINALIZER, PoolController
from tests.unit.hostmgr.kubernetes.scripted import Asked, answer, api_of, run_scripted


class Pools:
    """The root and one pool, with the limits that were set."""

    def __init__(self) -> None:
        self.limits: list[float] = []
        self._pools = {"/": pb.ResourcePoolInfo(id=ResourcePoolID(value="root"))}

    def query(self) -> dict[str, pb.ResourcePoolInfo]:
        return dict(self._pools)

    def tree(self) -> dict[str, explain_pb2.PoolNode]:
        return {}

    def create(self, config: pb.ResourcePoolConfig) -> tuple[str, str]:
        self.update("eng", config)
        return "eng", ""

    def update(self, pool_id: str, config: pb.ResourcePoolConfig) -> str:
        self.limits += [one.limit for one in config.resources if one.kind == "cpu"]
        self._pools["/eng"] = pb.ResourcePoolInfo(id=ResourcePoolID(value=pool_id), config=config)
        return ""

    def delete(self, path: str) -> str:
        del self._pools[path]
        return ""


class Changes:
    """The audit log, which cannot be written while ``is_down``."""

    def __init__(self) -> None:
        self.noted: list[str] = []
        self.is_down = False

    def settle(self) -> None:
        if self.is_down:
            raise Unavailable("the audit log cannot be written")

    def note(self, method: str, object: str) -> None:
        self.noted.append(f"{method.rpartition('/')[2]}: {object}")

    def close(self) -> None:
        self.noted.append("closed")


def _object(generation: int, version: int, limit: float, **status: Any) -> Json:
    meta = {"name": "eng", "generation": generation, "resourceVersion": str(version), "finalizers": [FINALIZER]}
    return {"metadata": meta, "spec": {"resources": [{"kind": "cpu", "limit": limit}]}, "status": status}


def test_an_edit_during_the_write_of_a_status_is_applied() -> None:
    """The answer to the write arrives after the watch has reported a newer edit, and is older than it."""
    pools = Pools()

    def serve(asked: Asked) -> Iterator[bytes]:
        if asked.method == "GET":
            yield answer(200, {"items": [], "metadata": {"resourceVersion": "1"}})
            return
        status = orjson.loads(asked.body)["status"]
        if status["observedGeneration"] == 1:
            controller.on_change("MODIFIED", _object(2, 3, 20, **status))
            yield answer(200, _object(1, 2, 10, **status))
        else:
            yield answer(200, _object(2, 4, 20, **status))

    with run_scripted(serve) as server, api_of(server) as api:
        controller = PoolController(api, pools, Changes())
        controller.on_replace([_object(1, 1, 10)])
        controller.round(0.0)
        controller.round(1.0)

    assert [10, 20] == pools.limits


def test_changes_are_in_the_audit_log() -> None:
    """An entry names the pool, its object and the program that edited it; none is for a round that changes nothing, and
    nothing is changed while entries wait."""
    pools, changes = Pools(), Changes()
    managed = {"manager": "kubectl-edit", "time": "2026-01-02T00:00:00Z", "fieldsV1": {"f:spec": {}}}
    older = {"manager": "helm", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {}}}
    status = {"manager": "peloton", "time": "2026-01-03T00:00:00Z", "fieldsV1": {"f:status": {}}}

    def serve(asked: Asked) -> Iterator[bytes]:
        if asked.method == "GET":
            yield answer(200, {"items": [], "metadata": {"resourceVersion": "1"}})
            return
        given = orjson.loads(asked.body)
        if "status" in given:
            shown.update({key: value for key, value in given["status"].items() if value is not None})
        yield answer(200, _object(2, 9, 20, **shown))

    shown: Json = {}
    with run_scripted(serve) as server, api_of(server) as api:
        controller = PoolController(api, pools, changes)
        for limit in (10, 10, 20):
            item = _object(limit, limit, limit, **shown)
            item["metadata"]["managedFields"] = [older, managed, status] if limit == 20 else []
            controller.on_replace([item])
            controller.round(0.0)
        gone = _object(3, 3, 20, **shown)
        gone["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
        controller.on_replace([gone])
        changes.is_down = True
        with pytest.raises(Unavailable):
            controller.round(0.0)
        changes.is_down = False
        controller.round(0.0)

    assert [
        "CreateResourcePool: pool /eng, object eng",
        "UpdateResourcePool: pool /eng, object eng by kubectl-edit",
        "DeleteResourcePool: pool /eng, object eng",
    ] == changes.noted
