"""Cache of serialized configurations of jobs; a version never changes, so each is read and serialized once."""

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
"""Maximum size of the cache; a larger configuration is read for each call."""

Key = tuple[JobId, int, int]
"""Job, its creation time (an id can be reused after a deletion), and version."""


@dataclass(frozen=True, slots=True)
class StoredConfig:
    """Serialized configuration: ``wire`` includes instance overrides, ``limits`` belong to the default
    configuration."""

    wire: bytes
    limits: task_pb2.ResourceConfig
    own_count: int  # instances with a configuration of their own
    secrets: tuple[bytes, ...] = ()  # ids and paths, as messages


class StoredConfigs:
    """LRU cache of configurations. For one event loop only."""

    def __init__(self, configs: Configs, calls: Calls, bytes_max: int = BYTES_MAX) -> None:
        self._configs = configs
        self._calls = calls
        self._bytes_max = bytes_max
        self._kept: OrderedDict[Key, StoredConfig] = OrderedDict()
        self._kept_bytes = 0
        self._asked: dict[Key, asyncio.Task[StoredConfig | None]] = {}

    async def of(self, job: JobRecord) -> StoredConfig | None:
        """Return the job's configuration; None when it has been deleted.

        Concurrent calls share one read. Raises ResourceExhausted for a configuration larger than an answer.
        """
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
    """Raise ResourceExhausted for a configuration larger than an answer."""
    if size_bytes > ANSWER_BYTES_MAX:
        raise ResourceExhausted(
            f"the config of job {job_id} takes {size_bytes} bytes, the limit of one answer is {ANSWER_BYTES_MAX}; "
            f"Query and GetCache return the job without its {instance_count} instances, TaskManager.List "
            f"instances by range"
        )


def _read(configs: Configs, job_id: JobId, version: int) -> StoredConfig | None:
    check_size(job_id, *configs.overrides_size(job_id, version))  # it may exceed the memory
    config = configs.job_config(job_id, version, overrides=True)
    if config is None:
        return None
    config.changeLog.version = version  # a restart stores a copy of an old configuration
    limits = task_pb2.ResourceConfig()
    limits.CopyFrom(limits_of(config.defaultConfig))
    secrets = tuple(one.SerializeToString() for one in v0_secrets(secrets_of(config.defaultConfig)))
    return StoredConfig(config.SerializeToString(), limits, len(config.instanceConfig), secrets)


def answer(info: job_pb2.JobInfo, config: StoredConfig) -> bytes:
    """Serialize a ``GetResponse``: ``info`` with this config, whose fields take precedence.

    The serialized config, however large, is not parsed again.
    """
    inner = info.SerializeToString() + _field(job_pb2.JobInfo.CONFIG_FIELD_NUMBER, config.wire)
    secrets = (_field(job_pb2.GetResponse.SECRETS_FIELD_NUMBER, one) for one in config.secrets)
    return b"".join((_field(job_pb2.GetResponse.JOBINFO_FIELD_NUMBER, inner), *secrets))


def _field(number: int, payload: bytes) -> bytes:
    """Encode a length-delimited field."""
    return _varint(number << 3 | 2) + _varint(len(payload)) + payload


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)
