"""Kinds of objects that the emulated apiserver serves, with their paths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Resource:
    """Kind of objects. ``plural`` is its name in paths and in the store, where it is unique."""

    plural: str
    kind: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    has_generation: bool = False
    creates_on_update: bool = False
    """True when a PUT of a missing name creates the object."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def head(self) -> Json:
        """Return the first fields of every stored object."""
        return {"kind": self.kind, "apiVersion": self.api_version}

    @property
    def qualified(self) -> str:
        """Return the name in messages: ``leases.coordination.k8s.io``, ``pods``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def singular(self) -> str:
        return self.kind.lower()


PODS = Resource(
    "pods", "Pod", short_names=("po",), has_generation=True,
    subresources=("status", "binding", "eviction", "log", "exec"),
)  # fmt: skip
NODES = Resource("nodes", "Node", namespaced=False, short_names=("no",), subresources=("status",))
NAMESPACES = Resource("namespaces", "Namespace", namespaced=False, short_names=("ns",), subresources=("status",))
CONFIG_MAPS = Resource("configmaps", "ConfigMap", short_names=("cm",))
SECRETS = Resource("secrets", "Secret")
SERVICE_ACCOUNTS = Resource("serviceaccounts", "ServiceAccount", short_names=("sa",))
EVENTS = Resource("events", "Event", short_names=("ev",))
QUOTAS = Resource("resourcequotas", "ResourceQuota", short_names=("quota",), subresources=("status",))
LEASES = Resource("leases", "Lease", "coordination.k8s.io", creates_on_update=True)
PRIORITY_CLASSES = Resource(
    "priorityclasses", "PriorityClass", "scheduling.k8s.io", namespaced=False, short_names=("pc",), has_generation=True
)
BUDGETS = Resource(
    "poddisruptionbudgets", "PodDisruptionBudget", "policy", short_names=("pdb",), subresources=("status",),
    has_generation=True,
)  # fmt: skip
_RBAC = "rbac.authorization.k8s.io"
RESOURCES: tuple[Resource, ...] = (
    NAMESPACES, NODES, PODS, CONFIG_MAPS, SECRETS, SERVICE_ACCOUNTS, EVENTS, QUOTAS, LEASES, PRIORITY_CLASSES, BUDGETS,
    Resource("clusterroles", "ClusterRole", _RBAC, namespaced=False),
    Resource("clusterrolebindings", "ClusterRoleBinding", _RBAC, namespaced=False),
    Resource("roles", "Role", _RBAC),
    Resource("rolebindings", "RoleBinding", _RBAC),
)  # fmt: skip
BY_PLURAL: Mapping[str, Resource] = MappingProxyType({resource.plural: resource for resource in RESOURCES})

EVENTS_V1 = Resource("events", "Event", "events.k8s.io", short_names=("ev",))
"""Resource of the same objects as the core events, with other field names."""

NODE_LEASES = "kube-node-lease"
"""The namespace of the leases that nodes renew."""

SERVED: Mapping[tuple[str, str], Resource] = MappingProxyType(
    {(resource.group, resource.plural): resource for resource in (*RESOURCES, EVENTS_V1)}
)
"""Resources by group and plural, as paths name them."""
