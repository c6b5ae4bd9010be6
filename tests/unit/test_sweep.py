"""Rounds of the sweep, and the starts of roles."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from temporalio.api.namespace.v1 import NamespaceInfo
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, DescribeNamespaceResponse
from temporalio.service import RPCError, RPCStatusCode

from peloton.errors import Unavailable
from peloton.lifecycle.wake import TIMER_GRACE_S, Wake, next_due_ns, shown_by_ns
from peloton.model.ids import JobId
from peloton.model.job import JobProgress, JobState
from services.wakers.missing_workflows import MissingWorkflows
from services.wakers.sweep import (
    BUSY_PERIOD_S,
    FORGET_PAGES_MAX,
    PAGE_JOBS,
    PERIOD_S,
    ROUND_JOBS_MAX,
    SIGNAL_GRACE_S,
    Sweep,
)
from tests.unit.virtual_time import START_S, in_virtual_time, now_s

SECOND = 10**9


def clock_ns() -> int:
    return int(now_s() * SECOND)


class Notes:
    """Notes of jobs by their due times, in seconds from the start."""

    def __init__(self, **due_s: float) -> None:
        self.rows = {JobId(job): int((START_S + at_s) * SECOND) for job, at_s in due_s.items()}
        self.woken: list[tuple[JobId, float]] = []
        self.pages = 0
        self.ended = 0
        self.is_unavailable = False

    def due(self, until_ns: int, limit: int, after: tuple[int, str] = (0, "")) -> Sequence[tuple[int, JobId]]:
        if self.is_unavailable:
            raise Unavailable("database away")
        self.pages += 1
        return sorted(row for job, at in self.rows.items() if (row := (at, job)) > after and at <= until_ns)[:limit]

    def forget_ended(self, until_ns: int, limit: int) -> int:
        count = min(limit, self.ended)
        self.ended -= count
        return count

    def wake(self, job_ids: Iterable[JobId]) -> None:
        self.woken += [(job_id, now_s() - START_S) for job_id in job_ids]

    @property
    def jobs(self) -> list[JobId]:
        return [job_id for job_id, _ in self.woken]


@in_virtual_time
async def test_lost_wake_ups_are_found_within_a_round() -> None:
    """Note whose signals are under way are not swept, and neither are notes of the future."""
    notes = Notes(lost=0.0, fresh=PERIOD_S - 1, later=1_000.0)
    sweep = Sweep(notes, notes.wake, clock_ns=clock_ns)
    sweep.start()
    await asyncio.sleep(PERIOD_S + 1)
    assert ["lost"] == notes.jobs
    del notes.rows[JobId("lost")]
    await asyncio.sleep(PERIOD_S)
    assert ["lost", "fresh"] == notes.jobs
    await sweep.close()


@in_virtual_time
async def test_a_role_that_starts_wakes_changed_jobs_alone() -> None:
    """One round skips the grace for signals: the predecessor of the role sends none any more. Ten thousand idle jobs
    are not read.
    """
    notes = Notes(changed=0.0, deadline=10_000.0)

    assert 1 == await Sweep(notes, notes.wake, clock_ns=clock_ns).once()
    assert (["changed"], 1) == (notes.jobs, notes.pages)


@in_virtual_time
async def test_a_round_is_bounded_and_the_next_continues() -> None:
    """A round reads page by page, each job once; the next round, soon, reads the rest."""
    many = ROUND_JOBS_MAX + PAGE_JOBS // 2
    notes = Notes(**{f"job{i:06}": 0.0 for i in range(many)})
    sweep = Sweep(notes, notes.wake, clock_ns=clock_ns)
    sweep.start()
    await asyncio.sleep(PERIOD_S + 1)
    assert ROUND_JOBS_MAX == len(set(notes.jobs)) == len(notes.jobs)
    await asyncio.sleep(BUSY_PERIOD_S)
    assert many == len(set(notes.jobs)) == len(notes.jobs)
    await sweep.close()


@in_virtual_time
async def test_a_round_forgets_ended_jobs_page_by_page() -> None:
    """Thousands of ended jobs are removed by one round, and more of them by the following rounds."""
    notes = Notes()
    sweep = Sweep(notes, notes.wake, clock_ns=clock_ns)
    notes.ended = 3 * PAGE_JOBS + 1
    await sweep.once()
    assert 0 == notes.ended
    notes.ended = FORGET_PAGES_MAX * PAGE_JOBS + 1
    await sweep.once()
    assert 1 == notes.ended


@in_virtual_time
async def test_a_note_that_stays_is_woken_when_its_age_has_doubled() -> None:
    """Workers do not respond for hours: each signal that waits for them lengthens a history. A new change of the job
    is woken by the next round.
    """
    notes = Notes(job=0.0)
    sweep = Sweep(notes, notes.wake, clock_ns=clock_ns)
    sweep.start()
    await asyncio.sleep(3.5 * 3_600)
    wakings = [round(at_s / PERIOD_S) for _, at_s in notes.woken]
    assert [1, 2, 4, 8, 16, 32, 64, 124, 184] == wakings
    notes.rows[JobId("job")] = clock_ns()
    await asyncio.sleep(PERIOD_S + SIGNAL_GRACE_S)
    assert len(wakings) + 1 == len(notes.woken)
    await sweep.close()


@in_virtual_time
async def test_wakings_are_remembered_while_their_notes_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """A note that comes back after a pass without it is woken; notes beyond the bound are woken by each pass."""
    monkeypatch.setattr("services.wakers.sweep.WOKEN_KEPT_MAX", 2)
    notes = Notes(a=-100.0, b=-100.0, c=-100.0)
    sweep = Sweep(notes, notes.wake, clock_ns=clock_ns)
    assert [3, 1, 1] == [await sweep.once() for _ in range(3)]
    gone = notes.rows.pop(JobId("a"))
    await sweep.once()
    await sweep.once()
    notes.rows[JobId("a")] = gone
    assert 1 == await sweep.once()
    assert ["a"] == notes.jobs[-1:]


@in_virtual_time
async def test_no_round_begins_behind_a_long_line() -> None:
    """Jobs of the last round are not signalled yet: a further one would find the same."""
    notes, waiting = Notes(job=0.0), [ROUND_JOBS_MAX]
    sweep = Sweep(notes, notes.wake, lambda: waiting[0], clock_ns=clock_ns)
    sweep.start()
    await asyncio.sleep(3 * PERIOD_S)
    assert [] == notes.jobs
    waiting[0] = 0
    await asyncio.sleep(BUSY_PERIOD_S + 1)
    assert ["job"] == notes.jobs
    await sweep.close()


@in_virtual_time
async def test_storage_that_is_away_ends_no_sweep() -> None:
    """A next round makes up for one that storage failed."""
    notes = Notes(job=0.0)
    notes.is_unavailable = True
    sweep = Sweep(notes, notes.wake, clock_ns=clock_ns)
    sweep.start()
    await asyncio.sleep(2 * PERIOD_S)
    notes.is_unavailable = False
    await asyncio.sleep(BUSY_PERIOD_S + SIGNAL_GRACE_S)
    assert ["job"] == notes.jobs
    await sweep.close()


def test_when_a_note_is_due_next() -> None:
    """A settle removes the notes it has seen, keeps the next deadline with some grace, and writes no note without a
    change.
    """
    unseen, dated = Wake(noted_ns=5, due_ns=5), Wake(noted_ns=5, due_ns=900 * SECOND)

    idle, timed = JobProgress(JobState.RUNNING), JobProgress(JobState.RUNNING, deadline_s=60.0)
    rolls_out, launches = replace(idle, update_id="update"), replace(timed, gang_run=1, deadline_s=9_999.0)
    assert next_due_ns(None, timed, 10) is None
    assert 0 == next_due_ns(unseen, idle, 10)
    assert 10 + (60 + TIMER_GRACE_S) * SECOND == next_due_ns(unseen, timed, 10)
    assert next_due_ns(dated, timed, 10) is None
    assert 0 == next_due_ns(dated, idle, 10)
    assert (960 + TIMER_GRACE_S) * SECOND == next_due_ns(dated, timed, 900 * SECOND)
    assert {10 + 300 * SECOND} == {next_due_ns(unseen, one, 10) for one in (rolls_out, launches)}
    assert 10 + TIMER_GRACE_S * SECOND == shown_by_ns(unseen, 10)


class Temporal:
    """Lists and counts workflows of a namespace."""

    namespace = "default"

    def __init__(self, *jobs: str) -> None:
        self.ids = {f"job/{job}" for job in jobs}
        self.lists = 0
        self.namespace_id = "made-once"
        self.error: RPCError | None = None

    @property
    def workflow_service(self) -> Temporal:
        return self

    async def describe_namespace(self, request: DescribeNamespaceRequest, **_: Any) -> DescribeNamespaceResponse:
        assert self.namespace == request.namespace
        if self.error is not None:
            raise self.error
        return DescribeNamespaceResponse(namespace_info=NamespaceInfo(id=self.namespace_id))

    async def count_workflows(self, query: str, **_: Any) -> Any:
        return type("Count", (), {"count": len(self.ids)})

    async def list_workflows(self, query: str, **_: Any) -> Any:
        self.lists += 1
        for one in sorted(self.ids):
            yield type("Execution", (), {"id": one})


def looking(temporal: Any, active: list[JobId], clock: Any = lambda: 0.0) -> MissingWorkflows:
    return MissingWorkflows(temporal, lambda: len(active), lambda: active, clock)


async def test_a_lost_store_of_temporal_is_noticed() -> None:
    """Two polls that count too few compare the ids, and a workflow is missing when the next comparison misses
    it again.
    """
    active = [JobId(name) for name in "abc"]
    temporal = Temporal("a", "b", "c")
    missing = looking(temporal, active)
    assert [] == await missing.find()
    temporal.ids.clear()

    assert [[], []] == [await missing.find() for _ in range(2)]
    assert active == await missing.find()
    temporal.ids = {"job/a", "job/c"}
    assert ["b"] == await missing.find()


async def test_a_namespace_that_was_made_again_has_no_workflows() -> None:
    """The first call after it returns all active jobs, once, and compares nothing."""
    active = [JobId(name) for name in "abc"]
    temporal = Temporal("a", "b", "c")
    missing = looking(temporal, active)
    assert [] == await missing.find()
    temporal.namespace_id = "made-again"

    assert [active, []] == [await missing.find() for _ in range(2)]
    assert 0 == temporal.lists


async def test_a_namespace_that_may_not_be_read_is_counted() -> None:
    """A credential for workflows alone finds missing ones by the counts."""
    temporal = Temporal("a")
    temporal.error = RPCError("not for this key", RPCStatusCode.PERMISSION_DENIED, b"")
    missing = looking(temporal, [JobId("a")])
    assert [] == await missing.find()
    temporal.ids.clear()

    assert [[], [], ["a"]] == [await missing.find() for _ in range(3)]


async def test_lists_that_lag_behind_give_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Jobs come and go, and each comparison misses the workflow that began last; only the lost one is found."""
    active = [JobId(name) for name in "abcdefg"]
    temporal = Temporal()
    missing = looking(temporal, active)
    await missing.find()
    for lagging in "bcdef":
        temporal.ids = {f"job/{job}" for job in active if job != lagging}
        assert [] == await missing.find()
    assert (5, "") == (temporal.lists, caplog.text)
    temporal.ids = {"job/b", "job/c", "job/d", "job/e", "job/g"}
    assert ["f"] == await missing.find()
    assert "1 of 7 active jobs have no workflow" in caplog.text


