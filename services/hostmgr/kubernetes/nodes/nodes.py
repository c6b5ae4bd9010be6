"""A node of Kubernetes in the form that the ledger uses."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from peloton.errors import InvalidArgument
from peloton.lifecycle.constraints import EXCLUSIVE_LABEL, HOSTNAME_LABEL, HostLabels
from peloton.model.ids import Hostname
from peloton.model.resources import Resources
from services.hostmgr.driver import Ports
from services.hostmgr.kubernetes.apiserver.wire import Json
from services.hostmgr.kubernetes.nodes.node_volumes import NodeVolume, volumes_of
from services.hostmgr.kubernetes.pods.quantities import amount, mib, milli
from services.hostmgr.kubernetes.pods.statuses import GPU, read_extended
from services.hostmgr.kubernetes.settings import KubernetesSettings, read_ports

MAINTENANCE = "peloton.io/maintenance"
"""Annotation of a node that Peloton takes out of service: DRAINING or DOWN."""
CORDONED = "peloton.io/cordoned"
"""Annotation of a node that Peloton has cordoned, and may uncordon."""
DRAINING, DOWN = "draining", "down"

PORTS = "peloton.io/ports"
"""Annotation of a node whose ports for pods differ from ``PELOTON_KUBERNETES_PORTS``: FIRST-LAST,FIRST-LAST."""
_KEEPS_AWAY = ("NoSchedule", "NoExecute")
_SOFT = "PreferNoSchedule"
_NODE_STATE = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "node.kubernetes.io/unschedulable")
"""Taints that repeat the condition Ready and the cordon, which are read directly."""
TAINTS_LABEL = "peloton.io/taints"
"""Label of a host whose node keeps pods away that do not tolerate its taints: the taints as text."""
SOFT_TAINTS_LABEL = "peloton.io/soft-taints"
"""Label of a host whose node has taints that pods avoid, though they may go there: the taints as text."""


class Taint(NamedTuple):
    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        return f"{self.key}{'=' if self.value else ''}{self.value}:{self.effect}"


Taints = tuple[Taint, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """A node; equal while nothing relevant changes: heartbeats change nothing."""

    name: Hostname
    uid: str
    ip: str
    capacity: Resources  # allocatable
    pods_max: int
    labels: HostLabels  # including the system's; each key occurs once
    is_ready: bool = True
    maintenance: str = ""  # Peloton's: DRAINING, DOWN
    is_cordoned: bool = False
    ports: Ports = ()
    withdrawn: str = ""  # why it is unschedulable by an act of others; empty: it is schedulable
    volumes: dict[str, NodeVolume] = field(default_factory=dict)  # by id
    taints: Taints = ()  # that keep pods away, in order
    soft_taints: Taints = ()


def node_of(node: Json, settings: KubernetesSettings) -> Node | None:
    """Return None for a node that is not selected. Raises ValueError for malformed amounts."""
    meta, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    labels: HostLabels = meta.get("labels") or {}
    if any(labels.get(key) != value for key, value in settings.node_selector):
        return None
    name = Hostname(meta["name"])
    allocatable = status.get("allocatable") or {}
    annotations = meta.get("annotations") or {}
    maintenance = annotations.get(MAINTENANCE, "")
    taints, soft_taints = _taints(spec, _KEEPS_AWAY), _taints(spec, (_SOFT,))
    return Node(
        name,
        meta["uid"],
        _address(status),
        capacity_of(allocatable),
        pods_max=int(amount(allocatable.get("pods", "0"))),
        labels=labels | {HOSTNAME_LABEL: name} | _taint_labels(taints, soft_taints, settings),
        is_ready=_is_ready(status),
        maintenance=maintenance if maintenance in (DRAINING, DOWN) else "",
        is_cordoned=bool(spec.get("unschedulable")),
        ports=_ports(annotations, settings),
        withdrawn=_withdrawn(spec, taints, settings, is_cordoned_by_us=CORDONED in annotations),
        volumes=volumes_of(annotations),
        taints=taints,
        soft_taints=soft_taints,
    )


def capacity_of(amounts: Json) -> Resources:
    """Return amounts rounded down: a pod that fits in them fits in the node."""

    def of(name: str) -> Any:
        return amount(amounts.get(name, "0"))

    return Resources(
        milli(of("cpu"), up=False),
        mib(of("memory"), up=False),
        mib(of("ephemeral-storage"), up=False),
        milli(of(GPU), up=False),
        read_extended(amounts),
    )


def _address(status: Json) -> str:
    addresses = {entry.get("type"): entry.get("address", "") for entry in status.get("addresses") or ()}
    return addresses.get("InternalIP") or addresses.get("ExternalIP") or ""


def _ports(annotations: Json, settings: KubernetesSettings) -> Ports:
    if not (text := annotations.get(PORTS)):
        return settings.ports
    try:
        return tuple(sorted(ports for part in text.split(",") for ports in read_ports(part.strip())))
    except InvalidArgument as error:
        raise ValueError(f"annotation {PORTS}={text!r}: {error}") from None


def _is_ready(status: Json) -> bool:
    conditions = status.get("conditions") or ()
    return any(entry.get("type") == "Ready" and entry.get("status") == "True" for entry in conditions)


def _taints(spec: Json, effects: Collection[str]) -> Taints:
    taints = spec.get("taints") or ()
    found = (Taint(one.get("key", ""), one.get("value") or "", one.get("effect", "")) for one in taints)
    return tuple(sorted(one for one in found if one.effect in effects and one.key not in _NODE_STATE))


def is_soft(taints: Taints) -> bool:
    """Return whether these taints of a node are those that pods avoid, though they may go there."""
    return all(one.effect == _SOFT for one in taints)


def taints_text(taints: Taints) -> str:
    return ",".join(map(str, taints))


def _taint_labels(taints: Taints, soft_taints: Taints, settings: KubernetesSettings) -> HostLabels:
    """Return the labels by which the fit test of gated pods, and preferences, know the taints; the exclusive one keeps
    all other pods away, except from nodes that are dedicated to Peloton."""
    labels: HostLabels = {TAINTS_LABEL: taints_text(taints)} if taints else {}
    if soft_taints:
        labels[SOFT_TAINTS_LABEL] = taints_text(soft_taints)
    if any(one.key in settings.taints_used for one in taints):
        labels[EXCLUSIVE_LABEL] = labels[TAINTS_LABEL]
    return labels


def tolerates(tolerations: Collection[Json], taints: Taints) -> bool:
    """Return whether a pod with these tolerations may be on a node with the taints. A toleration with an unknown
    operator counts: the scheduler decides."""
    return all(any(_tolerates_one(one, taint) for one in tolerations) for taint in taints)


def _tolerates_one(toleration: Json, taint: Taint) -> bool:
    if toleration.get("effect") not in (None, "", taint.effect) or toleration.get("key") not in (None, "", taint.key):
        return False
    return toleration.get("operator") not in (None, "Equal") or (toleration.get("value") or "") == taint.value


def _withdrawn(spec: Json, taints: Taints, settings: KubernetesSettings, is_cordoned_by_us: bool) -> str:
    if spec.get("unschedulable") and not is_cordoned_by_us:
        return "an operator of the cluster has cordoned it"
    for taint in taints:
        if taint.key != settings.taint and taint.key not in settings.taints_used:
            return f"it has the taint {taint}"
    return ""
