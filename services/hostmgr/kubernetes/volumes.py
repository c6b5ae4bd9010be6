"""Volumes of Mesos's containers as those of a Kubernetes pod."""

from __future__ import annotations

from typing import Any, NamedTuple

from peloton.api.cluster_kinds import host_path
from peloton.api.mesos.v1 import mesos_pb2

Json = dict[str, Any]
_Source = mesos_pb2.Volume.Source


class Volumes(NamedTuple):
    volumes: list[Json]  # of the pod
    mounts: list[Json]  # of the container


def volumes_of(container: mesos_pb2.ContainerInfo) -> Volumes:
    """Of the kinds that both clusters have, see ``mesos_only``."""
    found = Volumes([], [])
    for number, volume in enumerate(container.volumes):
        name = f"volume-{number}"
        mount: Json = {"name": name, "mountPath": volume.container_path}
        if volume.mode == mesos_pb2.Volume.RO:
            mount["readOnly"] = True
        found.volumes.append({"name": name, **_source(volume, mount)})
        found.mounts.append(mount)
    return found


def _source(volume: mesos_pb2.Volume, mount: Json) -> Json:
    if volume.source.type == _Source.SANDBOX_PATH:
        return {"emptyDir": {}}
    if volume.source.type == _Source.SECRET:
        reference = volume.source.secret.reference
        if reference.key:  # one file; without a key the volume is a folder of all of them
            mount["subPath"] = reference.key
        return {"secret": {"secretName": reference.name}}
    return {"hostPath": {"path": host_path(volume)}}
