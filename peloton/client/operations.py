"""Operations on jobs that most programs need: submit, wait, read logs, scale, stop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

import grpc
import yaml

from peloton.api.error_details import reason_of
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.respool import respool_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha import peloton_pb2 as v1
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2
from peloton.api.v1alpha.pod.svc import pod_svc_pb2
from peloton.api.yaml_config import load_message
from peloton.client.repeats import Outage, RetryPolicy
from peloton.client.steps import FETCH_BYTES_MAX, Call, Fetch, Sleep, Steps, persist
from peloton.errors import Aborted, InvalidArgument, NotFound, Reason
from peloton.model.ids import new_job_id
from peloton.model.job import JOB_TERMINAL, JobState
from peloton.model.pod import TERMINAL, PodState

POLL_S = 0.25
POLL_S_MAX = 5.0
POLL_GROWTH = 1.5
VERSION_ATTEMPTS_MAX = 5

JobLike: TypeAlias = job_pb2.JobConfig | stateless_pb2.JobSpec | Mapping[str, Any] | Path | str


@dataclass(frozen=True, slots=True)
class Progress:
    """The last read state of a job. ``counts`` are tasks by state, without zeros, in the order of a task's life."""

    state: JobState = JobState.UNKNOWN
    total_count: int = 0
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def ended_count(self) -> int:
        return sum(count for state, count in self.counts.items() if state in TERMINAL)

    @property
    def has_ended(self) -> bool:
        return self.state in JOB_TERMINAL

    @property
    def has_succeeded(self) -> bool:
        return self.state is JobState.SUCCEEDED


# -- submit


def submit(pool: str, config: JobLike, job_id: str) -> Steps[str]:
    """Create a job in the pool and return its id: see ``Client.submit``."""
    message = config if isinstance(config, job_pb2.JobConfig | stateless_pb2.JobSpec) else read_config(config)
    pool_id = yield from find_pool(pool)
    job_id = job_id or new_job_id()
    if isinstance(message, stateless_pb2.JobSpec):
        spec = stateless_pb2.JobSpec()
        spec.CopyFrom(message)
        spec.respool_id.value = pool_id
        request = stateless_svc_pb2.CreateJobRequest(job_id=v1.JobID(value=job_id), spec=spec, update_key=job_id)
        yield Call("services", "CreateJob", request)
        return job_id
    wanted = job_pb2.JobConfig()
    wanted.CopyFrom(message)
    wanted.respoolID.value = pool_id
    create = job_pb2.CreateRequest(id=peloton_pb2.JobID(value=job_id), config=wanted)
    answer: job_pb2.CreateResponse = yield Call("jobs", "Create", create)
    error = answer.error
    if error.HasField("invalidConfig") or error.HasField("invalidJobId"):
        raise InvalidArgument(error.invalidConfig.message or error.invalidJobId.message)
    return job_id  # also if it is there already: an earlier attempt has created it


def read_config(config: Mapping[str, Any] | Path | str) -> job_pb2.JobConfig:
    """Return the configuration in a YAML file or a mapping, whose keys are those of the file."""
    if isinstance(config, Mapping):
        return load_message(yaml.safe_dump(dict(config), sort_keys=False), job_pb2.JobConfig, name="<config>")
    return load_message(Path(config), job_pb2.JobConfig)


def find_pool(path: str) -> Steps[str]:
    """Return the id of the pool. Raises NotFound."""
    request = respool_pb2.LookupRequest(path=respool_pb2.ResourcePoolPath(value=path))
    answer: respool_pb2.LookupResponse = yield Call("respools", "LookupResourcePoolID", request)
    if not answer.id.value:
        problem = answer.error.invalidPath.message or answer.error.notFound.message or "no such pool"
        raise NotFound(f"unable to find resource pool {path}: {problem}").because(Reason.POOL_NOT_FOUND, pool=path)
    return answer.id.value


# -- wait


class Polling:
    """The pauses between the reads of one wait, which grow; the last one ends at the timeout."""

    def __init__(self, policy: RetryPolicy, timeout_s: float | None) -> None:
        self._clock, self._timeout_s = policy.clock, timeout_s
        self._since_s, self._poll_s = policy.clock(), POLL_S

    def next_sleep(self, name: str, state: str) -> Sleep:
        """Return the next pause. Raises TimeoutError with the name and the state of what has not ended in time."""
        pause_s, self._poll_s = self._poll_s, min(POLL_GROWTH * self._poll_s, POLL_S_MAX)
        if self._timeout_s is None:
            return Sleep(pause_s)
        left_s = self._since_s + self._timeout_s - self._clock()
        if left_s <= 0:
            raise TimeoutError(f"{name} has not ended within {self._timeout_s:g} s: {state}")
        return Sleep(min(pause_s, left_s))


