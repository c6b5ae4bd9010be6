"""The same stories on a real Temporal dev server, in real time: threads, signals by the waker. Workflows run as in
production, without a sandbox; the replays of their histories have one."""

from __future__ import annotations

import asyncio
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from temporalio.client import Client, WorkflowHandle, WorkflowHistory
from temporalio.common import HeaderCodecBehavior
from temporalio.converter import DataConverter
from temporalio.worker import Interceptor, Replayer, WorkflowRunner

from peloton.model.ids import JobId, job_workflow_id, new_job_id, update_workflow_id
from peloton.model.job import JobRecord, RolledUp, SlaSpec
from services.temporal.payloads import CONVERTER
from services.temporal.workflow_labels import job_labels
from services.wakers.job_waker import JobWaker
from services.wakers.lifecycles import DAEMON, JOB, start
from services.wakers.waker import Waker
from services.worker.worker import WorkerPorts, build_workers, run_workers
from tests.waiting import Condition, pause_s
from tests.workflow.cluster import Cluster
from tests.workflow.fakes import FakeRecords
from tests.workflow.followed import FollowedHosts
from tests.workflow.rolled import RolledService
from tests.workflow.sandbox import workflow_runner
from tests.workflow.stories import ports_on
from workflows.daemon import DaemonWorkflow
from workflows.gang import GangWorkflow
from workflows.job import JobResult, JobWorkflow
from workflows.job_ends import EndsInSignals
from workflows.maintenance import HostMaintenanceWorkflow
from workflows.migration import MigrationWorkflow
from workflows.policies import Policies
from workflows.rebalance import RebalanceWorkflow
from workflows.scheduled_job import ScheduledJobWorkflow
from workflows.update import UpdateWorkflow

TEMPORAL = Path(sys.executable).parent / "temporal"
TIMEOUT_S = 180.0
"""Longer than any step of these tests, even on a busy machine."""
STARTUP_TIMEOUT = timedelta(seconds=TIMEOUT_S)
"""Timeout for the start of a dev server, which is 5 s by default in the SDK."""
SLOTS = 16
"""Workflow tasks and activities of a worker at a time."""
POLL_PERIOD_S = 10.0
"""Time after which a workflow without signals reads storage again."""


