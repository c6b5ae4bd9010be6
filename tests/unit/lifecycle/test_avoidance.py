"""Avoidance of hosts on which pods fail: its start, its length, and the jobs that avoid them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from peloton.lifecycle.avoidance import (
    DEPRIORITIZED_S,
    FOR_ALL,
    FOR_ONE,
    QUICK_S,
    WINDOW_S,
    Record,
    Rule,
    RunEnd,
    after_failure,
    after_success,
    count_failed,
    is_own_fault,
    limit_avoided,
    run_end,
)
from peloton.lifecycle.endings import RULES
from peloton.lifecycle.reason_text import misfit_text
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.job import JobType
from peloton.model.pod import Cause, PodRecord, PodState

A, B, C = (JobId(f"{letter}0000000-0000-4000-8000-000000000000") for letter in "abc")
HOST = Hostname("h1")
SECOND = 1_000_000_000


def end(job: JobId, instance: int = 0, ran_s: float = 2.0) -> RunEnd:
    return RunEnd(PodId(job, instance, 1), HOST, is_failure=True, ran_s=ran_s)


def after(ends: Iterable[RunEnd], rule: Rule = FOR_ALL, record: Record | None = None, now_s: float = 1000.0) -> Record:
    record = record or Record()
    for one in ends:
        record = after_failure(record, one, rule, now_s)
    return record


def test_several_jobs_that_fail_at_once_speak_against_a_host() -> None:
    """Three failed pods of two jobs make a host avoided for a minute, with the reason."""
    record = after([end(A), end(A, 1), end(B, ran_s=0.5)])

    assert 60.0 == record.until_s - 1000.0
    assert "avoided after 3 pods of 2 jobs failed there within 2 s" == misfit_text(record.why)


@pytest.mark.parametrize(
    "ends",
    [
        [end(A), end(A, 1), end(A, 2), end(A, 3)],
        [end(A), end(B), end(B), end(A)],
        [end(A), end(B), end(C, ran_s=QUICK_S + 1)],
    ],
    ids=["one job", "two pods again and again", "one after a while"],
)
def test_less_speaks_against_no_host(ends: list[RunEnd]) -> None:
    """One job may be broken itself, and so may one pod; a pod that runs for a while has started well."""
    assert not after(ends).is_avoided(1000.0)


def test_a_job_keeps_away_where_its_pods_fail() -> None:
    """Three failed pods of a job make the job avoid the host, for ten minutes."""
    record = after([end(A), end(A, 1), end(A, 2)], FOR_ONE)

    assert (600.0, "avoided after 3 pods of the job failed there within 2 s") == (
        record.until_s - 1000.0,
        misfit_text(record.why),
    )


def test_old_failures_are_forgotten() -> None:
    """Two failures older than the window, and one newer: too few."""
    old = after([end(A), end(B)])

    assert not after([end(C)], record=old, now_s=1001.0 + WINDOW_S).is_avoided(1001.0 + WINDOW_S)


def test_each_time_a_host_is_avoided_for_longer() -> None:
    """Avoidance lasts 1, 2, 4 ... minutes, an hour at most."""
    record, now_s, seconds = Record(), 1000.0, []
    for _ in range(8):
        record = after([end(A), end(A, 1), end(B)], record=record, now_s=now_s)
        seconds.append(record.until_s - now_s)
        now_s = record.until_s

    assert [60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3600.0, 3600.0] == seconds


def test_success_makes_it_shorter_again() -> None:
    """Each success cancels one avoidance, and one failure."""
    record = Record(times=3)
    assert 2 == after_success(record, 1000.0).times

    failing = after([end(A), end(A, 1)])
    assert 1 == len(after_success(failing, 1000.0).failures)
    assert not after([end(B)], record=after_success(failing, 1000.0)).is_avoided(1000.0)


def test_what_ends_while_a_host_is_avoided_changes_nothing() -> None:
    """A run that ends while its host is avoided began before: it changes neither the time nor its length."""
    record = after([end(A), end(A, 1), end(B)])
    later = after([end(C), end(B, 1), end(A, 2)], record=record, now_s=1001.0)

    assert record == replace(later, failed_s=record.failed_s)
    assert record == after_success(record, 1001.0)


def test_after_a_long_time_it_begins_again() -> None:
    """A host without failures for longer than the longest time starts again as a new one."""
    record = replace(Record(), times=5, until_s=1000.0)

    assert 1 == after([end(A), end(A, 1), end(B)], record=record, now_s=1001.0 + FOR_ALL.longest_s).times


def test_beyond_the_share_of_hosts_none_is_avoided() -> None:
    """Failures beyond the share of hosts are kept, for the time when fewer are avoided."""
    record = after([end(A), end(A, 1)])
    full = after_failure(record, end(B), FOR_ALL, 1000.0, may_avoid=False)

    assert (False, 3) == (full.is_avoided(1000.0), len(full.failures))
    assert [1, 1, 2, 12_500] == [limit_avoided(count) for count in (1, 3, 8, 50_000)]


def test_a_record_is_over_when_it_says_no_more_than_a_new_one() -> None:
    """A record is kept for as long as it would make the next avoidance longer."""
    once, avoided = after([end(A)]), after([end(A), end(A, 1), end(B)])
    last_s = avoided.until_s + FOR_ALL.longest_s

    assert [False, True] == [once.is_over(FOR_ALL, now_s) for now_s in (1000.0, 1000.0 + DEPRIORITIZED_S)]
    assert [False, True] == [avoided.is_over(FOR_ALL, now_s) for now_s in (last_s, last_s + 1.0)]
    assert 2 == after([end(A), end(A, 1), end(B)], record=avoided, now_s=last_s).times


def test_a_job_failed_lately_where_it_would_keep_away() -> None:
    """A job failed lately on a host that it avoids for longer than it deprioritises one, and on the hosts that it
    deprioritises.
    """
    records = [Record(failed_s=0.0, until_s=5_000.0), Record(failed_s=1_000.0), Record(failed_s=0.0)]

    assert 2 == count_failed(records, 1_000.0)


@pytest.mark.parametrize(
    ("failed", "hosts", "expected"),
    [(1, 1, True), (1, 2, False), (2, 2, True), (2, 3, False), (3, 3, True), (3, 10, True), (2, 10, False),
     (25, 100, False), (26, 100, True), (101, 50_000, True), (100, 50_000, False)],
)  # fmt: skip
def test_a_job_that_fails_wherever_it_goes_is_broken(failed: int, hosts: int, expected: bool) -> None:
    """A job that fails on all hosts, on more than two of few, or on more than a quarter of many is broken itself."""
    assert expected == is_own_fault(failed, hosts)


@pytest.mark.parametrize("cause", sorted(RULES))
def test_the_table_of_causes_says_what_speaks_against_a_host(cause: Cause) -> None:
    """A failure counts against the host if the table of causes says so; a success counts for it, and a kill does not
    count.
    """
    pod = PodRecord(A, 0, 1, PodState.FAILED, PodState.SUCCEEDED, 1, 1, 1, host="h1", started_ns=5 * SECOND)
    ended = replace(pod, completed_ns=8 * SECOND)

    assert RunEnd(PodId(A, 0, 1), HOST, RULES[cause].blames_host, False, 3.0) == run_end(ended, cause, JobType.BATCH)
    assert (False, True) == _signs(replace(ended, state=PodState.SUCCEEDED), cause)
    assert (False, False) == _signs(replace(ended, state=PodState.KILLED), cause)
    assert 0.0 == run_end(replace(ended, started_ns=0), cause, JobType.BATCH).ran_s
    assert not run_end(ended, cause, JobType.SERVICE).is_batch


def _signs(pod: PodRecord, cause: Cause) -> tuple[bool, bool]:
    found = run_end(pod, cause, JobType.BATCH)
    return found.is_failure, found.is_success
