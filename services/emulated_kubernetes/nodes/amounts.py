"""What pods ask for and nodes have: whole thousandths of cpus, bytes of memory, pieces of everything else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

from services.emulated_kubernetes.quantities import amount as exactly
from services.emulated_kubernetes.resources import Json

Amounts: TypeAlias = dict[str, int]

CPU, MEMORY, PODS = "cpu", "memory", "pods"
KNOWN_MAX = 10_000
"""Different texts whose amounts are cached."""


@lru_cache(maxsize=KNOWN_MAX)
def amount(name: str, text: str | int | float) -> int:
    """Rounded up; 0 for a text that is no amount."""
    try:
        value = exactly(text) * (1000 if name == CPU else 1)
    except ValueError:
        return 0
    return -(-value.numerator // value.denominator)


def amounts_of(texts: Mapping[str, Any]) -> Amounts:
    return {name: amount(name, text) for name, text in texts.items()}


def requests_of(spec: Json) -> Amounts:
    """Of a pod: its containers together, or its greediest init container if that is more; and its overhead."""
    needed: Amounts = {PODS: 1}
    for container in spec.get("containers", ()):
        _add(needed, _requests(container).items())
    for container in spec.get("initContainers", ()):
        for name, value in _requests(container).items():
            needed[name] = max(needed.get(name, 0), value)
    if overhead := spec.get("overhead"):
        _add(needed, amounts_of(overhead).items())
    return needed


def limit_of(container: Json, name: str) -> int:
    """0 when there is none."""
    text = container.get("resources", {}).get("limits", {}).get(name)
    return 0 if text is None else amount(name, text)


def _requests(container: Json) -> Amounts:
    resources = container.get("resources")
    if not resources:
        return {}
    return amounts_of({**resources.get("limits", {}), **resources.get("requests", {})})


def _add(total: Amounts, more: Iterable[tuple[str, int]]) -> None:
    for name, value in more:
        total[name] = total.get(name, 0) + value
