"""Features in pod configurations that not every kind of cluster has: the table of docs/kubernetes/differences.md as
code."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from peloton.api.mesos.v1 import mesos_pb2
from peloton.api.pod_parts import Part, all_parts
from peloton.api.v0.task import task_pb2
from peloton.model.host import CLUSTER_KIND_LABEL, KEPT, NOT_MOUNTED, SECRETS_LABEL, VOLUMES_LABEL
from peloton.model.pod import HostLabel
from peloton.model.secret import NO_FILES
from peloton.model.text import shorten

_Docker = mesos_pb2.ContainerInfo.DockerInfo
_Source = mesos_pb2.Volume.Source
KUBERNETES = "kubernetes"
NOT_KUBERNETES = HostLabel(CLUSTER_KIND_LABEL, KUBERNETES, "<", 1)
"""Constraint that also accepts hosts of a host manager without a kind."""
ON_KUBERNETES = HostLabel(CLUSTER_KIND_LABEL, KUBERNETES, "=", 1)
KEEPS_VOLUMES = HostLabel(VOLUMES_LABEL, KEPT, "=", 1)
MOUNTS_SECRETS = HostLabel(SECRETS_LABEL, NOT_MOUNTED, "<", 1)


MANY_CONTAINERS = "configuration of more than one container per pod is not supported"
INIT_CONTAINERS = "init containers are not supported"


def kubernetes_only(task: task_pb2.TaskConfig) -> list[str]:
    """Return the features of the configuration that only Kubernetes has."""
    found = {"several containers": task.otherContainers, "init containers": task.initContainers}
    return [what for what, containers in found.items() if containers]


def mesos_only(task: task_pb2.TaskConfig) -> list[str]:
    """Return the features of the configuration that only Mesos has."""
    asked: dict[str, None] = {}
    for part in all_parts(task):
        asked |= dict.fromkeys(what for what, asks in _CONTAINER_FEATURES.items() if asks(part))
        asked |= dict.fromkeys(_mesos_only_volumes(part.container))
    own = ["an executor of its own"] if task.HasField("executor") else []
    return [*own, *asked]


def kind_constraints(task: task_pb2.TaskConfig) -> tuple[HostLabel, ...]:
    """Return the constraints on clusters that can run it; empty if all can."""
    others = (KEEPS_VOLUMES,) * task.HasField("volume") + (MOUNTS_SECRETS,) * any(
        not one.path.startswith(NO_FILES) for one in task.secrets
    )
    if kubernetes_only(task):
        return (ON_KUBERNETES, *others)
    return (NOT_KUBERNETES, *others) if mesos_only(task) else others


def kind_fault(task: task_pb2.TaskConfig) -> str:
    """Return why no kind of cluster can run it, or ""."""
    here, there = kubernetes_only(task), mesos_only(task)
    if not (here and there):
        return ""
    return f"{' and '.join(here)} run on Kubernetes only, and {', '.join(there)} on Mesos only"


def kind_refusal(task: task_pb2.TaskConfig, kinds: Collection[str]) -> str:
    """Return why none of these clusters can run it, or ""."""
    if not kinds:
        return ""
    if KUBERNETES not in kinds and kubernetes_only(task):
        text = MANY_CONTAINERS if task.otherContainers else INIT_CONTAINERS
        return f"{text}: it needs a cluster of kind {KUBERNETES}, and there are {', '.join(sorted(kinds))}"
    if set(kinds) == {KUBERNETES} and (asked := mesos_only(task)):
        return f"{', '.join(asked)}: no cluster of kind {KUBERNETES} has that, and there is no other"
    return ""


def _has_network(config: Part) -> bool:
    container = config.container
    return container.docker.network in (_Docker.USER, _Docker.NONE) or any(
        info.name or info.ip_addresses or info.port_mappings for info in container.network_infos
    )


def _has_user_name(config: Part) -> bool:
    user = config.command.user
    return bool(user) and user != "root" and not (user.isascii() and user.isdigit())


_CONTAINER_FEATURES: dict[str, Callable[[Part], bool]] = {
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


def _mesos_only_volumes(container: mesos_pb2.ContainerInfo) -> Iterator[str]:
    for volume in container.volumes:
        where = f"a volume at {shorten(volume.container_path)}"
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
