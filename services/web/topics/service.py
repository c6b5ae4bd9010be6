"""One service: its rollout, its pods, and what its SLA let go."""

from __future__ import annotations

import asyncio
from typing import Any

from google.protobuf.json_format import MessageToDict

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.explain import explain_pb2
from peloton.api.v1alpha import peloton_pb2 as peloton_v1_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2
from peloton.api.v1alpha.pod import pod_pb2
from services.web.api import TIMEOUT_S, Api

PODS_MAX = 2_000
"""The first instances; a page says how many there are."""


async def look(api: Api, job_id: str) -> Any:
    """``job`` without the specs of its pods; ``pods`` as [instance, state, host, version, message, healthy or not];
    ``why`` its pods wait, in words, empty when none does; ``poolPath``."""
    request = stateless_svc_pb2.GetJobRequest(job_id=peloton_v1_pb2.JobID(value=job_id))
    answer = await api.services.GetJob(request, timeout=TIMEOUT_S)
    pods, why = await asyncio.gather(_pods(api, job_id), _why(api, job_id))
    answer.job_info.spec.ClearField("default_spec")
    answer.job_info.spec.ClearField("instance_spec")
    answer.workflow_info.ClearField("instance_events")
    waits = why.text if why.waiting or why.reasons else ""
    return {"job": MessageToDict(answer), "pods": pods, "why": waits, "poolPath": why.poolPath}


async def _pods(api: Api, job_id: str) -> list[list[Any]]:
    some = pod_pb2.InstanceIDRange(**{"from": 0, "to": PODS_MAX})
    request = stateless_svc_pb2.ListPodsRequest(job_id=peloton_v1_pb2.JobID(value=job_id), range=some)
    found = [pod async for answer in api.services.ListPods(request, timeout=TIMEOUT_S) for pod in answer.pods]
    return sorted(_row(pod) for pod in found)


def _row(pod: pod_pb2.PodSummary) -> list[Any]:
    status = pod.status
    instance = int(pod.pod_name.value.rpartition("-")[2])
    state = pod_pb2.PodState.Name(status.state).removeprefix("POD_STATE_")
    health = [pod_pb2.HealthState.Name(each.healthy.state) for each in status.containers_status]
    health = [name.removeprefix("HEALTH_STATE_") for name in health if not name.endswith(("INVALID", "DISABLED"))]
    return [instance, state, status.host, status.version.value, status.message or status.reason, " ".join(health)]


async def _why(api: Api, job_id: str) -> explain_pb2.JobWhyResponse:
    return await api.explain.JobWhy(explain_pb2.JobWhyRequest(jobId=peloton_pb2.JobID(value=job_id)), timeout=TIMEOUT_S)
