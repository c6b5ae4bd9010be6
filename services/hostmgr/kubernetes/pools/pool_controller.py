"""The controller of ResourcePool objects: it makes their pools, and writes their status.

Each round compares all objects with all pools, by two calls to the resource manager, and keeps no state but what the
objects have in their status; it may be killed at any moment and repeated.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Protocol
from urllib.parse import quote

import orjson

from peloton.api.v0.explain import explain_pb2
from peloton.api.v0.peloton_pb2 import ResourcePoolID
from peloton.api.v0.respool import respool_pb2 as pb
from peloton.errors import PelotonError
from services.hostmgr.kubernetes.apiserver.watch import Reflector
from services.hostmgr.kubernetes.apiserver.wire import MERGE_PATCH, Answer, ApiServer, Json, Request
from services.hostmgr.kubernetes.pools import pool_objects as objects
from services.hostmgr.kubernetes.pools.pool_namespaces import PoolNamespaces
from services.hostmgr.kubernetes.pools.pool_objects import SYNCED, Act, Verdict
from services.ticks import ticking

log = logging.getLogger(__name__)

PATH = "/apis/peloton.io/v1/resourcepools"
SERVICE = "peloton.api.respool.ResourceManager"
"""Service whose methods the controller calls, as the audit log names it."""
FINALIZER = "peloton.io/resource-pool"
ROUND_S = 5.0
"""Seconds between rounds without changes of objects."""
GATHER_S = 0.3
"""Seconds for which changes are gathered, and the least time between rounds."""
AMOUNTS_S = 15.0
"""Seconds between two writes of an object's status when only its amounts differ."""
WRITES_MAX = 100
"""Limit of statuses written in a round; the other objects follow in the next."""
REMOVED = "Removed"


class PoolApi(Protocol):
    """The pools, as ``services.resmgr.pool_client`` has them. Methods raise Peloton's errors."""

    def query(self) -> dict[str, pb.ResourcePoolInfo]: ...

    def tree(self) -> Mapping[str, explain_pb2.PoolNode]: ...

    def create(self, config: pb.ResourcePoolConfig) -> tuple[str, str]: ...

    def update(self, pool_id: str, config: pb.ResourcePoolConfig) -> str: ...

    def delete(self, path: str) -> str: ...


class ChangeLog(Protocol):
    """The audit log, as ``services.audit.changes`` writes it."""

    def settle(self) -> None: ...

    def note(self, method: str, object: str) -> None: ...

    def close(self) -> None: ...


