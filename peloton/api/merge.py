"""Effective configuration of one instance: the instance's override merged over the default.

Fields are merged at the top level only. A number or text of the override takes effect unless it is zero or empty; a
message or list takes effect as a whole if present. A boolean of the override always takes effect, even if false or
unset: an override in a revocable job has to repeat ``revocable``. An override that is ``complete`` is the whole
configuration of its instance: it can leave out what the default has.
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
    """Return the configuration of instance ``instance_id``. The result may be part of ``job``: callers must not change
    it."""
    # Reading a missing key of a message map creates it, so test first.
    if instance_id not in job.instanceConfig:
        return job.defaultConfig
    override = job.instanceConfig[instance_id]
    if not job.HasField("defaultConfig"):
        return override
    merged = merge_config(job.defaultConfig, override)
    keep_secret_volumes(job.defaultConfig, merged)
    return merged


def merge_config(default: ConfigT, override: ConfigT) -> ConfigT:
    """Return a new message: ``override`` over ``default``, field by field."""
    merged = type(default)()
    if getattr(override, "complete", False):
        merged.CopyFrom(override)
        merged.ClearField("complete")  # what is merged is no override
        return merged
    merged.CopyFrom(default)
    # Clearing first keeps MergeFrom from merging into a message of the default, or appending to its lists.
    for name in list_replaced_fields(override):
        merged.ClearField(name)
    merged.MergeFrom(override)
    return merged


def list_replaced_fields(override: Message) -> list[str]:
    """Return the names of the fields whose value in the default has no effect."""
    given = [field.name for field, _ in override.ListFields()]
    kind: Any = type(override)
    return [*_booleans(kind), *given]


@lru_cache(maxsize=16)
def _booleans(kind: Any) -> tuple[str, ...]:
    """Return the boolean fields, cached because descriptors are slow and a job may have 100,000 overrides."""
    return tuple(field.name for field in kind.DESCRIPTOR.fields if field.type == FieldDescriptor.TYPE_BOOL)


def keep_secret_volumes(default: TaskConfig, merged: TaskConfig) -> None:
    """Keep the secrets of the job in a container that an override replaces."""
    if not merged.HasField("container"):
        return
    volumes = merged.container.volumes
    for volume in default.container.volumes:
        # A container without an override still has its volumes.
        if volume.source.type == mesos_pb2.Volume.Source.SECRET and volume not in volumes:
            volumes.append(volume)
