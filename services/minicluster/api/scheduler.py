"""/api/v1/scheduler: the checks of the real master in its order with its texts, then the calls themselves."""

from __future__ import annotations

import uuid
from binascii import Error as Base64Error
from binascii import a2b_base64

import orjson

from services.minicluster.api.calls import JSON_TYPE, PROTOBUF_TYPE, accepts_json, content_fault, parse_json
from services.minicluster.http.server import EventStream, Request, Response, accepted, plain
from services.minicluster.master.master import Master
from services.minicluster.model import Framework
from services.minicluster.resources import Json

_PREFIX = "Failed to validate scheduler::Call: "
_BODIES = {
    "SUBSCRIBE": "subscribe",
    "ACCEPT": "accept",
    "DECLINE": "decline",
    "ACCEPT_INVERSE_OFFERS": "accept_inverse_offers",
    "DECLINE_INVERSE_OFFERS": "decline_inverse_offers",
    "KILL": "kill",
    "SHUTDOWN": "shutdown",
    "ACKNOWLEDGE": "acknowledge",
    "ACKNOWLEDGE_OPERATION_STATUS": "acknowledge_operation_status",
    "RECONCILE": "reconcile",
    "RECONCILE_OPERATIONS": "reconcile_operations",
    "MESSAGE": "message",
    "REQUEST": "request",
    "UPDATE_FRAMEWORK": "update_framework",
}


class SchedulerApi:
    def __init__(self, master: Master, stream_buffer_bytes: int) -> None:
        self._master = master
        self._frameworks = master.registry.frameworks
        self._updates = master.updates
        self._stream_buffer_bytes = stream_buffer_bytes

    def handle(self, request: Request) -> Response | bytes | None:
        headers = request.headers
        if request.method == "POST" and headers.get("content-type") == JSON_TYPE:
            try:
                call = orjson.loads(request.body)
                if call["type"] == "ACKNOWLEDGE" and self._acknowledge_fast(call, headers, request.principal):
                    return accepted()
            except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
                # Anything unusual takes the slow path, which answers with the right text.
                pass
        return self._handle(request)

    def _acknowledge_fast(self, call: Json, headers: dict[str, str], principal: str) -> bool:
        """The one call that comes once per status update: no schema walk when everything is as it should be."""
        framework = self._frameworks[call["framework_id"]["value"]]
        if not framework.connected or headers["mesos-stream-id"] != framework.stream_id:
            return False
        if _principal_fault(principal, framework.info):
            return False
        body = call["acknowledge"]
        task = framework.tasks[body["task_id"]["value"]]
        if task.agent.id != body["agent_id"]["value"] or not task.agent.online:
            return False
        return self._updates.acknowledge(task, body["uuid"])

    def _handle(self, request: Request) -> Response | bytes | None:
        fault = content_fault(request)
        if fault is not None:
            return fault
        call = parse_json(request.body, "Call", "Call")
        if isinstance(call, str):
            return plain(400, call)
        text = _call_fault(call)
        if text is not None:
            return plain(400, _PREFIX + text)
        type_ = call["type"]
        if type_ in ("SUBSCRIBE", "RECONCILE_OPERATIONS") and not accepts_json(request):
            return plain(406, f"Expecting 'Accept' to allow '{PROTOBUF_TYPE}' or '{JSON_TYPE}'")
        stream_id = request.headers.get("mesos-stream-id")
        if type_ == "SUBSCRIBE":
            return self._subscribe(request, call, stream_id)
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
        return self._dispatch(framework, type_, call)

    def _subscribe(self, request: Request, call: Json, stream_id: str | None) -> Response | None:
        if stream_id is not None:
            return plain(400, "Subscribe calls should not include the 'Mesos-Stream-Id' header")
        info = call["subscribe"]["framework_info"]
        if request.principal and not info.get("principal"):
            info["principal"] = request.principal
        if text := _principal_fault(request.principal, info):
            return plain(400, _PREFIX + text)
        stream_id = str(uuid.uuid4())
        headers = (("Mesos-Stream-Id", stream_id), ("Content-Type", JSON_TYPE))
        stream = EventStream(request.connection, self._stream_buffer_bytes, headers)
        self._master.frameworks.subscribe(call["subscribe"], stream, stream_id)
        return None

    def _dispatch(self, framework: Framework, type_: str, call: Json) -> Response | bytes:
        master = self._master
        body: Json = call.get(_BODIES.get(type_, type_.lower()), {})
        match type_:
            case "ACCEPT":
                master.answers.accept(framework, body)
            case "DECLINE":
                master.answers.decline(framework, body)
            case "ACKNOWLEDGE":
                self._acknowledge(framework, body)
            case "REVIVE":
                master.frameworks.revive(framework, body)
            case "SUPPRESS":
                master.frameworks.suppress(framework, body)
            case "KILL":
                master.kills.kill(framework, body)
            case "SHUTDOWN":
                master.kills.shutdown(body)
            case "RECONCILE":
                master.reconciliation.reconcile(framework, body)
            case "TEARDOWN":
                master.frameworks.remove(framework)
            case "MESSAGE" | "REQUEST":
                # REQUEST is ignored by the default allocator; no executor here listens to messages.
                pass
            case "UPDATE_FRAMEWORK":
                text = master.frameworks.update(framework, body)
                return plain(200 if text is None else 400, text or "")
            case "ACCEPT_INVERSE_OFFERS" | "DECLINE_INVERSE_OFFERS":
                master.maintenance.answer(framework, body, accept=type_.startswith("ACCEPT"))
            case "ACKNOWLEDGE_OPERATION_STATUS":
                master.operations.acknowledge(framework, body)
            case "RECONCILE_OPERATIONS":
                master.operations.reconcile(framework, body)
            case _:
                # The real master aborts on UNKNOWN; that is the one thing not to copy.
                return plain(501, "501 Not Implemented.")
        return accepted()

    def _acknowledge(self, framework: Framework, body: Json) -> None:
        task = framework.tasks.get(body["task_id"]["value"])
        if task is not None and task.agent.online and task.agent.id == body["agent_id"]["value"]:
            self._updates.acknowledge(task, body["uuid"])


