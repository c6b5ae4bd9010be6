"""Resource quotas: the usage of a namespace's pods, and the check of a new one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from fractions import Fraction

from services.lab.kubernetes.errors import forbidden
from services.lab.kubernetes.pods import all_containers, is_over
from services.lab.kubernetes.quantities import amount, text_of
from services.lab.kubernetes.registry import Registry
from services.lab.kubernetes.resources import PODS, QUOTAS, Json
from services.lab.kubernetes.store import DELETED, Event

Usage = dict[str, Fraction]
_SHORT = {"cpu": "requests.cpu", "memory": "requests.memory", "ephemeral-storage": "requests.ephemeral-storage"}
_COUNTS = ("pods", "count/pods")


def usage_of(pod: Json) -> Usage:
    """Return the usage by the names of quotas: pods, requests.cpu, limits.memory, ..."""
    found: Usage = dict.fromkeys(_COUNTS, Fraction(1))
    spec = pod["spec"]
    for field in ("requests", "limits"):
        total: Usage = {}
        for container in spec.get("containers") or ():
            for kind, value in _amounts(container, field).items():
                total[kind] = total.get(kind, Fraction(0)) + value
        for container in spec.get("initContainers") or ():
            for kind, value in _amounts(container, field).items():
                total[kind] = max(total.get(kind, Fraction(0)), value)
        for kind, value in total.items():
            found[f"{field}.{kind}"] = value
    return found


def _amounts(container: Json, field: str) -> Usage:
    texts = (container.get("resources") or {}).get(field) or {}
    return {kind: amount(text) for kind, text in texts.items()}


class Quotas:
    """Controller of quotas. It counts by the events of pods, so that a create does not read the others."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store
        self._quotas: dict[str, dict[str, Json]] = {}  # namespace -> name -> body
        self._used: dict[tuple[str, str], Usage] = {}
        self._stale: set[tuple[str, str]] = set()
        self._soon: Callable[[Callable[[], None]], object] = lambda call: call()
        registry.check_quota = self.check
        self._store.watch("pods", self._pod_changed)
        self._store.watch(QUOTAS.plural, self._quota_changed)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._soon = loop.call_soon
        for body in self._store.values(QUOTAS.plural):
            self._count(body)

    def check(self, namespace: str, pod: Json) -> None:
        """Raises ApiError 403 for a pod that exceeds a quota."""
        for name, quota in sorted(self._quotas.get(namespace, {}).items()):
            if not _covers(quota, pod):
                continue
            hard = _hard(quota)
            missing = _missing(hard, pod)
            if missing:
                raise forbidden(PODS, pod["metadata"]["name"], f"failed quota: {name}: must specify {missing}")
            asked, used = usage_of(pod), self._used[namespace, name]
            over = sorted(
                kind
                for kind, limit in hard.items()
                if asked.get(_SHORT.get(kind, kind), 0) and used[kind] + asked[_SHORT.get(kind, kind)] > limit
            )
            if over:
                shown = (
                    f"requested: {_text(over, {kind: asked[_SHORT.get(kind, kind)] for kind in over})}, "
                    f"used: {_text(over, used)}, limited: {_text(over, hard)}"
                )
                raise forbidden(PODS, pod["metadata"]["name"], f"exceeded quota: {name}, {shown}")

    def _quota_changed(self, event: Event) -> None:
        metadata = event.body["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        if event.kind == DELETED:
            self._quotas.get(namespace, {}).pop(name, None)
            self._used.pop((namespace, name), None)
            return
        before = self._quotas.get(namespace, {}).get(name)
        if before is None or before["spec"] != event.body["spec"]:
            self._count(event.body)
        else:
            self._quotas[namespace][name] = event.body

    def _count(self, quota: Json) -> None:
        namespace, name = quota["metadata"]["namespace"], quota["metadata"]["name"]
        used = dict.fromkeys(_hard(quota), Fraction(0))
        for entry in self._store.entries("pods", namespace):
            _add(used, entry.body, quota, 1)
        self._quotas.setdefault(namespace, {})[name] = quota
        self._used[namespace, name] = used
        self._mark(namespace, name)

    def _pod_changed(self, event: Event) -> None:
        namespace = event.body["metadata"]["namespace"]
        for name, quota in self._quotas.get(namespace, {}).items():
            used = self._used[namespace, name]
            before = dict(used)
            if event.previous is not None:
                _add(used, event.previous, quota, -1)
            if event.kind != DELETED:
                _add(used, event.body, quota, 1)
            if used != before:
                self._mark(namespace, name)

    def _mark(self, namespace: str, name: str) -> None:
        if not self._stale:
            self._soon(self._write_statuses)
        self._stale.add((namespace, name))

    def _write_statuses(self) -> None:
        stale, self._stale = self._stale, set()
        for namespace, name in stale:
            quota = self._quotas.get(namespace, {}).get(name)
            if quota is None:
                continue
            hard, used = _hard(quota), self._used[namespace, name]
            status = {
                "hard": quota["spec"].get("hard") or {},
                "used": {kind: text_of(used[kind], _is_binary(kind)) for kind in hard},
            }
            self._registry.set_status(QUOTAS, namespace, name, status)


def _hard(quota: Json) -> Usage:
    return {kind: amount(text) for kind, text in (quota["spec"].get("hard") or {}).items()}


def _add(used: Usage, pod: Json, quota: Json, sign: int) -> None:
    if is_over(pod) or not _covers(quota, pod):
        return
    found = usage_of(pod)
    for kind in used:
        used[kind] += sign * found.get(_SHORT.get(kind, kind), 0)


def _missing(hard: Usage, pod: Json) -> str:
    """Return the faults of containers without a value for a resource that the quota limits."""
    faults = []
    for kind in sorted(hard):
        field, dot, resource = _SHORT.get(kind, kind).partition(".")
        if not dot or resource not in ("cpu", "memory"):
            continue
        silent = [one["name"] for one in all_containers(pod["spec"]) if resource not in _amounts(one, field)]
        if silent:
            faults.append(f"{kind} for: {','.join(sorted(silent))}")
    return "; ".join(faults)


def _covers(quota: Json, pod: Json) -> bool:
    """Return whether the quota's scopes include the pod."""
    spec = quota["spec"]
    rules = [{"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ()]
    rules += (spec.get("scopeSelector") or {}).get("matchExpressions") or []
    return all(_is_in_scope(rule, pod) for rule in rules)


def _is_in_scope(rule: Json, pod: Json) -> bool:
    is_best_effort: bool = pod["status"].get("qosClass") == "BestEffort"
    is_terminating: bool = pod["spec"].get("activeDeadlineSeconds") is not None
    match rule["scopeName"]:
        case "BestEffort":
            return is_best_effort
        case "NotBestEffort":
            return not is_best_effort
        case "Terminating":
            return is_terminating
        case "NotTerminating":
            return not is_terminating
    name, values = pod["spec"].get("priorityClassName") or "", rule.get("values") or ()
    match rule["operator"]:
        case "In":
            return name in values
        case "NotIn":
            return name not in values
        case "Exists":
            return bool(name)
    return not name


def _is_binary(kind: str) -> bool:
    return kind.endswith(("memory", "storage"))


def _text(kinds: Iterable[str], amounts: Usage) -> str:
    return ",".join(f"{kind}={text_of(amounts[kind], _is_binary(kind))}" for kind in kinds)
