"""Admission of a bound pod by its node, with the messages of a kubelet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from services.lab.kubernetes.nodes.amounts import Amounts
from services.lab.kubernetes.resources import Json


class Refusal(NamedTuple):
    """Reason and message of a pod that is Failed and never ran."""

    reason: str
    message: str


def refusal(pod: Json, needed: Amounts, used: Amounts, room: Amounts, labels: Mapping[str, str]) -> Refusal | None:
    """Return why the node rejects a pod. ``needed`` by the pod, ``used`` by the others on the node, ``room``: the
    capacity of the node.
    """
    for name, value in needed.items():
        if value and used.get(name, 0) + value > room.get(name, 0):
            numbers = f"requested: {value}, used: {used.get(name, 0)}, capacity: {room.get(name, 0)}"
            message = f"Pod was rejected: Node didn't have enough resource: {name}, {numbers}"
            return Refusal(f"OutOf{name}", message)
    if not _wants(pod["spec"], labels):
        why = "node(s) didn't match Pod's node affinity/selector"
        return Refusal("NodeAffinity", f"Pod was rejected: Predicate NodeAffinity failed: {why}")
    return None


def host_ports(spec: Json) -> set[int]:
    """Return the ports of the node that containers and sidecars use."""
    sidecars = [each for each in spec.get("initContainers", ()) if each.get("restartPolicy") == "Always"]
    return {
        port["hostPort"]
        for container in (*spec.get("containers", ()), *sidecars)
        for port in container.get("ports", ())
        if port.get("hostPort")
    }


def ports_taken(wanted: set[int], taken: Mapping[int, str]) -> Refusal | None:
    if wanted.isdisjoint(taken):
        return None
    why = "node(s) didn't have free ports for the requested pod ports"
    return Refusal("NodePorts", f"Pod was rejected: Predicate NodePorts failed: {why}")


def _wants(spec: Json, labels: Mapping[str, str]) -> bool:
    """Return whether the labels match the node selector and the required node affinity."""
    if any(labels.get(key) != value for key, value in spec.get("nodeSelector", {}).items()):
        return False
    affinity = spec.get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return any(_fits(term, labels) for term in required.get("nodeSelectorTerms", ()))


def _fits(term: Json, labels: Mapping[str, str]) -> bool:
    """Return whether the labels match a term. A term without expressions matches no node."""
    found = [_holds(rule, labels) for rule in term.get("matchExpressions", ())]
    fields = {"metadata.name": labels.get("kubernetes.io/hostname", "")}
    found += [_holds(rule, fields) for rule in term.get("matchFields", ())]
    return bool(found) and all(found)


def _holds(rule: Json, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(rule["key"]), rule.get("values", [])
    match rule["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return _number(value) is not None and (_number(value) or 0) > int(values[0])
        case "Lt":
            return _number(value) is not None and (_number(value) or 0) < int(values[0])
    return False


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.lstrip("-").isdigit() else None
