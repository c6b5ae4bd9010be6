"""v1 operator API's JSON of tasks, agents and frameworks."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import orjson

from services.lab.mesos.master import scheduler_events
from services.lab.mesos.master.host_resources import total_of
from services.lab.mesos.master.registry import VERSION, Registry
from services.lab.mesos.model import Agent, Framework, Offer, Task
from services.lab.mesos.nanoseconds import NANOS_PER_SECOND, in_nanoseconds
from services.lab.mesos.resources import (
    AMOUNTS_KEPT_MAX,
    PORTS,
    Amounts,
    Json,
    Resources,
    add_to,
    in_listing_order,
    to_json,
)

AGENT_CAPABILITIES = (
    "MULTI_ROLE",
    "HIERARCHICAL_ROLE",
    "RESERVATION_REFINEMENT",
    "RESOURCE_PROVIDER",
    "RESIZE_VOLUME",
    "AGENT_OPERATION_FEEDBACK",
    "AGENT_DRAINING",
    "TASK_RESOURCE_LIMITS",
)
_CAPABILITIES = orjson.Fragment(orjson.dumps([{"type": name} for name in AGENT_CAPABILITIES]))


def _task_resource(resource: Json, role: str) -> Json:
    """Return the task's resource, with the offer's allocation filled in and numbers as doubles."""
    result = dict(resource)
    if "scalar" in result:
        result["scalar"] = {"value": float(result["scalar"]["value"])}
    result.setdefault("allocation_info", {"role": role})
    return result


def task(item: Task) -> Json:
    """Return a task without its command and container, which may have secrets."""
    info = item.info
    result: Json = {
        "name": info["name"],
        "task_id": {"value": item.id},
        "framework_id": {"value": item.framework.id},
        "agent_id": {"value": item.agent.id},
        "state": item.state,
        "resources": [_task_resource(resource, item.role) for resource in info.get("resources", ())],
    }
    if item.statuses:
        result["statuses"] = item.statuses
    if item.status_uuid:
        result["status_update_state"] = item.status_state
        result["status_update_uuid"] = item.status_uuid
    if "labels" in info:
        result["labels"] = info["labels"]
    return result


def tasks(registry: Registry) -> Json:
    live, removed = registry.frameworks.values(), registry.removed_frameworks.values()
    return {
        "tasks": [task(item) for framework in live for item in framework.tasks.values()],
        "unreachable_tasks": [task(item) for framework in live for item in framework.unreachable.values()],
        "completed_tasks": [task(item) for framework in (*live, *removed) for item in framework.completed],
    }


def _sum_used(agent: Agent) -> dict[str, Resources]:
    """Return the resources of unfinished tasks on the agent, by role."""
    return _sums(item for item in agent.tasks.values() if not item.released) if agent.tasks else {}


def _sum_offered(agent: Agent) -> dict[str, Resources]:
    return _sums(agent.offers.values()) if agent.offers else {}


def _sums(items: Iterable[Task | Offer]) -> dict[str, Resources]:
    """Sum resources by role."""
    result: dict[str, Resources] = {}
    for item in items:
        add_to(result.setdefault(item.role, {}), item.resources)
    return result


def _by_role(resources: dict[str, Resources]) -> orjson.Fragment:
    return _write_by_role(tuple((role, tuple(part.items())) for role, part in resources.items()))


@lru_cache(AMOUNTS_KEPT_MAX)
def _write_by_role(parts: tuple[tuple[str, Amounts], ...]) -> orjson.Fragment:
    rows = [row for role, part in parts for row in to_json(dict(part), role, both=True)]
    return orjson.Fragment(orjson.dumps(rows))


@lru_cache(AMOUNTS_KEPT_MAX)
def _write_total(amounts: Amounts) -> orjson.Fragment:
    return orjson.Fragment(orjson.dumps(to_json(in_listing_order(dict(amounts)), both=True)))


@lru_cache(AMOUNTS_KEPT_MAX)
def _write_at_start(amounts: Amounts) -> orjson.Fragment:
    """Return the resources at the agent's start, without later reservations and revocable resources."""
    plain = {kind: value for kind, value in amounts if kind is not PORTS and not kind.revocable}
    plain |= {kind: value for kind, value in amounts if kind is PORTS}
    rows = to_json(plain, both=True)
    return orjson.Fragment(orjson.dumps([{k: v for k, v in row.items() if k != "role"} for row in rows]))


def agent_info(agent: Agent) -> Json:
    result: Json = {
        "hostname": agent.spec.name,
        "port": agent.port,
        "resources": _write_at_start(tuple(total_of(agent.spec).items())),
    }
    if agent.spec.attributes:
        result["attributes"] = scheduler_events.attributes(agent)
    return {**result, "id": {"value": agent.id}, "checkpoint": True}


def agent(item: Agent) -> Json:
    result: Json = {
        "agent_info": agent_info(item),
        "active": item.active,
        "deactivated": item.deactivated,
        "version": VERSION["version"],
        "pid": item.pid,
        "registered_time": in_nanoseconds(item.registered_at),
    }
    if item.reregistered_at is not None:
        result["reregistered_time"] = in_nanoseconds(item.reregistered_at)
    result["total_resources"] = _write_total(tuple(item.total.items()))
    allocated = _sum_used(item)
    if any(allocated.values()):
        result["allocated_resources"] = _by_role(allocated)
    on_offer = _sum_offered(item)
    if any(on_offer.values()):
        result["offered_resources"] = _by_role(on_offer)
    result["capabilities"] = _CAPABILITIES
    if item.drain is not None:
        config: Json = {}
        if "max_grace_period" in item.drain["config"]:
            period = item.drain["config"]["max_grace_period"]
            config["max_grace_period"] = {
                "nanoseconds": int(period.get("seconds", 0)) * NANOS_PER_SECOND + int(period.get("nanos", 0))
            }
        config["mark_gone"] = bool(item.drain["config"].get("mark_gone"))
        result["drain_info"] = {"state": item.drain["state"], "config": config}
        result["estimated_drain_start_time"] = in_nanoseconds(item.drain["started"])
    return result


def framework(item: Framework) -> Json:
    return {
        "framework_info": item.info,
        "active": item.active,
        "connected": item.connected,
        "recovered": item.recovered,
        "registered_time": in_nanoseconds(item.registered_at),
        "reregistered_time": in_nanoseconds(item.reregistered_at),
    }


def agents(registry: Registry) -> Json:
    return {
        "agents": [agent(item) for item in registry.iterate_registered()],
        "recovered_agents": [agent_info(item) for item in registry.agents.values() if item.recovered],
    }


def frameworks(registry: Registry) -> Json:
    return {
        "frameworks": [framework(item) for item in registry.frameworks.values()],
        "completed_frameworks": [framework(item) for item in registry.removed_frameworks.values()],
    }
