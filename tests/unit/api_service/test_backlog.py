"""Back-pressure of the backlog in storage: no bound is exceeded, refusals have a retry time, other calls proceed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import grpc
import grpc.aio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peloton.api.limits import RETRY_AFTER
from peloton.api.v0.job import job_pb2
from peloton.api.v0.short_names.job_pb2_grpc import JobManagerStub
from peloton.api.v0.short_names.task_pb2_grpc import TaskManagerStub
from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2
from peloton.api.v1alpha.job.stateless.svc.stateless_svc_pb2_grpc import JobServiceStub
from peloton.errors import ResourceExhausted
from peloton.model.job import JobState
from services.api.backlog import PACE_MAX_S, POLL_S, READ_SHARE, RETRY_MAX_S, BacklogGate, Bounds, excess
from services.api.calls import Calls
from services.api.server import start
from services.storage.jobs.search import Backlog
from services.storage.storage import Storage
from tests.unit.api_service.fakes import OneSandbox, RecordedWakes
from tests.unit.api_service.story import ID, JOB

BOUNDS = Bounds(jobs_waiting=3, jobs_active=10, pods_active=100)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (Backlog(2, 9, 99), None),
        (Backlog(3, 9, 99), ("jobs_waiting", "3 jobs wait to be started, the bound is 3")),
        (Backlog(0, 11, 0), ("jobs_active", "11 jobs have not ended, the bound is 10")),
        (
            Backlog(0, 0, 12_000),
            ("pods_active", "12,000 pods are wanted by jobs that have not ended, the bound is 100"),
        ),
    ],
)
def test_each_bound_is_reported_with_its_numbers(found: Backlog, expected: tuple[str, str] | None) -> None:
    """The refusal has the bound's numbers; a backlog below all bounds is accepted."""
    assert expected == excess(found, BOUNDS)


