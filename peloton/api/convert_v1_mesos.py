"""Conversion of the two forms of a v1alpha container: Mesos messages, and fields of v1alpha.

The Mesos messages take precedence; missing ones are built from entrypoint, environment, image, volume mounts and the
pod's ``mesos_spec``. Containers in answers have both forms.
"""

from __future__ import annotations

from typing import Any

from peloton.api.mesos.v1 import mesos_pb2
from peloton.api.pod_parts import Part
from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha.pod import pod_pb2
from peloton.api.v1alpha.pod.apachemesos import apachemesos_pb2
from peloton.api.v1alpha.volume import volume_pb2
from peloton.errors import InvalidArgument

_MesosSpec = apachemesos_pb2.PodSpec
_DOCKER = mesos_pb2.ContainerInfo.DOCKER
_MESOS = mesos_pb2.ContainerInfo.MESOS
_Network = mesos_pb2.ContainerInfo.DockerInfo.Network


# -- inward --------------------------------------------------------------------------------------------------------


def add_mesos_messages(task: Part, pod: pod_pb2.PodSpec, container: pod_pb2.ContainerSpec) -> None:
    """Set ``container`` and ``command`` of the task, each only if the container requests it.

    An empty entrypoint leaves the command to the image.
    """
    if container.HasField("container"):
        task.container.CopyFrom(container.container)
    elif container.image or container.volume_mounts or pod.mesos_spec.type:
        _build_container(task.container, pod, container)
    if container.HasField("command"):
        task.command.CopyFrom(container.command)
    elif container.HasField("entrypoint") or container.environment or pod.mesos_spec.uris or pod.mesos_spec.shell:
        _build_command(task.command, pod, container)


def add_executor(task: task_pb2.TaskConfig, pod: pod_pb2.PodSpec, container: pod_pb2.ContainerSpec) -> None:
    if container.HasField("executor"):
        task.executor.CopyFrom(container.executor)
    elif pod.mesos_spec.HasField("executor_spec"):
        _build_executor(task.executor, pod.mesos_spec.executor_spec)


def _convert_enum(kind: Any, number: int, name: str) -> Any:
    """Return the number of an enum of Mesos, which is the same in v1alpha. Raises InvalidArgument for a number that
    only v1alpha accepts."""
    if number not in kind.values():
        raise InvalidArgument(f"mesos_spec.{name} is {number}, want one of {', '.join(kind.keys())}")
    return number


def _build_container(info: mesos_pb2.ContainerInfo, pod: pod_pb2.PodSpec, container: pod_pb2.ContainerSpec) -> None:
    spec = pod.mesos_spec
    info.type = _DOCKER if spec.type == _MesosSpec.CONTAINER_TYPE_DOCKER else _MESOS
    if info.type == _DOCKER:
        info.docker.image = container.image
        info.docker.parameters.extend(
            mesos_pb2.Parameter(key=parameter.key, value=parameter.value) for parameter in spec.docker_parameters
        )
        if spec.network_spec.type:
            info.docker.network = _convert_enum(_Network, spec.network_spec.type, "network_spec.type")
    elif container.image:
        info.mesos.image.type = mesos_pb2.Image.DOCKER
        info.mesos.image.docker.name = container.image
    if spec.network_spec.name:
        info.network_infos.add(name=spec.network_spec.name)
    paths = {
        volume.name: volume.host_path.path
        for volume in pod.volumes
        if volume.type == volume_pb2.VolumeSpec.VOLUME_TYPE_HOST_PATH
    }
    for mount in container.volume_mounts:
        if mount.name in paths:
            info.volumes.add(
                mode=mesos_pb2.Volume.RO if mount.read_only else mesos_pb2.Volume.RW,
                container_path=mount.mount_path,
                host_path=paths[mount.name],
            )


def add_folders(task: Part, pod: pod_pb2.PodSpec, container: pod_pb2.ContainerSpec) -> None:
    """Add volumes that are initially empty, for which Mesos has no message."""
    empty = volume_pb2.VolumeSpec.VOLUME_TYPE_EMPTY_DIR
    folders = {volume.name: volume.empty_dir for volume in pod.volumes if volume.type == empty}
    for mount in container.volume_mounts:
        if mount.name in folders:
            task.emptyDirs.add(
                name=mount.name,
                containerPath=mount.mount_path,
                readOnly=mount.read_only,
                medium=folders[mount.name].medium,
                sizeMB=folders[mount.name].size_in_mb,
            )


def _build_command(command: mesos_pb2.CommandInfo, pod: pod_pb2.PodSpec, container: pod_pb2.ContainerSpec) -> None:
    command.SetInParent()
    if container.entrypoint.value:
        command.value = container.entrypoint.value
    command.arguments.extend(container.entrypoint.arguments)
    for variable in container.environment:
        command.environment.variables.add(name=variable.name, value=variable.value)
    if pod.HasField("mesos_spec"):
        command.shell = pod.mesos_spec.shell
    for uri in pod.mesos_spec.uris:
        fetched = command.uris.add(value=uri.value, executable=uri.executable, extract=uri.extract, cache=uri.cache)
        if uri.output_file:
            fetched.output_file = uri.output_file


