"""A process polls Temporal with a bounded number of calls."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import WorkerStatus
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.taskqueue.v1 import PollerInfo
from temporalio.api.worker.v1 import WorkerHeartbeat, WorkerInfo
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import (
    CountWorkflowExecutionsResponse,
    DescribeTaskQueueResponse,
    DescribeWorkflowExecutionResponse,
    ListWorkersResponse,
    ListWorkflowExecutionsResponse,
)
from temporalio.service import RPCError, RPCStatusCode

from peloton.lifecycle.problems import NAMED_MAX
from peloton.model.ids import JobId, RespoolId, job_workflow_id
from peloton.model.job import JobRecord, JobState, JobType, SlaSpec
from services.temporal import watch as temporal_watch
from services.temporal.payloads import CONVERTER
from services.temporal.watch import QUEUES, REPORTED, TemporalWatch
from services.temporal.worker_fleet import DEPLOYMENT

KEYS = itertools.count()
NOW_NS = 1_700_000_000_000_000_000
JOB = JobId("91b1b8e5-2ba8-41e7-bc23-0242ac11000d")
RECORD = JobRecord(
    JOB, "web", JobType.BATCH, "team", RespoolId("p"), 1, SlaSpec(), JobState.PENDING, JobState.SUCCEEDED
)


def beat(
    queue: str, ago_s: float = 1.0, status: WorkerStatus.ValueType = WorkerStatus.WORKER_STATUS_RUNNING, build: str = ""
) -> WorkerInfo:
    found = WorkerHeartbeat(task_queue=queue, status=status, worker_instance_key=str(next(KEYS)))
    if build:
        found.deployment_version.deployment_name, found.deployment_version.build_id = DEPLOYMENT, build
    found.heartbeat_time.FromNanoseconds(NOW_NS - int(ago_s * 1e9))
    found.elapsed_since_last_heartbeat.FromSeconds(2)
    return WorkerInfo(worker_heartbeat=found)


def running(workflow_id: str, cause: str = "") -> WorkflowExecutionInfo:
    found = WorkflowExecutionInfo()
    found.execution.workflow_id = workflow_id
    if cause:
        said: Payload = CONVERTER.payload_converter.to_payload(["category=WorkflowTaskFailed", f"cause={cause}"])
        found.search_attributes.indexed_fields[REPORTED].CopyFrom(said)
    return found


def failure(message: str) -> Failure:
    """Wrap an error as Temporal does."""
    return Failure(message="Activity task failed", cause=Failure(message=message))


class FakeTemporal:
    """Client and service. Each call is counted."""

    namespace = "default"

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.faults: dict[str, Exception] = {}
        self.beats = [beat(queue) for queue in QUEUES]
        self.polled: set[str] = set()
        self.current = ""
        self.reported: list[WorkflowExecutionInfo] = []
        self.failed: list[Any] = []  # runs
        self.running: list[WorkflowExecutionInfo] = []
        self.described: dict[str, DescribeWorkflowExecutionResponse] = {}
        self.hangs = False
        self.workflow_service = self
        self.service_client = SimpleNamespace(config=SimpleNamespace(target_host="temporal:7233"))

    async def _record_call(self, name: str) -> None:
        self.calls[name] += 1
        await asyncio.sleep(3_600 if self.hangs else 0)
        if error := self.faults.get(name):
            raise error

    async def list_workers(self, request: Any, timeout: Any) -> ListWorkersResponse:
        await self._record_call("list_workers")
        return ListWorkersResponse(workers_info=self.beats)

    async def describe_task_queue(self, request: Any, timeout: Any) -> DescribeTaskQueueResponse:
        await self._record_call("describe_task_queue")
        poller = PollerInfo()
        poller.last_access_time.FromNanoseconds(NOW_NS - 10 * 10**9)
        found = DescribeTaskQueueResponse(pollers=[poller] if request.task_queue.name in self.polled else [])
        current = found.versioning_info.current_deployment_version
        current.deployment_name, current.build_id = (DEPLOYMENT, self.current) if self.current else ("", "")
        return found

    async def list_workflow_executions(self, request: Any, timeout: Any) -> ListWorkflowExecutionsResponse:
        await self._record_call("list")
        found = self.reported if REPORTED in request.query else self.running
        return ListWorkflowExecutionsResponse(executions=found[: request.page_size])

    async def count_workflow_executions(self, request: Any, timeout: Any) -> CountWorkflowExecutionsResponse:
        await self._record_call("count")
        return CountWorkflowExecutionsResponse(count=len(self.reported))

    async def describe_workflow_execution(self, request: Any, timeout: Any) -> DescribeWorkflowExecutionResponse:
        await self._record_call("describe")
        found = self.described[request.execution.workflow_id]
        found.workflow_execution_info.execution.workflow_id = request.execution.workflow_id
        return found

    async def list_workflows(self, query: str, **options: Any) -> AsyncIterator[Any]:
        await self._record_call("list_failed")
        for run in self.failed:
            yield run

    def get_workflow_handle(self, workflow_id: str) -> Any:
        async def fetch_history_events(**options: Any) -> AsyncIterator[HistoryEvent]:
            await self._record_call("history")
            event = HistoryEvent()
            event.workflow_execution_failed_event_attributes.failure.CopyFrom(failure(f"{workflow_id} went wrong"))
            yield event

        return SimpleNamespace(fetch_history_events=fetch_history_events)


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def server() -> FakeTemporal:
    return FakeTemporal()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watch(server: FakeTemporal, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> TemporalWatch:
    monkeypatch.setattr(temporal_watch, "SURE_S", 0.0)
    client: Any = server
    return TemporalWatch(client, clock, lambda: NOW_NS)


def rpc_error(status: RPCStatusCode) -> RPCError:
    return RPCError("transport error", status, b"")


async def test_all_is_well(watch: TemporalWatch) -> None:
    """Each queue has a worker that sends heartbeats."""
    seen = await watch.read_snapshot()

    assert ("", len(QUEUES), [], 0, 0) == (
        seen.fault,
        seen.queue_count,
        seen.unserved,
        seen.task_count,
        seen.failed_count,
    )
    assert "temporal:7233" == watch.address


async def test_thousands_of_readers_make_one_read(watch: TemporalWatch, server: FakeTemporal, clock: Clock) -> None:
    """A poll has four calls; the next one is made when its answer is too old."""
    await asyncio.gather(*(watch.read_snapshot() for _ in range(1_000)))
    first = server.calls.total()
    clock.now_s += temporal_watch.POLL_AGE_S
    await asyncio.gather(*(watch.read_snapshot() for _ in range(1_000)))

    assert (4, 8) == (first, server.calls.total())


async def test_queues_whose_workers_are_silent_stopped_or_not_there(watch: TemporalWatch, server: FakeTemporal) -> None:
    """A queue is served while one of its workers is alive."""
    stopped = WorkerStatus.WORKER_STATUS_SHUTTING_DOWN
    alive = [beat(queue) for queue in QUEUES[3:]]
    server.beats = [*alive, beat(QUEUES[0], 6.5), beat(QUEUES[1], 1, stopped), beat(QUEUES[3], 60), beat("other")]

    assert list(QUEUES[:3]) == (await watch.read_snapshot()).unserved


@pytest.mark.parametrize("ahead_s", [-3_600, -7, 7, 3_600])
async def test_workers_whose_clocks_differ(
    watch: TemporalWatch, server: FakeTemporal, clock: Clock, ahead_s: int
) -> None:
    """Workers whose clocks differ serve their queues from the first poll on, until their heartbeats stop."""
    beats = server.beats = [beat(queue, -ahead_s) for queue in QUEUES]
    list_workers = server.list_workers

    async def read(request: Any, timeout: Any) -> ListWorkersResponse:
        answer = await list_workers(request, timeout)
        for one in beats:
            one.worker_heartbeat.heartbeat_time.seconds += 2
        clock.now_s += 2.0
        return answer

    server.list_workers = read  # type: ignore[method-assign]
    seen = [(await watch.read_snapshot()).unserved for _ in range(5)]
    beats = []
    silent = [(await watch.read_snapshot()).unserved for _ in range(5)]

    assert [[]] * 5 == seen
    assert ([], [*QUEUES]) == (silent[0], silent[-1])


async def test_a_version_that_waits_for_a_person_while_the_current_one_has_no_worker(
    watch: TemporalWatch, server: FakeTemporal
) -> None:
    """All task queues have workers, and no workflow runs."""
    server.beats = [beat(queue, build="new") for queue in QUEUES] + [beat(QUEUES[0], 60, build="old")]
    looks = []
    for server.current in ("", "new", "old"):
        watch._known = None
        looks.append(await watch.read_snapshot())

    assert [("", []), ("", []), ("old", ["new"])] == [(one.gone_version, one.waiting_versions) for one in looks]
    assert [[]] * 3 == [one.unserved for one in looks]


async def test_a_worker_of_the_release_before_sends_fewer_heartbeats(
    watch: TemporalWatch, server: FakeTemporal
) -> None:
    """A worker of the previous release is silent when two of its own heartbeats are missing."""
    for one in server.beats:
        one.worker_heartbeat.elapsed_since_last_heartbeat.FromSeconds(5)
        one.worker_heartbeat.heartbeat_time.FromNanoseconds(NOW_NS - 9 * 10**9)

    assert [] == (await watch.read_snapshot()).unserved


@pytest.mark.parametrize("refusal", [None, RPCStatusCode.UNIMPLEMENTED, RPCStatusCode.PERMISSION_DENIED])
async def test_a_server_without_heartbeats_reports_who_polls(
    watch: TemporalWatch, server: FakeTemporal, refusal: RPCStatusCode | None
) -> None:
    """Pollers are used if the server refuses the list of workers, or the list is empty."""
    server.beats, server.polled = [], {QUEUES[0]}
    if refusal is not None:
        server.faults["list_workers"] = rpc_error(refusal)

    assert list(QUEUES[1:]) == (await watch.read_snapshot()).unserved


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (rpc_error(RPCStatusCode.UNAVAILABLE), "transport error"),
        (rpc_error(RPCStatusCode.DEADLINE_EXCEEDED), "no answer within 3 s"),
        (RuntimeError("Failed client connect"), "Failed client connect"),
    ],
)
async def test_temporal_that_does_not_answer(
    watch: TemporalWatch, server: FakeTemporal, error: Exception, fault: str
) -> None:
    """A poll has the fault, and is used as long as any other."""
    server.faults["list"] = error

    assert [fault, fault] == [(await watch.read_snapshot()).fault, (await watch.read_snapshot()).fault]
    assert 1 == server.calls["list"]


async def test_temporal_that_hangs(watch: TemporalWatch, server: FakeTemporal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers wait for a bounded time."""
    monkeypatch.setattr(temporal_watch, "TIMEOUT_S", 0.01)
    server.hangs = True

    assert "no answer within 0.01 s" == (await watch.read_snapshot()).fault
    assert ["Temporal at temporal:7233 does not answer (no answer within 0.01 s): the job makes no progress"] == (
        await watch.why(RECORD)
    )


