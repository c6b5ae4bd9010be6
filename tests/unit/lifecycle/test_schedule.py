"""Names, times and options that schedules can have, and the names of their jobs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from peloton.lifecycle.schedule import (
    cron_fault,
    cron_of,
    job_id_of,
    job_name_of,
    name_fault,
    options_fault,
    times_fault,
)
from peloton.model.schedule import ScheduledRun, ScheduleOptions, Times

NS_PER_S = 10**9
EVERY = (0, 59, 1), (0, 23, 1), (1, 31, 1), (1, 12, 1), (0, 6, 1)


@pytest.mark.parametrize(
    "cron", ["0 6 * * 1-5", "*/10 * * * mon-FRI", "@daily", "0 0 1,15 jan-mar *", "0 0 */2 * ?", "59 23 31 12 7"]
)
def test_cron_expressions(cron: str) -> None:
    """Cron expressions may have numbers, ranges, steps, lists, names and words."""
    assert "" == cron_fault(cron)


@pytest.mark.parametrize(
    ("cron", "fault"),
    [
        ("61 * * * *", "minute '61': want 0 to 59"),
        ("0 0 * * 8", "day of week '8': want 0 to 7, or sun to sat"),
        ("0 0 0 * *", "day of month '0': want 1 to 31"),
        ("5-1 * * * *", "minute '5-1': the range 5-1 is empty"),
        ("*/0 * * * *", "minute '*/0': want a step of 1 to 59"),
        ("*-5 * * * *", "want numbers, ranges such as 1-5"),
        ("x * * * *", "minute 'x': want 0 to 59"),
        ("* * *", "has 3 fields, want 5: minute, hour, day of month, month, day of week"),
        ("", "has 0 fields"),
        ("@every 3h", "want one of @yearly"),
        ("CRON_TZ=UTC 0 0 * * *", "has 6 fields"),
        ("9999999999999999999999 * * * *", "want 0 to 59"),
    ],
)
def test_no_cron_expressions(cron: str, fault: str) -> None:
    """The error names the expression, the field and the rule."""
    assert fault in cron_fault(cron)
    assert cron_fault(cron).startswith(f"cron expression '{cron}'")


def test_temporals_calendars_read_as_cron() -> None:
    """A field that is whole is a star; Temporal has resolved words."""
    minute, hour, day, month, weekday = EVERY
    assert "* * * * *" == cron_of([[minute], [hour], [day], [month], [weekday]])
    assert "0 6,18 * */3 1-5" == cron_of([[(0, 0, 1)], [(6, 6, 1), (18, 18, 1)], [day], [(1, 12, 3)], [(1, 5, 1)]])


@pytest.mark.parametrize(
    ("times", "fault"),
    [
        (Times(), "a schedule has no times"),
        (Times(("@daily",) * 21), "21 cron expressions, at most 20"),
        (Times(("@daily", "nonsense")), "cron expression 'nonsense'"),
        (Times(interval_s=9), "the interval is 9 s, want 10 to 31536000"),
        (Times(interval_s=2**63), "want 10 to"),
        (Times(interval_s=60, offset_s=60), "the offset is 60 s, want less than the interval of 60 s"),
        (Times(interval_s=60, time_zone="UTC"), "a time zone is of cron expressions"),
        (Times(interval_s=60, jitter_s=2**63), "the jitter is"),
    ],
)
def test_times_that_cannot_be(times: Times, fault: str) -> None:
    """The error has the numbers."""
    assert fault in times_fault(times)


def test_times_that_can_be() -> None:
    """Cron expressions and an interval may be given together."""
    assert "" == times_fault(Times(("@daily", "0 6 * * *"), 3_600, 60, "Europe/Berlin", 30))


def test_names_and_options() -> None:
    """The name is part of ids and queries; notes are short."""
    assert ["", ""] == [name_fault("report-2.daily_x"), name_fault("a" * 100)]
    assert all(name_fault(name) for name in ("", "-a", "a/b", "a b", "a'b", "ä", "a" * 101))
    assert "" == options_fault(ScheduleOptions(), "x" * 400)
    assert "the note has 401 characters, at most 400" in options_fault(ScheduleOptions(), "x" * 401)
    assert "the catch-up window is 9 s, want 10 to" in options_fault(ScheduleOptions(catch_up_s=9), "")


def test_a_time_has_one_job() -> None:
    """The job's id follows from the creation of the schedule and the time, whatever its configuration."""
    run = ScheduledRun("report", "5d8a4a1e-6a0e-4d35-9d43-3e4f3a0a9a10", "", 1_000 * NS_PER_S)
    same = replace(run, config="other", scheduled_ns=run.scheduled_ns + 999)
    later = replace(run, scheduled_ns=1_001 * NS_PER_S)
    created_again = replace(run, creation_id="6d8a4a1e-6a0e-4d35-9d43-3e4f3a0a9a10")

    assert job_id_of(run) == job_id_of(same)
    assert 3 == len({job_id_of(one) for one in (run, later, created_again)})
    assert ("report-19700101T001640Z", "19700101T001640Z") == (
        job_name_of("report", run.scheduled_ns),
        job_name_of("", run.scheduled_ns),
    )
