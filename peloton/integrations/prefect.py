"""A worker of Prefect that runs each flow run as a job.

    prefect work-pool create cluster --type peloton
    prefect worker start --pool cluster --type peloton

The job has one instance, whose command is the one that Prefect makes for the flow run. When the pod has to end, the
flow run is scheduled again.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.abc
import anyio.to_thread
import grpc

from peloton.client import DEFAULT_ADDRESS, Client
from peloton.errors import NotFound
from peloton.extras import missing_extra
from peloton.integrations.instances import Instances, InstanceSpec

try:
    import httpx
    from prefect.exceptions import InfrastructureNotFound, ObjectNotFound
    from prefect.states import Cancelled
    from prefect.workers.base import BaseJobConfiguration, BaseVariables, BaseWorker, BaseWorkerResult
    from pydantic import Field
except ImportError as missing:
    raise missing_extra("prefect", "prefect", "the worker of Prefect", "peloton-client") from missing

if TYPE_CHECKING:
    from prefect.client.schemas.objects import FlowRun

T = TypeVar("T")

POLL_S = 1.0
CANCELLED_POLL_S = 5.0
"""Seconds between two looks at whether a flow run that waits for its pod was cancelled."""
WAITS = frozenset({"INITIALIZED", "PENDING", "READY", "PLACING", "PLACED", "LAUNCHING", "LAUNCHED"})
"""States of an instance whose pod has not begun, so that no process of Prefect can end the flow run."""
SETTLE_S = 5.0
"""Seconds after which the next job of a flow run that was scheduled again is known by its id."""
EXIT_CODE = 1
"""Status of a job that did not succeed."""
LABEL_CHARS_MAX = 200
COMMAND = "prefect "
SCHEDULES_AGAIN = {"PREFECT_FLOW_RUN_EXECUTE_SIGTERM_BEHAVIOR": "reschedule"}


class PelotonJobConfiguration(BaseJobConfiguration):  # type: ignore[misc]
    """The job of a flow run. Every field may be set in the work pool and by the job variables of a deployment."""

    address: str = Field(default=DEFAULT_ADDRESS, description="Address of the Peloton API, as the worker reaches it.")
    pool: str = Field(default="/", description="Path of the resource pool.")
    image: str = Field(default="", description="Image of the pod; empty for the files of the host.")
    cpu: float = Field(default=1.0, gt=0, description="Cores.")
    memory_mib: float = Field(default=1024.0, gt=0, description="Memory in MiB.")
    disk_mib: float = Field(default=256.0, gt=0, description="Disk in MiB.")
    gpu: float = Field(default=0.0, ge=0, description="GPUs.")
    preemptible: bool = Field(default=True, description="Whether other pools may take the resources back.")
    revocable: bool = Field(default=False, description="Whether the pod runs on resources that others hold unused.")
    failures_max: int = Field(default=0, ge=0, description="Failed runs of the pod after which it is not repeated.")
    grace_s: int = Field(default=30, ge=0, description="Seconds between SIGTERM and SIGKILL.")

    def spec(self) -> InstanceSpec:
        command = self.command or ""
        if not self.image and command.startswith(COMMAND):  # the shell of a host need not find it
            command = f"{shlex.quote(sys.executable)} -m {command}"
        return InstanceSpec(
            command=f"exec {command}",
            cpu=self.cpu,
            memory_mib=self.memory_mib,
            disk_mib=self.disk_mib,
            gpu=self.gpu,
            environment={**SCHEDULES_AGAIN, **{name: value for name, value in self.env.items() if value is not None}},
            image=self.image,
            preemptible=self.preemptible,
            ends_when_preempted=not self.failures_max,
            revocable=self.revocable,
            failures_max=self.failures_max,
            grace_s=self.grace_s,
        )


class PelotonVariables(BaseVariables, PelotonJobConfiguration):  # type: ignore[misc]
    """The variables of the work pool, which are the fields of the job."""


class PelotonWorkerResult(BaseWorkerResult):  # type: ignore[misc]
    """The end of a flow run's job; ``identifier`` is the job's id."""


class PelotonWorker(BaseWorker[PelotonJobConfiguration, PelotonVariables, PelotonWorkerResult]):  # type: ignore[misc]
    """Runs flow runs as jobs, waits for their ends, and stops those that are cancelled."""

    type = "peloton"
    job_configuration = PelotonJobConfiguration
    job_configuration_variables = PelotonVariables
    _description = "Run flow runs as jobs in the resource pools of Peloton."

    async def run(
        self,
        flow_run: FlowRun,
        configuration: PelotonJobConfiguration,
        task_status: anyio.abc.TaskStatus[str] | None = None,
    ) -> PelotonWorkerResult:
        """Create the job and wait for its end.

        Prefect calls the flow run crashed if the status is not 0, unless the flow run has ended in its own words.
        """
        log = self.get_flow_run_logger(flow_run)
        with Client(configuration.address) as client:
            job = await call(make_job, client, flow_run, configuration)
            log.info("Job %s in pool %s of Peloton", job.job_id, configuration.pool)
            if task_status is not None:
                task_status.started(job.job_id)
            status = await self._wait(job, flow_run, configuration)
        return PelotonWorkerResult(identifier=job.job_id, status_code=status)

    async def kill_infrastructure(
        self, infrastructure_pid: str, configuration: PelotonJobConfiguration, grace_seconds: int = 30
    ) -> None:
        """Stop the job of a flow run, with the grace period of the job."""
        with Client(configuration.address) as client:
            try:
                await call(client.stop, infrastructure_pid)
            except NotFound as error:
                raise InfrastructureNotFound(str(error)) from error

    async def _wait(self, job: Instances, flow_run: FlowRun, configuration: PelotonJobConfiguration) -> int:
        """Wait for the end of the job; return its status. Unless runs are repeated, it ends with its first one, since
        Prefect schedules the flow run again, as another job.

        Prefect leaves cancelling to the process of the flow run, and its own worker looks for cancelled flow runs only
        until they have a job: one whose pod has not begun is looked after here.
        """
        log, first_run, is_repeated = self.get_flow_run_logger(flow_run), "", configuration.failures_max > 0
        looks_at_s = anyio.current_time() + CANCELLED_POLL_S
        while True:
            await anyio.sleep(POLL_S)
            try:
                counts = await call(job.count)
                seen = await call(job.read)
                if not seen or counts is None:
                    continue
                [instance] = seen
                first_run = first_run or instance.run
                if not counts.has_ended and not is_repeated and first_run and instance.run != first_run:
                    await call(job.stop_all)
                elif not counts.has_ended:
                    if instance.state in WAITS and anyio.current_time() >= looks_at_s:
                        await self._end_if_cancelled(flow_run, job.job_id, configuration)
                        looks_at_s = anyio.current_time() + CANCELLED_POLL_S
                    continue
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.NOT_FOUND:
                    log.error("Job %s was deleted", job.job_id)
                    return EXIT_CODE
                log.warning("Peloton does not answer, and is asked again: %s", error)
                continue
            if counts.state == "SUCCEEDED":
                return 0
            await anyio.sleep(SETTLE_S)
            now = await self._read(flow_run)
            if now is None or now.state.is_cancelled():
                log.info("Job %s has ended, since its flow run was cancelled", job.job_id)
                return 0
            if now.state.is_scheduled() or now.infrastructure_pid != job.job_id:
                log.info("Job %s had to end, and the flow run is scheduled again: %s", job.job_id, instance.message)
                return 0
            log.error("Job %s has ended as %s: %s", job.job_id, instance.state, instance.message)
            return EXIT_CODE

    async def _end_if_cancelled(self, flow_run: FlowRun, job_id: str, configuration: PelotonJobConfiguration) -> None:
        """Stop the job of a flow run that was cancelled or deleted, whose state is then ``Cancelled``."""
        try:
            now = await self._read(flow_run)
            if now is not None and not (now.state.is_cancelling() or now.state.is_cancelled()):
                return
            await self.kill_infrastructure(job_id, configuration)
            if now is not None and now.state.is_cancelling():
                state = Cancelled(message=f"Job {job_id} was stopped before its pod began.")
                await self.client.set_flow_run_state(flow_run.id, state, force=True)
        except httpx.HTTPError as error:
            self.get_flow_run_logger(flow_run).warning("Prefect does not answer, and is asked again: %s", error)

    async def _read(self, flow_run: FlowRun) -> FlowRun | None:
        """Return the flow run as it is now; None if it was deleted."""
        try:
            return await self.client.read_flow_run(flow_run.id)
        except ObjectNotFound:
            return None


async def call(function: Callable[..., T], *arguments: Any) -> T:
    """Call Peloton on another thread."""
    result: T = await anyio.to_thread.run_sync(function, *arguments)
    return result


def make_job(client: Client, flow_run: FlowRun, configuration: PelotonJobConfiguration) -> Instances:
    labels = {name: value[:LABEL_CHARS_MAX] for name, value in configuration.labels.items() if value}
    name = configuration.name or flow_run.name
    job = Instances(client, configuration.pool, name, configuration.spec(), owner="prefect", labels=labels)
    job.add(1)
    return job
