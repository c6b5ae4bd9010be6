"""Reads docker-compose.yml as Docker Compose does, the part of its language that the file uses."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker-compose.yml"
TOP_KEYS = {"name", "services", "volumes"}
SERVICE_KEYS = {
    *("image", "build", "command", "entrypoint", "environment", "ports", "volumes", "tmpfs", "depends_on"),
    *("healthcheck", "restart", "init", "stop_grace_period", "hostname", "privileged", "cgroup", "read_only"),
    *("cap_drop", "security_opt"),
}
CHECK_KEYS = {"test", "interval", "timeout", "retries", "start_period", "start_interval"}
CHECK_DEFAULTS = {"interval": "30s", "timeout": "30s", "start_period": "0s", "start_interval": "5s"}
HEALTHY, COMPLETED = "service_healthy", "service_completed_successfully"
RESTARTS = {"no", "on-failure", "unless-stopped"}
_VARIABLE = re.compile(r"\$\$|\$\{(\w+):-([^}]*)\}")
_DURATION_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class Check:
    command: tuple[str, ...]
    interval_s: float
    timeout_s: float
    start_period_s: float
    start_interval_s: float
    retries: int


@dataclass(frozen=True)
class Service:
    name: str
    image: str
    entrypoint: tuple[str, ...] | None
    command: tuple[str, ...] | None
    environment: Mapping[str, str]
    mounts: tuple[tuple[str, str, bool], ...]
    """Volume or path of the host, path in the container, whether it is read-only."""
    tmpfs: tuple[str, ...]
    ports: tuple[str, ...]
    depends_on: Mapping[str, str]
    check: Check | None
    restart: str
    hostname: str
    is_read_only: bool
    drops_capabilities: bool
    raw: Mapping[str, Any] = field(repr=False)

    @property
    def repository(self) -> str:
        return self.image.rpartition(":")[0]

    @property
    def version(self) -> str:
        return self.image.rpartition(":")[2]

    def restarts(self, code: int) -> bool:
        """Return whether an engine starts the service again when it has ended with this code."""
        return self.restart == "unless-stopped" or (self.restart == "on-failure" and code != 0)


def document(variables: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the file with its anchors merged and its variables replaced in each text."""
    loaded: dict[str, Any] = _interpolate(yaml.safe_load(FILE.read_text(encoding="utf-8")), variables or {})
    return loaded


def read(variables: Mapping[str, str] | None = None) -> dict[str, Service]:
    """Return the services by name."""
    return {name: _service(name, raw) for name, raw in document(variables)["services"].items()}


def _interpolate(value: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _interpolate(one, variables) for key, one in value.items()}
    if isinstance(value, list):
        return [_interpolate(one, variables) for one in value]
    if not isinstance(value, str):
        return value
    if "$" in _VARIABLE.sub("", value):
        raise ValueError(f"{value!r} has a variable without a default; write ${{NAME:-default}}, or $$ for a dollar")
    return _VARIABLE.sub(lambda found: (variables.get(found[1]) or found[2]) if found[1] else "$", value)


def _service(name: str, raw: Mapping[str, Any]) -> Service:
    environment = {key: _text(value) for key, value in raw.get("environment", {}).items()}
    return Service(
        name=name,
        image=raw["image"],
        entrypoint=_words(raw.get("entrypoint")),
        command=_words(raw.get("command")),
        environment=environment,
        mounts=tuple(_mount(text) for text in raw.get("volumes", [])),
        tmpfs=tuple(raw.get("tmpfs", [])),
        ports=tuple(raw.get("ports", [])),
        depends_on={other: how["condition"] for other, how in raw.get("depends_on", {}).items()},
        check=_check(raw.get("healthcheck")),
        restart=raw.get("restart", "no"),
        hostname=raw.get("hostname", name),
        is_read_only=raw.get("read_only", False),
        drops_capabilities=raw.get("cap_drop") == ["ALL"],
        raw=raw,
    )


def _text(value: object) -> str:
    """Return a value of the environment. Compose refuses booleans, whose text in YAML is ambiguous."""
    if isinstance(value, bool) or value is None:
        raise TypeError(f"{value!r} in an environment is no text or number: quote it")
    return str(value)


def _words(value: list[str] | str | None) -> tuple[str, ...] | None:
    return None if value is None else tuple(shlex.split(value) if isinstance(value, str) else value)


def _mount(text: str) -> tuple[str, str, bool]:
    source, target, *options = text.split(":")
    return source, target, options == ["ro"]


def _check(raw: Mapping[str, Any] | None) -> Check | None:
    if raw is None:
        return None
    kind, *words = raw["test"]
    if kind not in ("CMD", "CMD-SHELL"):
        raise ValueError(f"health check {raw['test']}: begins with neither CMD nor CMD-SHELL")
    durations = {f"{key}_s": seconds(raw.get(key, default)) for key, default in CHECK_DEFAULTS.items()}
    command = ("/bin/sh", "-c", *words) if kind == "CMD-SHELL" else tuple(words)
    return Check(command=command, retries=raw.get("retries", 3), **durations)


def seconds(text: str) -> float:
    """Return the seconds of a duration, such as 1m30s."""
    found = re.findall(r"(\d+)(ms|s|m|h)", text)
    if "".join(number + unit for number, unit in found) != text:
        raise ValueError(f"{text!r} is no duration")
    return sum(int(number) * _DURATION_S[unit] for number, unit in found)
