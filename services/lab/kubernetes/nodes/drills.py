"""Failure drills over HTTP: nodes that go down and come back."""

from __future__ import annotations

from urllib.parse import unquote

from services.lab.kubernetes.answers import json_answer
from services.lab.kubernetes.errors import ApiError, method_not_allowed
from services.lab.kubernetes.nodes.nodes import Nodes, UnknownNode
from services.lab.shared.http.server import Request

PATH = "/emulation/nodes"


class NodeDrills:
    """Handles GET of all nodes and their images, and POST of NAME/stop and NAME/start."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes

    def handle(self, request: Request) -> bytes:
        """Handle a request. Raises ApiError."""
        parts = [unquote(part) for part in request.path.removeprefix(PATH).strip("/").split("/") if part]
        if request.method == "GET" and not parts:
            return json_answer(200, {"nodes": self._nodes.table(), "images": self._nodes.images.page()})
        if request.method != "POST" or len(parts) != 2 or parts[1] not in ("stop", "start"):
            raise method_not_allowed()
        try:
            if parts[1] == "stop":
                self._nodes.stop(parts[0])
            else:
                self._nodes.boot(parts[0])
        except UnknownNode as error:
            raise ApiError(404, "NotFound", str(error)) from None
        return json_answer(200, {"name": parts[0], "is_up": self._nodes.find(parts[0]).is_up})
