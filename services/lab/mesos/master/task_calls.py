"""KILL and RECONCILE of frameworks."""

from __future__ import annotations

from dataclasses import dataclass

from services.lab.mesos.master.agents import Agents
from services.lab.mesos.master.registry import Registry
from services.lab.mesos.master.status_updates import StatusUpdates
from services.lab.mesos.master.tasks import Tasks
from services.lab.mesos.model import Framework, Task
from services.lab.mesos.nanoseconds import in_nanoseconds
from services.lab.mesos.resources import Json

REASON = "REASON_RECONCILIATION"
_REPEATED = ("healthy", "container_status")


@dataclass(frozen=True)
class TaskCalls:
    registry: Registry
    updates: StatusUpdates
    agents: Agents
    tasks: Tasks

    def kill(self, framework: Framework, call: Json) -> None:
        task_id = call["task_id"]["value"]
        agent_id = call.get("agent_id", {}).get("value")
        task = framework.tasks.get(task_id)
        if task is None:
            self._answer(framework, task_id, agent_id)
            return
        if agent_id is not None and agent_id != task.agent.id:
            return
        if not task.agent.online:
            self.agents.kill_later(task)
            return
        self.tasks.kill(task)  # the command executor ignores the policy of a KILL

    def reconcile(self, framework: Framework, call: Json) -> None:
        """Send the states of the tasks in the call, or of all, newest first like Mesos, if it names none."""
        for item in call.get("tasks", ()):
            self._answer(framework, item["task_id"]["value"], item.get("agent_id", {}).get("value"))
        if not call.get("tasks"):
            for task in reversed(list(framework.tasks.values())):
                self._answer_known(framework, task)

    def _answer(self, framework: Framework, task_id: str, agent_id: str | None) -> None:
        task = framework.tasks.get(task_id)
        if task is not None:
            self._answer_known(framework, task)
            return
        agent = self.registry.agents.get(agent_id) if agent_id is not None else None
        if agent.recovered if agent is not None else self.registry.recovered_count:
            return  # a new master that still waits for agents cannot answer
        extra: Json | None = None
        if agent is not None and agent.gone:
            state, text = "TASK_GONE_BY_OPERATOR", "Task is gone"
        elif agent is not None and agent.registered:
            state, text = "TASK_GONE", "Task is unknown to the agent"
        elif agent is not None and agent.unreachable_at is not None:
            state, text = "TASK_UNREACHABLE", "Task is unreachable"
            extra = {"unreachable_time": in_nanoseconds(agent.unreachable_at)}
        else:
            state, text = "TASK_UNKNOWN", "Task is unknown"
        if not framework.partition_aware:
            state = "TASK_LOST"
        self.updates.from_master(
            framework, task_id, state, REASON, message=f"Reconciliation: {text}", agent_id=agent_id, extra=extra
        )

    def _answer_known(self, framework: Framework, task: Task) -> None:
        last = task.statuses[-1] if task.statuses else {}
        extra = {key: last[key] for key in _REPEATED if key in last}
        text = "Reconciliation: Latest task state"
        self.updates.from_master(
            framework, task.id, task.status_state, REASON, message=text, agent_id=task.agent.id, extra=extra
        )
