"""Schedules of jobs: validation of names, times and options, and the names of the jobs."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime

from peloton.model.ids import JobId
from peloton.model.schedule import ScheduledRun, ScheduleOptions, Times
from peloton.model.text import quote
from peloton.model.times import NS_PER_S

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
CRONS_MAX = 20
NOTE_MAX = 400
"""Maximum characters of a note."""
INTERVAL_MIN_S, YEAR_S = 10, 365 * 86_400
CATCH_UP_MIN_S = 10
"""Minimum catch-up window of Temporal, in seconds."""
CRON_WORDS = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
CRON_FIELDS: tuple[tuple[str, int, int, tuple[str, ...]], ...] = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of month", 1, 31, ()),
    ("month", 1, 12, MONTHS),
    ("day of week", 0, 7, DAYS),
)
"""Name, minimum, maximum, and words, of which the first stands for the minimum."""
CRON_ITEM = re.compile(r"(\*|\?|\w+)(?:-(\w+))?(?:/(\d+))?", re.ASCII)

Range = tuple[int, int, int]
"""First, last, step."""


def name_fault(name: str) -> str:
    """Return why the name is invalid, or ""."""
    if NAME.fullmatch(name):
        return ""
    return (
        f"schedule {quote(name)}: want a name of at most 100 letters, digits, dots, dashes and underscores, the first "
        f"a letter or a digit"
    )


def times_fault(times: Times) -> str:
    """Return why these times are invalid, or "". The time zone is validated by its database."""
    if not times.crons and not times.interval_s:
        return "a schedule has no times: give it a cron expression or an interval"
    if len(times.crons) > CRONS_MAX:
        return f"{len(times.crons)} cron expressions, at most {CRONS_MAX} are allowed"
    if fault := next((text for cron in times.crons if (text := cron_fault(cron))), ""):
        return fault
    if times.interval_s and not INTERVAL_MIN_S <= times.interval_s <= YEAR_S:
        return f"the interval is {times.interval_s} s, want {INTERVAL_MIN_S} to {YEAR_S}"
    if times.offset_s and times.offset_s >= times.interval_s:
        return f"the offset is {times.offset_s} s, want less than the interval of {times.interval_s} s"
    if times.time_zone and not times.crons:
        return "a time zone is of cron expressions, and there are none: leave it out"
    return f"the jitter is {times.jitter_s} s, at most {YEAR_S}" if times.jitter_s > YEAR_S else ""


def options_fault(options: ScheduleOptions, note: str) -> str:
    """Return why these options are invalid, or ""."""
    if not CATCH_UP_MIN_S <= options.catch_up_s <= YEAR_S:
        return f"the catch-up window is {options.catch_up_s} s, want {CATCH_UP_MIN_S} to {YEAR_S}"
    return note_fault(note)


def note_fault(note: str) -> str:
    return f"the note has {len(note)} characters, at most {NOTE_MAX} are allowed" if len(note) > NOTE_MAX else ""


def cron_fault(cron: str) -> str:
    """Return the fault of a cron expression, including the expression, or ""."""
    if cron.startswith("@"):
        return "" if cron in CRON_WORDS else f"cron expression {quote(cron)}: want one of {', '.join(CRON_WORDS)}"
    fields = cron.split()
    if len(fields) != len(CRON_FIELDS):
        names = ", ".join(name for name, *_ in CRON_FIELDS)
        return f"cron expression {quote(cron)} has {len(fields)} fields, want {len(CRON_FIELDS)}: {names}"
    for text, (name, least, greatest, words) in zip(fields, CRON_FIELDS, strict=True):
        if fault := _field_fault(text, least, greatest, words):
            return f"cron expression {quote(cron)}: {name} {quote(text)}: {fault}"
    return ""


def _field_fault(text: str, least: int, greatest: int, words: Sequence[str]) -> str:
    for item in text.split(","):
        match = CRON_ITEM.fullmatch(item)
        if match is None or (match[1] in "*?" and match[2]):
            return "want numbers, ranges such as 1-5, steps such as */10, or lists of these with commas"
        if match[3] is not None and not 1 <= int(match[3][:9]) <= greatest:
            return f"want a step of 1 to {greatest}"
        ends = [_number(end, least, words) for end in (match[1], match[2]) if end and end not in "*?"]
        if any(end is None or not least <= end <= greatest for end in ends):
            return f"want {least} to {greatest}" + (f", or {words[0]} to {words[-1]}" if words else "")
        if len(ends) == 2 and (ends[0] or 0) > (ends[1] or 0):
            return f"the range {item} is empty"
    return ""


def _number(text: str, least: int, words: Sequence[str]) -> int | None:
    if text.lower() in words:
        return least + words.index(text.lower())
    return int(text[:9]) if text.isascii() and text.isdigit() else None


def cron_of(fields: Sequence[Sequence[Range]]) -> str:
    """Return the cron expression of a calendar in Temporal's form: the ranges of the five fields, Sunday is 0."""
    wholes = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)]
    return " ".join(_field_of(ranges, whole) for ranges, whole in zip(fields, wholes, strict=True))


def _field_of(ranges: Sequence[Range], whole: tuple[int, int]) -> str:
    return ",".join(_item_of(each, whole) for each in ranges) or "*"


def _item_of(each: Range, whole: tuple[int, int]) -> str:
    first, last, step = each
    every = f"/{step}" if step > 1 else ""
    if (first, last) == whole:
        return f"*{every}"
    return f"{first}-{last}{every}" if last > first else str(first)


def job_id_of(run: ScheduledRun) -> JobId:
    """Return the id of the job of a run: the idempotency key of its creation."""
    return JobId(str(uuid.uuid5(uuid.UUID(run.creation_id), str(run.scheduled_ns // NS_PER_S))))


def job_name_of(name: str, scheduled_ns: int) -> str:
    """Return the name of the job of a run: the name in its configuration, and the time in UTC."""
    time = datetime.fromtimestamp(scheduled_ns // NS_PER_S, UTC)
    return f"{name}-{time:%Y%m%dT%H%M%SZ}" if name else f"{time:%Y%m%dT%H%M%SZ}"
