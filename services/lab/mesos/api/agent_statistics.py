"""/monitor/statistics of an agent: the usage of each executor."""

from __future__ import annotations

from services.lab.mesos.model import Agent, Task, Usage
from services.lab.mesos.resources import THOUSAND, Json, scalars

PATH = "/monitor/statistics"


def page(agent: Agent) -> list[Json]:
    """Return one entry per executor; tasks that have not been measured yet are left out."""
    measured: dict[tuple[str, str], list[tuple[Task, Usage]]] = {}
    for task in agent.all_tasks:
        usage = task.runner.usage() if task.runner is not None and not task.released else None
        if usage is not None:
            measured.setdefault((task.framework.id, task.executor_id), []).append((task, usage))
    return [_entry(framework_id, executor_id, tasks) for (framework_id, executor_id), tasks in measured.items()]


def _entry(framework_id: str, executor_id: str, tasks: list[tuple[Task, Usage]]) -> Json:
    first = tasks[0][0]
    amounts = [scalars(task.resources) for task, _ in tasks]
    cpus = sum(each.get("cpus", 0) for each in amounts) / THOUSAND
    memory = sum(each.get("mem", 0) for each in amounts) * 2**20 // THOUSAND
    return {
        "executor_id": executor_id,
        "executor_name": f"Command Executor (Task: {first.id})" if first.group is None else "",
        "framework_id": framework_id,
        "source": first.id if first.group is None else "",
        "statistics": {
            "cpus_soft_limit": cpus,
            "cpus_system_time_secs": sum(usage.system_s for _, usage in tasks),
            "cpus_user_time_secs": sum(usage.user_s for _, usage in tasks),
            "mem_limit_bytes": memory,
            "mem_rss_bytes": sum(usage.memory for _, usage in tasks),
            "mem_soft_limit_bytes": memory,
            "timestamp": max(usage.at_s for _, usage in tasks),
        },
    }
