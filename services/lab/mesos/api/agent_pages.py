"""Pages of an agent: /flags, /state and /monitor/statistics, with what readers of logs and usage need of them."""

from __future__ import annotations

from pathlib import Path

from services.lab.mesos.agents.sandboxes import runs_dir
from services.lab.mesos.master.registry import VERSION
from services.lab.mesos.model import Agent, Task, Usage
from services.lab.mesos.resources import THOUSAND, Json, scalars
from services.lab.mesos.settings import MiniclusterSettings

STATISTICS = "/monitor/statistics"


def flags(settings: MiniclusterSettings) -> Json:
    """Return the flags of an agent for which minicluster has a setting."""
    return {
        "enforce_container_disk_quota": str(settings.enforce_disk_quota).lower(),
        "isolation": settings.isolation,
        "switch_user": str(settings.switch_user).lower(),
        "work_dir": str(settings.data_dir),
    }


def state(agent: Agent, settings: MiniclusterSettings) -> Json:
    """Return /state: the executors of live tasks, with their containers and sandboxes."""
    executors: dict[str, list[Json]] = {}
    for task in agent.all_tasks:
        executors.setdefault(task.framework.id, []).append(_executor(task, settings.data_dir))
    return {
        **VERSION,
        "id": agent.id,
        "pid": agent.pid,
        "hostname": agent.spec.name,
        "attributes": dict(agent.spec.attributes),
        "flags": flags(settings),
        "frameworks": [{"id": id_, "executors": rows} for id_, rows in sorted(executors.items())],
    }


def _executor(task: Task, data_dir: Path) -> Json:
    container = task.container["container_id"]["value"] if task.container else ""
    return {
        "id": task.id,
        "name": _name(task),
        "source": task.id,
        "container": container,
        "directory": str(runs_dir(data_dir, task) / (container or "latest")),
    }


def _name(task: Task) -> str:
    return f"Command Executor (Task: {task.id})"


def statistics(agent: Agent) -> list[Json]:
    """Return the usage of each executor; tasks that have not been measured yet are left out."""
    runners = ((task, task.runner) for task in agent.all_tasks if not task.released)
    return [_usage(task, usage) for task, runner in runners if runner and (usage := runner.usage()) is not None]


def _usage(task: Task, usage: Usage) -> Json:
    amounts = scalars(task.resources)
    cpus, memory = amounts.get("cpus", 0) / THOUSAND, amounts.get("mem", 0) * 2**20 // THOUSAND
    return {
        "executor_id": task.id,
        "executor_name": _name(task),
        "framework_id": task.framework.id,
        "source": task.id,
        "statistics": {
            "cpus_soft_limit": cpus,
            "cpus_system_time_secs": usage.system_s,
            "cpus_user_time_secs": usage.user_s,
            "mem_limit_bytes": memory,
            "mem_rss_bytes": usage.memory,
            "mem_soft_limit_bytes": memory,
            "timestamp": usage.at_s,
        },
    }
