"""The configuration of one instance: the default with the instance's override laid over it.

Fields are merged at the top level only. A number or a text of the override counts unless it is zero or empty; a message
or a list counts when it is there, as a whole. A boolean of the override always counts, even when it is false or was
never written: an override in a revocable job has to repeat ``revocable``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from peloton.api.mesos.v1 import mesos_pb2
from peloton.api.v0.job.job_pb2 import JobConfig
from peloton.api.v0.task.task_pb2 import TaskConfig

ConfigT = TypeVar("ConfigT", bound=Message)


def effective_task_config(job: JobConfig, instance_id: int) -> TaskConfig:
    """What instance ``instance_id`` runs. The result may be part of ``job``: it is not to be changed."""
    # A message map creates what is asked for, so ask first.
    if instance_id not in job.instanceConfig:
        return job.defaultConfig
    override = job.instanceConfig[instance_id]
    if not job.HasField("defaultConfig"):
        return override
    merged = merged_config(job.defaultConfig, override)
    keep_secret_volumes(job.defaultConfig, merged)
    return merged


def merged_config(default: ConfigT, override: ConfigT) -> ConfigT:
    """A new message: ``override`` over ``default``, field by field."""
    merged = type(default)()
    merged.CopyFrom(default)
    # Clearing first keeps MergeFrom from mixing into a message of the default, or appending to its lists.
    for name in replaced_fields(override):
        merged.ClearField(name)
    merged.MergeFrom(override)
    return merged


def replaced_fields(override: Message) -> list[str]:
    """Names of the fields whose value in the default does not count."""
    given = [field.name for field, _ in override.ListFields()]
    kind: Any = type(override)
    return [*_booleans(kind), *given]


@lru_cache(maxsize=16)
def _booleans(kind: Any) -> tuple[str, ...]:
    """Asking descriptors is slow, and a job may have 100,000 overrides."""
    return tuple(field.name for field in kind.DESCRIPTOR.fields if field.type == FieldDescriptor.TYPE_BOOL)


def keep_secret_volumes(default: TaskConfig, merged: TaskConfig) -> None:
    """Secrets belong to the job: an override of the container must not lose them."""
    if not merged.HasField("container"):
        return
    volumes = merged.container.volumes
    for volume in default.container.volumes:
        # Without an override of the container its volumes are still there.
        if volume.source.type == mesos_pb2.Volume.Source.SECRET and volume not in volumes:
            volumes.append(volume)
