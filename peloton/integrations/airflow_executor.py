"""Airflow's executor whose tasks are instances of jobs.

    [core]
    executor = peloton.integrations.airflow_executor.PelotonExecutor

    [peloton]
    address = localhost:5397
    pool = /science
    job_file = worker.yaml

The tasks that the scheduler queues between two heartbeats are one job with an instance for each. ``job_file`` says what
each may use and its environment; see ``docs/frameworks/airflow.md``.
"""

from __future__ import annotations

import shlex
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import grpc

from peloton.api.v0.job import job_pb2
from peloton.api.v0.peloton_pb2 import JobID
from peloton.api.v0.table import table_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.yaml_config import load_message
from peloton.client import DEFAULT_ADDRESS, Client, RetryPolicy, is_away, retry_after_s
from peloton.errors import NotFound, PelotonError
from peloton.extras import missing_extra
from peloton.model.ids import new_job_id

try:
    from airflow.configuration import conf
    from airflow.executors.base_executor import BaseExecutor
    from airflow.utils.state import TaskInstanceState
except ModuleNotFoundError as missing:
    raise missing_extra("airflow", "apache-airflow", "PelotonExecutor") from missing

SECTION = "peloton"
BATCH_MAX = 500
"""Maximum number of tasks in one job."""
AWAY_S = 2.0
"""Seconds for which a call waits for an API that is away: the scheduler waits with it, and tries again later."""
SUCCEEDED, FAILED = task_pb2.SUCCEEDED, task_pb2.FAILED
ENDED = frozenset({SUCCEEDED, FAILED, task_pb2.LOST, task_pb2.KILLED})


@dataclass
class Batch:
    """Tasks of one job: keys by instance, without those whose end was reported."""

    job_id: str
    keys: dict[int, Any] = field(default_factory=dict)
    config: job_pb2.JobConfig | None = None  # None: it was submitted


class PelotonExecutor(BaseExecutor):  # type: ignore[misc]
    """Runs the tasks of Airflow as instances of batch jobs, which outlive the scheduler: the next one adopts them."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.batches: dict[str, Batch] = {}
        self.unsubmitted: deque[Batch] = deque()

    @cached_property
    def client(self) -> Client:
        address = conf.get(SECTION, "address", fallback=DEFAULT_ADDRESS)
        return Client(address, retry=RetryPolicy(busy_s=AWAY_S, away_s=AWAY_S))

    @cached_property
    def template(self) -> job_pb2.JobConfig:
        """Return the job of which each batch is made. A fault in the file ends the scheduler at its start."""
        return load_message(Path(conf.get(SECTION, "job_file")), job_pb2.JobConfig)

    @property
    def pool(self) -> str:
        return str(conf.get(SECTION, "pool"))

    def start(self) -> None:
        self.log.info("tasks run in pool %s as in job %s", self.pool, self.template.name)

    def _process_workloads(self, workload_items: Sequence[Any]) -> None:
        for start in range(0, len(workload_items), BATCH_MAX):
            workloads = workload_items[start : start + BATCH_MAX]
            batch = Batch(new_job_id(), config=job_pb2.JobConfig())
            assert batch.config is not None
            batch.config.CopyFrom(self.template)
            batch.config.instanceCount = len(workloads)
            for instance, workload in enumerate(workloads):
                batch.keys[instance] = workload.key
                self.queued_tasks.pop(workload.key, None)
                self.running.add(workload.key)
                command = batch.config.instanceConfig[instance].command
                command.CopyFrom(self.template.defaultConfig.command)
                command.shell, command.value = True, self.command_of(workload)
            self.unsubmitted.append(batch)

    def command_of(self, workload: Any) -> str:
        python = conf.get(SECTION, "python", fallback="python3")
        module = "airflow.sdk.execution_time.execute_workload"
        return f"exec {python} -m {module} --json-string {shlex.quote(workload.model_dump_json())}"

    def sync(self) -> None:
        """Submit what waits and report what has ended; an API that is away is asked again at the next heartbeat."""
        try:
            while self.unsubmitted:
                self.submit(self.unsubmitted[0])
                self.unsubmitted.popleft()
            for batch in list(self.batches.values()):
                self.report(batch)
        except grpc.RpcError as error:
            self.log.warning("Peloton does not answer: %s", error.details())

    def submit(self, batch: Batch) -> None:
        """Create the job of a batch. The call may be repeated: the job exists then under its id."""
        assert batch.config is not None
        try:
            self.client.submit(self.pool, batch.config, job_id=batch.job_id)
        except (PelotonError, grpc.RpcError) as error:
            if isinstance(error, grpc.RpcError) and (is_away(error) or retry_after_s(error) is not None):
                raise
            self.fail_all(batch, str(error))
            return
        batch.config = None
        self.batches[batch.job_id] = batch
        for instance, key in batch.keys.items():
            self.change_state(key, TaskInstanceState.QUEUED, f"{batch.job_id}/{instance}", remove_running=False)

    def report(self, batch: Batch) -> None:
        request = table_pb2.GetInstanceStatesRequest(id=JobID(value=batch.job_id))
        try:
            states = self.client.job_table.GetInstanceStates(request).states
            open_states = {instance: states[instance] for instance in batch.keys if instance < len(states)}
            # A killed or lost run has a next one, unless the job has ended.
            are_final = set(open_states.values()) <= ENDED and self.client.progress(batch.job_id).has_ended
        except NotFound as error:
            self.fail_all(batch, str(error))
            return
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.NOT_FOUND:
                raise
            self.fail_all(batch, str(error.details()))
            return
        for instance, state in open_states.items():
            if state == SUCCEEDED:
                self.success(batch.keys.pop(instance))
            elif state == FAILED or are_final:
                name = task_pb2.TaskState.DESCRIPTOR.values_by_number[state].name
                self.fail(batch.keys.pop(instance), f"instance {instance} of job {batch.job_id} is {name}")
        if not batch.keys:
            del self.batches[batch.job_id]

    def fail_all(self, batch: Batch, problem: str) -> None:
        for key in batch.keys.values():
            self.fail(key, problem)
        self.batches.pop(batch.job_id, None)

    def revoke_task(self, *, ti: Any) -> None:
        """Stop the instance of a task; no error is raised."""
        self.queued_tasks.pop(ti.key, None)
        self.running.discard(ti.key)
        for batch in [*self.unsubmitted, *self.batches.values()]:
            for instance in [instance for instance, key in batch.keys.items() if key == ti.key]:
                del batch.keys[instance]
                if batch.config is None:
                    self.stop(batch.job_id, instance)
                else:
                    batch.config.instanceConfig[instance].command.value = "true"

    def stop(self, job_id: str, instance: int) -> None:
        try:
            self.client.stop(job_id, [instance])
        except (PelotonError, grpc.RpcError) as error:
            self.log.warning("instance %d of job %s was not stopped: %s", instance, job_id, error)

    def try_adopt_task_instances(self, tis: Sequence[Any]) -> list[Any]:
        """Follow the instances of a scheduler that has ended; return the tasks that are on none."""
        left = []
        for ti in tis:
            job_id, _, instance = (ti.external_executor_id or "").partition("/")
            if instance.isdigit():
                self.batches.setdefault(job_id, Batch(job_id)).keys[int(instance)] = ti.key
                self.running.add(ti.key)
            else:
                left.append(ti)
        return left

    def end(self) -> None:
        """Leave the jobs to the next scheduler."""
        self.client.close()

    def terminate(self) -> None:
        self.end()
