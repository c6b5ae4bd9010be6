"""The v0 JSON of /state, /slaves, /tasks and the agent's /state."""

from __future__ import annotations

from pathlib import Path

from services.minicluster.agents.sandboxes import executor_dir
from services.minicluster.api.v1_views import (
    AGENT_CAPABILITIES,
    container_with_defaults,
    health_check_with_defaults,
    offered,
    used,
)
from services.minicluster.master.registry import VERSION, Registry
from services.minicluster.model import Agent, Framework, Task
from services.minicluster.resources import Json, Resources, add_to, in_listing_order, to_json, to_summary
from services.minicluster.settings import MiniclusterSettings

TASKS_LIMIT = 100
_ABOUT = {key: VERSION[key] for key in ("version", "git_sha", "git_tag", "build_date", "build_time", "build_user")}

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


def _sum(parts: dict[str, Resources]) -> Resources:
    result: Resources = {}
    for part in parts.values():
        add_to(result, part)
    return result


def flags(registry: Registry, settings: MiniclusterSettings) -> Json:
    """What a real master with default flags says, with our values where they mean something here."""
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
        "max_completed_frameworks": str(settings.max_completed_frameworks),
        "max_completed_tasks_per_framework": str(settings.max_completed_tasks_per_framework),
        "max_unreachable_tasks_per_framework": str(settings.max_unreachable_tasks_per_framework),
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
    result: Json = {
        "id": agent.id,
        "hostname": agent.spec.name,
        "port": agent.port,
        "attributes": dict(agent.spec.attributes),
        "pid": agent.pid,
        "registered_time": agent.registered_at,
    }
    if agent.reregistered_at is not None:
        result["reregistered_time"] = agent.reregistered_at
    result.update(
        resources=to_summary(agent.total),
        used_resources=to_summary(_sum(used(agent))),
        offered_resources=to_summary(_sum(offered(agent))),
        reserved_resources={role: to_summary(part) for role, part in reserved.items()},
        unreserved_resources=to_summary(unreserved),
        active=agent.active,
        deactivated=agent.deactivated,
        version="1.11.0",
        capabilities=list(AGENT_CAPABILITIES),
    )
    return result


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
    result: Json = {
        "id": item.id,
        "name": item.info["name"],
        "framework_id": item.framework.id,
        "executor_id": item.executor_id or "",
        "slave_id": item.agent.id,
        "state": item.state,
        "resources": to_summary(item.resources),
        "role": item.role,
        "statuses": statuses,
    }
    user = item.info.get("command", {}).get("user")
    if user is not None:
        result["user"] = user
    if "discovery" in item.info:
        result["discovery"] = item.info["discovery"]
    if "container" in item.info:
        result["container"] = container_with_defaults(item.info["container"])
    if "health_check" in item.info:
        result["health_check"] = health_check_with_defaults(item.info["health_check"])
    if "labels" in item.info:
        result["labels"] = item.info["labels"].get("labels", [])
    return result


def held(item: Framework) -> tuple[Resources, Resources]:
    """(allocated, on offer)."""
    running = {one.id: one.resources for one in item.tasks.values() if not one.released}
    return _sum(running), _sum({offer.id: offer.resources for offer in item.offers.values()})


def framework_summary(item: Framework, allocated: Resources, on_offer: Resources) -> Json:
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


def framework(item: Framework) -> Json:
    allocated, on_offer = held(item)
    result: Json = {
        **framework_summary(item, allocated, on_offer),
        "user": item.info.get("user", ""),
        "failover_timeout": item.info.get("failover_timeout", 0.0),
        "checkpoint": item.info.get("checkpoint", False),
        "registered_time": item.registered_at,
        "unregistered_time": item.unregistered_at or 0.0,
        "resources": to_summary(_sum({"": allocated, " ": on_offer})),
    }
    if item.multi_role:
        result["roles"] = list(item.roles)
    else:
        result["role"] = item.roles[0]
    result["offer_constraints"] = item.constraints or {}
    result.update(
        tasks=[task(one) for one in item.tasks.values()],
        unreachable_tasks=[task(one) for one in item.unreachable.values()],
        completed_tasks=[task(one) for one in reversed(item.completed)],
        offers=[
            {
                "id": offer.id,
                "framework_id": item.id,
                "allocation_info": {"role": offer.role},
                "slave_id": offer.agent.id,
                "resources": to_summary(offer.resources),
            }
            for offer in item.offers.values()
        ],
        executors=[],
    )
    return result


def slaves(registry: Registry, full: bool = False) -> Json:
    """/slaves also lists every resource in full, /state does not."""
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
        "used_resources_full": [row for role, part in used(agent).items() for row in to_json(part, role, both=True)],
        "offered_resources_full": [
            row for role, part in offered(agent).items() for row in to_json(part, role, both=True)
        ],
    }


