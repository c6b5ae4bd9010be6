"""Jobs and pods in the states in which tests begin."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from peloton.api import convert
from peloton.api.v0.job import job_pb2
from peloton.model.ids import JobId, PodId, new_job_id
from peloton.model.job import JobProgress, JobType
from peloton.model.pod import PodRecord, PodState, PodStatus
from services.storage.pods.status_writes import StatusOutcome
from services.storage.storage import Storage
from tests.nightly import nightly

MEMORY = "memory"
DATABASES = ["sqlite", "postgres"]
everywhere = pytest.mark.parametrize("url", [MEMORY, *DATABASES], indirect=True)
"""Marks tests that run on storage in memory as well."""
postgres_nightly = pytest.mark.parametrize("url", ["sqlite", nightly("postgres")], indirect=True)
"""Marks long tests of a rule that does not depend on the database, and whose statements other tests run on both."""
SECOND = 1_000_000_000
NOW = 1_700_000_000 * SECOND
I, P, READY, LAUNCHED, STARTING, R, S, F, L, KILLING, K = (  # noqa: E741
    PodState.INITIALIZED,
    PodState.PENDING,
    PodState.READY,
    PodState.LAUNCHED,
    PodState.STARTING,
    PodState.RUNNING,
    PodState.SUCCEEDED,
    PodState.FAILED,
    PodState.LOST,
    PodState.KILLING,
    PodState.KILLED,
)


class Clock:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now_ns = NOW

    def __call__(self) -> int:
        return self.now_ns

    def advance(self, seconds: float) -> int:
        self.now_ns += int(seconds * SECOND)
        return self.now_ns


def a_config(
    count: int = 4, *, type_: JobType = JobType.BATCH, retries: int = 0, unlike: Iterable[int] = (), **sla: Any
) -> job_pb2.JobConfig:
    """``unlike``: instances each of which has a shape of its own."""
    config = job_pb2.JobConfig(
        name="train",
        type=convert.JOB_TYPE_NUMBERS[type_],
        owningTeam="maps",
        instanceCount=count,
        sla=job_pb2.SlaConfig(**sla),
    )
    config.respoolID.value = "pool"
    config.labels.add(key="stage", value="prod-eu")
    task = config.defaultConfig
    task.name = "worker"
    task.resource.cpuLimit = 1.5
    task.resource.memLimitMb = 100
    task.command.value = "true"
    task.restartPolicy.maxFailures = retries
    for instance in unlike:
        config.instanceConfig[instance].resource.cpuLimit = 2 + instance
    return config


def create(storage: Storage, config: job_pb2.JobConfig, job_id: JobId | None = None) -> JobId:
    """Create the job without its pods."""
    job_id = job_id or new_job_id()
    storage.jobs.create(convert.new_job_record(job_id, config, NOW), config, NOW)
    return job_id


def a_job(storage: Storage, count: int = 4, **config: Any) -> JobId:
    """Create a job whose pods are INITIALIZED."""
    job_id = create(storage, a_config(count, **config))
    storage.pods.create(job_id, lambda _: None)
    storage.jobs.settle(job_id, NOW)
    return job_id


def queue(storage: Storage, job_id: JobId, limit: int = 1_000_000, queue_seq: int = 1) -> int:
    queued = storage.admission.mark_pending(job_id, storage.admission.queueable(job_id, limit), queue_seq)
    return sum(count for _, _, count in queued)


def admit(storage: Storage, job_id: JobId) -> int:
    """Make every pod READY that can be."""
    queue(storage, job_id)
    job = storage.jobs.get(job_id)
    assert job is not None
    return storage.admission.mark_ready([(job_id, 0, job.instance_count)])


def launch(storage: Storage, job_id: JobId, limit: int = 1_000_000, cluster: str = "") -> set[int]:
    """Make every READY pod LAUNCHED on a host."""
    ready = ready_pods(storage, job_id, limit)
    rows = [(instance, run, f"host{instance % 3}", "agent", {"http": 31000}) for instance, run in ready]
    return storage.host_pods.mark_launched(job_id, rows, NOW, cluster)


def ready_pods(storage: Storage, job_id: JobId, limit: int = 1_000_000) -> list[tuple[int, int]]:
    """Return ``(instance, run)`` of the pods that could be launched: the gang if it is whole, then pods outside
    gangs."""
    gang = storage.pods.ready_gang(job_id)
    return [pod for one in [*([gang] if gang else []), *storage.pods.ready_gangs(job_id, limit)] for pod in one.pods]


def a_running_job(storage: Storage, count: int = 4, **config: Any) -> JobId:
    job_id = a_job(storage, count, **config)
    run(storage, job_id)
    return job_id


def run(storage: Storage, job_id: JobId) -> None:
    """Make every pod RUNNING that can be."""
    admit(storage, job_id)
    launched = launch(storage, job_id)
    report(storage, job_id, sorted(launched), R)
    storage.jobs.settle(job_id, NOW)


def report(
    storage: Storage,
    job_id: JobId,
    instances: Iterable[int],
    state: PodState,
    time_ns: int = NOW,
    *,
    no_other_host: bool = False,
    **more: Any,
) -> StatusOutcome:
    """Report the current runs of these instances, as hosts do. ``no_other_host``: no other host could take the
    pods."""
    runs = runs_of(storage, job_id)
    statuses = [PodStatus(PodId(job_id, i, runs[i]), state, time_ns, host="host", **more) for i in instances]
    bound = [status.pod_id for status in statuses] if no_other_host else []
    return storage.host_pods.apply_status(statuses, "cluster", bound)


def pods(storage: Storage, job_id: JobId) -> list[PodRecord]:
    return storage.pods.page(job_id, limit=1_000_000)


def runs_of(storage: Storage, job_id: JobId) -> dict[int, int]:
    return {pod.instance_id: pod.run_id for pod in pods(storage, job_id)}


def states(storage: Storage, job_id: JobId) -> list[PodState]:
    return [pod.state for pod in pods(storage, job_id)]


def pod(storage: Storage, job_id: JobId, instance_id: int = 0) -> PodRecord:
    found = storage.pods.get(job_id, instance_id)
    assert found is not None
    return found


def settle_all(storage: Storage, job_id: JobId, now_ns: int = NOW) -> JobProgress:
    """Settle the job until no work is left for now."""
    while (progress := storage.jobs.settle(job_id, now_ns)).settle_again:
        pass
    return progress


def counts(states_: Sequence[PodState]) -> dict[str, int]:
    return {state.value: states_.count(state) for state in set(states_)}
