"""Event stream of the operator API: changes in the master."""

from __future__ import annotations

from services.lab.mesos.api import v1_views
from services.lab.mesos.api.calls import JSON_TYPE
from services.lab.mesos.http.recordio import encode
from services.lab.mesos.master.master import Master
from services.lab.mesos.master.scheduler_events import HEARTBEAT, HEARTBEAT_INTERVAL_S
from services.lab.mesos.model import Agent, Framework, Task
from services.lab.mesos.resources import Json
from services.lab.shared.clock import Clock
from services.lab.shared.http.server import EventStream, Request


class OperatorEvents:
    def __init__(self, clock: Clock, master: Master) -> None:
        self._clock = clock
        self._master = master
        self._registry = master.registry
        self._streams: list[EventStream] = []
        self._is_connected = False

    def _connect(self) -> None:
        """Connect the hooks for the first subscriber: most clusters have none, and the hooks are called for every
        update."""
        self._is_connected = True
        master = self._master
        master.tasks.added.connect(self._task_added)
        master.updates.changed.connect(self._task_updated)
        master.agents.changed.connect(self._agent_changed)
        master.frameworks.changed.connect(self._framework_changed)

    def subscribe(self, request: Request) -> None:
        if not self._is_connected:
            self._connect()
        stream = EventStream(request.connection, (("Content-Type", JSON_TYPE),))
        body = {"get_state": v1_views.state(self._registry), "heartbeat_interval_seconds": HEARTBEAT_INTERVAL_S}
        stream.send(encode({"type": "SUBSCRIBED", "subscribed": body}))
        self._streams.append(stream)
        stream.on_close = lambda: self._streams.remove(stream)
        self._heartbeat(stream)

    def _heartbeat(self, stream: EventStream) -> None:
        if not stream.closed:
            stream.send(HEARTBEAT)
            self._clock.call_later(HEARTBEAT_INTERVAL_S, self._heartbeat, stream)

    def _broadcast(self, event: Json) -> None:
        chunk = encode(event)
        for stream in self._streams:
            stream.send(chunk)

    def _task_added(self, task: Task) -> None:
        if self._streams:
            self._broadcast({"type": "TASK_ADDED", "task_added": {"task": v1_views.task(task)}})

    def _task_updated(self, task: Task, status: Json) -> None:
        if self._streams:
            body = {"framework_id": {"value": task.framework.id}, "status": status, "state": status["state"]}
            self._broadcast({"type": "TASK_UPDATED", "task_updated": body})

    def _agent_changed(self, type_: str, agent: Agent) -> None:
        if not self._streams:
            return
        if type_ == "AGENT_ADDED":
            self._broadcast({"type": type_, "agent_added": {"agent": v1_views.agent(agent, as_event=True)}})
        else:
            self._broadcast({"type": type_, "agent_removed": {"agent_id": {"value": agent.id}}})

    def _framework_changed(self, type_: str, framework: Framework) -> None:
        if not self._streams:
            return
        if type_ == "FRAMEWORK_REMOVED":
            body: Json = {"framework_info": framework.info}
        else:
            body = {"framework": v1_views.framework(framework, self._registry.host, as_event=True)}
        self._broadcast({"type": type_, type_.lower(): body})
