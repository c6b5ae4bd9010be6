"""v1 operator API's JSON of tasks, agents and frameworks."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import orjson

from services.lab.mesos.api.redaction import without_secrets
from services.lab.mesos.master import scheduler_events
from services.lab.mesos.master.host_resources import total_of
from services.lab.mesos.master.registry import VERSION, Registry
from services.lab.mesos.model import Agent, Executor, Framework, Offer, Task
from services.lab.mesos.nanoseconds import NANOS_PER_SECOND, in_nanoseconds
from services.lab.mesos.resources import (
    AMOUNTS_KEPT_MAX,
    PORTS,
    THOUSAND,
    Amounts,
    Json,
    Resources,
    add_to,
    in_listing_order,
    scalars,
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


def details(info: Json) -> Json:
    """Return the fields of a TaskInfo that both APIs show in the same way."""
    result: Json = {key: without_secrets(info[key]) for key in ("discovery", "container") if key in info}
    if "docker" in result.get("container", {}):
        docker = {"network": "HOST", "privileged": False, **result["container"]["docker"]}
        result["container"] = {**result["container"], "docker": docker}
    if "health_check" in info:
        result["health_check"] = _health_check(without_secrets(info["health_check"]))
    user = info.get("command", {}).get("user")
    return result if user is None else {**result, "user": user}


def _health_check(check: Json) -> Json:
    """Return the health check with the defaults that the master adds."""
    result: Json = {
        "delay_seconds": 15.0,
        "interval_seconds": 10.0,
        "timeout_seconds": 20.0,
        "consecutive_failures": 3,
        "grace_period_seconds": 10.0,
        **check,
    }
    if "command" in check:
        result["command"] = {"shell": True, **check["command"]}
    return result


def task(item: Task) -> Json:
    info = item.info
    result: Json = {
        "name": info["name"],
        "task_id": {"value": item.id},
        "framework_id": {"value": item.framework.id},
    }
    if item.group is not None:
        result["executor_id"] = {"value": item.executor_id}
    result["agent_id"] = {"value": item.agent.id}
    result["state"] = item.state
    result["resources"] = [_task_resource(resource, item.role) for resource in info.get("resources", ())]
    if item.statuses:
        result["statuses"] = item.statuses
    if item.status_uuid:
        result["status_update_state"] = item.status_state
        result["status_update_uuid"] = item.status_uuid
    if "labels" in info:
        result["labels"] = info["labels"]
    return result | details(info)


def tasks(registry: Registry) -> Json:
    live, removed = registry.frameworks.values(), registry.removed_frameworks.values()
    return {
        "tasks": [task(item) for framework in live for item in framework.tasks.values()],
        "unreachable_tasks": [task(item) for framework in live for item in framework.unreachable.values()],
        "completed_tasks": [task(item) for framework in (*live, *removed) for item in framework.completed],
    }


def used(agent: Agent) -> dict[str, Resources]:
    """Return the resources of unfinished tasks and executors on the agent, by role."""
    if not agent.tasks and not agent.executors:
        return {}  # common among many agents
    return _sums((*(item for item in agent.all_tasks if not item.released), *agent.all_executors))


def offered(agent: Agent) -> dict[str, Resources]:
    return _sums(agent.offers.values()) if agent.offers else {}


def _sums(items: Iterable[Task | Executor | Offer]) -> dict[str, Resources]:
    """Sum resources by role."""
    result: dict[str, Resources] = {}
    for item in items:
        add_to(result.setdefault(item.role, {}), item.resources)
    return result


def by_role(resources: dict[str, Resources]) -> list[Json]:
    return [row for role, part in resources.items() for row in to_json(part, role, both=True)]


@lru_cache(AMOUNTS_KEPT_MAX)
def _cached_by_role(parts: tuple[tuple[str, Amounts], ...]) -> orjson.Fragment:
    return orjson.Fragment(orjson.dumps(by_role({role: dict(part) for role, part in parts})))


def _fragment_by_role(resources: dict[str, Resources]) -> orjson.Fragment:
    return _cached_by_role(tuple((role, tuple(part.items())) for role, part in resources.items()))


@lru_cache(AMOUNTS_KEPT_MAX)
def _cached_total(amounts: Amounts) -> orjson.Fragment:
    return orjson.Fragment(orjson.dumps(to_json(in_listing_order(dict(amounts)), both=True)))


@lru_cache(AMOUNTS_KEPT_MAX)
def _cached_at_start(amounts: Amounts) -> orjson.Fragment:
    """Return the resources at the agent's start, without later reservations and revocable resources."""
    plain = {kind: value for kind, value in amounts if kind is not PORTS and not kind.revocable}
    plain |= {kind: value for kind, value in amounts if kind is PORTS}
    rows = to_json(plain, both=True)
    return orjson.Fragment(orjson.dumps([{k: v for k, v in row.items() if k != "role"} for row in rows]))


