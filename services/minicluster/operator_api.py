"""/api/v1 of the master: GET_* calls, agent draining and the operator event stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import orjson

from services.minicluster import state_v0, views
from services.minicluster.events import HEARTBEAT
from services.minicluster.http import TEXT, EventStream, Request, Response, json_response, plain
from services.minicluster.model import Agent, Framework, Task
from services.minicluster.operations import status_of
from services.minicluster.recordio import encode
from services.minicluster.resources import Json, add_to, scalars
from services.minicluster.scheduler_api import JSON_TYPE, accepts_json, content_fault, parse_json

if TYPE_CHECKING:
    from services.minicluster.master import Master

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
    def __init__(self, master: Master, version: Json) -> None:
        self._master = master
        self._version = version
        self._streams: list[EventStream] = []
        self._gets: dict[str, Callable[[], Any]] = {
            "GET_HEALTH": lambda: {"healthy": True},
            "GET_VERSION": lambda: {"version_info": version},
            "GET_FLAGS": self._flags,
            "GET_LOGGING_LEVEL": lambda: {"level": 0},
            "GET_AGENTS": lambda: views.agents(master),
            "GET_FRAMEWORKS": lambda: views.frameworks(master),
            "GET_EXECUTORS": lambda: views.executors(master),
            "GET_TASKS": lambda: views.tasks(master.live.values(), master.frameworks.completed.values()),
            "GET_STATE": lambda: views.state(master),
            "GET_ROLES": self._roles,
            "GET_MASTER": self._get_master,
            "GET_METRICS": lambda: {"metrics": []},
            "GET_OPERATIONS": self._operations,
            "GET_QUOTA": lambda: {"status": {}},
            "GET_MAINTENANCE_SCHEDULE": lambda: {"schedule": master.maintenance.schedule()},
            "GET_MAINTENANCE_STATUS": lambda: {"status": master.maintenance.status()},
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
            self._subscribe(request)
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
                agent = master.agents.known.get(body["agent_id"]["value"])
                if agent is None or not agent.registered:
                    return plain(400, "No agent found with specified ID")
                status, text = master.operations.change(agent, type_.partition("_")[0], body)
                return plain(status, text)
            case "TEARDOWN":
                framework = master.live.get(body.get("framework_id", {}).get("value", ""))
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
        agent = master.agents.known.get(id_)
        if type_ == "MARK_AGENT_GONE":
            if agent is None:
                return plain(404, f"Agent '{id_}' not found")
            if not agent.gone:
                agent.gone = True
                master.agents.remove(
                    agent, "TASK_GONE_BY_OPERATOR", "REASON_AGENT_REMOVED_BY_OPERATOR", "Agent has been marked gone"
                )
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
            agent.deactivated = True
            master.offers.rescind_agent(agent)
        elif not agent.deactivated:
            return plain(400, "Agent is not deactivated")
        else:
            agent.deactivated = False
            agent.drain = None
            agent.sleep_epoch = -1
            master.offers.trigger(agent)
        return plain(200, "")

    def _operations(self) -> Json:
        rows = [
            {
                "framework_id": {"value": item.framework.id},
                "agent_id": {"value": item.agent.id},
                "info": item.info,
                "latest_status": status_of(item),
                "statuses": [status_of(item)],
                "uuid": {"value": item.uuid},
            }
            for framework in self._master.live.values()
            for item in framework.operations.values()
        ]
        return {"operations": rows} if rows else {}

    def _flags(self) -> Json:
        return {"flags": [{"name": key, "value": value} for key, value in sorted(state_v0.flags(self._master).items())]}

    def _get_master(self) -> Json:
        started = self._master.started_at
        return {"master_info": self._master.info(), "start_time": started, "elected_time": started}

    def _roles(self) -> Json:
        members: dict[str, list[Framework]] = {}
        for framework in self._master.live.values():
            for role in framework.roles:
                members.setdefault(role, []).append(framework)
        rows = []
        for role, frameworks in sorted(members.items()):
            held: dict[str, int] = {}
            for framework in frameworks:
                parts = [offer.resources for offer in framework.offers.values() if offer.role == role]
                parts += [
                    task.resources for task in framework.tasks.values() if task.role == role and not task.released
                ]
                total: dict[Any, Any] = {}
                for part in parts:
                    add_to(total, part)
                for name, value in scalars(total).items():
                    held[name] = held.get(name, 0) + value
            resources = [
                {"name": name, "type": "SCALAR", "scalar": {"value": held[name] / 1000}} for name in sorted(held)
            ]
            row: Json = {"name": role, "weight": 1.0, "frameworks": [{"value": item.id} for item in frameworks]}
            if resources:
                row["resources"] = resources
            rows.append(row)
        return {"roles": rows}

    # the event stream

    def _subscribe(self, request: Request) -> None:
        master = self._master
        stream = EventStream(request.connection, master.settings.stream_buffer_bytes, (("Content-Type", JSON_TYPE),))
        interval = master.settings.heartbeat_interval_s
        body = {"get_state": views.state(master), "heartbeat_interval_seconds": interval}
        stream.send(encode({"type": "SUBSCRIBED", "subscribed": body}))
        self._streams.append(stream)
        stream.on_close = lambda: self._streams.remove(stream)
        self._heartbeat(stream)
        master.on_task_added = self._task_added
        master.updates.on_change = self._task_updated
        master.agents.on_change = self._agent_changed
        master.frameworks.on_change = self._framework_changed

    def _heartbeat(self, stream: EventStream) -> None:
        if not stream.closed:
            stream.send(HEARTBEAT)
            self._master.clock.call_later(self._master.settings.heartbeat_interval_s, self._heartbeat, stream)

    def _broadcast(self, event: Json) -> None:
        if self._streams:
            chunk = encode(event)
            for stream in self._streams:
                stream.send(chunk)

    def _task_added(self, task: Task) -> None:
        if self._streams:
            self._broadcast({"type": "TASK_ADDED", "task_added": {"task": views.task(task)}})

    def _task_updated(self, task: Task, status: Json) -> None:
        if self._streams:
            body = {"framework_id": {"value": task.framework.id}, "status": status, "state": status["state"]}
            self._broadcast({"type": "TASK_UPDATED", "task_updated": body})

    def _agent_changed(self, type_: str, agent: Agent) -> None:
        if type_ == "AGENT_ADDED":
            self._broadcast({"type": type_, "agent_added": {"agent": views.agent(agent, as_event=True)}})
        else:
            self._broadcast({"type": type_, "agent_removed": {"agent_id": {"value": agent.id}}})

    def _framework_changed(self, type_: str, framework: Framework) -> None:
        if not self._streams:
            return
        if type_ == "FRAMEWORK_REMOVED":
            body: Json = {"framework_info": framework.info}
        else:
            body = {"framework": views.framework(framework, self._master.settings.host, as_event=True)}
        self._broadcast({"type": type_, type_.lower(): body})


def _result(fault: str | None) -> Response:
    return plain(200, "") if fault is None else plain(400, fault)
