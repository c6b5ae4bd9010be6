"""Containers, images and volumes of tasks, as those of pods and back."""

from __future__ import annotations

from typing import Any

from peloton.api.v1alpha.pod import pod_pb2
from peloton.api.v1alpha.pod.apachemesos.apachemesos_pb2 import PodSpec as MesosSpec
from peloton.api.v1alpha.volume.volume_pb2 import VolumeSpec
from peloton.model.text import quote
from services.aurorabridge.method import Refusal
from services.aurorabridge.thrift import api

_HOST_PATH = VolumeSpec.VOLUME_TYPE_HOST_PATH


# -- inward --------------------------------------------------------------------------------------------------------


def set_container(pod: pod_pb2.PodSpec, container: Any) -> None:
    """Set the image, parameters and volumes of the pod's only container. Raises Refusal."""
    if container is None:
        return
    only = pod.containers[0]
    if container.docker is not None:
        only.image = container.docker.image or ""
        pod.mesos_spec.type = MesosSpec.CONTAINER_TYPE_DOCKER
        pod.mesos_spec.network_spec.type = MesosSpec.NetworkSpec.NETWORK_TYPE_HOST
        for parameter in container.docker.parameters or ():
            pod.mesos_spec.docker_parameters.add(key=parameter.name or "", value=parameter.value or "")
    elif container.mesos is not None:
        pod.mesos_spec.type = MesosSpec.CONTAINER_TYPE_MESOS
        if container.mesos.image is not None:
            only.image = _image(container.mesos.image)
        for volume in container.mesos.volumes or ():
            _add_volume(pod, volume)
    else:
        raise Refusal("invalid container: it is neither of mesos nor of docker")


def _image(image: Any) -> str:
    if image.docker is None:
        raise Refusal(f"invalid mesos image type {'appc' if image.appc is not None else 'none'}")
    return f"{image.docker.name or ''}:{image.docker.tag or ''}"


def _add_volume(pod: pod_pb2.PodSpec, volume: Any) -> None:
    """Add a mount, and its host path unless another mount has added that."""
    path = volume.hostPath or ""
    if all(known.name != path for known in pod.volumes):
        pod.volumes.add(name=path, type=_HOST_PATH).host_path.path = path
    read_only = volume.mode == api.Mode.RO
    pod.containers[0].volume_mounts.add(name=path, read_only=read_only, mount_path=volume.containerPath or "")


# -- outward -------------------------------------------------------------------------------------------------------


def task_container(pod: pod_pb2.PodSpec) -> Any:
    """Return the container of a task; None without one. Raises Refusal for an image without a tag."""
    spec, only = pod.mesos_spec, pod.containers[0] if pod.containers else pod_pb2.ContainerSpec()
    if spec.type == MesosSpec.CONTAINER_TYPE_DOCKER:
        parameters = [api.DockerParameter(name=one.key, value=one.value) for one in spec.docker_parameters]
        return api.Container(docker=api.DockerContainer(image=only.image, parameters=parameters))
    if spec.type != MesosSpec.CONTAINER_TYPE_MESOS:
        return None
    paths = {volume.name: volume.host_path.path for volume in pod.volumes if volume.type == _HOST_PATH}
    volumes = [
        api.Volume(
            containerPath=mount.mount_path,
            hostPath=paths[mount.name],
            mode=api.Mode.RO if mount.read_only else api.Mode.RW,
        )
        for mount in only.volume_mounts
        if mount.name in paths
    ]
    image = api.Image(docker=_docker_image(only.image)) if only.image else None
    return api.Container(mesos=api.MesosContainer(image=image, volumes=volumes))


def _docker_image(image: str) -> Any:
    name, colon, tag = image.rpartition(":")
    if not colon:
        raise Refusal(f"invalid image {quote(image)}: it has no tag")
    return api.DockerImage(name=name, tag=tag)