def read_progress(job_id: str) -> Steps[Progress]:
    """Read the progress by the short form of the job if the API has it, otherwise by the long one. Raises NotFound."""
    return (yield from _read_progress(job_id, Outage(RetryPolicy(away_s=0))))


def _read_progress(job_id: str, outage: Outage) -> Steps[Progress]:
    wire = peloton_pb2.JobID(value=job_id)
    try:
        cache = yield from persist(outage, Call("jobs", "GetCache", job_pb2.GetCacheRequest(id=wire)))
    except grpc.RpcError as error:
        if error.code() not in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNIMPLEMENTED):
            raise
    else:
        return progress_of(cache.config, cache.runtime)
    answer: job_pb2.GetResponse = yield from persist(outage, Call("jobs", "Get", job_pb2.GetRequest(id=wire)))
    if not answer.HasField("jobInfo"):
        problem = answer.error.notFound.message or answer.error.getRuntimeFail.message
        raise NotFound(f"job {job_id}: {problem or 'not found'}").because(
            Reason.JOB_NOT_FOUND, job=job_id, problem=problem
        )
    return progress_of(answer.jobInfo.config, answer.jobInfo.runtime)


def progress_of(config: job_pb2.JobConfig, runtime: job_pb2.RuntimeInfo) -> Progress:
    stats = runtime.taskStats
    known = {str(state): stats[state] for state in PodState if stats.get(state)}
    return Progress(JobState(job_pb2.JobState.Name(runtime.state)), config.instanceCount, known)


def wait(job_id: str, timeout_s: float | None, policy: RetryPolicy) -> Steps[Progress]:
    """Return the progress of the job at its end: see ``Client.wait``."""
    outage, polling = Outage(policy), Polling(policy, timeout_s)
    while True:
        progress = yield from _read_progress(job_id, outage)
        if progress.has_ended:
            return progress
        yield polling.next_sleep(f"job {job_id}", progress.state)


# -- logs


def read_log(job_id: str, instance: int, file: str, run_id: str) -> Steps[str]:
    """Return the text of a file of a task's sandbox: see ``Client.logs``."""
    request = task_pb2.BrowseSandboxRequest(jobId=peloton_pb2.JobID(value=job_id), instanceId=instance, taskId=run_id)
    listing: task_pb2.BrowseSandboxResponse = yield Call("tasks", "BrowseSandbox", request)
    if listing.HasField("error"):
        raise refusal_of_sandbox(listing.error, f"{job_id}-{instance}")
    wanted = "/" + file.lstrip("/")
    paths = [path for path in listing.paths if f"/{path}".endswith(wanted)]
    if not paths:
        raise NotFound(f"task {job_id}-{instance} has no file {file}: it has {', '.join(listing.paths) or 'none'}")
    path = min(paths, key=len)  # a folder of the task may have files of this name, too
    if listing.hostname:
        body = yield Fetch(listing.hostname, int(listing.port), f"/files/download?path={quote(path, safe='')}")
    else:
        body = yield from read_pieces(v1.PodName(value=f"{job_id}-{instance}"), v1.PodID(value=run_id), path)
    return str(body, "utf-8", "replace")


def refusal_of_sandbox(error: task_pb2.BrowseSandboxResponse.Error, task: str) -> NotFound | Aborted:
    if error.HasField("notRunning"):
        return Aborted(f"task {task} has not been started: {error.notRunning.message}")
    if error.HasField("failure"):
        return Aborted(f"unable to list the sandbox of task {task}: {error.failure.message}")
    if error.HasField("outOfRange"):
        return NotFound(f"no task {task}: the job has {error.outOfRange.instanceCount} instances")
    return NotFound(f"no task {task}: {error.notFound.message}")


