"""TaskConfig of a pod, by the specification of its job at the pod's version."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio

from peloton.api.merge import merge_config
from peloton.api.v1alpha import peloton_pb2
from peloton.api.v1alpha.job.stateless.stateless_pb2 import JobSpec
from peloton.api.v1alpha.job.stateless.svc.stateless_svc_pb2 import GetJobRequest
from peloton.api.v1alpha.pod import pod_pb2
from services.aurorabridge.backend import Backend
from services.aurorabridge.mapping.task_config import task_config_of

SPEC_BYTES_MAX = 32 * 2**20
"""Total size of the cached specifications, as messages."""
SPECS_MAX = 1_000
TIMEOUT_S = 20.0

Key = tuple[str, str]
"""Job and entity version."""


@dataclass
class _Known:
    spec: JobSpec
    size_bytes: int
    default_task: Any = None  # made when it is first needed


class Tasks:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._specs: OrderedDict[Key, _Known] = OrderedDict()
        self._bytes = 0

    async def of(self, pod: pod_pb2.PodSummary) -> Any:
        """Return the TaskConfig; None for a pod whose job or version is gone. Raises grpc.aio.AioRpcError, Refusal."""
        job_id, _, instance = pod.pod_name.value.rpartition("-")
        try:
            known = await self._read((job_id, pod.status.version.value))
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                return None
            raise
        spec, number = known.spec, int(instance)
        if number in spec.instance_spec:
            return task_config_of(merge_config(spec.default_spec, spec.instance_spec[number]), spec)
        known.default_task = known.default_task or task_config_of(spec.default_spec, spec)
        return known.default_task

    async def _read(self, key: Key) -> _Known:
        if key not in self._specs:
            job_id, version = key
            request = GetJobRequest(
                job_id=peloton_pb2.JobID(value=job_id), version=peloton_pb2.EntityVersion(value=version)
            )
            answer = await self._backend.jobs.GetJob(request, timeout=TIMEOUT_S)
            return self._keep(key, answer.job_info.spec)
        self._specs.move_to_end(key)
        return self._specs[key]

    def _keep(self, key: Key, spec: JobSpec) -> _Known:
        if key not in self._specs:  # else another bucket has read it meanwhile
            self._specs[key] = _Known(spec, spec.ByteSize())
            self._bytes += self._specs[key].size_bytes
        known = self._specs[key]
        while self._bytes > SPEC_BYTES_MAX or len(self._specs) > SPECS_MAX:
            self._bytes -= self._specs.popitem(last=False)[1].size_bytes
        return known
