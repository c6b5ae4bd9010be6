"""Faults for tests and drills over HTTP: an overloaded apiserver, dropped connections, expired events, and nodes that
go down and come back.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import unquote

from services.lab.kubernetes.answers import TEXT_TYPE, answer, json_answer
from services.lab.kubernetes.errors import ApiError, bad_request, method_not_allowed
from services.lab.kubernetes.lists import Lists
from services.lab.kubernetes.nodes.nodes import Nodes, UnknownNode
from services.lab.kubernetes.requests import object_of
from services.lab.kubernetes.resources import Json
from services.lab.kubernetes.store import Store
from services.lab.shared.http.server import Connection, Request

FAULTS, NODES = "/emulation/faults", "/emulation/nodes"
REFUSED_MAX = 1_000_000
RETRY_AFTER_MAX_S = 60
_BUSY = b"Too many requests, please try again later.\n"


class Faults:
    def __init__(self, store: Store, lists: Lists, drop: Callable[[Connection], None]) -> None:
        """Create the faults. ``drop``: closes all connections but this one."""
        self._store = store
        self._lists = lists
        self._drop = drop
        self._left = 0
        self._retry_after_s = 1

    def handle(self, request: Request) -> bytes:
        """Handle a POST of any of {"refuse": N, "retry_after_s": S, "drop": true, "forget_events": true}. Raises
        ApiError.
        """
        if request.method != "POST":
            raise method_not_allowed()
        asked = object_of(request)
        left = _whole(asked, "refuse", self._left, REFUSED_MAX)
        self._retry_after_s = _whole(asked, "retry_after_s", self._retry_after_s, RETRY_AFTER_MAX_S)
        self._left = left
        if asked.get("forget_events"):
            self._store.forget_events()
            self._lists.forget()
        if asked.get("drop"):
            self._drop(request.connection)
        return json_answer(200, {"refuse": self._left, "retry_after_s": self._retry_after_s})

    def refusal(self) -> bytes | None:
        """Return the refusal of the next request, in the form of priority and fairness: no Status, but a Retry-After
        header.
        """
        if not self._left:
            return None
        self._left -= 1
        return answer(429, _BUSY, TEXT_TYPE, f"Retry-After: {self._retry_after_s}\r\n")


def handle_nodes(nodes: Nodes, request: Request) -> bytes:
    """Handle a GET of all nodes and their images, and a POST of NAME/stop and NAME/start. Raises ApiError."""
    parts = [unquote(part) for part in request.path.removeprefix(NODES).strip("/").split("/") if part]
    if request.method == "GET" and not parts:
        return json_answer(200, {"nodes": nodes.table(), "images": nodes.runtime.images.page()})
    if request.method != "POST" or len(parts) != 2 or parts[1] not in ("stop", "start"):
        raise method_not_allowed()
    try:
        (nodes.stop if parts[1] == "stop" else nodes.boot)(parts[0])
    except UnknownNode as error:
        raise ApiError(404, "NotFound", str(error)) from None
    return json_answer(200, {"name": parts[0], "is_up": nodes.by_name[parts[0]].is_up})


def _whole(asked: Json, name: str, usual: int, most: int) -> int:
    value = asked.get(name, usual)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise bad_request(f"{name}: {value!r} is no whole number from 0 to {most}")
    return value
