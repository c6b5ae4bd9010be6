"""Validation of tasks: the master's checks in the master's order with the master's texts."""

from __future__ import annotations

from collections.abc import Iterable

from services.lab.mesos.identifiers import id_fault
from services.lab.mesos.model import Agent, Framework
from services.lab.mesos.resources import (
    Json,
    Kind,
    Resources,
    Value,
    add_to,
    amount,
    contains,
    label,
    parse_one,
    text,
)

_EMULATED_CHECKS = ("COMMAND", "HTTP")


def resource_fault(resources: Iterable[Json]) -> str | None:
    """Return the fault of the first malformed resource; exactly 0 is accepted, a value that rounds to 0 is not."""
    for resource in resources:
        if resource["type"] != "SCALAR":
            continue
        raw = resource.get("scalar", {}).get("value", 0)
        if raw != 0:
            kind, value, _ = parse_one(resource)
            if value <= 0:  # type: ignore[operator]
                return f"Resource '{label(kind)}:{amount(value)}' is invalid: Invalid scalar resource: value <= 0"
    return None


class Wanted:
    """Requested resources of a task (and its executor)."""

    __slots__ = ("foreign", "resources", "rows")

    def __init__(self, role: str) -> None:
        self.resources: Resources = {}
        self.rows: list[tuple[Kind, Value, str]] = []
        # True when a resource names another allocation role than the offer's.
        self.foreign = False

    def add(self, resources: Iterable[Json], role: str) -> Wanted:
        for resource in resources:
            kind, value, allocated = parse_one(resource)
            if not value:
                continue
            self.rows.append((kind, value, allocated or role))
            self.foreign = self.foreign or (allocated is not None and allocated != role)
            add_to(self.resources, {kind: value})
        return self

    def fits(self, available: Resources) -> bool:
        return not self.foreign and contains(available, self.resources)

    def text(self) -> str:
        merged: dict[tuple[Kind, str], Value] = {}
        for kind, value, role in self.rows:
            before = merged.get((kind, role))
            merged[(kind, role)] = value if before is None else before + value  # type: ignore[operator]
        return "; ".join(f"{label(kind, role)}:{amount(value)}" for (kind, role), value in merged.items())


def task_fault(framework: Framework, agent: Agent, info: Json) -> str | None:
    """Check a task, except against the available resources."""
    id_ = info["task_id"]["value"]
    fault = id_fault(id_)
    if fault is not None:
        return fault
    if id_ in framework.tasks:
        return f"Task has duplicate ID: {id_}"
    if id_ in framework.unreachable:
        return f"Task reuses the ID of an unreachable task: {id_}"
    if info["agent_id"]["value"] != agent.id:
        return f"Task uses invalid agent {info['agent_id']['value']} while agent {agent.id} is expected"
    if info.get("kill_policy", {}).get("grace_period", {}).get("nanoseconds", 0) < 0:
        return "Task's 'kill_policy.grace_period' must be non-negative"
    if "health_check" in info and (fault := _check_fault(info["health_check"])) is not None:
        return f"Task uses invalid health check: {fault}"
    for field in ("check", "max_completion_time"):
        if field in info:
            return f"Task has '{field}', which is not emulated"
    resources = info.get("resources")
    if not resources:
        return "Task uses no resources"
    for resource in resources:
        if resource["name"] == "gpus" and resource["type"] == "SCALAR":
            value = resource.get("scalar", {}).get("value", 0)
            if value != int(value):
                return (
                    "Task uses invalid resources: Invalid 'gpus' resource: "
                    "The 'gpus' resource must be an unsigned integer"
                )
    return None


def command_fault(info: Json) -> str | None:
    if ("command" in info) == ("executor" in info):
        return "Task should have at least one (but not both) of CommandInfo or ExecutorInfo present"
    return None


def _check_fault(check: Json) -> str | None:
    """Check a health check; the last text is minicluster's own."""
    type_ = check.get("type")
    if type_ is None or type_ == "UNKNOWN":
        return "HealthCheck must specify 'type'" if type_ is None else "'UNKNOWN' is not a valid health check type"
    field = type_.lower()
    if field not in check:
        return f"Expecting '{field}' to be set for {type_} health check"
    if type_ == "HTTP":
        path, scheme = check["http"].get("path", "/"), check["http"].get("scheme", "http")
        if not path.startswith("/"):
            return f"The path '{path}' of HTTP health check must start with '/'"
        if scheme not in ("http", "https"):
            return f"Unsupported HTTP health check scheme: '{scheme}'"
    for name in ("delay_seconds", "grace_period_seconds", "interval_seconds", "timeout_seconds"):
        if check.get(name, 0) < 0:
            return f"Expecting '{name}' to be non-negative"
    return None if type_ in _EMULATED_CHECKS else f"{type_} health checks are not emulated"


def too_much(wanted: Wanted, available: Resources, role: str) -> str:
    return (
        f"Total resources {wanted.text()} required by task and its executor is more than available "
        f"{text(available, role)}"
    )


def custom_executor_fault(info: Json) -> str:
    """Return the fault of a custom executor, with a text of minicluster: Mesos has no such rule."""
    id_ = info["executor_id"]["value"]
    return f"Executor '{id_}' is a custom one: agents of a minicluster have no executor API that it could register with"
