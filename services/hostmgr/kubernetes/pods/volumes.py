"""Volumes of containers as those of a Kubernetes pod."""

from __future__ import annotations

from collections.abc import Sequence

from peloton.api.cluster_kinds import host_path
from peloton.api.mesos.v1 import mesos_pb2
from peloton.api.pod_parts import Part
from peloton.api.v0.task import task_pb2
from peloton.model.secret import Secret
from peloton.model.volume import VolumeSpec
from services.hostmgr.kubernetes.apiserver.wire import Json
from services.hostmgr.kubernetes.settings import own_name

_Source = mesos_pb2.Volume.Source


SECRET_KEY = "data"  # noqa: S105 - the key in a Secret of ours


def secret_name(cluster: str, secret: Secret) -> str:
    """Of the Secret that has this data for pods of this cluster."""
    return f"{own_name(cluster)}-{secret.secret_id}-{secret.revision}"


VOLUME = "peloton.io/volume"
"""Label of a pod of ours: the id of the volume that it has."""
OWN_VOLUME = "peloton-volume"
"""Name of the volume that outlives the pod, among those of the pod."""


def folder_volume(root: str, volume_id: str, is_new: bool) -> Json:
    """A folder of the node. It is only made while no pod has had it: nothing takes the place of one that is gone."""
    kind = "DirectoryOrCreate" if is_new else "Directory"
    return {"name": OWN_VOLUME, "hostPath": {"path": f"{root}/{volume_id}", "type": kind}}


def volume_id_of(pod: Json) -> str:
    """Empty: it has none."""
    return str((pod["metadata"].get("labels") or {}).get(VOLUME, ""))


def has_started(pod: Json) -> bool:
    """A container has run, so all that the pod mounts was there."""
    statuses = pod.get("status", {}).get("containerStatuses") or ()
    states = [state for one in statuses for state in (one.get("state") or {}, one.get("lastState") or {})]
    return any("running" in state or (state.get("terminated") or {}).get("startedAt") for state in states)


class PodVolumes:
    """Of the kinds that Kubernetes has, see ``mesos_only``. Containers share what is the same."""

    def __init__(self, cluster: str, secrets: Sequence[Secret], own: VolumeSpec | None = None) -> None:
        """``secrets``, and the volume that outlives the pod: all containers have them. The latter is not among
        ``all``: each pod has one of its own."""
        self._cluster, self._secrets, self._own = cluster, secrets, own
        self.all: list[Json] = []
        self._names: dict[str, str] = {}  # by what the volume is

    def mounts_of(self, part: Part) -> list[Json]:
        """Those of one container."""
        mounts: list[Json] = []
        for volume in part.container.volumes:
            key, source, place = _source(volume)
            is_read_only = volume.mode == mesos_pb2.Volume.RO
            mounts.append(_mount(self._name(key, source), volume.container_path, is_read_only) | place)
        for folder in part.emptyDirs:
            name = self._name(f"folder {folder.name}", {"emptyDir": _empty_dir(folder)})
            mounts.append(_mount(name, folder.containerPath, folder.readOnly))
        for secret in self._secrets:
            own = secret_name(self._cluster, secret)
            name = self._name(f"secret {own}", {"secret": {"secretName": own}})
            mounts.append(_mount(name, secret.path, is_read_only=True) | {"subPath": SECRET_KEY})
        if self._own is not None:
            mounts.append(_mount(OWN_VOLUME, f"/{self._own.container_path}", is_read_only=False))
        return mounts

    def _name(self, key: str, source: Json) -> str:
        if key not in self._names:
            self._names[key] = f"volume-{len(self._names)}"
            self.all.append({"name": self._names[key], **source})
        return self._names[key]


def _mount(name: str, path: str, is_read_only: bool) -> Json:
    mount: Json = {"name": name, "mountPath": path}
    return mount | {"readOnly": True} if is_read_only else mount


def _source(volume: mesos_pb2.Volume) -> tuple[str, Json, Json]:
    """Its key among the volumes of the pod, its source, and the rest of its mount."""
    if volume.source.type == _Source.SANDBOX_PATH:
        return f"folder {volume.source.sandbox_path.path}", {"emptyDir": {}}, {}
    if volume.source.type == _Source.SECRET:
        reference = volume.source.secret.reference
        place = {"subPath": reference.key} if reference.key else {}  # without a key it is a folder of all of them
        return f"secret {reference.name}", {"secret": {"secretName": reference.name}}, place
    path = host_path(volume)
    return f"host {path}", {"hostPath": {"path": path}}, {}


def _empty_dir(folder: task_pb2.EmptyDirConfig) -> Json:
    found: Json = {}
    if folder.medium:
        found["medium"] = folder.medium
    if folder.sizeMB:
        found["sizeLimit"] = f"{folder.sizeMB}Mi"
    return found
