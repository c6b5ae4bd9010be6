"""/api/v1 of the master: lists, maintenance, reservations, and agents that drain."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import orjson

from services.lab.mesos.api import v1_views
from services.lab.mesos.api.calls import accepts_json, read_call
from services.lab.mesos.master.master import Master
from services.lab.mesos.model import Agent
from services.lab.mesos.resources import Json
from services.lab.shared.http.server import TEXT, Request, Response, json_response, plain

_PREFIX = "Failed to validate master::Call: "
_DONE = (200, "")


class OperatorApi:
    def __init__(self, master: Master) -> None:
        self._master = master
        registry, maintenance = master.registry, master.maintenance
        self._gets: dict[str, Callable[[], Any]] = {
            "GET_HEALTH": lambda: {"healthy": True},
            "GET_AGENTS": lambda: v1_views.agents(registry),
            "GET_FRAMEWORKS": lambda: v1_views.frameworks(registry),
            "GET_TASKS": lambda: v1_views.tasks(registry),
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
        }

    def handle(self, request: Request) -> Response:
        call = read_call(request, "MasterCall")
        if isinstance(call, Response):
            return call
        type_ = call.get("type")
        if type_ is None:
            return plain(400, _PREFIX + "Expecting 'type' to be present")
        if type_ in self._acts and type_.lower() not in call:
            return plain(400, f"{_PREFIX}Expecting '{type_.lower()}' to be present")
        if not accepts_json(request):
            return plain(406, "Expecting 'Accept' to allow 'application/x-protobuf' or 'application/json'")
        if type_ in self._gets:
            return json_response(orjson.dumps({"type": type_, type_.lower(): self._gets[type_]()}))
        if type_ not in self._acts:
            return plain(501, "501 Not Implemented.")
        status, text = self._acts[type_](call[type_.lower()])
        return Response(status, text.encode(), (("Content-Type", TEXT),) if text else ())

    # agents

    def _agent(self, body: Json) -> Agent | None:
        return self._master.registry.agents.get(body.get("agent_id", {}).get("value", ""))

    def _find_registered(self, body: Json) -> Agent | None:
        agent = self._agent(body)
        return agent if agent is not None and agent.registered else None

    def _mark_gone(self, body: Json) -> tuple[int, str]:
        agent = self._agent(body)
        if agent is None:
            return 404, f"Agent '{body.get('agent_id', {}).get('value', '')}' not found"
        self._master.agents.mark_gone(agent)
        return _DONE

    def _drain(self, body: Json) -> tuple[int, str]:
        agent = self._find_registered(body)
        if agent is None:
            return 400, "Unknown agent"
        period = body.get("max_grace_period")
        if period is not None and not isinstance(period, dict):
            text = "Not expecting a JSON string for field 'max_grace_period'"
            return 400, f"Failed to convert JSON into Call protobuf: {text}"
        self._master.agents.drain(agent, {key: body[key] for key in ("max_grace_period", "mark_gone") if key in body})
        return _DONE

    def _deactivate(self, body: Json) -> tuple[int, str]:
        agent = self._find_registered(body)
        if agent is None:
            return 400, "Unknown agent"
        self._master.agents.deactivate(agent)
        return _DONE

    def _reactivate(self, body: Json) -> tuple[int, str]:
        agent = self._find_registered(body)
        if agent is None:
            return 400, "Unknown agent"
        if not agent.deactivated:
            return 400, "Agent is not deactivated"
        self._master.agents.reactivate(agent)
        return _DONE

    # resources and frameworks

    def _change(self, type_: str, body: Json) -> tuple[int, str]:
        agent = self._find_registered(body)
        if agent is None:
            return 400, "No agent found with specified ID"
        return self._master.operations.change(agent, type_, body)

    def _tear_down(self, body: Json) -> tuple[int, str]:
        framework = self._master.registry.frameworks.get(body.get("framework_id", {}).get("value", ""))
        if framework is None:
            return 400, "No framework found with specified ID"
        self._master.frameworks.remove(framework)
        return _DONE


def _result(fault: str | None) -> tuple[int, str]:
    return _DONE if fault is None else (400, fault)
