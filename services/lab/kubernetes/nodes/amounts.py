"""Resource amounts of pods and nodes as integers: millicores, bytes of memory, units of everything else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
    """Return the requests of a pod: the larger of containers with sidecars, and any init container with the sidecars
    before it. Requests of the pod as a whole replace this sum; overhead is added.
    """
    first: Amounts = {}
    sidecars: Amounts = {}
    for container in spec.get("initContainers", ()):
        own = _requests(container)
        _add(own, sidecars.items())
        first = {name: max(first.get(name, 0), own.get(name, 0)) for name in (*first, *own)}
        sidecars = own if container.get("restartPolicy") == "Always" else sidecars
    needed: Amounts = {PODS: 1, **sidecars}
    for container in spec.get("containers", ()):
        _add(needed, _requests(container).items())
    needed = {name: max(needed.get(name, 0), first.get(name, 0)) for name in (*needed, *first)}
    whole = spec.get("resources") or {}
    needed = {**amounts_of(whole.get("limits", {})), **needed, **amounts_of(whole.get("requests", {}))}
    _add(needed, amounts_of(spec.get("overhead", {})).items())
    return needed


def limit_of(container: Json, name: str) -> int:
    """Return the limit of a container; 0 without one."""
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
