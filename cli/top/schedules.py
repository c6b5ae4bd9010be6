"""The page of schedules: when each creates its next job, and the result of the last one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from rich.text import Text

from cli.job.schedule import last_run_of, state_of, times_text
from cli.names import JOB_ID
from cli.output import STATE_STYLES
from cli.times import parse_time
from cli.top.asked import matches
from cli.top.grid import Column, Grid, rows_of, text
from cli.top.job import JobPage
from cli.top.page import Page, Picture
from cli.top.reading import Reader
from cli.top.rows import ROWS_MAX, age_text, duration_text, state_text
from cli.wire import v0


class SchedulesPage(Page):
    title = "Schedules"

    def make_query(self) -> Callable[[Reader], Picture]:
        wanted = self.wanted
        return lambda reader: Picture(schedule_grid(reader.schedules(), wanted, datetime.now(UTC)))

    def same_as(self) -> str:
        return "peloton job schedule ls"

    def open_page(self, key: str) -> Page | None:
        """Return the page of the last run's job."""
        return JobPage(key) if JOB_ID.fullmatch(key) else None


def schedule_grid(answer: v0.schedule.ListSchedulesResponse, wanted: str, now: datetime) -> Grid:
    """Return the table of schedules; the filter is words of the name, the pool and the state."""
    found = [one for one in answer.schedules if matches(wanted, f"{one.name} {one.pool_path} {state_of(one)}")]
    columns: tuple[Column[v0.schedule.Schedule], ...] = (
        Column("Schedule", least=10, cell=lambda one: text(one.name)),
        Column("Pool", least=8, spare=2, cell=lambda one: text(one.pool_path)),
        Column("Times", least=12, spare=3, cell=lambda one: text(times_text(one.times))),
        Column("State", cell=lambda one: text(state_of(one), "yellow" if one.paused else "green")),
        Column("Next", True, cell=lambda one: text("" if one.paused else _format_until(one.next_times, now))),
        Column("Last run", cell=lambda one: run_state_text(last_run_of(one).state)),
        Column("Ago", True, spare=4, cell=lambda one: text(age_text(last_run_of(one).start_time, now))),
        Column("Note", least=8, spare=1, cell=lambda one: text(one.note)),
    )
    nothing = f"No schedule matches: {wanted}" if wanted else "There are no schedules"
    rows = rows_of(columns, found[:ROWS_MAX], lambda one: last_run_of(one).job_id or one.name)
    return Grid(columns, rows, nothing, len(found))


def run_state_text(state: str) -> Text:
    return state_text(state) if state in STATE_STYLES else text(state, "red")


def _format_until(times: Sequence[str], now: datetime) -> str:
    moment = parse_time(times[0]) if times else None
    return f"in {duration_text((moment - now).total_seconds())}" if moment else ""