def read_pieces(pod: v1.PodName, run: v1.PodID, path: str) -> Steps[bytes]:
    """Return a file that no agent serves, to its present end: its last FETCH_BYTES_MAX bytes, if it has more."""
    body, offset, is_end = bytearray(), 0, False
    while not is_end:
        request = pod_svc_pb2.GetPodFileRequest(pod_name=pod, pod_id=run, path=path, offset=offset)
        piece: pod_svc_pb2.GetPodFileResponse = yield Call("pods", "GetPodFile", request)
        offset, is_end = offset + len(piece.data), piece.is_end
        body += piece.data
        del body[:-FETCH_BYTES_MAX]
    return bytes(body)


# -- steer


def stop(job_id: str, instances: Sequence[int]) -> Steps[None]:
    """Stop a job or some of its instances: see ``Client.stop``."""
    request = task_pb2.StopRequest(jobId=peloton_pb2.JobID(value=job_id), ranges=ranges_of(instances))
    answer: task_pb2.StopResponse = yield Call("tasks", "Stop", request)
    error = answer.error
    if error.HasField("outOfRange"):
        raise NotFound(f"job {job_id} has {error.outOfRange.instanceCount} instances, not all of {list(instances)}")
    if error.HasField("notFound"):
        raise NotFound(f"job {job_id}: {error.notFound.message}").because(Reason.JOB_NOT_FOUND, job=job_id)
    if error.HasField("updateError"):
        raise Aborted(f"job {job_id} was not stopped: {error.updateError.message}")


def ranges_of(numbers: Iterable[int]) -> list[task_pb2.InstanceRange]:
    """Return the fewest ranges that cover exactly these numbers."""
    spans: list[list[int]] = []
    for number in sorted(set(numbers)):
        if spans and spans[-1][1] == number:
            spans[-1][1] = number + 1
        else:
            spans.append([number, number + 1])
    return [task_pb2.InstanceRange(**{"from": begin, "to": end}) for begin, end in spans]


def scale(job_id: str, instance_count: int, update: stateless_pb2.UpdateSpec | None) -> Steps[str]:
    """Start an update of a service to this many instances: see ``Client.scale``."""
    if instance_count < 1:
        raise InvalidArgument(f"job {job_id}: {instance_count} instances, the minimum is 1: stop the job instead")
    wire, key = v1.JobID(value=job_id), new_job_id()
    for attempt in range(1, VERSION_ATTEMPTS_MAX + 1):
        read = stateless_svc_pb2.GetJobRequest(job_id=wire, summary_only=True)
        job: stateless_svc_pb2.GetJobResponse = yield Call("services", "GetJob", read)
        request = stateless_svc_pb2.PatchJobRequest(
            job_id=wire,
            version=job.summary.status.version,
            spec=stateless_pb2.JobSpec(instance_count=instance_count),
            update_spec=update,
            update_key=key,
        )
        try:
            yield Call("services", "PatchJob", request)
        except grpc.RpcError as error:
            if reason_of(error) != Reason.VERSION_CONFLICT or attempt == VERSION_ATTEMPTS_MAX:
                raise
        else:
            break
    return str(key)


UPDATE_ENDED = frozenset(
    (
        stateless_pb2.WORKFLOW_STATE_SUCCEEDED,
        stateless_pb2.WORKFLOW_STATE_ABORTED,
        stateless_pb2.WORKFLOW_STATE_FAILED,
        stateless_pb2.WORKFLOW_STATE_ROLLED_BACK,
    )
)


def wait_for_update(
    job_id: str, update_key: str, timeout_s: float | None, policy: RetryPolicy
) -> Steps[stateless_pb2.WorkflowStatus]:
    """Return the status of an update at its end: see ``Client.wait_for_update``."""
    outage, polling = Outage(policy), Polling(policy, timeout_s)
    request = stateless_svc_pb2.ListJobWorkflowsRequest(job_id=v1.JobID(value=job_id))
    while True:
        answer: stateless_svc_pb2.ListJobWorkflowsResponse = yield from persist(
            outage, Call("services", "ListJobWorkflows", request)
        )
        found = next((each.status for each in answer.workflow_infos if each.update_key == update_key), None)
        if found is None:
            raise NotFound(f"job {job_id} has no update with the key {update_key!r}").because(Reason.UPDATE_NOT_FOUND)
        if found.state in UPDATE_ENDED:
            return found
        state = stateless_pb2.WorkflowState.Name(found.state).removeprefix("WORKFLOW_STATE_")
        yield polling.next_sleep(f"update {update_key!r} of job {job_id}", state)
