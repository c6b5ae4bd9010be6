"""Answers of the v1alpha API about a service, for tests of commands."""

from __future__ import annotations

from peloton.api.v0 import peloton_pb2 as v0_peloton_pb2
from peloton.api.v0.respool import respool_pb2
from peloton.api.v1alpha import peloton_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc

JOB = "91b1b8e5-2ba8-11e7-bc23-0242ac11000d"
CREATED = "2026-11-20T10:00:00.5Z"

SPEC = """\
name: web
owningteam: maps
instancecount: 3
respoolid: {value: pool-0}
defaultspec:
  containers:
    - name: web
      resource: {cpulimit: 1}
      entrypoint: {value: serve}
"""


def version(text: str) -> peloton_pb2.EntityVersion:
    return peloton_pb2.EntityVersion(value=text)


def pool_answer() -> respool_pb2.LookupResponse:
    return respool_pb2.LookupResponse(id=v0_peloton_pb2.ResourcePoolID(value="pool-1"))


def workflow_status(
    state: str = "SUCCEEDED", kind: str = "UPDATE", now: str = "2-1-2", before: str = "1-1-2",
    done: int = 0, failed: int = 0, current: tuple[int, ...] = (), total: int = 3, created: str = CREATED,
    previous: str = "INITIALIZED", waiting_for: str = "",
) -> stateless_pb2.WorkflowStatus:  # fmt: skip
    return stateless_pb2.WorkflowStatus(
        type=stateless_pb2.WorkflowType.Value(f"WORKFLOW_TYPE_{kind}"),
        state=stateless_pb2.WorkflowState.Value(f"WORKFLOW_STATE_{state}"),
        prev_state=stateless_pb2.WorkflowState.Value(f"WORKFLOW_STATE_{previous}"),
        num_instances_completed=done,
        num_instances_failed=failed,
        num_instances_remaining=total - done - failed,
        instances_current=current,
        version=version(now),
        prev_version=version(before),
        creation_time=created,
        waiting_for=waiting_for,
    )


def job_answer(
    at: str = "2-1-2",
    update: stateless_pb2.WorkflowStatus | None = None,
    pods: dict[str, dict[str, int]] | None = None,
    state: str = "RUNNING",
    goal: str = "RUNNING",
    instances: int = 3,
    batch_size: int = 0,
) -> svc.GetJobResponse:
    """Return the answer for one service; ``pods`` maps version -> state -> number of pods."""
    response = svc.GetJobResponse()
    job = response.job_info
    job.job_id.value = JOB
    job.spec.CopyFrom(spec(instances))
    job.status.version.value = at
    job.status.state = stateless_pb2.JobState.Value(f"JOB_STATE_{state}")
    job.status.desired_state = stateless_pb2.JobState.Value(f"JOB_STATE_{goal}")
    job.status.creation_time = CREATED
    if update is not None:
        job.status.workflow_status.CopyFrom(update)
        response.workflow_info.status.CopyFrom(update)
        response.workflow_info.update_spec.batch_size = batch_size
    for name, counts in (pods or {}).items():
        stats = job.status.pod_stats_by_configuration_version[name].state_stats
        stats.update({f"POD_STATE_{pod}": count for pod, count in counts.items()})
    return response


def spec(instances: int = 3, command: str = "serve") -> stateless_pb2.JobSpec:
    """Return SPEC as the API answers it: the command of its container is written in both forms."""
    found = stateless_pb2.JobSpec(name="web", owning_team="maps", instance_count=instances)
    found.revision.version = 2
    found.respool_id.value = "pool-0"
    container = found.default_spec.containers.add(name="web")
    container.resource.cpu_limit = 1
    container.entrypoint.value = container.command.value = command
    return found


def replace_answer(text: str = "3-1-3") -> svc.ReplaceJobResponse:
    return svc.ReplaceJobResponse(version=version(text))
