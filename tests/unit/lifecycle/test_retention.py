"""Retention: the plan of deletions keeps what lives, covers everything else once, and stays within its bounds."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peloton.lifecycle.retention import (
    CLASSES,
    DAY_NS,
    JOBS,
    PAUSE_MAX_S,
    POD_EVENTS,
    PODS,
    ROWS_MAX,
    ROWS_MIN,
    SLOW_S,
    TARGET_S,
    Cursor,
    EndedJob,
    Part,
    cutoff_ns,
    is_slow,
    next_size,
    pause_s,
    plan_batch,
    reason_to_keep,
)
from peloton.model.ids import JobId
from peloton.model.job import JOB_TERMINAL, JobState, JobType
from services.retention.composition import policy_of
from services.settings import Settings
from services.storage.tables import METADATA

STEPS = (POD_EVENTS, PODS, JOBS)
NOW = 100 * DAY_NS


def a_job(
    at_ns: int = DAY_NS,
    count: int = 3,
    kind: JobType = JobType.BATCH,
    state: JobState = JobState.SUCCEEDED,
    is_referred: bool = False,
    number: int = 1,
) -> EndedJob:
    return EndedJob(JobId(str(uuid.UUID(int=number))), kind, state, at_ns, count, is_referred)


@st.composite
def jobs_in_order(draw: st.DrawFn) -> list[EndedJob]:
    found = [
        EndedJob(
            JobId(str(uuid.UUID(int=number))),
            draw(st.sampled_from(list(JobType))),
            draw(st.sampled_from(sorted(JOB_TERMINAL))),
            draw(st.integers(1, 5 * DAY_NS)),
            instance_count=draw(st.integers(0, 12)),
            is_referred=draw(st.booleans()),
        )
        for number in range(draw(st.integers(0, 12)))
    ]
    return sorted(found, key=lambda job: (job.ended_ns, job.job_id))


def read(jobs: Sequence[EndedJob], after: Cursor, limit: int) -> list[EndedJob]:
    """Return what storage returns for the cursor."""
    return [
        job
        for job in jobs
        if (job.ended_ns, job.job_id) > (after.ended_ns, after.job_id)
        or ((job.ended_ns, job.job_id) == (after.ended_ns, after.job_id) and job.instance_count > after.instance)
    ][:limit]


@given(jobs_in_order(), st.sampled_from(STEPS), st.integers(1, 9), st.integers(1, 5), st.integers(0, 6 * DAY_NS))
def test_a_step_deletes_each_record_that_is_old_once_and_no_other(
    jobs: list[EndedJob], step: str, pods_max: int, read_max: int, before_ns: int
) -> None:
    """Batches are bounded, follow each other in the order of ends, and end; interrupted between two of them, the next
    one is the same."""
    cursor, parts = Cursor(), list[Part]()
    for _ in range(1_000):
        found = read(jobs, cursor, read_max)
        batch = plan_batch(step, found, cursor, before_ns, pods_max)
        assert batch == plan_batch(step, found, cursor, before_ns, pods_max)
        assert batch.pod_count <= pods_max or len(batch.parts) == 1
        assert 1 >= len({part.job.ended_ns // DAY_NS for part in batch.parts})
        if not batch.parts and not batch.kept:
            break
        assert cursor < batch.after
        parts, cursor = [*parts, *batch.parts], batch.after
    else:
        pytest.fail("the plan does not end")

    wanted = [job for job in jobs if job.ended_ns < before_ns and not reason_to_keep(job, step)]
    assert [job.job_id for job in wanted] == list(dict.fromkeys(part.job.job_id for part in parts))
    for job in wanted:
        own = [part for part in parts if part.job == job]
        assert 0 == own[0].start
        assert all(one.start + one.count == other.start for one, other in pairwise(own))
        assert max(job.instance_count, 1) == own[-1].start + own[-1].count
        assert step != JOBS or 1 == len(own)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (a_job(kind=JobType.SERVICE), "a service job can be started again"),
        (a_job(kind=JobType.DAEMON), "a daemon job can be started again"),
        (a_job(state=JobState.RUNNING), "it is RUNNING"),
        (a_job(state=JobState.DELETED), "it is being deleted"),
        (a_job(), ""),
    ],
)
def test_what_lives_is_kept(job: EndedJob, step: str, reason: str) -> None:
    """Services, daemons, jobs that have not ended and jobs in deletion are kept in each step."""
    assert reason == reason_to_keep(job, step)
    assert bool(reason) != bool(plan_batch(step, [job], Cursor(), NOW, 10).parts)


def test_what_something_refers_to_loses_only_its_events() -> None:
    """Instances of an external job stay until the job goes, since further pods may take them."""
    referred = a_job(is_referred=True)
    assert ["", True, True] == [
        reason_to_keep(referred, step) and bool(reason_to_keep(referred, step)) for step in STEPS
    ]
    external = a_job(kind=JobType.EXTERNAL)
    assert ["", "its instances may be taken by further pods", ""] == [reason_to_keep(external, step) for step in STEPS]


def test_ages() -> None:
    """0 days are for ever; nothing is older than the epoch."""
    assert 0 == cutoff_ns(0, NOW)
    assert 93 * DAY_NS == cutoff_ns(7, NOW)
    assert 0 == cutoff_ns(1_000, NOW)
    assert not plan_batch(JOBS, [a_job()], Cursor(), cutoff_ns(0, NOW), 10).parts


@given(st.integers(ROWS_MIN, ROWS_MAX), st.floats(0, 1e6))
def test_the_pace_is_bounded_and_follows_the_database(rows: int, took_s: float) -> None:
    """Sizes change at most by two, shrink when a transaction was slow, and the pause is four times its length."""
    size = next_size(rows, took_s)
    assert max(rows // 2, ROWS_MIN) <= size <= min(2 * rows, ROWS_MAX)
    assert took_s <= TARGET_S or size <= rows
    assert 0 < pause_s(took_s) <= PAUSE_MAX_S
    assert not is_slow(rows, took_s) or (rows == ROWS_MIN and took_s >= SLOW_S)
    assert pause_s(took_s) >= min(4 * took_s, PAUSE_MAX_S)


def test_every_table_has_a_class() -> None:
    """A table that no class names would grow unnoticed: give it an age or name its bound."""
    named = [table for each in CLASSES for table in each.tables]
    assert sorted(METADATA.tables) == sorted(named)
    assert len(CLASSES) == len({each.name for each in CLASSES})


def test_each_class_has_an_age_or_a_rule() -> None:
    """Ages are those of classes, and every class says what is kept."""
    assert set(policy_of(Settings()).days) < {each.name for each in CLASSES}
    assert all(each.rule for each in CLASSES)
    assert all(policy_of(Settings()).days.values())
