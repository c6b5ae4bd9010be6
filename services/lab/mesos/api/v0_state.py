"""v0 JSON of /state, /slaves, /tasks and the agent's /state."""

from __future__ import annotations

from pathlib import Path

from services.lab.mesos.agents.sandboxes import runs_dir
from services.lab.mesos.api.v1_views import AGENT_CAPABILITIES, by_role, details, offered, used
from services.lab.mesos.master.registry import COMPLETED_FRAMEWORKS_MAX, UNREACHABLE_TASKS_MAX, VERSION, Registry
from services.lab.mesos.model import COMPLETED_TASKS_MAX, Agent, Framework, Task
from services.lab.mesos.resources import Json, Resources, in_listing_order, sum_of, to_json, to_summary
from services.lab.mesos.settings import MiniclusterSettings

TASKS_LIMIT = 100

_DEFAULT_FLAGS = {
    "agent_reregister_timeout": "10mins",
    "allocator_agent_recovery_factor": "0.8",
    "allocator_recovery_timeout": "10mins",
    "authenticate_http_readonly": "false",
    "authenticate_http_readwrite": "false",
    "authentication_v0_timeout": "15secs",
    "authenticators": "crammd5",
    "authorizers": "local",
    "help": "false",
    "hostname_lookup": "true",
    "http_authenticators": "basic",
    "initialize_driver_logging": "true",
    "log_auto_initialize": "true",
    "logbufsecs": "0",
    "logging_level": "INFO",
    "max_operator_event_stream_subscribers": "1000",
    "memory_profiling": "false",
    "offer_constraints_re2_max_mem": "4KB",
    "offer_constraints_re2_max_program_size": "100",
    "publish_per_framework_metrics": "true",
    "quiet": "false",
    "recovery_agent_removal_limit": "100%",
    "registry": "replicated_log",
    "registry_fetch_timeout": "1mins",
    "registry_gc_interval": "15mins",
    "registry_max_agent_age": "2weeks",
    "registry_max_agent_count": "102400",
    "registry_store_timeout": "20secs",
    "registry_strict": "false",
    "require_agent_domain": "false",
    "root_submissions": "true",
    "webui_dir": "/usr/share/mesos/webui",
    "zk_session_timeout": "10secs",
}


def flags(registry: Registry, settings: MiniclusterSettings) -> Json:
    """Return the flags of a real master with default flags, with the values of minicluster's settings."""
    return {
        **_DEFAULT_FLAGS,
        "agent_ping_timeout": f"{settings.agent_timeout_s / 5:g}secs",
        "allocation_interval": f"{settings.allocation_interval_s:g}secs",
        "allocator": "hierarchical",
        "authenticate_agents": "false",
        "authenticate_frameworks": "false",
        "authenticate_http_frameworks": "false",
        "filter_gpu_resources": "true",
        "framework_sorter": "drf",
        "hostname": registry.hostname,
        "ip": settings.host,
        "max_agent_ping_timeouts": "5",
        "max_completed_frameworks": str(COMPLETED_FRAMEWORKS_MAX),
        "max_completed_tasks_per_framework": str(COMPLETED_TASKS_MAX),
        "max_unreachable_tasks_per_framework": str(UNREACHABLE_TASKS_MAX),
        "min_allocatable_resources": "cpus:0.01|mem:32",
        "port": str(registry.port),
        "role_sorter": "drf",
        "version": "false",
        "work_dir": str(settings.data_dir),
    }


def slave(agent: Agent) -> Json:
    reserved: dict[str, Resources] = {}
    unreserved: Resources = {}
    for kind, value in agent.total.items():
        if kind.role is None:
            unreserved[kind] = value
        else:
            reserved.setdefault(kind.role, {})[kind] = value
    return {
        "id": agent.id,
        "hostname": agent.spec.name,
        "port": agent.port,
        "attributes": dict(agent.spec.attributes),
        "pid": agent.pid,
        "registered_time": agent.registered_at,
        **({} if agent.reregistered_at is None else {"reregistered_time": agent.reregistered_at}),
        "resources": to_summary(agent.total),
        "used_resources": to_summary(sum_of(used(agent).values())),
        "offered_resources": to_summary(sum_of(offered(agent).values())),
        "reserved_resources": {role: to_summary(part) for role, part in reserved.items()},
        "unreserved_resources": to_summary(unreserved),
        "active": agent.active,
        "deactivated": agent.deactivated,
        "version": VERSION["version"],
        "capabilities": list(AGENT_CAPABILITIES),
    }


