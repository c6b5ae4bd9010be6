"""The line of wake-ups, in virtual time: requests of users first, no barrier, bounded signals, and a backlog that is
shown.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest
from opentelemetry.metrics import CallbackOptions
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from peloton.model.ids import JobId, RespoolId
from peloton.model.job import JobEnd, JobRecord, JobState, JobType, RolledUp, SlaSpec
from services.temporal.connection import CAUSE, END
from services.wakers.job_rollup import JobRollUp
from services.wakers.job_waker import JobWaker
from services.wakers.lifecycles import Lifecycle
from services.wakers.wake_line import Due, Rank, WakeLine
from services.wakers.waker import (
    RETRY_MAX_S,
    RETRY_S,
    SIGNALS_FOR_PEOPLE,
    SIGNALS_IN_FLIGHT_MAX,
    WARNINGS_EVERY_S,
    Waker,
    observe_all,
)
from tests.unit.virtual_time import in_virtual_time, now_s
from tests.workflow.server import job_storage
from workflows.policies import Policies

SIGNAL_S = 0.1
INTERVAL_S = 0.25


class Slow(Waker):
    """Each signal lasts a while; signals to ``away`` keys fail."""

    def __init__(self, rank: Rank = Rank.CHANGE, kind: str = "slow") -> None:
        absent: Any = None
        row = Lifecycle(kind=kind, workflow=Waker, workflow_id=str, interval_s=INTERVAL_S)
        super().__init__(row, absent, absent, Policies(), rank=rank)
        self.reported: list[tuple[str, float]] = []
        self.causes: dict[str, str] = {}
        self.slow: dict[str, float] = {}
        self.away: set[str] = set()
        self.at_once = self.at_once_most = 0

    def note(self, keys: Sequence[str], cause: str = "", rank: Rank | None = None) -> None:
        self.wake(keys, cause, rank)

    async def _signal(self, key: str) -> None:
        self.reported.append((key, now_s()))
        self.causes[key] = CAUSE.get()
        self.at_once += 1
        self.at_once_most = max(self.at_once_most, self.at_once)
        await asyncio.sleep(self.slow.get(key, SIGNAL_S))
        self.at_once -= 1
        if key in self.away:
            raise OSError("connection refused")

    @property
    def keys(self) -> list[str]:
        return [key for key, _ in self.reported]

    def times(self, key: str) -> list[float]:
        return [at_s for reported, at_s in self.reported if reported == key]


@in_virtual_time
async def test_a_stop_overtakes_20_000_others() -> None:
    """A user's stop is signalled at once, whatever waits; it would wait 50 s behind the others."""
    line = Slow()
    line.note([f"job{i}" for i in range(20_000)], rank=Rank.SWEEP)
    await asyncio.sleep(1.0)
    stopped_s = now_s()
    line.note(["stopped"], "a call of the API", Rank.PEOPLE)
    await asyncio.sleep(SIGNAL_S)

    assert line.times("stopped")[0] - stopped_s < 0.01
    await asyncio.sleep(20_000 * SIGNAL_S / (SIGNALS_IN_FLIGHT_MAX - SIGNALS_FOR_PEOPLE))
    assert 20_001 == len(set(line.keys))
    await line.close()


@in_virtual_time
async def test_a_key_that_waits_is_put_forward() -> None:
    """The job that a user stops is among the waiting ones: it goes first, once, with all causes."""
    line = Slow()
    line.note([f"job{i}" for i in range(1_000)], "pods changed", Rank.CHANGE)
    line.note(["job999"], "a call of the API", Rank.PEOPLE)
    await asyncio.sleep(30.0)

    assert "job999" in line.keys[:1]
    assert 1 == line.keys.count("job999")
    assert "a call of the API; pods changed" == line.causes["job999"]
    await line.close()


@in_virtual_time
async def test_no_signal_waits_for_the_end_of_others() -> None:
    """A signal of 10 s, as to a partition of Temporal that does not respond, blocks no key but its own."""
    line = Slow()
    line.slow["stuck"] = 10.0
    line.note(["stuck", "first"])
    await asyncio.sleep(1.0)
    line.note(["second", "stuck"])
    await asyncio.sleep(1.0)

    assert ["stuck", "first", "second"] == line.keys
    await asyncio.sleep(10.0)
    assert 2 == line.keys.count("stuck")
    await line.close()


