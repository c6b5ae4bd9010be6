"""KILL and SHUTDOWN of a framework."""

from __future__ import annotations

from services.minicluster.clock import NANOS_PER_SECOND
from services.minicluster.master.agents import Agents
from services.minicluster.master.reconciliation import Reconciliation
from services.minicluster.master.registry import Registry
from services.minicluster.master.task_groups import TaskGroups
from services.minicluster.master.tasks import Tasks
from services.minicluster.model import Framework
from services.minicluster.resources import Json


class Kills:
    def __init__(
        self, registry: Registry, agents: Agents, tasks: Tasks, groups: TaskGroups, reconciliation: Reconciliation
    ) -> None:
        self._registry = registry
        self._agents = agents
        self._tasks = tasks
        self._groups = groups
        self._reconciliation = reconciliation

    def kill(self, framework: Framework, call: Json) -> None:
        task_id = call["task_id"]["value"]
        agent_id = call.get("agent_id", {}).get("value")
        task = framework.tasks.get(task_id)
        if task is None:
            self._reconciliation.explicit(framework, task_id, agent_id)
            return
        if agent_id is not None and agent_id != task.agent.id:
            return
        if not task.agent.online:
            # The agent learns of it when it registers again.
            self._agents.kill_later(task)
            return
        policy = call.get("kill_policy", {}).get("grace_period", {}).get("nanoseconds")
        # The command executor ignores the policy of a KILL; the default executor follows it.
        self._tasks.kill(task, None if policy is None or task.group is None else policy / NANOS_PER_SECOND)

    def shutdown(self, call: Json) -> None:
        agent = self._registry.agents.get(call["agent_id"]["value"])
        if agent is None or not agent.online:
            return
        executor_id = call["executor_id"]["value"]
        for task in list((agent.tasks or {}).values()):
            if task.id == executor_id or task.executor_id == executor_id:
                self._tasks.kill(task)
        self._groups.shutdown(agent, executor_id)
