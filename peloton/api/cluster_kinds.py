"""What a configuration of pods asks for that not every kind of cluster can do: the table of
docs/kubernetes/differences.md as code."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from peloton.api.mesos.v1 import mesos_pb2
from peloton.api.v0.task import task_pb2

_Docker = mesos_pb2.ContainerInfo.DockerInfo
_Source = mesos_pb2.Volume.Source
Asks = Callable[[task_pb2.TaskConfig], bool]


def mesos_only(config: task_pb2.TaskConfig) -> list[str]:
    """What of it only Mesos can do."""
    return [*(what for what, asks in _MESOS_ONLY.items() if asks(config)), *_volumes(config.container)]


def _has_network(config: task_pb2.TaskConfig) -> bool:
    container = config.container
    return container.docker.network in (_Docker.USER, _Docker.NONE) or any(
        info.name or info.ip_addresses or info.port_mappings for info in container.network_infos
    )


def _has_user_name(config: task_pb2.TaskConfig) -> bool:
    user = config.command.user
    return bool(user) and user != "root" and not (user.isascii() and user.isdigit())


_MESOS_ONLY: dict[str, Asks] = {
    "an executor of its own": lambda config: config.HasField("executor"),
    "URIs to fetch": lambda config: len(config.command.uris) > 0,
    "parameters of Docker": lambda config: len(config.container.docker.parameters) > 0,
    "port mappings of Docker": lambda config: len(config.container.docker.port_mappings) > 0,
    "a volume driver of Docker": lambda config: bool(config.container.docker.volume_driver),
    "an appc image": lambda config: config.container.mesos.image.HasField("appc"),
    "a network by name, or none at all": _has_network,
    "Linux capabilities or namespaces": lambda config: config.container.HasField("linux_info"),
    "resource limits of processes": lambda config: config.container.HasField("rlimit_info"),
    "a user by name": _has_user_name,
    "a part of a GPU": lambda config: not config.resource.gpuLimit.is_integer(),
}


def _volumes(container: mesos_pb2.ContainerInfo) -> Iterator[str]:
    for volume in container.volumes:
        where = f"a volume at {volume.container_path}"
        if not volume.container_path.startswith("/"):
            yield f"{where}, in the sandbox"
        elif volume.HasField("image"):
            yield f"{where} from an image"
        elif volume.source.type == _Source.DOCKER_VOLUME:
            yield f"{where} of Docker"
        elif volume.source.type == _Source.SECRET and not volume.source.secret.HasField("reference"):
            yield f"{where} with the data of a secret"
        elif volume.source.type in (_Source.UNKNOWN, _Source.HOST_PATH) and not host_path(volume).startswith("/"):
            yield f"{where} of a host path in the sandbox"


def host_path(volume: mesos_pb2.Volume) -> str:
    return volume.source.host_path.path if volume.source.type == _Source.HOST_PATH else volume.host_path
