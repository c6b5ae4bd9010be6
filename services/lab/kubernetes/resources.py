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
SERVICES = Resource("services", "Service", short_names=("svc",))
EVENTS = Resource("events", "Event", short_names=("ev",))
QUOTAS = Resource("resourcequotas", "ResourceQuota", short_names=("quota",))
LEASES = Resource("leases", "Lease", "coordination.k8s.io")
PRIORITY_CLASSES = Resource(
    "priorityclasses", "PriorityClass", "scheduling.k8s.io", namespaced=False, short_names=("pc",), has_generation=True
)
BUDGETS = Resource("poddisruptionbudgets", "PodDisruptionBudget", "policy", short_names=("pdb",), has_generation=True)
DEPLOYMENTS = Resource(
    "deployments", "Deployment", "apps", short_names=("deploy",), subresources=("status", "scale"), has_generation=True
)
JOBS = Resource("jobs", "Job", "batch", subresources=("status",), has_generation=True)
RESOURCES: tuple[Resource, ...] = (
    NAMESPACES, NODES, PODS, CONFIG_MAPS, SECRETS, SERVICE_ACCOUNTS, SERVICES, EVENTS, QUOTAS, LEASES, PRIORITY_CLASSES,
    BUDGETS, DEPLOYMENTS, JOBS,
)  # fmt: skip
BY_PLURAL: Mapping[str, Resource] = MappingProxyType({resource.plural: resource for resource in RESOURCES})

NODE_LEASES = "kube-node-lease"
"""The namespace of the leases that nodes renew."""

SERVED: Mapping[tuple[str, str], Resource] = MappingProxyType(
    {(resource.group, resource.plural): resource for resource in RESOURCES}
)
"""Resources by group and plural, as paths name them."""