@in_virtual_time
async def test_signals_are_bounded_and_some_are_for_people() -> None:
    """Signals are bounded, however many keys there are; the last slots are not used by changes."""
    line = Slow()
    line.note([f"job{i}" for i in range(500)])
    await asyncio.sleep(SIGNAL_S / 2)
    assert SIGNALS_IN_FLIGHT_MAX - SIGNALS_FOR_PEOPLE == line.at_once
    line.note([f"call{i}" for i in range(500)], rank=Rank.PEOPLE)
    await asyncio.sleep(60.0)

    assert SIGNALS_IN_FLIGHT_MAX == line.at_once_most
    assert 1_000 == len(set(line.keys))
    await line.close()


@in_virtual_time
async def test_a_key_is_signalled_once_per_interval() -> None:
    """A key is signalled once per interval, however often it is noted; the last note is never lost."""
    line = Slow()
    for _ in range(100):
        line.note(["job"])
        await asyncio.sleep(0.01)
    await asyncio.sleep(10.0)
    times = line.times("job")

    assert 3 <= len(times) <= 5
    assert all(later - sooner >= SIGNAL_S + INTERVAL_S - 0.001 for sooner, later in pairwise(times))
    await line.close()


@in_virtual_time
async def test_failures_are_tried_again_later_each_time() -> None:
    """A signal is repeated until Temporal accepts it; a user's call tries at once."""
    line = Slow()
    line.away.add("job")
    line.note(["job"])
    await asyncio.sleep(300.0)
    times = line.times("job")
    pauses = [later - sooner for sooner, later in pairwise(times)]
    assert pauses == sorted(pauses)
    assert RETRY_S <= pauses[0] <= 2 * RETRY_S
    assert RETRY_MAX_S <= pauses[-1] <= RETRY_MAX_S + 2 * SIGNAL_S

    line.away.clear()
    called_s = now_s()
    line.note(["job"], rank=Rank.PEOPLE)
    await asyncio.sleep(100.0)
    assert line.times("job")[len(times)] - called_s < SIGNAL_S + INTERVAL_S
    assert len(line.keys) <= len(times) + 2
    await line.close()


@in_virtual_time
async def test_changes_of_a_key_that_fails_add_no_attempts_of_their_own() -> None:
    """Each change is tried at once, and the key again later, once: a change must not leave a retry that causes another
    one.
    """
    line = Slow()
    line.away.add("job")
    for number in range(20):
        line.note(["job"], f"change {number}")
        await asyncio.sleep(1.0)
    changed = len(line.keys)
    await asyncio.sleep(5 * RETRY_MAX_S)

    assert len(line.keys) - changed <= 6
    assert {f"change {number}" for number in range(20)} <= set(line.causes["job"].split("; "))
    line.away.clear()
    line.note(["job"])
    await asyncio.sleep(2 * RETRY_MAX_S)
    reported = len(line.keys)
    await asyncio.sleep(2 * RETRY_MAX_S)
    assert reported == len(line.keys)
    await line.close()


@in_virtual_time
async def test_the_backlog_is_a_metric() -> None:
    """The gauge has a value for each waker and rank; they are 0 in the end."""

    def read_gauge() -> dict[Any, Any]:
        found = [(one.attributes or {}, one.value) for one in observe_all(CallbackOptions())]
        return {of["rank"]: value for of, value in found if of["waker"] == "WatchedOneWaker"}

    line = Slow(kind="watched-one")
    line.note([f"job{i}" for i in range(200)], rank=Rank.SWEEP)
    line.note(["a", "b"], rank=Rank.PEOPLE)
    assert {"people": 2, "change": 0, "sweep": 200} == read_gauge()
    assert 202 == line.backlog
    await asyncio.sleep(60.0)
    assert {"people": 0, "change": 0, "sweep": 0} == read_gauge()
    await line.close()


@in_virtual_time
async def test_counting_holds_no_signal_up() -> None:
    """A slow count of the pods that changed delays no stop."""
    reported: list[str] = []
    counted = asyncio.Event()

    class Signalled(JobWaker):
        async def _signal(self, key: str) -> None:
            reported.append(key)

    class SlowRollUp(JobRollUp):
        async def _count_jobs(self, quiet: Any) -> None:
            await counted.wait()
            await super()._count_jobs(quiet)

    def roll_up(job_ids: Sequence[JobId], now_ns: int) -> RolledUp:
        return RolledUp(list(job_ids), [])

    no_client: Any = None
    jobs = Signalled(no_client, job_storage(lambda _: None), Policies())
    rollup = SlowRollUp(roll_up, jobs, INTERVAL_S)
    rollup.pods_changed([JobId("counted")], "pods changed on their hosts")
    await asyncio.sleep(1.0)
    jobs.jobs_changed([JobId("stopped")])
    await asyncio.sleep(1.0)
    assert ["stopped"] == reported
    counted.set()
    await asyncio.sleep(5.0)
    assert ["stopped", "counted"] == reported
    await rollup.close()
    await jobs.close()


