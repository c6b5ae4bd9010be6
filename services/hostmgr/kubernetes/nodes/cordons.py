"""Nodes that Peloton takes out of service: a cordon, and annotations that mark it as Peloton's and record the progress.

The marks are on the node itself, so that the next leader continues with them, and every user sees the owner.
"""

from __future__ import annotations

from http import HTTPStatus
from urllib.parse import quote

import orjson

from services.hostmgr.kubernetes.apiserver.wire import MERGE_PATCH, ApiServer, Json, Request
from services.hostmgr.kubernetes.nodes.nodes import CORDONED, DOWN, DRAINING, MAINTENANCE


class Cordons:
    """Cordons of nodes. Any thread may call. Each call may be repeated, and raises OSError; a missing node requires
    nothing."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api

    def drain(self, name: str) -> None:
        self._mark(name, DRAINING)

    def take_down(self, name: str) -> None:
        self._mark(name, DOWN)

    def _mark(self, name: str, state: str) -> None:
        if (node := self._node(name)) is None:
            return
        annotations = node["metadata"].get("annotations") or {}
        is_cordoned = bool((node.get("spec") or {}).get("unschedulable"))
        if is_cordoned and annotations.get(MAINTENANCE) in (state, DOWN):
            return
        managed = {MAINTENANCE: state}
        if not is_cordoned:
            managed[CORDONED] = "true"
        self._patch(name, {"metadata": {"annotations": managed}, "spec": {"unschedulable": True}})

    def bring_up(self, name: str) -> None:
        """Uncordons the node, if the cordon is Peloton's."""
        if (node := self._node(name)) is None:
            return
        annotations = node["metadata"].get("annotations") or {}
        if MAINTENANCE not in annotations and CORDONED not in annotations:
            return
        patch: Json = {"metadata": {"annotations": {MAINTENANCE: None, CORDONED: None}}}
        if CORDONED in annotations:
            patch["spec"] = {"unschedulable": None}
        self._patch(name, patch)

    def _node(self, name: str) -> Json | None:
        answer = self._api.ask(Request("GET", f"/api/v1/nodes/{quote(name)}"))
        if answer.status == HTTPStatus.NOT_FOUND:
            return None
        if not answer.is_ok:
            raise OSError(f"node {name}: {answer.message}")
        return answer.json()

    def _patch(self, name: str, patch: Json) -> None:
        answer = self._api.ask(Request("PATCH", f"/api/v1/nodes/{quote(name)}", orjson.dumps(patch), MERGE_PATCH))
        if not answer.is_ok and answer.status != HTTPStatus.NOT_FOUND:
            raise OSError(f"node {name}: {answer.message}")
