"""/api/v1 of the master: GET_* calls, maintenance, reservations, agent draining and the operator event stream."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import orjson

from services.lab.mesos.api import v0_state, v1_views
from services.lab.mesos.api.calls import accepts_json, read_call
from services.lab.mesos.api.operator_events import OperatorEvents
from services.lab.mesos.master.master import Master
from services.lab.mesos.master.registry import VERSION
from services.lab.mesos.model import Agent
from services.lab.mesos.resources import Json
from services.lab.mesos.settings import MiniclusterSettings
from services.lab.shared.http.server import TEXT, Request, Response, json_response, plain

_PREFIX = "Failed to validate master::Call: "
_DONE = (200, "")


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
        # Status and text of the answer.
        self._acts: dict[str, Callable[[Json], tuple[int, str]]] = {
            "DEACTIVATE_AGENT": self._deactivate,
            "REACTIVATE_AGENT": self._reactivate,
            "DRAIN_AGENT": self._drain,
            "MARK_AGENT_GONE": self._mark_gone,
            "UPDATE_MAINTENANCE_SCHEDULE": lambda body: _result(maintenance.update(body.get("schedule", {}))),
            "START_MAINTENANCE": lambda body: _result(maintenance.begin(body.get("machines", []))),
            "STOP_MAINTENANCE": lambda body: _result(maintenance.end(body.get("machines", []))),
            "RESERVE_RESOURCES": partial(self._change, "RESERVE"),
            "UNRESERVE_RESOURCES": partial(self._change, "UNRESERVE"),
            "CREATE_VOLUMES": partial(self._change, "CREATE"),
            "DESTROY_VOLUMES": partial(self._change, "DESTROY"),
            "TEARDOWN": self._tear_down,
            "LIST_FILES": lambda body: (404, ""),
            "READ_FILE": lambda body: (404, ""),
        }

    def handle(self, request: Request) -> Response | None:
        call = read_call(request, "MasterCall")
        if isinstance(call, Response):
            return call
        type_ = call.get("type")
        if type_ is None:
            return plain(400, _PREFIX + "Expecting 'type' to be present")
        if (type_ in self._acts or type_ == "GET_METRICS") and type_.lower() not in call:
            return plain(400, f"{_PREFIX}Expecting '{type_.lower()}' to be present")
        if not accepts_json(request):
            return plain(406, "Expecting 'Accept' to allow 'application/x-protobuf' or 'application/json'")
        if type_ == "SUBSCRIBE":
            self._events.subscribe(request)
            return None
        if type_ in self._gets:
            return json_response(orjson.dumps({"type": type_, type_.lower(): self._gets[type_]()}))
        if type_ == "GET_WEIGHTS":
            return json_response(orjson.dumps({"type": type_}))
        if type_ == "SET_LOGGING_LEVEL":
            return plain(200, "")
        if type_ not in self._acts:
            return plain(501, "501 Not Implemented.")
        status, text = self._acts[type_](call[type_.lower()])
        return Response(status, text.encode(), (("Content-Type", TEXT),) if text or status == 404 else ())

    # agents

    def _agent(self, body: Json) -> Agent | None:
        return self._master.registry.agents.get(body.get("agent_id", {}).get("value", ""))

    def _registered(self, body: Json) -> Agent | None:
        agent = self._agent(body)
        return agent if agent is not None and agent.registered else None

    def _mark_gone(self, body: Json) -> tuple[int, str]:
        agent = self._agent(body)
        if agent is None:
            return 404, f"Agent '{body.get('agent_id', {}).get('value', '')}' not found"
        self._master.agents.mark_gone(agent)
        return _DONE

    def _drain(self, body: Json) -> tuple[int, str]:
        agent = self._registered(body)
        if agent is None:
            return 400, "Unknown agent"
        period = body.get("max_grace_period")
        if period is not None and not isinstance(period, dict):
            text = "Not expecting a JSON string for field 'max_grace_period'"
            return 400, f"Failed to convert JSON into Call protobuf: {text}"
        self._master.agents.drain(agent, {key: body[key] for key in ("max_grace_period", "mark_gone") if key in body})
        return _DONE

    def _deactivate(self, body: Json) -> tuple[int, str]:
        agent = self._registered(body)
        if agent is None:
            return 400, "Unknown agent"
        self._master.agents.deactivate(agent)
        return _DONE

    def _reactivate(self, body: Json) -> tuple[int, str]:
        agent = self._registered(body)
        if agent is None:
            return 400, "Unknown agent"
        if not agent.deactivated:
            return 400, "Agent is not deactivated"
        self._master.agents.reactivate(agent)
        return _DONE

    # resources and frameworks

    def _change(self, type_: str, body: Json) -> tuple[int, str]:
        agent = self._registered(body)
        if agent is None:
            return 400, "No agent found with specified ID"
        return self._master.operations.change(agent, type_, body)

    def _tear_down(self, body: Json) -> tuple[int, str]:
        framework = self._master.registry.frameworks.get(body.get("framework_id", {}).get("value", ""))
        if framework is None:
            return 400, "No framework found with specified ID"
        self._master.frameworks.remove(framework)
        return _DONE

    # about the master

    def _flags(self) -> Json:
        flags = v0_state.flags(self._master.registry, self._settings)
        return {"flags": [{"name": key, "value": value} for key, value in sorted(flags.items())]}

    def _get_master(self) -> Json:
        registry = self._master.registry
        started = registry.started_at
        return {"master_info": registry.master_info(), "start_time": started, "elected_time": started}


def _result(fault: str | None) -> tuple[int, str]:
    return _DONE if fault is None else (400, fault)