def tasks(registry: Registry, limit: int, offset: int) -> Json:
    """Newest first, as Mesos orders by default."""
    everything = [
        item
        for one in (*registry.frameworks.values(), *registry.removed_frameworks.values())
        for item in (*one.tasks.values(), *one.unreachable.values(), *one.completed)
    ]
    everything.sort(key=lambda item: item.statuses[0]["timestamp"] if item.statuses else 0.0, reverse=True)
    return {"tasks": [task(item) for item in everything[offset : offset + limit]]}


def state(registry: Registry, settings: MiniclusterSettings) -> Json:
    info = registry.master_info()
    known = list(registry.registered())
    return {
        **_ABOUT,
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
        "frameworks": [framework(item) for item in registry.frameworks.values()],
        "completed_frameworks": [framework(item) for item in registry.removed_frameworks.values()],
        "orphan_tasks": [],
        "unregistered_frameworks": [],
    }


def agent_state(registry: Registry, agent: Agent, data_dir: Path) -> Json:
    """/state of one agent: its executors are its tasks, with the sandbox directory the log readers look for."""
    running: dict[str, list[Task]] = {}
    for item in (agent.tasks or {}).values():
        running.setdefault(item.framework.id, []).append(item)
    finished: dict[str, list[Task]] = {}
    for one in (*registry.frameworks.values(), *registry.removed_frameworks.values()):
        mine = [item for item in one.completed if item.agent is agent]
        if mine:
            finished[one.id] = mine
    allocated = _sum(used(agent))
    frameworks = [
        {
            **_of_an_agent((running.get(id_) or finished[id_])[0].framework),
            "executors": [_executor(item, data_dir) for item in running.get(id_, ())],
            "completed_executors": [_executor(item, data_dir) for item in finished.get(id_, ())],
        }
        for id_ in sorted(running.keys() | finished.keys())
    ]
    everything = in_listing_order(agent.total)
    return {
        **_ABOUT,
        "start_time": agent.registered_at,
        "id": agent.id,
        "pid": agent.pid,
        "hostname": agent.spec.name,
        "capabilities": list(AGENT_CAPABILITIES),
        "resources": to_summary(everything),
        "unreserved_resources": to_summary({k: v for k, v in everything.items() if k.role is None}),
        "unreserved_resources_full": to_json({k: v for k, v in everything.items() if k.role is None}),
        "unreserved_resources_allocated": to_summary(allocated),
        "reserved_resources": {},
        "reserved_resources_full": {},
        "reserved_resources_allocated": {},
        "resource_providers": [],
        "attributes": dict(agent.spec.attributes),
        "master_hostname": registry.hostname,
        "flags": {"work_dir": str(data_dir)},
        "frameworks": frameworks,
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
    runs = executor_dir(data_dir, item.agent.id, item.framework.id, item.executor_id or item.id) / "runs"
    return {
        "id": item.executor_id or item.id,
        "name": f"Command Executor (Task: {item.id})",
        "source": item.id,
        "container": container,
        "directory": str(runs / (container or "latest")),
        "resources": to_summary(item.resources),
        "role": item.role,
        "queued_tasks": [],
        "tasks": [] if item.released else [task(item)],
        "completed_tasks": [task(item)] if item.released else [],
    }


def metrics(registry: Registry, uptime_s: float) -> Json:
    """The gauges of /metrics/snapshot that mean something here, all doubles."""
    agents = list(registry.registered())
    every: Resources = {}
    busy: Resources = {}
    for agent in agents:
        add_to(every, agent.total)
        for part in used(agent).values():
            add_to(busy, part)
    result = {
        "master/elected": 1.0,
        "master/uptime_secs": uptime_s,
        "master/slaves_active": float(sum(agent.active for agent in agents)),
        "master/slaves_inactive": float(sum(not agent.active for agent in agents)),
        "master/frameworks_active": float(sum(item.active for item in registry.frameworks.values())),
        "master/frameworks_connected": float(sum(item.connected for item in registry.frameworks.values())),
        "master/outstanding_offers": float(sum(len(item.offers) for item in registry.frameworks.values())),
    }
    states = {"TASK_STAGING": 0, "TASK_STARTING": 0, "TASK_RUNNING": 0, "TASK_KILLING": 0}
    for item in registry.frameworks.values():
        for one in item.tasks.values():
            if one.state in states:
                states[one.state] += 1
    result.update({f"master/tasks_{name[5:].lower()}": float(count) for name, count in states.items()})
    totals, taken = to_summary(every), to_summary(busy)
    for name in ("cpus", "mem", "disk", "gpus"):
        result[f"master/{name}_total"] = totals[name]
        result[f"master/{name}_used"] = taken[name]
        result[f"master/{name}_percent"] = taken[name] / totals[name] if totals[name] else 0.0
    return result
