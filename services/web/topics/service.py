"""Topic of one service: its rollout, pods, problems and disruptions."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from google.protobuf.json_format import MessageToDict

from peloton.api.convert_time import unix_seconds
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.explain import explain_pb2
from peloton.api.v1alpha import peloton_pb2 as peloton_v1_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2
from peloton.api.v1alpha.pod import pod_pb2
from peloton.model.aurora_update import aurora_update
from peloton.model.status_text import OUTPUT_MARK, status_text
from services.web.api import TIMEOUT_S, Api

PODS_MAX = 2_000
"""Maximum number of instances shown; a page shows the total."""
LATELY_S = 300.0
"""Run time in seconds after which an instance that has failed is considered recovered."""
TEXTS_MAX = 3
"""Maximum number of causes named in one problem."""
_FAILED = (pod_pb2.POD_STATE_FAILED, pod_pb2.POD_STATE_LOST)
Trouble = dict[str, Any]
"""Mapping of ``title``, ``detail``, and the ``instance`` whose stderr has details."""


async def read(api: Api, job_id: str) -> Any:
    """Return the state of a service.

    ``job`` comes without the specs of its pods; ``pods`` as [instance, state, host, version, message, health, run,
    start, completion, failures]; ``trouble`` as Trouble; ``why`` is the text of the reason for waiting pods, empty if
    none wait; ``poolPath``; ``aurora`` names the update for clients of Aurora, empty if none of them started it.
    """
    request = stateless_svc_pb2.GetJobRequest(job_id=peloton_v1_pb2.JobID(value=job_id))
    answer = await api.services.GetJob(request, timeout=TIMEOUT_S)
    pods, why = await asyncio.gather(_pods(api, job_id), _why(api, job_id))
    is_stopped = answer.job_info.status.desired_state == stateless_pb2.JOB_STATE_KILLED
    trouble = [] if is_stopped else list(troubles(pods, why, time.time()))
    answer.job_info.spec.ClearField("default_spec")
    answer.job_info.spec.ClearField("instance_spec")
    answer.workflow_info.ClearField("instance_events")
    aurora = aurora_update(answer.workflow_info.opaque_data.data)
    return {
        "job": MessageToDict(answer),
        "pods": [_row(pod) for pod in pods],
        "trouble": trouble,
        "why": why.text if why.waiting or why.reasons else "",
        "poolPath": why.poolPath,
        "aurora": str(aurora) if aurora else "",
    }


def troubles(pods: Sequence[pod_pb2.PodSummary], why: explain_pb2.JobWhyResponse, now_s: float) -> Iterator[Trouble]:
    """Yield problems of instances: failing ones, then ones with failing health checks."""
    failing = [pod for pod in pods if _is_failing(pod.status, now_s)]
    if failing:
        # The resource manager reports exit code and next run; the message of a waiting pod only says that it waits.
        back_off_texts = [reason.text for reason in why.reasons if reason.rule == explain_pb2.RULE_BACK_OFF]
        said = [(pod.status.message.partition(OUTPUT_MARK)[0], pod.status.reason) for pod in failing]
        texts = Counter(status_text(message, reason) for message, reason in said)
        del texts[""]
        back_off_texts = back_off_texts or [
            f"{text} ({count} instances)" if count > 1 else text for text, count in texts.most_common()
        ]
        lines = back_off_texts[:TEXTS_MAX]
        outputs = [pod.status.message.partition(OUTPUT_MARK)[2] for pod in failing]
        if output := next(filter(None, outputs), ""):
            lines.append(f"stderr: {output}")
        yield _trouble(failing, len(pods), "fails", "fail", "\n".join(lines))
    sick = [pod for pod in pods if not _is_failing(pod.status, now_s) and "UNHEALTHY" in _health(pod)]
    if sick:
        yield _trouble(sick, len(pods), "is unhealthy", "are unhealthy", "Health checks fail.")


def _trouble(pods: Sequence[pod_pb2.PodSummary], total: int, one: str, several: str, detail: str) -> Trouble:
    all_of_them = "1 instance" if total == 1 else f"{total} instances"
    verb = one if len(pods) == 1 else several
    return {"title": f"{len(pods)} of {all_of_them} {verb}", "detail": detail, "instance": _instance(pods[0])}


def _is_failing(status: pod_pb2.PodStatus, now_s: float) -> bool:
    if status.state in _FAILED:
        return True
    if not status.failure_count:
        return False
    is_running = status.state == pod_pb2.POD_STATE_RUNNING and status.start_time
    return not is_running or now_s - unix_seconds(status.start_time) < LATELY_S


async def _pods(api: Api, job_id: str) -> list[pod_pb2.PodSummary]:
    """Return the pods by instance."""
    some = pod_pb2.InstanceIDRange(**{"from": 0, "to": PODS_MAX})
    request = stateless_svc_pb2.ListPodsRequest(job_id=peloton_v1_pb2.JobID(value=job_id), range=some)
    found = [pod async for answer in api.services.ListPods(request, timeout=TIMEOUT_S) for pod in answer.pods]
    return sorted(found, key=_instance)


def _instance(pod: pod_pb2.PodSummary) -> int:
    return int(pod.pod_name.value.rpartition("-")[2])


def _health(pod: pod_pb2.PodSummary) -> str:
    names = [pod_pb2.HealthState.Name(each.healthy.state) for each in pod.status.containers_status]
    names = [name.removeprefix("HEALTH_STATE_") for name in names if not name.endswith(("INVALID", "DISABLED"))]
    return " ".join(names)


def _row(pod: pod_pb2.PodSummary) -> list[Any]:
    status = pod.status
    return [
        _instance(pod),
        pod_pb2.PodState.Name(status.state).removeprefix("POD_STATE_"),
        status.host,
        status.version.value,
        status_text(status.message, status.reason),
        _health(pod),
        int(status.pod_id.value.rpartition("-")[2] or 0),
        status.start_time,
        status.completion_time,
        status.failure_count,
    ]


async def _why(api: Api, job_id: str) -> explain_pb2.JobWhyResponse:
    return await api.explain.JobWhy(explain_pb2.JobWhyRequest(jobId=peloton_pb2.JobID(value=job_id)), timeout=TIMEOUT_S)