def task(item: Task) -> Json:
    statuses = []
    for status in item.statuses:
        row: Json = {"state": status["state"], "timestamp": status["timestamp"]}
        if "container_status" in status:
            row["container_status"] = {
                key: value for key, value in status["container_status"].items() if key != "executor_pid"
            }
        if "healthy" in status:
            row["healthy"] = status["healthy"]
        statuses.append(row)
    info = item.info
    result: Json = {
        "id": item.id,
        "name": info["name"],
        "framework_id": item.framework.id,
        "executor_id": "" if item.group is None else item.executor_id,
        "slave_id": item.agent.id,
        "state": item.state,
        "resources": to_summary(item.resources),
        "role": item.role,
        "statuses": statuses,
        **details(info),
    }
    if "labels" in info:
        result["labels"] = info["labels"].get("labels", [])
    return result


def framework_summary(item: Framework) -> Json:
    allocated, on_offer = _held(item)
    return {
        "id": item.id,
        "name": item.info.get("name", ""),
        "used_resources": to_summary(allocated),
        "offered_resources": to_summary(on_offer),
        "capabilities": sorted(item.capabilities),
        "hostname": item.info.get("hostname", ""),
        "webui_url": item.info.get("webui_url", ""),
        "active": item.active,
        "connected": item.connected,
        "recovered": item.recovered,
    }


def _held(item: Framework) -> tuple[Resources, Resources]:
    """Return (allocated, on offer)."""
    running = (one.resources for one in item.tasks.values() if not one.released)
    return sum_of(running), sum_of(offer.resources for offer in item.offers.values())


def framework(item: Framework) -> Json:
    return {
        **framework_summary(item),
        "user": item.info.get("user", ""),
        "failover_timeout": item.info.get("failover_timeout", 0.0),
        "checkpoint": item.info.get("checkpoint", False),
        "registered_time": item.registered_at,
        "unregistered_time": item.unregistered_at or 0.0,
        "resources": to_summary(sum_of(_held(item))),
        **({"roles": list(item.roles)} if item.multi_role else {"role": item.roles[0]}),
        "offer_constraints": item.constraints or {},
        "tasks": [task(one) for one in item.tasks.values()],
        "unreachable_tasks": [task(one) for one in item.unreachable.values()],
        "completed_tasks": [task(one) for one in reversed(item.completed)],
        "offers": [
            {
                "id": offer.id,
                "framework_id": item.id,
                "allocation_info": {"role": offer.role},
                "slave_id": offer.agent.id,
                "resources": to_summary(offer.resources),
            }
            for offer in item.offers.values()
        ],
        "executors": [],
    }


def frameworks(registry: Registry) -> Json:
    return {
        "frameworks": [framework(item) for item in registry.frameworks.values()],
        "completed_frameworks": [framework(item) for item in registry.removed_frameworks.values()],
        "unregistered_frameworks": [],
    }


def slaves(registry: Registry, full: bool = False) -> Json:
    """Return the agents; /slaves also lists every resource in full, unlike /state."""
    rows = []
    for agent in registry.registered():
        row = slave(agent)
        if full:
            row.update(_in_full(agent))
        rows.append(row)
    return {"slaves": rows, "recovered_slaves": []}


def _in_full(agent: Agent) -> Json:
    reserved: dict[str, list[Json]] = {}
    unreserved: list[Json] = []
    for kind, value in in_listing_order(agent.total).items():
        row = to_json({kind: value}, both=True)
        if kind.role is None:
            unreserved += row
        else:
            reserved.setdefault(kind.role, []).extend(row)
    return {
        "reserved_resources_full": reserved,
        "unreserved_resources_full": unreserved,
        "used_resources_full": by_role(used(agent)),
        "offered_resources_full": by_role(offered(agent)),
    }


