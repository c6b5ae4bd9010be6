"""Secrets to which the configuration of a job refers: an id and a path each, never the data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from peloton.api.mesos.v1 import mesos_pb2
from peloton.api.pod_parts import all_parts
from peloton.api.secret_values import check_references
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.errors import InvalidArgument
from peloton.model.secret import SECRETS_BYTES_MAX, SECRETS_MAX, Secret
from peloton.model.text import shorten


def secrets_of(task: task_pb2.TaskConfig) -> list[Secret]:
    return [Secret(one.id.value, one.path) for one in task.secrets]


def refer_to(config: job_pb2.JobConfig, secrets: Iterable[Secret]) -> None:
    """Set the secrets of all instances in the default configuration: an override has none of its own."""
    if config.defaultConfig.secrets:
        config.defaultConfig.ClearField("secrets")
    for one in secrets:
        config.defaultConfig.secrets.add(path=one.path).id.value = one.secret_id


def join_secrets(
    kept: Sequence[Secret], sent: Sequence[Secret], stored: Mapping[str, Secret], in_place: bool
) -> tuple[list[Secret], list[Secret]]:
    """Return the secrets of a job after a request, and the ones whose data has to be stored.

    ``kept``: secrets of the job without the request. ``stored``: secrets by id, with their data. A secret sent for an
    existing path replaces it under a new id, so that instances with the old one count as changed; with ``in_place``
    only its data is replaced. Equal data changes nothing. The stored secrets need their data only if one was sent.
    Raises InvalidArgument.
    """
    found = {one.path: one for one in kept}
    written: list[Secret] = []
    for one in kept:
        if one.secret_id not in stored:
            raise InvalidArgument(
                f"secret {one.secret_id} at {shorten(one.path)} is not one of this job: send its data"
            )
    for one in sent:
        there = found.get(one.path)
        if there is None:
            if not one.data:
                raise InvalidArgument(f"secret at {shorten(one.path)} has no data, and the job has none there")
        elif not one.data or one.data == stored[there.secret_id].data:
            continue
        elif in_place:
            one = Secret(there.secret_id, one.path, one.data, stored[there.secret_id].revision + 1)
        written.append(one)
        found[one.path] = one
    if written:
        _check_bounds(found, stored)
    return list(found.values()), written


def _check_bounds(found: Mapping[str, Secret], stored: Mapping[str, Secret]) -> None:
    if len(found) > SECRETS_MAX:
        raise InvalidArgument(f"the job would have {len(found)} secrets, at most {SECRETS_MAX} are allowed")
    size_bytes = sum(len(one.data or stored[one.secret_id].data) for one in found.values())
    if size_bytes > SECRETS_BYTES_MAX:
        raise InvalidArgument(f"the job's secrets would have {size_bytes} bytes, at most {SECRETS_BYTES_MAX} fit")


def check_mounts(config: job_pb2.JobConfig, secrets: Sequence[Secret]) -> None:
    """Raise InvalidArgument for containers that cannot have these secrets."""
    check_references(config.defaultConfig, secrets)
    paths = {one.path for one in secrets if one.is_file}
    if not paths:
        return
    for task in (config.defaultConfig, *config.instanceConfig.values()):
        for part in all_parts(task):
            if part.container.type == mesos_pb2.ContainerInfo.DOCKER and part.HasField("container"):
                raise InvalidArgument("secrets: container type DOCKER does not match MESOS")
            taken = {volume.container_path for volume in part.container.volumes}
            taken |= {folder.containerPath for folder in part.emptyDirs}
            if both := sorted(paths & taken):
                raise InvalidArgument(f"secret at {shorten(both[0])}: a volume is mounted there")