def agent_info(agent: Agent, as_event: bool = False) -> Json:
    result: Json = {
        "hostname": agent.spec.name,
        "port": agent.port,
        "resources": _cached_at_start(tuple(total_of(agent.spec).items())),
    }
    if agent.spec.attributes:
        result["attributes"] = scheduler_events.attributes(agent)
    result["id"] = {"value": agent.id}
    if not as_event:
        result["checkpoint"] = True
    return result


def agent(item: Agent, as_event: bool = False) -> Json:
    result: Json = {
        "agent_info": agent_info(item, as_event),
        "active": item.active,
        "deactivated": item.deactivated,
        "version": VERSION["version"],
        "pid": item.pid,
        "registered_time": in_nanoseconds(item.registered_at),
    }
    if item.reregistered_at is not None:
        result["reregistered_time"] = in_nanoseconds(item.reregistered_at)
    result["total_resources"] = _cached_total(tuple(item.total.items()))
    allocated = used(item)
    if any(allocated.values()):
        result["allocated_resources"] = _fragment_by_role(allocated)
    on_offer = offered(item)
    if any(on_offer.values()):
        result["offered_resources"] = _fragment_by_role(on_offer)
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


def framework(item: Framework, ip: str, as_event: bool = False) -> Json:
    result: Json = {
        "framework_info": item.info,
        "active": item.active,
        "connected": item.connected,
        "recovered": item.recovered,
        "registered_time": in_nanoseconds(item.registered_at),
        "reregistered_time": in_nanoseconds(item.reregistered_at),
    }
    if not as_event:
        result["offer_constraints"] = item.constraints or {}
    if item.unregistered_at is not None or as_event:
        result["unregistered_time"] = in_nanoseconds(item.unregistered_at or 0.0)
    if as_event:
        return result
    if item.offers:
        result["offers"] = [_offer(offer, ip) for offer in item.offers.values()]
    allocated = _sums((*(one for one in item.tasks.values() if not one.released), *item.executors.values()))
    if allocated:
        result["allocated_resources"] = by_role(allocated)
    on_offer = _sums(item.offers.values())
    if on_offer:
        result["offered_resources"] = by_role(on_offer)
    return result


def _offer(offer: Offer, ip: str) -> Json:
    rows = to_json(offer.resources, offer.role)
    result: Json = {
        "id": {"value": offer.id},
        "framework_id": {"value": offer.framework.id},
        "agent_id": {"value": offer.agent.id},
        "hostname": offer.agent.spec.name,
        "url": scheduler_events.url(offer.agent, ip),
        # Inside a framework the master writes unreserved resources without their role.
        "resources": [{k: v for k, v in row.items() if (k, v) != ("role", "*")} for row in rows],
    }
    if offer.agent.spec.attributes:
        result["attributes"] = scheduler_events.attributes(offer.agent)
    result["allocation_info"] = {"role": offer.role}
    return result


def executor(item: Executor) -> Json:
    info: Json = without_secrets(item.info)
    info["resources"] = [_task_resource(resource, item.role) for resource in info.get("resources", ())]
    return {"executor_info": info, "agent_id": {"value": item.agent.id}}


def agents(registry: Registry) -> Json:
    return {
        "agents": [agent(item) for item in registry.registered()],
        "recovered_agents": [agent_info(item) for item in registry.agents.values() if item.recovered],
    }


def frameworks(registry: Registry) -> Json:
    ip = registry.host
    return {
        "frameworks": [framework(item, ip) for item in registry.frameworks.values()],
        "completed_frameworks": [framework(item, ip) for item in registry.removed_frameworks.values()],
    }


def executors(registry: Registry) -> Json:
    rows = [executor(item) for one in registry.frameworks.values() for item in one.executors.values()]
    return {"executors": rows}


def roles(registry: Registry) -> Json:
    members: dict[str, list[Framework]] = {}
    for item in registry.frameworks.values():
        for role in item.roles:
            members.setdefault(role, []).append(item)
    return {"roles": [_role(role, members[role]) for role in sorted(members)]}


def _role(role: str, members: list[Framework]) -> Json:
    offers = [offer for item in members for offer in item.offers.values()]
    running = [one for item in members for one in item.tasks.values() if not one.released]
    amounts = scalars(_sums((*offers, *running)).get(role, {}))
    row: Json = {"name": role, "weight": 1.0, "frameworks": [{"value": item.id} for item in members]}
    if amounts:
        row["resources"] = [
            {"name": name, "type": "SCALAR", "scalar": {"value": amounts[name] / THOUSAND}} for name in sorted(amounts)
        ]
    return row


def operations(registry: Registry) -> Json:
    rows = [
        {
            "framework_id": {"value": item.framework.id},
            "agent_id": {"value": item.agent.id},
            "info": item.info,
            "latest_status": scheduler_events.status_of_operation(item),
            "statuses": [scheduler_events.status_of_operation(item)],
            "uuid": {"value": item.uuid},
        }
        for one in registry.frameworks.values()
        for item in one.operations.values()
    ]
    return {"operations": rows} if rows else {}


def state(registry: Registry) -> Json:
    return {
        "get_tasks": tasks(registry),
        "get_executors": executors(registry),
        "get_frameworks": frameworks(registry),
        "get_agents": agents(registry),
    }