class Ending(JobWaker):
    """Notes what each signal brings, and which wakes are deleted; the first signals to ``away`` keys fail."""

    def __init__(self, stored: JobRecord | None = None, is_gone: bool = False) -> None:
        self.forgotten: list[JobId] = []
        self.sent: list[tuple[str, JobEnd | None]] = []
        self.away: set[str] = set()
        storage = job_storage(lambda _: stored)
        storage.wakes.forget_signalled = self.forgotten.extend

        async def signal(key: str) -> None:
            self.sent.append((key, END.get()))
            if key in self.away:
                self.away.discard(key)
                raise OSError("connection refused")
            if is_gone:
                raise RPCError("no such workflow", RPCStatusCode.NOT_FOUND, b"")

        handles = SimpleNamespace(
            get_workflow_handle=lambda key: SimpleNamespace(signal=lambda _, rpc_timeout: signal(key))
        )
        super().__init__(cast(Client, handles), storage, Policies(), interval_s=INTERVAL_S)


END_OF_JOB = JobEnd(JobState.SUCCEEDED, {"SUCCEEDED": 10})


@in_virtual_time
async def test_the_end_of_a_job_is_sent_with_its_signal() -> None:
    """A signal brings the end of a job, unless the job has changed as well. The wakes of both are deleted together,
    once the signals are accepted."""
    jobs = Ending()
    jobs.jobs_ended({JobId("ended"): END_OF_JOB, JobId("changed"): END_OF_JOB})
    jobs.jobs_changed([JobId("changed")], "a call of the API")
    await asyncio.sleep(0.5)
    assert [("job/ended", END_OF_JOB), ("job/changed", None)] == jobs.sent
    assert [] == jobs.forgotten
    await asyncio.sleep(5.0)
    assert ["ended"] == jobs.forgotten  # the workflow of the other one settles it
    await jobs.close()


@in_virtual_time
async def test_an_end_that_did_not_arrive_is_read() -> None:
    """A failed attempt is followed by a signal to read the rows: they have the end, and the wake stays."""
    jobs = Ending()
    jobs.away.add("job/ended")
    jobs.jobs_ended({JobId("ended"): END_OF_JOB})
    await asyncio.sleep(10.0)

    assert [("job/ended", END_OF_JOB), ("job/ended", None)] == jobs.sent
    assert [] == jobs.forgotten
    await jobs.close()


@in_virtual_time
async def test_the_wake_of_an_ended_job_without_a_workflow_is_deleted() -> None:
    """The sweep finds the wake of a job whose workflow has closed, and it is deleted after the signal."""
    over = JobState.SUCCEEDED
    ended = JobRecord(JobId("ended"), "train", JobType.BATCH, "team", RespoolId("pool"), 1, SlaSpec(), over, over)
    jobs = Ending(ended, is_gone=True)
    jobs.jobs_swept([JobId("ended")])
    await asyncio.sleep(5.0)

    assert ["ended"] == jobs.forgotten
    await jobs.close()


def test_a_long_line_is_quick() -> None:
    """A key is taken without a search through the keys that were taken before."""
    line, size = WakeLine(), 200_000
    for i in range(size):
        line.add(str(i), "", Rank.SWEEP)
    taken = 0
    while line.take(Rank.SWEEP) is not None:
        taken += 1

    assert (size, 0) == (taken, len(line))


def test_ranks_and_busy_keys() -> None:
    """The better rank counts, also if the key is noted while it is busy."""
    line = WakeLine()
    line.add("a", "one", Rank.CHANGE)
    line.add("b", "two", Rank.SWEEP)
    assert Due("a", Rank.CHANGE, frozenset({"one"})) == line.take(Rank.SWEEP)
    line.add("a", "three", Rank.SWEEP)
    line.add("a", "four", Rank.PEOPLE)
    assert "a" in line
    assert line.take(Rank.PEOPLE) is None
    line.free("a")
    assert Counter({Rank.PEOPLE: 1, Rank.SWEEP: 1}) == +line.counts()
    assert Due("a", Rank.PEOPLE, frozenset({"three", "four"})) == line.take(Rank.PEOPLE)


@in_virtual_time
async def test_a_temporal_that_is_away_fills_no_log(caplog: pytest.LogCaptureFixture) -> None:
    """A failure is logged once in a while, and not for each key."""
    line = Slow()
    line.away = {f"job{i}" for i in range(2_000)}
    line.note(sorted(line.away))
    await asyncio.sleep(60.0)

    assert 1 <= len(caplog.records) <= 1 + 60.0 / WARNINGS_EVERY_S
    await line.close()
