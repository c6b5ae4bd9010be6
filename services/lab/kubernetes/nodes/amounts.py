"""Resource amounts of pods and nodes as integers: millicores, bytes of memory, units of everything else."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeAlias

from services.lab.kubernetes.quantities import amount as exactly
from services.lab.kubernetes.resources import Json

Amounts: TypeAlias = dict[str, int]

CPU, MEMORY, PODS = "cpu", "memory", "pods"
KNOWN_MAX = 10_000
"""Cached texts and their amounts."""


@lru_cache(maxsize=KNOWN_MAX)
def amount(name: str, text: str | int | float) -> int:
    """Return the amount, rounded up; 0 for an invalid text."""
    try:
        value = exactly(text) * (1000 if name == CPU else 1)
    except ValueError:
        return 0
    return -(-value.numerator // value.denominator)


def amounts_of(texts: Mapping[str, Any]) -> Amounts:
    return {name: amount(name, text) for name, text in texts.items()}


def requests_of(spec: Json) -> Amounts:
    """Return the requests of a pod: the sum of its containers, or an init container that requests more."""
    needed: Amounts = {PODS: 1}
    for container in spec.get("containers", ()):
        for name, value in _requests(container).items():
            needed[name] = needed.get(name, 0) + value
    for container in spec.get("initContainers", ()):
        for name, value in _requests(container).items():
            needed[name] = max(needed.get(name, 0), value)
    return needed


def limit_of(container: Json, name: str) -> int:
    """Return the limit of a container; 0 without one."""
    text = container.get("resources", {}).get("limits", {}).get(name)
    return 0 if text is None else amount(name, text)


def _requests(container: Json) -> Amounts:
    resources = container.get("resources") or {}
    return amounts_of({**resources.get("limits", {}), **resources.get("requests", {})})


def host_ports(spec: Json) -> set[int]:
    """Return the ports of the node that containers use."""
    ports = [port for container in spec.get("containers", ()) for port in container.get("ports", ())]
    return {port["hostPort"] for port in ports if port.get("hostPort")}
