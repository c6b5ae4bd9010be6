"""Namespaces of pools: the label that sends the pods of a namespace to a pool, as objects of pools name them."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

import orjson

from services.hostmgr.kubernetes.apiserver.lists import pages
from services.hostmgr.kubernetes.apiserver.wire import MERGE_PATCH, ApiServer, Json, Request
from services.hostmgr.kubernetes.external.external_specs import POOL
from services.hostmgr.kubernetes.pools.pool_objects import path_of
from services.hostmgr.kubernetes.settings import LABEL_VALUE

MADE_BY = "peloton.io/pool-object"
"""The annotation of a namespace that has its label from an object, with the name of that object."""
CHECK_S = 30.0
"""Seconds between reads of the namespaces while no object changes."""
PAGE = 500


class PoolNamespaces:
    """Used by one thread."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._checked_s = float("-inf")
        self._wanted: dict[str, tuple[str, str]] = {}
        self._complaints: dict[str, str] = {}

    def forget(self, item: Json) -> None:
        """Read all namespaces again in the next round: an object with namespaces goes."""
        if item["spec"].get("namespaces"):
            self._checked_s = float("-inf")

    def sync(self, items: Sequence[Json], now_s: float) -> dict[str, str]:
        """Set and remove labels, so that the namespaces of these objects lead to their pools. Return why some do not,
        by the names of objects. Raises OSError."""
        wanted: dict[str, tuple[str, str]] = {}
        refused: dict[str, str] = {}
        for item in items:
            name, label = item["metadata"]["name"], path_of(item).strip("/").replace("/", ".")
            for namespace in item["spec"].get("namespaces") or ():
                if not LABEL_VALUE.fullmatch(label):
                    refused[name] = f"the path {path_of(item)} is no value of a label, so namespaces cannot name it"
                elif namespace in wanted:
                    refused[name] = f"namespace {namespace} is in the object {wanted[namespace][0]}, too"
                else:
                    wanted[namespace] = (name, label)
        if wanted == self._wanted and now_s - self._checked_s < CHECK_S:
            return self._complaints
        if wanted or self._wanted or self._checked_s == float("-inf"):
            refused |= self._label(wanted)
        self._wanted, self._complaints, self._checked_s = wanted, refused, now_s
        return refused

    def _label(self, wanted: dict[str, tuple[str, str]]) -> dict[str, str]:
        found = {one["metadata"]["name"]: one["metadata"] for _, page in pages(self._api, "/api/v1/namespaces", PAGE)
                 for one in page}  # fmt: skip
        refused = {owner: f"namespace {name} is not there" for name, (owner, _) in wanted.items() if name not in found}
        changes: dict[str, tuple[str | None, str | None]] = {}
        for name, meta in found.items():
            label, owner = (meta.get("labels") or {}).get(POOL), (meta.get("annotations") or {}).get(MADE_BY)
            if name not in wanted:
                if owner is not None:
                    changes[name] = (None, None)
                continue
            wants_owner, wants_label = wanted[name]
            if label is not None and owner is None and label != wants_label:
                refused[wants_owner] = f"namespace {name} has the label {POOL}={label}, which no object has set"
            elif (label, owner) != (wants_label, wants_owner) and not (label == wants_label and owner is None):
                changes[name] = (wants_label, wants_owner)
        requests = [_change_of(name, *change) for name, change in changes.items()]
        for name, answer in zip(changes, self._api.ask_all(requests), strict=True):
            if isinstance(answer, OSError):
                raise answer
            if not answer.is_ok and name in wanted:
                refused[wanted[name][0]] = f"namespace {name}: {answer.message}"
        return refused


def _change_of(name: str, label: str | None, owner: str | None) -> Request:
    patch = {"metadata": {"labels": {POOL: label}, "annotations": {MADE_BY: owner}}}
    return Request("PATCH", f"/api/v1/namespaces/{quote(name)}", orjson.dumps(patch), MERGE_PATCH)
