"""Answers to RECONCILE, and to KILL of a task the master does not know."""

from __future__ import annotations

from services.minicluster.clock import in_nanoseconds
from services.minicluster.master.registry import Registry
from services.minicluster.master.status_updates import StatusUpdates
from services.minicluster.model import Framework, Task
from services.minicluster.resources import Json

REASON = "REASON_RECONCILIATION"


class Reconciliation:
    def __init__(self, registry: Registry, updates: StatusUpdates) -> None:
        self._registry = registry
        self._updates = updates

    def reconcile(self, framework: Framework, call: Json) -> None:
        tasks = call.get("tasks")
        if not tasks:
            self.implicit(framework)
            return
        for item in tasks:
            self.explicit(framework, item["task_id"]["value"], item.get("agent_id", {}).get("value"))

    def implicit(self, framework: Framework) -> None:
        """One update per task the master has, newest first as Mesos happens to do."""
        for task in reversed(list(framework.tasks.values())):
            self._known(framework, task)

    def explicit(self, framework: Framework, task_id: str, agent_id: str | None) -> None:
        task = framework.tasks.get(task_id)
        if task is not None:
            self._known(framework, task)
            return
        agent = self._registry.agents.get(agent_id) if agent_id is not None else None
        if agent.recovered if agent is not None else self._registry.recovered_count:
            return  # a new master that still waits for agents does not know
        extra: Json | None = None
        if agent is None:
            state, text = "TASK_UNKNOWN", "Reconciliation: Task is unknown"
        elif agent.gone:
            state, text = "TASK_GONE_BY_OPERATOR", "Reconciliation: Task is gone"
        elif agent.registered:
            state, text = "TASK_GONE", "Reconciliation: Task is unknown to the agent"
        elif agent.unreachable_at is not None:
            state, text = "TASK_UNREACHABLE", "Reconciliation: Task is unreachable"
            extra = {"unreachable_time": in_nanoseconds(agent.unreachable_at)}
        else:
            state, text = "TASK_UNKNOWN", "Reconciliation: Task is unknown"
        if not framework.partition_aware:
            state = "TASK_LOST"
        self._updates.from_master(
            framework, task_id, state, message=text, reason=REASON, agent_id=agent_id, extra=extra
        )

    def _known(self, framework: Framework, task: Task) -> None:
        extra: Json = {}
        if task.executor_id is not None:
            extra["executor_id"] = {"value": task.executor_id}
        last = task.statuses[-1] if task.statuses else {}
        if "healthy" in last:
            extra["healthy"] = last["healthy"]
        if "check_status" in last:
            extra["check_status"] = last["check_status"]
        if "container_status" in last:
            extra["container_status"] = last["container_status"]
        self._updates.from_master(
            framework,
            task.id,
            task.status_state,
            message="Reconciliation: Latest task state",
            reason=REASON,
            agent_id=task.agent.id,
            extra=extra,
        )
