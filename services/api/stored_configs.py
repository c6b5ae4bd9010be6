"""Serialized configurations of jobs. A version never changes, so each is read and serialized once."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass

from peloton.api.job_secrets import secrets_of
from peloton.api.pod_parts import limits as limits_of
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.errors import ResourceExhausted
from peloton.model.ids import JobId
from peloton.model.job import JobRecord
from services.api.calls import Calls
from services.api.channels import ANSWER_BYTES_MAX
from services.api.secrets import v0_secrets
from services.storage.jobs.configs import Configs

BYTES_MAX = 64 * 2**20
"""Of all that are kept; a larger one is read for each call anew."""

Key = tuple[JobId, int, int]
"""Job, when it was created (a job may be deleted, and another one get its id), version."""


@dataclass(frozen=True, slots=True)
class StoredConfig:
    """``wire``: with the instances that differ. ``limits``: those of the default configuration."""

    wire: bytes
    limits: task_pb2.ResourceConfig
    own_count: int  # instances with a configuration of their own
    secrets: tuple[bytes, ...] = ()  # ids and paths, as messages


class StoredConfigs:
    """The least recently asked for goes first. For one event loop only."""

    def __init__(self, configs: Configs, calls: Calls, bytes_max: int = BYTES_MAX) -> None:
        self._configs = configs
        self._calls = calls
        self._bytes_max = bytes_max
        self._kept: OrderedDict[Key, StoredConfig] = OrderedDict()
        self._kept_bytes = 0
        self._asked: dict[Key, asyncio.Task[StoredConfig | None]] = {}

    async def of(self, job: JobRecord) -> StoredConfig | None:
        """The job's configuration; None when it is not there any more. Calls for one that
        is being read share the reading. Raises ResourceExhausted for one that no answer can hold."""
        key = (job.job_id, job.created_ns, job.config_version)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        if key not in self._asked:
            self._asked[key] = asyncio.create_task(self._read(key))
        return await asyncio.shield(self._asked[key])

    async def _read(self, key: Key) -> StoredConfig | None:
        try:
            found = await self._calls.run(_read, self._configs, key[0], key[2])
        finally:
            del self._asked[key]
        if found is not None and len(found.wire) <= self._bytes_max:
            self._kept[key] = found
            self._kept_bytes += len(found.wire)
            while self._kept_bytes > self._bytes_max:
                _, oldest = self._kept.popitem(last=False)
                self._kept_bytes -= len(oldest.wire)
        return found


def check_size(job_id: JobId, size_bytes: int, instance_count: int) -> None:
    """Raises ResourceExhausted for a configuration that no answer can hold."""
    if size_bytes > ANSWER_BYTES_MAX:
        raise ResourceExhausted(
            f"the config of job {job_id} takes {size_bytes} bytes, the limit of one answer is {ANSWER_BYTES_MAX}; "
            f"Query and GetCache return the job without its {instance_count} instances, TaskManager.List "
            f"instances by range"
        )


def _read(configs: Configs, job_id: JobId, version: int) -> StoredConfig | None:
    check_size(job_id, *configs.overrides_size(job_id, version))  # it may be larger than our memory
    config = configs.job_config(job_id, version, overrides=True)
    if config is None:
        return None
    config.changeLog.version = version  # a restart stores an old configuration anew
    limits = task_pb2.ResourceConfig()
    limits.CopyFrom(limits_of(config.defaultConfig))
    secrets = tuple(one.SerializeToString() for one in v0_secrets(secrets_of(config.defaultConfig)))
    return StoredConfig(config.SerializeToString(), limits, len(config.instanceConfig), secrets)


def answer(info: job_pb2.JobInfo, config: StoredConfig) -> bytes:
    """A ``GetResponse`` on the wire: ``info`` with this config, which wins where both say something. Nothing of it is
    read or copied once more, however large it is."""
    inner = info.SerializeToString() + _field(job_pb2.JobInfo.CONFIG_FIELD_NUMBER, config.wire)
    secrets = (_field(job_pb2.GetResponse.SECRETS_FIELD_NUMBER, one) for one in config.secrets)
    return b"".join((_field(job_pb2.GetResponse.JOBINFO_FIELD_NUMBER, inner), *secrets))


def _field(number: int, payload: bytes) -> bytes:
    """A field that has a length."""
    return _varint(number << 3 | 2) + _varint(len(payload)) + payload


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)