def tasks(registry: Registry, limit: int, offset: int) -> Json:
    """Return tasks, newest first, which is Mesos's default order."""
    everything = [
        item for one in (*registry.frameworks.values(), *registry.removed_frameworks.values()) for item in one.all_tasks
    ]
    everything.sort(key=lambda item: item.statuses[0]["timestamp"] if item.statuses else 0.0, reverse=True)
    return {"tasks": [task(item) for item in everything[offset : offset + limit]]}


def state(registry: Registry, settings: MiniclusterSettings) -> Json:
    info = registry.master_info()
    known = list(registry.registered())
    return {
        **VERSION,
        "start_time": registry.started_at,
        "elected_time": registry.started_at,
        "id": registry.id,
        "pid": info["pid"],
        "hostname": info["hostname"],
        "capabilities": ["AGENT_UPDATE", "AGENT_DRAINING", "QUOTA_V2"],
        "activated_slaves": float(sum(agent.active for agent in known)),
        "deactivated_slaves": float(sum(not agent.active for agent in known)),
        "unreachable_slaves": float(sum(agent.unreachable_at is not None for agent in registry.agents.values())),
        "leader": info["pid"],
        "leader_info": {key: info[key] for key in ("id", "pid", "port", "hostname")},
        "flags": flags(registry, settings),
        **slaves(registry),
        **frameworks(registry),
        "orphan_tasks": [],
    }


def agent_flags(settings: MiniclusterSettings) -> Json:
    """Return the flags of an agent for which minicluster has a setting."""
    return {
        "enforce_container_disk_quota": str(settings.enforce_disk_quota).lower(),
        "isolation": settings.isolation,
        "switch_user": str(settings.switch_user).lower(),
        "work_dir": str(settings.data_dir),
    }


def agent_state(registry: Registry, agent: Agent, settings: MiniclusterSettings) -> Json:
    """Return /state of one agent: its executors are its tasks, with the sandbox directory used by log readers."""
    running: dict[str, list[Task]] = {}
    for item in agent.all_tasks:
        running.setdefault(item.framework.id, []).append(item)
    finished: dict[str, list[Task]] = {}
    for one in (*registry.frameworks.values(), *registry.removed_frameworks.values()):
        mine = [item for item in one.completed if item.agent is agent]
        if mine:
            finished[one.id] = mine
    shown = [
        {
            **_of_an_agent((running.get(id_) or finished[id_])[0].framework),
            "executors": [_executor(item, settings.data_dir) for item in running.get(id_, ())],
            "completed_executors": [_executor(item, settings.data_dir) for item in finished.get(id_, ())],
        }
        for id_ in sorted(running.keys() | finished.keys())
    ]
    everything = in_listing_order(agent.total)
    unreserved = {kind: value for kind, value in everything.items() if kind.role is None}
    return {
        **VERSION,
        "start_time": agent.registered_at,
        "id": agent.id,
        "pid": agent.pid,
        "hostname": agent.spec.name,
        "capabilities": list(AGENT_CAPABILITIES),
        "resources": to_summary(everything),
        "unreserved_resources": to_summary(unreserved),
        "unreserved_resources_full": to_json(unreserved),
        "unreserved_resources_allocated": to_summary(sum_of(used(agent).values())),
        "reserved_resources": {},
        "reserved_resources_full": {},
        "reserved_resources_allocated": {},
        "resource_providers": [],
        "attributes": dict(agent.spec.attributes),
        "master_hostname": registry.hostname,
        "flags": agent_flags(settings),
        "frameworks": shown,
        "completed_frameworks": [],
    }


def _of_an_agent(found: Framework) -> Json:
    return {
        "id": found.id,
        "name": found.info.get("name", ""),
        "user": found.info.get("user", ""),
        "failover_timeout": found.info["failover_timeout"],
        "checkpoint": found.info["checkpoint"],
        "hostname": found.info.get("hostname", ""),
        "roles": list(found.roles),
    }


def _executor(item: Task, data_dir: Path) -> Json:
    container = item.container["container_id"]["value"] if item.container else ""
    return {
        "id": item.executor_id,
        "name": f"Command Executor (Task: {item.id})",
        "source": item.id,
        "container": container,
        "directory": str(runs_dir(data_dir, item) / (container or "latest")),
        "resources": to_summary(item.resources),
        "role": item.role,
        "queued_tasks": [],
        "tasks": [] if item.released else [task(item)],
        "completed_tasks": [task(item)] if item.released else [],
    }