async def test_a_read_that_takes_long_is_not_waited_for_at_once(
    watch: TemporalWatch, server: FakeTemporal, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last answer is used until it is too old."""
    monkeypatch.setattr(temporal_watch, "TIMEOUT_S", 0.05)
    monkeypatch.setattr(temporal_watch, "WAIT_S", 0.01)
    await watch.read_snapshot()
    server.hangs = True
    clock.now_s += temporal_watch.POLL_AGE_S
    assert "" == (await watch.read_snapshot()).fault
    clock.now_s += temporal_watch.KNOWN_AGE_S

    assert "no answer within 0.05 s" == (await watch.read_snapshot()).fault


async def test_workflows_whose_tasks_fail(watch: TemporalWatch, server: FakeTemporal) -> None:
    """A few workflows are named, with the cause from Temporal; all are counted."""
    cause = "WorkflowTaskFailedCauseNonDeterministicError"
    server.reported = [running(f"job/{number}", cause) for number in range(NAMED_MAX + 2)]

    seen = await watch.read_snapshot()

    assert [("job/0", "NonDeterministicError"), ("job/1", "NonDeterministicError")] == [
        (one.workflow_id, one.cause) for one in seen.tasks[:2]
    ]
    assert (NAMED_MAX, NAMED_MAX + 2) == (len(seen.tasks), seen.task_count)


async def test_a_server_that_does_not_mark_failing_tasks(watch: TemporalWatch, server: FakeTemporal) -> None:
    """A server without the attribute leaves the rest of the poll valid."""
    server.faults["list"] = rpc_error(RPCStatusCode.INVALID_ARGUMENT)

    seen = await watch.read_snapshot()

    assert ("", 0) == (seen.fault, seen.task_count)


def run(workflow_id: str, ended_ago_s: float) -> Any:
    return SimpleNamespace(id=workflow_id, close_time=datetime.fromtimestamp(NOW_NS / 1e9 - ended_ago_s, UTC))


async def test_workflows_that_failed_and_wait(watch: TemporalWatch, server: FakeTemporal) -> None:
    """Each workflow has its innermost error. One that ran again, or that is not to be started again, is no problem any
    more.
    """
    server.failed = [run("job/waits", 5), run("job/waits", 50), run("job/again", 5), run("job/over", 600)]
    server.running = [running("job/again"), running("job/waits")]
    server.running[0].start_time.FromNanoseconds(NOW_NS)

    seen = await watch.read_snapshot()

    said = "it failed twice within 60 min, and is started again in 55 s".replace("twice", "2 times")
    assert [("job/waits", "job/waits went wrong", said)] == [(o.workflow_id, o.error, o.reason) for o in seen.failed]
    assert 1 == seen.failed_count


def describe_answer(attempt: int, error: str = "down", task_attempt: int = 0) -> DescribeWorkflowExecutionResponse:
    found = DescribeWorkflowExecutionResponse()
    pending = found.pending_activities.add(attempt=attempt, last_failure=failure(error))
    pending.activity_type.name = "enqueue"
    if task_attempt:
        found.pending_workflow_task.attempt = task_attempt
    return found


async def test_the_reason_of_a_stuck_job_is_named(watch: TemporalWatch, server: FakeTemporal, clock: Clock) -> None:
    """All workflows of the job are read; the answer is used for a while."""
    own, gang = job_workflow_id(JOB), f"gang/{JOB}/1"
    server.running = [running(own), running(gang)]
    server.described = {own: describe_answer(1, task_attempt=4), gang: describe_answer(5)}

    lines = [await watch.why(RECORD) for _ in range(100)][-1]

    tasks = "its workflow tasks fail again and again; the logs of the workers say why"
    assert [
        f"the workflow of job web is stuck: {tasks}",
        "the workflow of the launch of the gang of job web waits: its activity enqueue is on attempt 5: down",
    ] == lines
    assert 2 == server.calls["describe"]


async def test_the_reason_of_a_job_whose_workflow_failed_is_named(watch: TemporalWatch, server: FakeTemporal) -> None:
    """The answer has the error, and the time when the workflow is started again."""
    own = job_workflow_id(JOB)
    server.failed = [run(own, 10)]

    said = (
        f"the workflow of job web failed: {own} went wrong; it failed once within 60 min, and is started again in 20 s"
    )
    assert [said] == await watch.why(RECORD)


async def test_answers_about_jobs_are_kept_for_a_bounded_number(
    watch: TemporalWatch, server: FakeTemporal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest answer is requested again."""
    monkeypatch.setattr(temporal_watch, "JOBS_KEPT", 1)
    other = JobRecord(
        JobId("6d1d5f5e-7d2a-4c6c-9f4e-0a7d3c1b2e01"), "x", JobType.SERVICE, "t", RespoolId("p"), 1, SlaSpec(),
        JobState.PENDING, JobState.RUNNING,
    )  # fmt: skip
    for record in (RECORD, other, other, RECORD):
        await watch.why(record)

    assert 1 + 3 == server.calls["list"]