def _principal_fault(principal: str, info: Json) -> str:
    """An authenticated caller may call for frameworks of its own principal only."""
    theirs = info.get("principal", "")
    if not principal or principal == theirs:
        return ""
    return f"Authenticated principal '{principal}' does not match principal '{theirs}' set in `FrameworkInfo`"


def _call_fault(call: Json) -> str | None:
    type_ = call.get("type")
    if type_ is None:
        return "Expecting 'type' to be present"
    body = _BODIES.get(type_)
    if type_ == "SUBSCRIBE":
        if body not in call:
            return "Expecting 'subscribe' to be present"
        inner = call["subscribe"]["framework_info"].get("id", {}).get("value", "")
        if call.get("framework_id", {}).get("value", "") != inner:
            return "'framework_id' differs from 'subscribe.framework_info.id'"
        return None
    if "framework_id" not in call:
        return "Expecting 'framework_id' to be present"
    if body is not None and body not in call:
        return f"Expecting '{body}' to be present"
    if type_ == "UPDATE_FRAMEWORK":
        inner = call["update_framework"]["framework_info"].get("id", {}).get("value", "")
        if call["framework_id"]["value"] != inner:
            return "'framework_id' differs from 'update_framework.framework_info.id'"
    if type_ in ("ACKNOWLEDGE", "ACKNOWLEDGE_OPERATION_STATUS"):
        assert body is not None
        if not valid_uuid(call[body]["uuid"]):
            return "Not a valid UUID"
        if type_ == "ACKNOWLEDGE_OPERATION_STATUS" and "agent_id" not in call[body]:
            return "Expecting 'agent_id' to be present"
    return None


def valid_uuid(text: str) -> bool:
    """16 bytes, not all zero."""
    try:
        raw = a2b_base64(text)
    except Base64Error:
        return False
    return len(raw) == 16 and any(raw)
