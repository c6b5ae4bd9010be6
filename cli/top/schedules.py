"""The page of schedules: when each creates its next job, and the result of the last one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from cli.job.schedule import last_run_of, state_of, times_text
from cli.names import JOB_ID
from cli.output import STATE_STYLES
from cli.times import parse_time
from cli.top.asked import matches
from cli.top.grid import Column, Grid, Row, text
from cli.top.job import JobPage
from cli.top.page import Page, Picture
from cli.top.reading import Reader
from cli.top.rows import ROWS_MAX, age_text, duration_text, state_text
from cli.wire import v0

COLUMNS = (
    Column("Schedule", least=10),
    Column("Pool", least=8, spare=2),
    Column("Times", least=12, spare=3),
    Column("State"),
    Column("Next", True),
    Column("Last run"),
    Column("Ago", True, spare=4),
    Column("Note", least=8, spare=1),
)


class SchedulesPage(Page):
    title = "Schedules"

    def question(self) -> Callable[[Reader], Picture]:
        wanted = self.wanted
        return lambda reader: Picture(schedule_grid(reader.schedules(), wanted, datetime.now(UTC)))

    def same_as(self) -> str:
        return "peloton job schedule ls"

    def opened(self, key: str) -> Page | None:
        """Return the page of the last run's job."""
        return JobPage(key) if JOB_ID.fullmatch(key) else None


def schedule_grid(answer: v0.schedule.ListSchedulesResponse, wanted: str, now: datetime) -> Grid:
    """Return the table of schedules; the filter is words of the name, the pool and the state."""
    found = [one for one in answer.schedules if matches(wanted, f"{one.name} {one.pool_path} {state_of(one)}")]
    rows = tuple(_row(one, now) for one in found[:ROWS_MAX])
    nothing = f"No schedule is like that: {wanted}" if wanted else "There are no schedules"
    return Grid(COLUMNS, rows, nothing, len(found))


def _row(one: v0.schedule.Schedule, now: datetime) -> Row:
    last = last_run_of(one)
    following = "" if one.paused or not one.next_times else _format_until(one.next_times[0], now)
    cells = (
        text(one.name),
        text(one.pool_path),
        text(times_text(one.times)),
        text(state_of(one), "yellow" if one.paused else "green"),
        text(following),
        state_text(last.state) if last.state in STATE_STYLES else text(last.state, "red"),
        text(age_text(last.start_time, now)),
        text(one.note),
    )
    return Row(last.job_id or one.name, cells)


def _format_until(time: str, now: datetime) -> str:
    moment = parse_time(time)
    return f"in {duration_text((moment - now).total_seconds())}" if moment else ""
