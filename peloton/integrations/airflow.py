"""Airflow's operator for jobs of Peloton.

    train = PelotonOperator(
        task_id="train",
        resource_pool="/science",
        config={"instanceCount": 4, "defaultConfig": {"command": {"value": "python train.py"}, ...}},
        deferrable=True,
    )

Each try of a task is one job, whose id follows from the try: a lost answer of the API makes no second job. See
``docs/frameworks/airflow.md``.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import grpc

from peloton.client import DEFAULT_ADDRESS, AsyncClient, Client
from peloton.errors import PelotonError
from peloton.extras import missing_extra

try:
    from airflow.sdk import BaseOperator
    from airflow.sdk.exceptions import AirflowException
    from airflow.triggers.base import BaseTrigger, TriggerEvent
except ModuleNotFoundError as missing:
    raise missing_extra("airflow", "apache-airflow", "PelotonOperator") from missing

JOBS = uuid.UUID("5a1b6f3c-52a5-4b0e-9d0c-3f6e1a7c2b90")
"""The name space of the ids of jobs."""
INSTANCES_SHOWN = 10
LINES_SHOWN = 200
STOP_S = 5.0
"""Timeout of stopping a job whose task was killed: Airflow bounds that time, too."""


def job_id_of_try(task: Any, try_number: int) -> str:
    """Return the id of the job of this try of a task instance."""
    name = "/".join([task.dag_id, task.run_id, task.task_id, str(task.map_index), str(try_number)])
    return str(uuid.uuid5(JOBS, name))


class PelotonOperator(BaseOperator):  # type: ignore[misc]
    """Runs one job for each try of a task, shows the output of its first instances, and returns its id.

    ``config`` is a mapping with the keys of a job's YAML file, or the path of such a file. With ``deferrable`` the
    triggerer waits for the job, and the task takes no slot meanwhile. The job is stopped when the task is killed, and
    that of an earlier try when the next one starts.
    """

    template_fields: Sequence[str] = ("resource_pool", "config")
    ui_color = "#e8f4ea"

    def __init__(
        self,
        *,
        resource_pool: str,
        config: Mapping[str, Any] | str,
        address: str = DEFAULT_ADDRESS,
        deferrable: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.resource_pool = resource_pool
        self.config = config
        self.address = address
        self.deferrable = deferrable
        self.job_id = ""

    def execute(self, context: Any) -> str:
        task = context["ti"]
        self.job_id = job_id_of_try(task, task.try_number)
        with Client(self.address) as client:
            if task.try_number > 1:
                with suppress(PelotonError):
                    client.stop(job_id_of_try(task, task.try_number - 1))
            client.submit(self.resource_pool, self.config, job_id=self.job_id)
            self.log.info("job %s in pool %s", self.job_id, self.resource_pool)
            if self.deferrable:
                self.defer(trigger=PelotonTrigger(self.address, self.job_id), method_name="finish")
            client.wait(self.job_id)
        return self.finish(context)

    def finish(self, context: Any, event: Any = None) -> str:
        """Show the output of the job, which has ended, and return its id. Raises AirflowException if it has failed."""
        self.job_id = job_id_of_try(context["ti"], context["ti"].try_number)
        with Client(self.address) as client:
            progress = client.progress(self.job_id)
            for instance in range(min(progress.total_count, INSTANCES_SHOWN)):
                self.show_output(client, instance)
        counts = ", ".join(f"{count} {state}" for state, count in progress.counts.items())
        result = f"job {self.job_id} ended as {progress.state} with {progress.total_count} instances: {counts}"
        if not progress.has_succeeded:
            raise AirflowException(result)
        self.log.info(result)
        return self.job_id

    def show_output(self, client: Client, instance: int) -> None:
        for file in ("stdout", "stderr"):
            try:
                lines = client.logs(self.job_id, instance, file).splitlines()
            except (PelotonError, OSError, grpc.RpcError) as error:
                self.log.warning("%s of instance %d: %s", file, instance, error)
                continue
            if len(lines) > LINES_SHOWN:
                self.log.info("%s of instance %d: the last %d of %d lines", file, instance, LINES_SHOWN, len(lines))
            for line in lines[-LINES_SHOWN:]:
                self.log.info("[%d] %s", instance, line)

    def on_kill(self) -> None:
        """Stop the job. Airflow calls it when a person or a timeout ends the task."""
        if self.job_id:
            with Client(self.address, timeout_s=STOP_S) as client, suppress(PelotonError):
                client.stop(self.job_id)


class PelotonTrigger(BaseTrigger):  # type: ignore[misc]
    """Waits for the end of a job in the triggerer."""

    def __init__(self, address: str, job_id: str) -> None:
        super().__init__()
        self.address = address
        self.job_id = job_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.{type(self).__name__}", {"address": self.address, "job_id": self.job_id}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        async with AsyncClient(self.address) as client:
            progress = await client.wait(self.job_id)
        yield TriggerEvent({"state": str(progress.state)})

    async def on_kill(self) -> None:
        """Stop the job, when a person ends the deferred task. A triggerer that stops ends no job."""
        async with AsyncClient(self.address, timeout_s=STOP_S) as client:
            with suppress(PelotonError):
                await client.stop(self.job_id)
