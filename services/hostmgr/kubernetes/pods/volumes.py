"""Volumes of containers as volumes of a Kubernetes pod."""

from __future__ import annotations

from collections.abc import Sequence

from peloton.api.cluster_kinds import host_path
from peloton.api.mesos.v1 import mesos_pb2
from peloton.api.pod_parts import Part
from peloton.api.secret_values import secrets_by_key
from peloton.api.v0.task import task_pb2
from peloton.model.secret import IMAGE, VARIABLE, Secret
from peloton.model.volume import VolumeSpec
from services.hostmgr.kubernetes.apiserver.wire import Json
from services.hostmgr.kubernetes.settings import own_name

_Source = mesos_pb2.Volume.Source


SECRET_KEY = "data"  # noqa: S105 - the key in a Secret of Peloton


def secret_name(cluster: str, secret: Secret) -> str:
    """Return the name of the Secret with this data for pods of this cluster."""
    return f"{own_name(cluster)}-{secret.secret_id}-{secret.revision}"


VOLUME = "peloton.io/volume"
"""Label of a pod of Peloton: the id of its volume."""
OWN_VOLUME = "peloton-volume"
"""Name, within the pod, of the volume that outlives the pod."""


def folder_volume(root: str, volume_id: str, is_new: bool) -> Json:
    """Return a folder of the node. It is created only while no pod has used it, so that a missing folder is not
    replaced."""
    kind = "DirectoryOrCreate" if is_new else "Directory"
    return {"name": OWN_VOLUME, "hostPath": {"path": f"{root}/{volume_id}", "type": kind}}


def volume_id_of(pod: Json) -> str:
    """Return the id of the pod's volume; empty if it has none."""
    return str((pod["metadata"].get("labels") or {}).get(VOLUME, ""))


def has_started(pod: Json) -> bool:
    """Return whether a container has run, so that all mounts of the pod existed."""
    statuses = pod.get("status", {}).get("containerStatuses") or ()
    states = [state for one in statuses for state in (one.get("state") or {}, one.get("lastState") or {})]
    return any("running" in state or (state.get("terminated") or {}).get("startedAt") for state in states)


class PodVolumes:
    """Volumes of the kinds that Kubernetes supports, see ``mesos_only``. Containers share equal volumes."""

    def __init__(self, cluster: str, secrets: Sequence[Secret], own: VolumeSpec | None = None) -> None:
        """``secrets`` and ``own``, the volume that outlives the pod, are mounted in all containers. ``own`` is not in
        ``all``, as each pod has another one."""
        self._cluster, self._secrets, self._own = cluster, secrets, own
        self.all: list[Json] = []
        self._names: dict[str, str] = {}  # by the kind and source of the volume

    def mounts_of(self, part: Part) -> list[Json]:
        """Return the mounts of one container."""
        mounts: list[Json] = []
        for volume in part.container.volumes:
            key, source, place = _source(volume)
            is_read_only = volume.mode == mesos_pb2.Volume.RO
            mounts.append(_mount(self._name(key, source), volume.container_path, is_read_only) | place)
        for folder in part.emptyDirs:
            name = self._name(f"folder {folder.name}", {"emptyDir": _empty_dir(folder)})
            mounts.append(_mount(name, folder.containerPath, folder.readOnly))
        for secret in self._secrets:
            if not secret.is_file:
                continue
            own = secret_name(self._cluster, secret)
            name = self._name(f"secret {own}", {"secret": {"secretName": own}})
            mounts.append(_mount(name, secret.path, is_read_only=True) | {"subPath": SECRET_KEY})
        if self._own is not None:
            mounts.append(_mount(OWN_VOLUME, f"/{self._own.container_path}", is_read_only=False))
        return mounts

    def find_variable(self, name: str) -> Json | None:
        """Return the source of a variable whose value is a secret of the job."""
        secret = secrets_by_key(self._secrets, VARIABLE).get(name)
        return {"name": secret_name(self._cluster, secret), "key": SECRET_KEY} if secret is not None else None

    def find_image_secret(self, image: str) -> str:
        """Return the name of the Secret with the credentials of an image, which is a secret of the job; else ""."""
        secret = secrets_by_key(self._secrets, IMAGE).get(image)
        return secret_name(self._cluster, secret) if secret is not None else ""

    def _name(self, key: str, source: Json) -> str:
        if key not in self._names:
            self._names[key] = f"volume-{len(self._names)}"
            self.all.append({"name": self._names[key], **source})
        return self._names[key]


def _mount(name: str, path: str, is_read_only: bool) -> Json:
    mount: Json = {"name": name, "mountPath": path}
    return mount | {"readOnly": True} if is_read_only else mount


def _source(volume: mesos_pb2.Volume) -> tuple[str, Json, Json]:
    """Return its key among the volumes of the pod, its source, and the other fields of its mount."""
    if volume.source.type == _Source.SANDBOX_PATH:
        return f"folder {volume.source.sandbox_path.path}", {"emptyDir": {}}, {}
    if volume.source.type == _Source.SECRET:
        reference = volume.source.secret.reference
        place = {"subPath": reference.key} if reference.key else {}  # without a key all of them are files of a folder
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
