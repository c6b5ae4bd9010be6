"""Resource amounts of pods and nodes as integers: millicores, bytes of memory, units of everything else."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeAlias

from services.lab.kubernetes.quantities import amount as parse_quantity
from services.lab.kubernetes.resources import Json

Amounts: TypeAlias = dict[str, int]

CPU, MEMORY, PODS = "cpu", "memory", "pods"
CACHED_MAX = 10_000
"""Maximum of cached quantities."""


@lru_cache(maxsize=CACHED_MAX)
def amount(name: str, text: str | int | float) -> int:
    """Parse a quantity, rounded up; an invalid one is 0."""
    try:
        value = parse_quantity(text) * (1000 if name == CPU else 1)
    except ValueError:
        return 0
    return -(-value.numerator // value.denominator)


def amounts_of(texts: Mapping[str, Any]) -> Amounts:
    return {name: amount(name, text) for name, text in texts.items()}


def requests_of(spec: Json) -> Amounts:
    """Return the requests of a pod: for each resource the sum of its containers, or an init container if larger."""
    totals: Amounts = {PODS: 1}
    for container in spec.get("containers", ()):
        for name, value in _requests(container).items():
            totals[name] = totals.get(name, 0) + value
    for container in spec.get("initContainers", ()):
        for name, value in _requests(container).items():
            totals[name] = max(totals.get(name, 0), value)
    return totals


def limit_of(container: Json, name: str) -> int:
    """Return the limit of a container; 0 without one."""
    text = container.get("resources", {}).get("limits", {}).get(name)
    return 0 if text is None else amount(name, text)


def _requests(container: Json) -> Amounts:
    resources = container.get("resources") or {}
    return amounts_of({**resources.get("limits", {}), **resources.get("requests", {})})


def host_ports(spec: Json) -> set[int]:
    """Return the host ports that the containers use."""
    ports = [port for container in spec.get("containers", ()) for port in container.get("ports", ())]
    return {port["hostPort"] for port in ports if port.get("hostPort")}
