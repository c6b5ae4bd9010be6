"""KILL and SHUTDOWN of a framework."""

from __future__ import annotations

from dataclasses import dataclass

from services.lab.mesos.master.agents import Agents
from services.lab.mesos.master.reconciliation import Reconciliation
from services.lab.mesos.master.registry import Registry
from services.lab.mesos.master.task_groups import TaskGroups
from services.lab.mesos.master.tasks import Tasks
from services.lab.mesos.model import Framework
from services.lab.mesos.nanoseconds import NANOS_PER_SECOND
from services.lab.mesos.resources import Json


@dataclass(frozen=True)
class Kills:
    registry: Registry
    agents: Agents
    tasks: Tasks
    groups: TaskGroups
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
        policy = call.get("kill_policy", {}).get("grace_period", {}).get("nanoseconds")
        # The command executor ignores the policy of a KILL; the default executor follows it.
        self.tasks.kill(task, None if policy is None or task.group is None else policy / NANOS_PER_SECOND)

    def shutdown(self, framework: Framework, call: Json) -> None:
        agent = self.registry.agents.get(call["agent_id"]["value"])
        if agent is None or not agent.online:
            return
        executor_id = call["executor_id"]["value"]
        for task in agent.all_tasks:
            if task.framework is framework and executor_id in (task.id, task.executor_id):
                self.tasks.kill(task)
        self.groups.shutdown(framework, agent, executor_id)
