"""Secret values in configurations, which refer to them by name: environment variables, and credentials of images.

A request has the value in a variable of type SECRET, or in the `config` of an image. It is taken out before anything is
stored, and becomes a secret of the job, under a path that is no path of a file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from peloton.api.mesos.v1 import mesos_pb2
from peloton.api.pod_parts import all_parts
from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha.pod import pod_pb2
from peloton.errors import InvalidArgument
from peloton.model.secret import IMAGE, VARIABLE, Secret
from peloton.model.text import quote, shorten

OF_JOB = "peloton/job"
"""Name of references to secrets of the job; no Secret of Kubernetes can have it."""
Pod = task_pb2.TaskConfig | pod_pb2.PodSpec
_Variable = mesos_pb2.Environment.Variable
_Secret = mesos_pb2.Secret
_MADE = re.compile(r"peloton-.+-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-\d+")
"""Name of a Secret that Peloton makes on Kubernetes for the pods of one job."""
_KINDS = {VARIABLE: "environment variable", IMAGE: "the config of image"}


@dataclass(frozen=True, slots=True)
class Place:
    """A variable, or the image of a container, with a secret in it."""

    owner: Any
    secret: mesos_pb2.Secret
    prefix: str  # of the path of its secret
    key: str  # the rest of the path

    @property
    def path(self) -> str:
        return self.prefix + self.key

    @property
    def label(self) -> str:
        return f"{_KINDS[self.prefix]} {quote(self.key)}"

    @property
    def has_value(self) -> bool:
        """Return whether the secret has a value in it, which no configuration may have."""
        return has_value(self.secret)

    def refer(self) -> None:
        """Replace the value by a reference to the secret of the job."""
        reference = _Secret(type=_Secret.REFERENCE, reference=_Secret.Reference(name=OF_JOB, key=self.key))
        if self.prefix == VARIABLE:
            self.owner.CopyFrom(_Variable(name=self.key, type=_Variable.SECRET, secret=reference))
        else:
            self.secret.CopyFrom(reference)

    def clear(self) -> None:
        """Remove the secret."""
        self.owner.ClearField("secret" if self.prefix == VARIABLE else "config")


def places_of(pod: Pod) -> Iterator[Place]:
    """Yield all places of a pod that have a secret of these kinds."""
    for command in _fields_of(pod, "command"):
        for variable in command.environment.variables:
            if variable.HasField("secret"):
                yield Place(variable, variable.secret, VARIABLE, variable.name)
    for image in images_of(pod):
        if image.docker.HasField("config"):
            yield Place(image.docker, image.docker.config, IMAGE, image.docker.name)


def _parts_of(pod: Pod) -> Iterable[Any]:
    return all_parts(pod) if isinstance(pod, task_pb2.TaskConfig) else (*pod.containers, *pod.init_containers)


def _fields_of(pod: Pod, name: str) -> Iterator[Any]:
    """Yield a field of all containers of a pod, and of their executors, where it is set."""
    for part in _parts_of(pod):
        for holder in (part, part.executor) if hasattr(part, "executor") else (part,):
            if holder.HasField(name):
                yield getattr(holder, name)


def volumes_of(pod: Pod) -> Iterator[mesos_pb2.Volume]:
    """Yield the volumes of all containers of a pod, of their executors, and of disks of these."""
    for container in _fields_of(pod, "container"):
        yield from container.volumes
    for part in _parts_of(pod):
        if hasattr(part, "executor"):
            yield from (resource.disk.volume for resource in part.executor.resources if resource.HasField("disk"))


def images_of(pod: Pod) -> Iterator[mesos_pb2.Image]:
    """Yield the images of Mesos's containerizer: those of containers and of volumes."""
    for container in _fields_of(pod, "container"):
        if container.mesos.HasField("image"):
            yield container.mesos.image
    yield from (volume.image for volume in volumes_of(pod) if volume.HasField("image"))


def take_values(pod: Pod) -> list[tuple[str, bytes]]:
    """Replace the secret values by references; return paths of secrets, and values.

    Raises InvalidArgument for a place with two values.
    """
    found: dict[str, bytes] = {}
    for place in list(places_of(pod)):
        if not place.has_value:
            continue
        data = place.secret.value.data
        if found.setdefault(place.path, data) != data:
            raise InvalidArgument(f"{place.label} has two secret values in the pod")
        if not data:
            raise InvalidArgument(f"{place.label} has an empty secret value")
        if place.prefix == IMAGE:
            _check_config(place, data)
        place.refer()
    return list(found.items())


def _check_config(place: Place, data: bytes) -> None:
    try:
        is_object = isinstance(json.loads(data), dict)
    except (ValueError, RecursionError):
        is_object = False
    if not is_object:
        raise InvalidArgument(f"{place.label} is no JSON object: want the content of ~/.docker/config.json")


def clear_values(pod: Pod) -> None:
    """Remove the secret values, also where none is allowed."""
    for place in list(places_of(pod)):
        if place.has_value:
            place.clear()
    for volume in volumes_of(pod):
        volume.source.ClearField("secret")
    for image in images_of(pod):
        image.docker.ClearField("credential")


def has_value(secret: mesos_pb2.Secret) -> bool:
    """Return whether a secret that is set has a value in it."""
    return secret.HasField("value") or not secret.HasField("reference")


def has_values(pod: Pod) -> bool:
    """Return whether a pod has a secret value in a variable or an image."""
    return any(place.has_value for place in places_of(pod))


def has_volume_value(pod: Pod) -> bool:
    """Return whether a volume has secret data; a reference only names a secret of the cluster."""
    return any(
        has_value(volume.source.secret)
        for volume in volumes_of(pod)
        if volume.source.type == mesos_pb2.Volume.Source.SECRET or volume.source.HasField("secret")
    )


def has_credential(pod: Pod) -> bool:
    """Return whether an image has a password in the field that Mesos has replaced by ``config``, and never read."""
    return any(image.docker.credential.secret for image in images_of(pod))


def has_any_value(pod: Pod) -> bool:
    return has_values(pod) or has_volume_value(pod) or has_credential(pod)


def find_made_secret(pod: Pod) -> str:
    """Return the name of a Secret of Kubernetes to which a pod refers although Peloton makes it for a job; else ""."""
    secrets = [place.secret for place in places_of(pod)]
    secrets += [volume.source.secret for volume in volumes_of(pod) if volume.source.HasField("secret")]
    return next((one.reference.name for one in secrets if _MADE.fullmatch(one.reference.name)), "")


def refers_to_job(secret: mesos_pb2.Secret) -> bool:
    return secret.reference.name == OF_JOB


def check_references(pod: task_pb2.TaskConfig, secrets: Iterable[Secret]) -> None:
    """Raise InvalidArgument for a reference to a secret that the job does not have."""
    paths = {one.path for one in secrets}
    for place in places_of(pod):
        key = place.secret.reference.key
        if refers_to_job(place.secret) and place.prefix + key not in paths:
            raise InvalidArgument(
                f"{_KINDS[place.prefix]} {shorten(place.key)} refers to a secret that the job does not have: "
                f"send its value"
            )


def secrets_by_key(secrets: Iterable[Secret], prefix: str) -> Mapping[str, Secret]:
    """Return the secrets that are values of one kind of places, by the keys to which configurations refer."""
    return {one.path.removeprefix(prefix): one for one in secrets if one.path.startswith(prefix)}