def _build_executor(info: mesos_pb2.ExecutorInfo, spec: apachemesos_pb2.PodSpec.ExecutorSpec) -> None:
    info.type = _convert_enum(mesos_pb2.ExecutorInfo.Type, spec.type, "executor_spec.type")
    info.executor_id.value = spec.executor_id
    if spec.data:
        info.data = spec.data
    for name, amount in (("cpus", spec.resources.cpu), ("mem", spec.resources.mem_mb)):
        if amount:
            info.resources.add(name=name, type=mesos_pb2.Value.SCALAR).scalar.value = amount


# -- outward -------------------------------------------------------------------------------------------------------


def add_both_forms(pod: pod_pb2.PodSpec, container: pod_pb2.ContainerSpec, task: Part) -> None:
    """Add both forms of the task's Mesos messages: the messages, and the fields of v1alpha converted from them."""
    if task.HasField("container"):
        container.container.CopyFrom(task.container)
    if task.HasField("command"):
        container.command.CopyFrom(task.command)
    complete(pod, container, task)


def complete(pod: pod_pb2.PodSpec, container: pod_pb2.ContainerSpec, task: Part) -> None:
    """Add the form that a client omitted: fields of v1alpha from a Mesos message, or the message from ``task``. Fields
    set by the client do not change."""
    if container.HasField("container"):
        _describe_container(pod, container, container.container)
    elif task.HasField("container"):
        container.container.CopyFrom(task.container)
    if container.HasField("command"):
        _describe_command(pod, container, container.command)
    elif task.HasField("command"):
        container.command.CopyFrom(task.command)


def complete_executor(pod: pod_pb2.PodSpec, container: pod_pb2.ContainerSpec, task: task_pb2.TaskConfig) -> None:
    if container.HasField("executor"):
        _describe_executor(pod.mesos_spec.executor_spec, container.executor)
    elif task.HasField("executor"):
        container.executor.CopyFrom(task.executor)


def _describe_container(pod: pod_pb2.PodSpec, container: pod_pb2.ContainerSpec, info: mesos_pb2.ContainerInfo) -> None:
    spec = pod.mesos_spec
    del spec.docker_parameters[:]
    if info.type == _DOCKER:
        spec.type = _MesosSpec.CONTAINER_TYPE_DOCKER
        container.image = info.docker.image
        for parameter in info.docker.parameters:
            spec.docker_parameters.add(key=parameter.key, value=parameter.value)
        if info.docker.HasField("network"):
            spec.network_spec.type = info.docker.network  # type: ignore[assignment]  # the numbers are the same
    else:
        spec.type = _MesosSpec.CONTAINER_TYPE_MESOS
        container.image = info.mesos.image.docker.name
    if info.network_infos and info.network_infos[0].name:
        spec.network_spec.name = info.network_infos[0].name
    if container.volume_mounts:
        return
    mounted = [volume for volume in info.volumes if volume.host_path]
    for number, volume in enumerate(mounted):
        name = f"volume-{number}"
        spec_volume = pod.volumes.add(name=name, type=volume_pb2.VolumeSpec.VOLUME_TYPE_HOST_PATH)
        spec_volume.host_path.path = volume.host_path
        container.volume_mounts.add(
            name=name, read_only=volume.mode == mesos_pb2.Volume.RO, mount_path=volume.container_path
        )


def describe_folders(pod: pod_pb2.PodSpec, container: pod_pb2.ContainerSpec, task: Part) -> None:
    named = {volume.name for volume in pod.volumes}
    for folder in task.emptyDirs:
        if folder.name not in named:
            volume = pod.volumes.add(name=folder.name, type=volume_pb2.VolumeSpec.VOLUME_TYPE_EMPTY_DIR)
            volume.empty_dir.medium, volume.empty_dir.size_in_mb = folder.medium, folder.sizeMB
            named.add(folder.name)
        container.volume_mounts.add(name=folder.name, read_only=folder.readOnly, mount_path=folder.containerPath)


def _describe_command(pod: pod_pb2.PodSpec, container: pod_pb2.ContainerSpec, command: mesos_pb2.CommandInfo) -> None:
    """Convert a command. The shell flag is always written, even for Mesos's default."""
    container.ClearField("environment")
    pod.mesos_spec.ClearField("uris")
    container.entrypoint.CopyFrom(pod_pb2.CommandSpec(value=command.value, arguments=command.arguments))
    for variable in command.environment.variables:
        container.environment.add(name=variable.name, value=variable.value)
    pod.mesos_spec.shell = command.shell
    for uri in command.uris:
        pod.mesos_spec.uris.add(
            value=uri.value,
            executable=uri.executable,
            extract=uri.extract,
            cache=uri.cache,
            output_file=uri.output_file,
        )


def _describe_executor(spec: apachemesos_pb2.PodSpec.ExecutorSpec, info: mesos_pb2.ExecutorInfo) -> None:
    spec.type = info.type  # type: ignore[assignment]  # the numbers are the same
    spec.executor_id = info.executor_id.value
    spec.data = info.data
    amounts = {resource.name: resource.scalar.value for resource in info.resources}
    if "cpus" in amounts:
        spec.resources.cpu = amounts["cpus"]
    if "mem" in amounts:
        spec.resources.mem_mb = amounts["mem"]
