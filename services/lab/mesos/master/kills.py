"""KILL of a framework."""

from __future__ import annotations

from dataclasses import dataclass

from services.lab.mesos.master.agents import Agents
from services.lab.mesos.master.reconciliation import Reconciliation
from services.lab.mesos.master.tasks import Tasks
from services.lab.mesos.model import Framework
from services.lab.mesos.resources import Json


@dataclass(frozen=True)
class Kills:
    agents: Agents
    tasks: Tasks
    reconciliation: Reconciliation

    def kill(self, framework: Framework, call: Json) -> None:
        task_id = call["task_id"]["value"]
        agent_id = call.get("agent_id", {}).get("value")
        task = framework.tasks.get(task_id)
        if task is None:
            self.reconciliation.answer(framework, task_id, agent_id)
            return
        if agent_id is not None and agent_id != task.agent.id:
            return
        if not task.agent.online:
            self.agents.kill_later(task)
            return
        self.tasks.kill(task)  # the command executor ignores the policy of a KILL