async def test_counts_that_agree_list_nothing() -> None:
    """A poll costs two counts, whatever the number of jobs."""
    temporal = Temporal(*map(str, range(1_000)))
    missing = looking(temporal, [JobId(str(i)) for i in range(1_000)])
    for _ in range(10):
        assert [] == await missing.find()

    assert 0 == temporal.lists


async def test_comparisons_rest() -> None:
    """Each comparison is followed by a pause of some multiple of its duration: a permanent gap costs little."""
    now = [0.0]

    def clock() -> float:
        now[0] += 1.0
        return now[0]

    temporal = Temporal()
    missing = looking(temporal, [JobId("a")], clock)
    for _ in range(10):
        await missing.find()

    assert 1 == temporal.lists


async def test_counts_that_agree_rest() -> None:
    """Count read a row of each job, so that they are followed by a pause of a multiple of their duration, within a
    bound.
    """
    now, counted_s = [0.0], list[float]()

    class Slow(Temporal):
        async def count_workflows(self, query: str, **more: Any) -> Any:
            counted_s.append(now[0])
            now[0] += 0.1
            return await super().count_workflows(query, **more)

    missing = looking(Slow("a"), [JobId("a")], lambda: now[0])
    for _ in range(10):
        assert [] == await missing.find()
        now[0] += 20.0

    assert [0.0, 60.1, 120.2, 180.3] == [round(one_s, 1) for one_s in counted_s]