class Store:
    """A backlog of jobs as the gate counts it, and a clock."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.waiting = self.others = 0
        self.looks = self.counts_of_all = 0
        self.count_s = 0.0  # what a count of all takes

    def backlog(self) -> Backlog:
        self.looks += 1
        self.counts_of_all += 1
        self.now_s += self.count_s
        return Backlog(self.waiting, self.waiting + self.others, 0)

    def jobs_waiting(self) -> int:
        self.looks += 1
        return self.waiting

    def clock_s(self) -> float:
        return self.now_s


async def try_enter(gate: BacklogGate) -> bool:
    try:
        await gate.enter()
    except ResourceExhausted:
        return False
    return True


@given(st.lists(st.sampled_from(["enter", "store", "abandon", "drain", "wait"]), max_size=60))
def test_no_bound_is_passed_whatever_happens(steps: list[str]) -> None:
    """Stored and in-flight jobs together never exceed the bound; an empty backlog accepts the next job after some
    time."""

    async def story() -> None:
        store, calls, in_flight = Store(), Calls(), 0
        gate = BacklogGate(store, calls, BOUNDS, store.clock_s)
        for step in steps:
            match step:
                case "enter":
                    in_flight += await try_enter(gate)
                case "store" | "abandon" if in_flight:
                    in_flight -= 1
                    store.waiting += step == "store"
                    gate.leave()
                case "drain":
                    store.waiting = max(store.waiting - 1, 0)
                case "wait":
                    store.now_s += POLL_S
            assert store.waiting + in_flight <= BOUNDS.jobs_waiting
        for _ in range(in_flight):
            gate.leave()
        store.waiting = 0
        store.now_s += POLL_S
        assert await try_enter(gate)
        await calls.close()

    asyncio.run(story())


async def test_callers_are_slowed_down_before_any_is_refused() -> None:
    """A caller above the pacing bound waits until the backlog is smaller, for at most the configured time."""
    store, calls, slept_s = Store(), Calls(), []

    async def sleep(seconds: float) -> None:
        slept_s.append(seconds)
        store.now_s += seconds
        if store.now_s >= 2:
            store.waiting = drained

    gate = BacklogGate(store, calls, Bounds(jobs_paced=3), store.clock_s, sleep)
    store.waiting, drained = 3, 2
    assert await try_enter(gate)
    assert (2.0, 1 + 2.0 / POLL_S) == (sum(slept_s), store.looks)

    drained = 2  # and the admitted one
    assert await try_enter(gate)
    assert (2.0 + PACE_MAX_S) == sum(slept_s)
    await calls.close()


async def test_delayed_callers_proceed_in_their_order() -> None:
    """A caller that comes later does not overtake those that wait."""
    store, calls = Store(), Calls()
    entered: list[int] = []

    async def sleep(seconds: float) -> None:
        store.now_s += seconds
        store.waiting = max(store.waiting - 1, 0)
        await asyncio.sleep(0)

    async def enter(number: int) -> None:
        await gate.enter()
        entered.append(number)
        store.waiting += 1
        gate.leave()

    gate = BacklogGate(store, calls, Bounds(jobs_paced=3), store.clock_s, sleep)
    store.waiting = 5
    await asyncio.gather(*map(enter, range(8)))
    assert list(range(8)) == entered
    await calls.close()


async def test_a_slow_count_of_all_jobs_delays_no_calls() -> None:
    """Jobs that wait are counted for the next calls while all jobs are counted rarely; those admitted in between count
    for the bound on active jobs."""
    store, calls = Store(), Calls()
    store.others, store.count_s = 7, 0.2
    gate = BacklogGate(store, calls, replace(BOUNDS, jobs_paced=2), store.clock_s)
    admitted = 0
    for _ in range(3):
        admitted += await try_enter(gate)
        store.others += 1  # it starts at once
        gate.leave()
        store.now_s += POLL_S
    assert (3, 1) == (admitted, store.counts_of_all)
    assert not await try_enter(gate)

    store.others = 0
    store.now_s += 0.2 / READ_SHARE
    assert await try_enter(gate)
    assert 2 == store.counts_of_all
    await calls.close()


async def test_storage_is_asked_once_in_a_while() -> None:
    """The gate reads storage once in ``POLL_S`` for any number of callers; their retry times are spread over the time
    that earlier callers needed."""
    store, calls = Store(), Calls()
    gate = BacklogGate(store, calls, replace(BOUNDS, jobs_waiting=5), store.clock_s)
    waits_s: list[float] = []
    texts: list[str] = []
    for _ in range(100):
        try:
            await gate.enter()
        except ResourceExhausted as refusal:
            waits_s.append(refusal.retry_after_s or 0)
            texts.append(refusal.message)
    assert (1, 95) == (store.looks, len(waits_s))
    assert "5 jobs wait to be started, the bound is 5: try again in 1.0 s" == texts[0]
    assert sorted(waits_s) == waits_s
    assert (1.0, RETRY_MAX_S) == (waits_s[0], waits_s[-1])

    for _ in range(5):
        gate.leave()
    store.now_s = POLL_S
    assert await try_enter(gate)  # none was stored
    assert 2 == store.looks
    await calls.close()


# A server.


@pytest.fixture
async def narrow(storage: Storage, wakes: RecordedWakes, hosts: OneSandbox) -> AsyncIterator[grpc.aio.Channel]:
    """Return a channel to an api whose bound is one waiting job."""
    bounds = Bounds(jobs_waiting=1)
    server = await start(storage, wakes, lambda _: None, "127.0.0.1:0", hosts, bounds)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield channel
    await server.stop(0)


async def test_only_calls_that_bring_work_are_refused(
    narrow: grpc.aio.Channel, storage: Storage, config: Callable[..., job_pb2.JobConfig]
) -> None:
    """Creations and updates of both API versions are refused with a retry time; reads and stops proceed, and refused
    jobs are not stored."""
    jobs: Any = JobManagerStub(narrow)
    services: Any = JobServiceStub(narrow)
    await jobs.Create(job_pb2.CreateRequest(id=ID, config=config(2)))

    calls: tuple[Callable[[], Any], ...] = (
        lambda: jobs.Create(job_pb2.CreateRequest(config=config(1))),
        lambda: jobs.Update(job_pb2.UpdateRequest(id=ID, config=config(3))),
        lambda: services.CreateJob(stateless_svc_pb2.CreateJobRequest()),
        lambda: services.PatchJob(stateless_svc_pb2.PatchJobRequest()),
    )
    for call in calls:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call()
        assert grpc.StatusCode.RESOURCE_EXHAUSTED == caught.value.code()
        assert (caught.value.details() or "").startswith("1 jobs wait to be started, the bound is 1: try again in ")
        assert int(dict(caught.value.trailing_metadata())[RETRY_AFTER]) >= 1_000

    assert JOB == (await jobs.Get(job_pb2.GetRequest(id=ID))).jobInfo.id.value
    assert Backlog(1, 1, 2) == storage.search.backlog()
    await TaskManagerStub(narrow).Stop(task_pb2.StopRequest(jobId=ID))
    assert JobState.KILLED == storage.jobs.get_many([JOB])[0].goal