class PoolController:
    """Implements ``Watched`` for its objects. ``start`` and ``stop`` are called once."""

    def __init__(self, api: ApiServer, pools: PoolApi, changes: ChangeLog) -> None:
        self._api, self._pools, self._changes = api, pools, changes
        self._namespaces = PoolNamespaces(api)
        self._objects: dict[str, Json] | None = None  # by name; None: not listed yet
        self._written_s: dict[str, float] = {}  # when each status was last written
        self._lock = threading.Lock()
        self._woken, self._stopping = threading.Event(), threading.Event()
        self._reflector = Reflector(api, PATH, self)
        self._thread = threading.Thread(target=self._run, name="pools as objects", daemon=True)

    def start(self) -> None:
        self._reflector.start()
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._woken.set()
        self._reflector.stop()
        self._thread.join()
        self._changes.close()

    # Watched.

    def on_replace(self, items: Sequence[Json]) -> None:
        with self._lock:
            self._objects = {one["metadata"]["name"]: one for one in items}
        self._woken.set()

    def on_change(self, kind: str, object: Json) -> None:
        with self._lock:
            assert self._objects is not None
            name = object["metadata"]["name"]
            if kind == "DELETED":
                self._objects.pop(name, None)
                self._written_s.pop(name, None)
                return
            before = self._objects.get(name)
            self._objects[name] = object
            is_own = before is not None and _wish_of(before) == _wish_of(object)
        if not is_own:
            self._woken.set()

    def on_lost(self, why: str) -> None:
        """Ignore the loss: objects are compared again with those of the next list."""

    # Rounds.

    def _run(self) -> None:
        with ticking("pools as objects", ROUND_S) as loop:
            while not self._stopping.is_set():
                loop.tick()
                self._woken.clear()
                try:
                    self.round(time.monotonic())
                except (PelotonError, OSError) as error:
                    log.warning("objects of pools were not compared, retrying: %s", error)
                    self._stopping.wait(ROUND_S)
                self._stopping.wait(GATHER_S)
                self._woken.wait(ROUND_S)

    def round(self, now_s: float) -> None:
        """Compare all objects with all pools once. Raises PelotonError, OSError."""
        with self._lock:
            items = [*(self._objects or {}).values()]
        if not items:
            return
        self._changes.settle()
        pools = self._pools.query()
        ordered = sorted(items, key=lambda one: (objects.path_of(one).count("/"), one["metadata"]["name"]))
        owners: dict[str, str] = {}
        verdicts = [(item, self._apply(item, pools, owners)) for item in ordered]
        kept = [(item, verdict) for item, verdict in verdicts if verdict.reason != REMOVED]
        complaints = self._namespaces.sync([item for item, verdict in kept if verdict.reason == SYNCED], now_s)
        nodes = self._pools.tree()
        writes: list[tuple[Json, Json]] = []
        for item, verdict in kept:
            name, path = item["metadata"]["name"], objects.path_of(item)
            if verdict.reason == SYNCED and name in complaints:
                verdict = Verdict(Act.NONE, "Namespaces", complaints[name])
            node = nodes.get(path) if owners[path] == name else None
            status = _status_of(item, verdict, node)
            if len(writes) < WRITES_MAX and self._is_due(item, status, now_s):
                writes.append((item, status))
        self._write(writes, now_s)

    def _apply(self, item: Json, pools: dict[str, pb.ResourcePoolInfo], owners: dict[str, str]) -> Verdict:
        """Make the pool as the object says, where it may; return the result for its condition."""
        name, path = item["metadata"]["name"], objects.path_of(item)
        if (owner := owners.setdefault(path, name)) != name:
            return Verdict(Act.NONE, "Refused", f"pool {path} is that of the object {owner}")
        if item["metadata"].get("deletionTimestamp"):
            return self._remove(item, path, pools)
        if FINALIZER not in item["metadata"].get("finalizers", []) and (fault := self._set_finalizer(item, True)):
            return Verdict(Act.NONE, "Refused", fault)
        parent = pools.get(objects.parent_path(path))
        if parent is None:
            return Verdict(Act.NONE, "Refused", f"there is no pool {objects.parent_path(path)} above it")
        pool = pools.get(path)
        verdict = objects.decide(item, pool)
        if verdict.act is Act.NONE:
            return verdict
        terms = objects.terms_of_object(item)
        old = pool.config if pool is not None else None
        config = objects.config_of(path.rpartition("/")[2], parent.id.value, terms, old)
        if pool is None:
            pool_id, fault = self._pools.create(config)
            pool = pb.ResourcePoolInfo(id=ResourcePoolID(value=pool_id), path=pb.ResourcePoolPath(value=path))
        else:
            fault = self._pools.update(pool.id.value, config)
        if fault:
            return Verdict(Act.NONE, "Refused", fault)
        self._note("CreateResourcePool" if old is None else "UpdateResourcePool", path, item)
        pool.config.CopyFrom(config)
        pools[path] = pool
        log.info("pool %s %s as the object %s says", path, verdict.reason.lower(), name)
        return Verdict(Act.NONE, SYNCED)

    def _remove(self, item: Json, path: str, pools: dict[str, pb.ResourcePoolInfo]) -> Verdict:
        """Delete the pool of a deleted object, if the object had made or changed it, then let the object go."""
        if path in pools and objects.read_applied(item) is not None:
            if fault := self._pools.delete(path):
                return Verdict(Act.NONE, "Deleting", fault)
            self._note("DeleteResourcePool", path, item)
        pools.pop(path, None)
        self._namespaces.forget(item)
        if fault := self._set_finalizer(item, False):
            return Verdict(Act.NONE, "Deleting", fault)
        return Verdict(Act.NONE, REMOVED)

    def _note(self, method: str, path: str, item: Json) -> None:
        """Note a change; an object says with which program it was edited, and not by whom."""
        name, manager = item["metadata"]["name"], objects.find_manager(item)
        self._changes.note(f"{SERVICE}/{method}", f"pool {path}, object {name}{manager and f' by {manager}'}")

    def _set_finalizer(self, item: Json, is_there: bool) -> str:
        """Add or remove the finalizer; return why not, or empty."""
        meta = item["metadata"]
        kept = [one for one in meta.get("finalizers", []) if one != FINALIZER]
        wanted = [*kept, FINALIZER] if is_there else kept
        patch = {"metadata": {"finalizers": wanted, "resourceVersion": meta["resourceVersion"]}}
        answer = self._api.ask(Request("PATCH", f"{PATH}/{quote(meta['name'])}", orjson.dumps(patch), MERGE_PATCH))
        if answer.is_ok:
            item["metadata"] = answer.json()["metadata"]
        return "" if answer.is_ok or answer.status == HTTPStatus.NOT_FOUND else answer.message

    def _is_due(self, item: Json, status: Json, now_s: float) -> bool:
        old = item.get("status") or {}
        if old == status:
            return False
        amounts = {"resources", "queued"}
        is_news = any(old.get(key) != status.get(key) for key in {*old, *status} - amounts)
        return is_news or now_s - self._written_s.get(item["metadata"]["name"], float("-inf")) >= AMOUNTS_S

    def _write(self, writes: Sequence[tuple[Json, Json]], now_s: float) -> None:
        requests = [
            Request(
                "PATCH",
                f"{PATH}/{quote(item['metadata']['name'])}/status",
                orjson.dumps({"status": {**dict.fromkeys(item.get("status") or {}), **status}}),
                MERGE_PATCH,
            )
            for item, status in writes
        ]
        for (item, _), answer in zip(writes, self._api.ask_all(requests), strict=True):
            name = item["metadata"]["name"]
            if isinstance(answer, Answer) and answer.is_ok:
                self._written_s[name] = now_s
                with self._lock:
                    # An answer is older than a change that the watch reported meanwhile.
                    if self._objects is not None and self._objects.get(name) is item:
                        self._objects[name] = answer.json()
            elif not isinstance(answer, Answer) or answer.status != HTTPStatus.NOT_FOUND:
                said = answer.message if isinstance(answer, Answer) else str(answer)
                log.warning("status of the pool object %s was not written: %s", name, said)


