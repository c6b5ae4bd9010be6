"""Pod groups, as other projects declare gangs: their pods are one job whatever controllers made them, and the group has
the size of the gang."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote

from services.hostmgr.kubernetes.apiserver.wire import Json

PLUGINS_LABEL = "scheduling.x-k8s.io/pod-group"
"""Label of a pod of a group of the scheduler-plugins."""
VOLCANO_ANNOTATION = "scheduling.k8s.io/group-name"
"""Annotation of a pod of a group of Volcano."""


class GroupKey(NamedTuple):
    """A pod group, and the path of fields to its size."""

    api_version: str
    namespace: str
    name: str
    size_at: tuple[str, ...]

    @property
    def path(self) -> str:
        return f"/apis/{self.api_version}/namespaces/{self.namespace}/podgroups/{quote(self.name, safe='')}"

    @property
    def title(self) -> str:
        return f"PodGroup {self.namespace}/{self.name} of {self.api_version}"


def group_of(pod: Json) -> GroupKey | None:
    """Return the group that the pod names: of Kubernetes itself, of the scheduler-plugins, or of Volcano."""
    meta = pod["metadata"]
    if name := (pod["spec"].get("schedulingGroup") or {}).get("podGroupName"):
        size_at = ("spec", "schedulingPolicy", "gang", "minCount")
        return GroupKey("scheduling.k8s.io/v1alpha2", meta["namespace"], name, size_at)
    if name := (meta.get("labels") or {}).get(PLUGINS_LABEL):
        return GroupKey("scheduling.x-k8s.io/v1alpha1", meta["namespace"], name, ("spec", "minMember"))
    if name := (meta.get("annotations") or {}).get(VOLCANO_ANNOTATION):
        return GroupKey("scheduling.volcano.sh/v1beta1", meta["namespace"], name, ("spec", "minMember"))
    return None


def size_of(group: Json, key: GroupKey) -> int:
    """Return the number of pods that start together; 1 for a group that names none."""
    found = group
    for field in key.size_at:
        found = found.get(field) or {}
    return found if isinstance(found, int) and found > 0 else 1
