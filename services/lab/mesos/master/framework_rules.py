"""Validation of a FrameworkInfo, with the master's texts."""

from __future__ import annotations

from collections.abc import Iterable

from services.lab.mesos.identifiers import id_fault
from services.lab.mesos.resources import Json
from services.lab.shared.role_names import role_fault

# Mesos durations are 64-bit nanoseconds.
_DURATION_MAX_S = 9223372036.854775807


def info_fault(info: Json) -> str | None:
    capabilities = {item.get("type") for item in info.get("capabilities", ())}
    roles = info.get("roles", ())
    if "MULTI_ROLE" in capabilities:
        if "role" in info:
            return "'FrameworkInfo.role' must not be set when the framework is MULTI_ROLE capable"
        seen: set[str] = set()
        twice = [role for role in roles if role in seen or seen.add(role)]  # type: ignore[func-returns-value]
        if twice:
            return f"'FrameworkInfo.roles' contains duplicate items: {{ {', '.join(sorted(set(twice)))} }}"
        for role in roles:
            fault = role_fault(role)
            if fault is not None:
                return f"'FrameworkInfo.roles' contains invalid role: {fault}"
    else:
        if roles:
            return "'FrameworkInfo.roles' must not be set when the framework is not MULTI_ROLE capable"
        if "role" in info:
            fault = role_fault(info["role"])
            if fault is not None:
                return f"'FrameworkInfo.role' is not a valid role: {fault}"
    id_ = info.get("id", {}).get("value", "")
    if id_:
        fault = id_fault(id_)
        if fault is not None:
            return fault
    timeout = info.get("failover_timeout", 0.0)
    if abs(timeout) > _DURATION_MAX_S:
        return f"The framework failover_timeout ({timeout:g}) is invalid"
    return None


def check_suppressed(info: Json, suppressed: Iterable[str]) -> str | None:
    roles = set(info.get("roles", ())) if "roles" in info else {info.get("role", "*")}
    for role in suppressed:
        if role not in roles:
            return f"Suppressed role '{role}' is not contained in the list of roles"
    return None
