"""Volumes of a pod: folders of the pod and its node, linked into the folders of its containers. Absolute paths are
unchanged: no container has a file system of its own.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from services.lab.kubernetes.nodes.environment import Missing, data_of
from services.lab.kubernetes.resources import Json
from services.lab.kubernetes.store import Store

_FOLDERS = ("DirectoryOrCreate", "Directory")


class NotMounted(Exception):
    """Raised for a missing folder of the node that a pod mounts: a kubelet waits for it, and reports an event."""

    def __init__(self, volume: str, why: str) -> None:
        super().__init__(why)
        self.volume = volume


def fill_volumes(pod: Json, folder: Path, store: Store, node_root: Path) -> None:
    """Create the volumes of a pod. Missing secrets and config maps leave an empty folder. ``node_root``: parent of the
    node's folders with a type; folders without one are empty. Raises NotMounted.
    """
    namespace, spec = pod["metadata"]["namespace"], pod["spec"]
    for volume in spec.get("volumes", ()):
        path = folder / "volumes" / volume["name"]
        if (kind := (volume.get("hostPath") or {}).get("type")) in _FOLDERS:
            _link(path, node_root / volume["hostPath"]["path"].lstrip("/"), is_made=kind == _FOLDERS[0])
            continue
        path.mkdir(parents=True, exist_ok=True)
        for kind, resource, key in (("secret", "secrets", "secretName"), ("configMap", "configmaps", "name")):
            if (source := volume.get(kind)) is not None:
                _fill(path, source, store, resource, namespace, source.get(key, ""))
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        root = folder / "containers" / container["name"]
        for mount in container.get("volumeMounts", ()):
            target = root / mount["mountPath"].lstrip("/")
            source_path = folder / "volumes" / mount["name"] / mount.get("subPath", "")
            if target.resolve().is_relative_to(root.resolve()) and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(source_path, target_is_directory=True)


def _link(path: Path, target: Path, is_made: bool) -> None:
    if is_made:
        target.mkdir(parents=True, exist_ok=True)
    if not target.is_dir():
        raise NotMounted(path.name, f"hostPath type check failed: {target} is not a directory")
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_symlink():
        path.symlink_to(target, target_is_directory=True)


def _fill(path: Path, source: Json, store: Store, resource: str, namespace: str, name: str) -> None:
    with contextlib.suppress(Missing):
        found = data_of(store, resource, namespace, {"name": name})
        wanted = source.get("items") or [{"key": key, "path": key} for key in found]
        for item in wanted:
            target = path / item["path"]
            if item["key"] in found and target.resolve().is_relative_to(path.resolve()):
                target.parent.mkdir(parents=True, exist_ok=True)
                target.touch(mode=0o600)
                target.write_bytes(found[item["key"]])
