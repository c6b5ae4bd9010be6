"""/api/v1 of the master: GET_* calls, agent draining and the operator event stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from services.minicluster.api import v0_state, v1_views
from services.minicluster.api.calls import accepts_json, content_fault, parse_json
from services.minicluster.api.operator_events import OperatorEvents
from services.minicluster.http.server import TEXT, Request, Response, json_response, plain
from services.minicluster.master.master import Master
from services.minicluster.master.registry import VERSION
from services.minicluster.resources import Json
from services.minicluster.settings import MiniclusterSettings

_PREFIX = "Failed to validate master::Call: "
# Calls that carry a body named like themselves.
_BODIES = (
    "GET_METRICS",
    "LIST_FILES",
    "READ_FILE",
    "UPDATE_MAINTENANCE_SCHEDULE",
    "START_MAINTENANCE",
    "STOP_MAINTENANCE",
    "TEARDOWN",
    "MARK_AGENT_GONE",
    "DRAIN_AGENT",
    "DEACTIVATE_AGENT",
    "REACTIVATE_AGENT",
    "RESERVE_RESOURCES",
    "UNRESERVE_RESOURCES",
    "CREATE_VOLUMES",
    "DESTROY_VOLUMES",
)


class OperatorApi:
    def __init__(self, master: Master, settings: MiniclusterSettings, events: OperatorEvents) -> None:
        self._master = master
        self._settings = settings
        self._events = events
        registry, maintenance = master.registry, master.maintenance
        self._gets: dict[str, Callable[[], Any]] = {
            "GET_HEALTH": lambda: {"healthy": True},
            "GET_VERSION": lambda: {"version_info": VERSION},
            "GET_FLAGS": self._flags,
            "GET_LOGGING_LEVEL": lambda: {"level": 0},
            "GET_AGENTS": lambda: v1_views.agents(registry),
            "GET_FRAMEWORKS": lambda: v1_views.frameworks(registry),
            "GET_EXECUTORS": lambda: v1_views.executors(registry),
            "GET_TASKS": lambda: v1_views.tasks(registry),
            "GET_STATE": lambda: v1_views.state(registry),
            "GET_ROLES": lambda: v1_views.roles(registry),
            "GET_MASTER": self._get_master,
            "GET_METRICS": lambda: {"metrics": []},
            "GET_OPERATIONS": lambda: v1_views.operations(registry),
            "GET_QUOTA": lambda: {"status": {}},
            "GET_MAINTENANCE_SCHEDULE": lambda: {"schedule": maintenance.schedule()},
            "GET_MAINTENANCE_STATUS": lambda: {"status": maintenance.status()},
        }

    def handle(self, request: Request) -> Response | None:
        fault = content_fault(request)
        if fault is not None:
            return fault
        call = parse_json(request.body, "MasterCall", "Call")
        if isinstance(call, str):
            return plain(400, call)
        type_ = call.get("type")
        if type_ is None:
            return plain(400, _PREFIX + "Expecting 'type' to be present")
        if type_ in _BODIES and type_.lower() not in call:
            return plain(400, f"{_PREFIX}Expecting '{type_.lower()}' to be present")
        if not accepts_json(request):
            return plain(406, "Expecting 'Accept' to allow 'application/x-protobuf' or 'application/json'")
        if type_ == "SUBSCRIBE":
            self._events.subscribe(request)
            return None
        get = self._gets.get(type_)
        if get is not None:
            return json_response(orjson.dumps({"type": type_, type_.lower(): get()}))
        return self._act(type_, call)

    def _act(self, type_: str, call: Json) -> Response:
        master = self._master
        body = call.get(type_.lower(), {})
        match type_:
            case "GET_WEIGHTS":
                return json_response(orjson.dumps({"type": type_}))
            case "DEACTIVATE_AGENT" | "REACTIVATE_AGENT" | "DRAIN_AGENT" | "MARK_AGENT_GONE":
                return self._agent_call(type_, body)
            case "UPDATE_MAINTENANCE_SCHEDULE":
                return _result(master.maintenance.update(body.get("schedule", {})))
            case "START_MAINTENANCE":
                return _result(master.maintenance.begin(body.get("machines", [])))
            case "STOP_MAINTENANCE":
                return _result(master.maintenance.end(body.get("machines", [])))
            case "RESERVE_RESOURCES" | "UNRESERVE_RESOURCES" | "CREATE_VOLUMES" | "DESTROY_VOLUMES":
                agent = master.registry.agents.get(body["agent_id"]["value"])
                if agent is None or not agent.registered:
                    return plain(400, "No agent found with specified ID")
                status, text = master.operations.change(agent, type_.partition("_")[0], body)
                return plain(status, text)
            case "TEARDOWN":
                framework = master.registry.frameworks.get(body.get("framework_id", {}).get("value", ""))
                if framework is None:
                    return plain(400, "No framework found with specified ID")
                master.frameworks.remove(framework)
                return plain(200, "")
            case "LIST_FILES" | "READ_FILE":
                return Response(404, b"", (("Content-Type", TEXT),))
            case "SET_LOGGING_LEVEL":
                return plain(200, "")
            case _:
                return plain(501, "501 Not Implemented.")

    def _agent_call(self, type_: str, body: Json) -> Response:
        master = self._master
        id_ = body.get("agent_id", {}).get("value", "")
        agent = master.registry.agents.get(id_)
        if type_ == "MARK_AGENT_GONE":
            if agent is None:
                return plain(404, f"Agent '{id_}' not found")
            master.agents.mark_gone(agent)
            return plain(200, "")
        if agent is None or not agent.registered:
            return plain(400, "Unknown agent")
        if type_ == "DRAIN_AGENT":
            period = body.get("max_grace_period")
            if period is not None and not isinstance(period, dict):
                return plain(
                    400,
                    "Failed to convert JSON into Call protobuf: "
                    "Not expecting a JSON string for field 'max_grace_period'",
                )
            master.agents.drain(agent, {key: body[key] for key in ("max_grace_period", "mark_gone") if key in body})
        elif type_ == "DEACTIVATE_AGENT":
            master.agents.deactivate(agent)
        elif not agent.deactivated:
            return plain(400, "Agent is not deactivated")
        else:
            master.agents.reactivate(agent)
        return plain(200, "")

    def _flags(self) -> Json:
        flags = v0_state.flags(self._master.registry, self._settings)
        return {"flags": [{"name": key, "value": value} for key, value in sorted(flags.items())]}

    def _get_master(self) -> Json:
        registry = self._master.registry
        started = registry.started_at
        return {"master_info": registry.master_info(), "start_time": started, "elected_time": started}


def _result(fault: str | None) -> Response:
    return plain(200, "") if fault is None else plain(400, fault)
