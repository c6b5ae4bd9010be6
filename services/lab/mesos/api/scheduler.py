"""/api/v1/scheduler: the checks of the real master in its order with its texts, then the calls themselves."""

from __future__ import annotations

import uuid
from binascii import Error as Base64Error
from binascii import a2b_base64
from collections.abc import Callable

import orjson

from services.lab.mesos.api.calls import JSON_TYPE, PROTOBUF_TYPE, accepts_json, read_call
from services.lab.mesos.master.master import Master
from services.lab.mesos.model import Framework
from services.lab.mesos.resources import Json
from services.lab.shared.http.server import EventStream, Request, Response, plain, write_accepted

_PREFIX = "Failed to validate scheduler::Call: "
_WITHOUT_BODY = ("UNKNOWN", "TEARDOWN", "REVIVE", "SUPPRESS")
"""Calls without a body; other calls have a body of their name."""


class SchedulerApi:
    def __init__(self, master: Master) -> None:
        self._master = master
        self._frameworks = master.registry.frameworks
        self._updates = master.updates
        maintenance = master.maintenance
        # All but SUBSCRIBE.
        self._calls: dict[str, Callable[[Framework, Json], None]] = {
            "ACCEPT": master.answers.accept,
            "DECLINE": master.answers.decline,
            "ACKNOWLEDGE": self._acknowledge,
            "REVIVE": master.frameworks.revive,
            "SUPPRESS": master.frameworks.suppress,
            "KILL": master.task_calls.kill,
            "RECONCILE": master.task_calls.reconcile,
            "TEARDOWN": lambda framework, body: master.frameworks.remove(framework),
            "ACCEPT_INVERSE_OFFERS": lambda framework, body: maintenance.answer(framework, body, accept=True),
            "DECLINE_INVERSE_OFFERS": lambda framework, body: maintenance.answer(framework, body, accept=False),
        }

    def handle(self, request: Request) -> Response | bytes | None:
        headers = request.headers
        if request.method == "POST" and headers.get("content-type") == JSON_TYPE:
            try:
                call = orjson.loads(request.body)
                if call["type"] == "ACKNOWLEDGE" and self._acknowledge_fast(call, headers, request.principal):
                    return write_accepted()
            except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
                # Anything unusual takes the slow path, which answers with the right text.
                pass
        return self._handle(request)

    def _acknowledge_fast(self, call: Json, headers: dict[str, str], principal: str) -> bool:
        """Process the most frequent call, one per status update, without a schema walk if it is valid."""
        framework = self._frameworks[call["framework_id"]["value"]]
        if not framework.connected or headers["mesos-stream-id"] != framework.stream_id:
            return False
        if _principal_fault(principal, framework.info):
            return False
        return self._acknowledge_update(framework, call["acknowledge"])

    def _acknowledge(self, framework: Framework, body: Json) -> None:
        self._acknowledge_update(framework, body)

    def _acknowledge_update(self, framework: Framework, body: Json) -> bool:
        task = framework.tasks.get(body["task_id"]["value"])
        if task is None or task.agent.id != body["agent_id"]["value"] or not task.agent.online:
            return False
        return self._updates.acknowledge(task, body["uuid"])

    def _handle(self, request: Request) -> Response | bytes | None:
        call = read_call(request, "Call")
        if isinstance(call, Response):
            return call
        text = _call_fault(call)
        if text is not None:
            return plain(400, _PREFIX + text)
        type_ = call["type"]
        if type_ == "SUBSCRIBE" and not accepts_json(request):
            return plain(406, f"Expecting 'Accept' to allow '{PROTOBUF_TYPE}' or '{JSON_TYPE}'")
        stream_id = request.headers.get("mesos-stream-id")
        if type_ == "SUBSCRIBE":
            return self._subscribe(request, call["subscribe"], stream_id)
        framework = self._frameworks.get(call["framework_id"]["value"])
        if framework is None:
            return plain(400, "Framework cannot be found")
        if fault_of_principal := _principal_fault(request.principal, framework.info):
            return plain(400, fault_of_principal)
        if not framework.connected:
            return plain(403, "Framework is not subscribed")
        if stream_id is None:
            return plain(400, "All non-subscribe calls should include the 'Mesos-Stream-Id' header")
        if stream_id != framework.stream_id:
            return plain(
                400,
                f"The stream ID '{stream_id}' included in this request didn't match the stream ID currently "
                f"associated with framework ID {framework.id}",
            )
        if type_ not in self._calls:
            # The real master aborts on UNKNOWN; minicluster does not.
            return plain(501, "501 Not Implemented.")
        self._calls[type_](framework, call.get(type_.lower(), {}))
        return write_accepted()

    def _subscribe(self, request: Request, body: Json, stream_id: str | None) -> Response | None:
        if stream_id is not None:
            return plain(400, "Subscribe calls should not include the 'Mesos-Stream-Id' header")
        info = body["framework_info"]
        if request.principal and not info.get("principal"):
            info["principal"] = request.principal
        if text := _principal_fault(request.principal, info):
            return plain(400, _PREFIX + text)
        stream_id = str(uuid.uuid4())
        headers = (("Mesos-Stream-Id", stream_id), ("Content-Type", JSON_TYPE))
        stream = EventStream(request.connection, headers)
        self._master.frameworks.subscribe(body, stream, stream_id)
        return None


def _principal_fault(principal: str, info: Json) -> str:
    """Return the fault of an authenticated caller that calls for a framework of another principal, or ""."""
    theirs = info.get("principal", "")
    if not principal or principal == theirs:
        return ""
    return f"Authenticated principal '{principal}' does not match principal '{theirs}' set in `FrameworkInfo`"


def _call_fault(call: Json) -> str | None:
    type_ = call.get("type")
    if type_ is None:
        return "Expecting 'type' to be present"
    name = type_.lower()
    if type_ != "SUBSCRIBE" and "framework_id" not in call:
        return "Expecting 'framework_id' to be present"
    if type_ not in _WITHOUT_BODY and name not in call:
        return f"Expecting '{name}' to be present"
    if type_ == "SUBSCRIBE":
        inner = call[name]["framework_info"].get("id", {}).get("value", "")
        if call.get("framework_id", {}).get("value", "") != inner:
            return f"'framework_id' differs from '{name}.framework_info.id'"
    if type_ == "ACKNOWLEDGE" and not _is_uuid(call[name]["uuid"]):
        return "Not a valid UUID"
    return None


def _is_uuid(text: str) -> bool:
    """Return whether the text is base64 of 16 bytes that are not all zero."""
    try:
        raw = a2b_base64(text)
    except Base64Error:
        return False
    return len(raw) == 16 and any(raw)