def _wish_of(item: Json) -> object:
    meta = item["metadata"]
    return meta.get("generation"), meta.get("deletionTimestamp"), meta.get("uid")


def _status_of(item: Json, verdict: Verdict, node: explain_pb2.PoolNode | None) -> Json:
    """Return the whole status of an object."""
    old = item.get("status") or {}
    generation = item["metadata"].get("generation", 1)
    is_synced = verdict.reason == SYNCED
    condition = {
        "type": SYNCED,
        "status": "True" if is_synced or verdict.reason == "Namespaces" else "False",
        "reason": verdict.reason,
        "message": verdict.message,
        "observedGeneration": generation,
    }
    before: Json = next((one for one in old.get("conditions", []) if one["type"] == SYNCED), {})
    is_same = before.get("status") == condition["status"]
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    condition["lastTransitionTime"] = before["lastTransitionTime"] if is_same else now
    status: Json = {"path": objects.path_of(item), "observedGeneration": generation, "conditions": [condition]}
    if condition["status"] == "True":
        status["applied"] = orjson.dumps(objects.terms_of_object(item), option=orjson.OPT_SORT_KEYS).decode()
    elif "applied" in old:
        status["applied"] = old["applied"]
    if node is not None:
        status["queued"] = node.queuedInstances
        status["resources"] = [
            {
                "kind": one.kind,
                "entitlement": round(one.entitlement, 3),
                "allocation": round(one.allocation, 3),
                "demand": round(one.demand, 3),
            }
            for one in node.amounts
            if one.limit or one.reservation or one.allocation or one.demand
        ]
    return status