class RealClock:
    """Real time for a ``Cluster``, on the loop that makes it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def now_ns(self) -> int:
        return time.time_ns()

    def after(self, delay_s: float, act: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(self._loop.call_later, delay_s, act)


def signal_all(job_ids: Sequence[JobId], now_ns: int) -> RolledUp:
    """Notifies each job: the fakes do not count several jobs in one batch."""
    return RolledUp(list(job_ids), [])


def job_storage(get: Callable[[JobId], JobRecord | None]) -> Any:
    """Storage of jobs alone, for their wakers."""
    wakes = SimpleNamespace(forget_signalled=lambda job_ids: None)
    return SimpleNamespace(jobs=SimpleNamespace(get=get, roll_up=signal_all), wakes=wakes)


def story_storage(story: ServerStory, **rows: Any) -> Any:
    """Storage of the jobs of a story, and other ``rows`` by owner."""
    pools = SimpleNamespace(specs=list)
    return SimpleNamespace(**vars(job_storage(FakeRecords(story.cluster).get)), pools=pools, **rows)


async def wait_until(fact: Condition, what: str) -> None:
    """Poll until ``fact`` holds; an error names ``what`` did not happen."""
    began_s = time.monotonic()
    while not fact():
        waited_s = time.monotonic() - began_s
        assert waited_s < TIMEOUT_S, f"not in {TIMEOUT_S} s: {what}"
        await asyncio.sleep(pause_s(waited_s, 0.01, 0.05))


WORKFLOWS: dict[str, type] = {
    "Daemon": DaemonWorkflow,
    "Gang": GangWorkflow,
    "HostMaintenance": HostMaintenanceWorkflow,
    "Job": JobWorkflow,
    "Migration": MigrationWorkflow,
    "Rebalance": RebalanceWorkflow,
    "ScheduledJob": ScheduledJobWorkflow,
    "Update": UpdateWorkflow,
}
"""Workflow classes by the names in histories."""


async def replay(
    history: WorkflowHistory,
    runner: WorkflowRunner | None = None,
    interceptors: Sequence[Interceptor] = (),
    converter: DataConverter = CONVERTER,
) -> None:
    """Replay a history with its own workflow alone, in the sandbox unless another runner is given. A run that has only
    begun has nothing to replay, and the SDK's replayer would wait for its first task without end.
    """
    if not any(event.HasField("workflow_task_completed_event_attributes") for event in history.events):
        return
    name = history.events[0].workflow_execution_started_event_attributes.workflow_type.name
    runner = runner or workflow_runner()
    replayer = Replayer(
        workflows=[WORKFLOWS[name]],
        workflow_runner=runner,
        interceptors=[EndsInSignals(), *interceptors],
        data_converter=converter,
        header_codec_behavior=HeaderCodecBehavior.CODEC if converter.payload_codec else HeaderCodecBehavior.NO_CODEC,
    )
    await replayer.replay_workflow(history)


async def histories_of(client: Client, workflow_id: str) -> list[WorkflowHistory]:
    """Histories of all runs, the first one first. Follows the chain instead of the visibility store, which
    lags behind.
    """
    handle = client.get_workflow_handle(workflow_id)
    described = await handle.describe()
    return await _runs_from(client, workflow_id, described.raw_description.workflow_execution_info.first_run_id)


async def _runs_from(client: Client, workflow_id: str, run_id: str) -> list[WorkflowHistory]:
    found = []
    while run_id:
        history = await client.get_workflow_handle(workflow_id, run_id=run_id).fetch_history()
        found.append(history)
        last = history.events[-1]
        run_id = last.workflow_execution_continued_as_new_event_attributes.new_execution_run_id
    return found


async def children_in(client: Client, history: WorkflowHistory) -> list[WorkflowHistory]:
    """Histories of the launches and rollouts that one run of a job started, each with all its runs."""
    found = []
    for event in history.events:
        if event.HasField("child_workflow_execution_started_event_attributes"):
            execution = event.child_workflow_execution_started_event_attributes.workflow_execution
            found += await _runs_from(client, execution.workflow_id, execution.run_id)
    return found


class ServerStory:
    """Jobs on a fake cluster, their workflows on a real server. Made by ``server_story``."""

    def __init__(self, client: Client, **cluster: Any) -> None:
        defaults = {"admission_s": 0.01, "start_s": 0.05, "run_s": 0.1, "kill_s": 0.05}
        self.client = client
        self.cluster = Cluster(RealClock(), **(defaults | cluster))
        self.daemon_hosts = FollowedHosts(self.cluster)
        self.task_queue = f"test-{uuid.uuid4()}"
        self.worker_slots = SLOTS
        self.policies = Policies(look_again_s=POLL_PERIOD_S, retry_s=0.2, retry_max_s=1.0)
        stored = job_storage(FakeRecords(self.cluster).get)
        self.followers = Waker(DAEMON, client, stored, self.policies, interval_s=0.05)
        self.daemon_hosts.notify = lambda job_id: self.followers.jobs_changed([job_id])
        self._workers: AsyncExitStack | None = None
        self.started: list[str] = []

    async def start_worker(self, ports: WorkerPorts | None = None) -> None:
        """Start a worker with the fakes of this cluster, or with ``ports``."""
        ports = ports or ports_on(self.cluster, daemons=self.daemon_hosts)
        workers = build_workers(self.client, ports, {self.task_queue: self.worker_slots})
        self._workers = AsyncExitStack()
        await self._workers.enter_async_context(run_workers(workers))

    async def stop_worker(self) -> None:
        if self._workers is not None:
            await self._workers.aclose()
            self._workers = None

    def add_job(self, pods: int, *, sla: SlaSpec | None = None, max_failures: int = 0) -> JobRecord:
        return self.cluster.submit(new_job_id(), pods, sla=sla, max_failures=max_failures)

    async def submit(self, pods: int, *, policies: Policies | None = None, **job: Any) -> JobId:
        record = self.add_job(pods, **job)
        await self.start(record, policies)
        return record.job_id

    async def start(self, record: JobRecord, policies: Policies | None = None) -> None:
        self.started.append(job_workflow_id(record.job_id))
        labels = job_labels(record, record.respool_id)
        await start(self.client, JOB, record.job_id, record, labels, policies or self.policies, self.task_queue)

    def handle(self, job_id: JobId) -> WorkflowHandle[JobWorkflow, JobResult]:
        return self.client.get_workflow_handle_for(JobWorkflow.run, job_workflow_id(job_id))

    async def result(self, job_id: JobId) -> tuple[str, dict[str, int]]:
        async with asyncio.timeout(TIMEOUT_S):
            result = await self.handle(job_id).result()
        self.cluster.validate()
        return result.state, result.counts

    async def pods(self, job_id: JobId, state: str, count: int) -> None:
        await wait_until(lambda: self.cluster.counts(job_id).get(state, 0) >= count, f"{count} pods {state}")

    def service(self, job_id: JobId, instances: int, **rolled: Any) -> RolledService:
        """Make the job a service, whose updates the job's workflow rolls out."""
        service = RolledService(self.cluster.clock, job_id, instances, away_s=0.1, **rolled)
        service.notify = lambda: self.cluster.notify(job_id)
        self.cluster.rolled[job_id] = service
        return service

    async def rolled_out(self, job_id: JobId, update_id: str) -> None:
        """The update has ended, and so has its workflow."""
        service = self.cluster.rolled[job_id]
        await wait_until(lambda: service.is_over(update_id), f"the end of {update_id}")
        async with asyncio.timeout(TIMEOUT_S):
            await self.client.get_workflow_handle(update_workflow_id(job_id)).result()

    def replays_only(self, job_id: JobId) -> None:
        """The histories of other jobs are not replayed at the end."""
        self.started = [job_workflow_id(job_id)]

    async def replay_all(self) -> None:
        """Every history that this story made replays."""
        for workflow_id in self.started:
            for history in await histories_of(self.client, workflow_id):
                await replay(history)
                for child in await children_in(self.client, history):
                    await replay(child)


@asynccontextmanager
async def server_story(
    client: Client, *, task_queue: str = "", worker_slots: int = SLOTS, **cluster: Any
) -> AsyncIterator[ServerStory]:
    """A story with a worker and a waker; at its end all its histories are replayed and nothing is left running."""
    story = ServerStory(client, **cluster)
    story.task_queue, story.worker_slots = task_queue or story.task_queue, worker_slots
    waker = JobWaker(client, job_storage(FakeRecords(story.cluster).get), story.policies, interval_s=0.05)
    story.cluster.lifecycles = waker
    await story.start_worker()
    try:
        yield story
        await story.replay_all()
    finally:
        story.cluster.lifecycles = None
        await story.followers.close()
        await waker.close()
        await story.stop_worker()
