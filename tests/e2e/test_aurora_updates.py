"""Updates of Aurora's clients against a whole cluster: the bridge's methods with the api of running roles."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from peloton.api.v1alpha import peloton_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from services.aurorabridge.backend import Backend
from services.aurorabridge.mapping import opaque
from services.aurorabridge.thrift import api
from services.aurorabridge.writes import METHODS
from tests.e2e.local import Cluster
from tests.e2e.shared import THREE_HOSTS, Lend
from tests.unit.aurorabridge.scenario import task_config, update_request

pytestmark = pytest.mark.xdist_group("batch")

SUCCEEDED, ABORTED, PAUSED = (
    stateless_pb2.WORKFLOW_STATE_SUCCEEDED,
    stateless_pb2.WORKFLOW_STATE_ABORTED,
    stateless_pb2.WORKFLOW_STATE_PAUSED,
)
ONE_PER_HOST = api.Constraint(name="host", constraint=api.TaskConstraint(limit=api.LimitConstraint(limit=1)))


class Aurora:
    """A job, and a client of a bridge."""

    def __init__(self, cluster: Cluster, name: str, run: Callable[[Any], Any], backend: Backend) -> None:
        self.cluster, self.key = cluster, api.JobKey(role="ads", environment="prod", name=name)
        self._run, self._backend = run, backend

    def call(self, method: str, **args: Any) -> Any:
        return self._run(METHODS[method](self._backend, getattr(api.AuroraSchedulerManager, f"{method}_args")(**args)))

    def start(self, command: str, count: int, only: int | None = None, task: Any = None, **settings: Any) -> str:
        """Start an update, and return its id."""
        if only is not None:
            settings["updateOnlyTheseInstances"] = [api.Range(first=only, last=only)]
        task = task_config(command, job=self.key, **(task or {}))
        request = update_request(task, count, api.JobUpdateSettings(**settings))
        return str(self.call("startJobUpdate", request=request).startJobUpdateResult.key.id)

    def steer(self, method: str, update_id: str) -> None:
        self.call(method, key=api.JobUpdateKey(job=self.key, id=update_id))

    @property
    def job_id(self) -> str:
        name = f"ads/prod/{self.key.name}"
        found = self.cluster.client.services.GetJobIDFromJobName(svc.GetJobIDFromJobNameRequest(job_name=name))
        return found.job_id[0].value

    def update(self) -> Any:
        """Return the current update."""
        request = svc.GetJobRequest(job_id=peloton_pb2.JobID(value=self.job_id))
        return self.cluster.client.services.GetJob(request).workflow_info

    def await_update(self, state: int = SUCCEEDED) -> Any:
        self.cluster.wait(lambda: self.update().status.state == state, f"an update in state {state}")
        return self.update()

    def await_states(self, *states: str) -> None:
        self.cluster.wait(lambda: self.states() == list(states), f"pods that are {states}")

    def states(self) -> list[str]:
        return [state for _, state in sorted(self.cluster.states(self.job_id).items())]

    def runs(self) -> list[int]:
        """Return the number of the current run of each instance."""
        return [run for _, run in sorted(self.cluster.run_ids(self.job_id).items())]

    def hosts(self) -> list[str]:
        return [task.runtime.host for task in self.cluster.tasks(self.job_id).values()]


@pytest.fixture(scope="module")
def cluster(lend: Lend) -> Iterator[Cluster]:
    with lend(THREE_HOSTS) as running:
        yield running


@pytest.fixture(scope="module")
def aurora(cluster: Cluster) -> Iterator[Callable[[str], Aurora]]:
    """Return a maker of jobs by name, all through one bridge."""
    with asyncio.Runner() as runner:

        async def connect() -> Backend:
            return Backend(cluster.local.address)

        backend = runner.run(connect())
        yield lambda name: Aurora(cluster, name, runner.run, backend)
        runner.run(backend.close())


def test_the_life_of_a_job(aurora: Callable[[str], Aurora]) -> None:
    """A job is created in a pool that the bridge makes, grows by a pulsed update, is updated for one instance alone,
    loses an instance that an update of it brings back, and is rolled back."""
    job = aurora("web")
    job.start("sleep 1001", 2)
    job.await_update()
    job.await_states("RUNNING", "RUNNING")

    pulsed = job.start("sleep 1002", 3, updateGroupSize=2, blockIfNoPulsesAfterMs=60_000)
    job.await_update(PAUSED)
    assert [1, 1] == job.runs()
    for method in ("pulseJobUpdate", "pauseJobUpdate", "resumeJobUpdate"):
        job.steer(method, pulsed)
    assert ("start_pulsed", "pulse") == opaque.decode(job.await_update().opaque_data.data).actions
    assert [2, 2, 1] == job.runs()

    job.start("sleep 1003", 3, only=1)
    job.await_update()
    assert [2, 3, 1] == job.runs()

    job.call("killTasks", job=job.key, instances=[1])
    job.cluster.wait(lambda: job.states()[1] == "KILLED", "the end of instance 1")
    job.start("sleep 1003", 3, only=1)
    job.await_update()
    job.await_states("RUNNING", "RUNNING", "RUNNING")
    assert [2, 4, 1] == job.runs()

    job.start("sleep 1003", 3)
    job.await_update()
    assert [3, 4, 2] == job.runs()
    job.start("sleep 1003", 3)
    nothing = job.await_update()
    assert [3, 4, 2] == job.runs()
    assert ([], []) == (list(nothing.instances_updated), list(nothing.instances_added))

    aborted = job.start("sleep 1004", 3, blockIfNoPulsesAfterMs=1)
    job.steer("abortJobUpdate", aborted)
    job.await_update(ABORTED)

    bad = job.start("sleep 1005", 3, updateGroupSize=1)
    job.cluster.wait(lambda: job.runs() != [3, 4, 2], "a first updated instance")
    job.steer("rollbackJobUpdate", bad)
    back = opaque.decode(job.await_update().opaque_data.data)
    assert (bad, True) == (back.update_id, back.is_rollback)
    job.await_states("RUNNING", "RUNNING", "RUNNING")


def test_one_pod_per_host_after_a_restart_of_the_host_manager_amid_an_update(aurora: Callable[[str], Aurora]) -> None:
    """The limit of pods of a job on a host holds although the host manager restarts amid an update."""
    job = aurora("spread")
    limit = {"constraints": [ONE_PER_HOST]}
    job.start("sleep 1001", 3, task=limit)
    job.await_update()
    assert 3 == len(set(job.hosts()))

    job.start("sleep 1002", 3, task=limit, updateGroupSize=1)
    job.cluster.wait(lambda: 2 in job.runs(), "a first updated instance")
    job.cluster.kill("hostmgr")
    job.await_update()

    job.await_states("RUNNING", "RUNNING", "RUNNING")
    assert [2, 2, 2] == job.runs()
    assert 3 == len(set(job.hosts()))
