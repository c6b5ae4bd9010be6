"""The page of one job: its state, why it waits, its instances; and the page of one instance with its events."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from rich.text import Text

from cli.top.asked import INSTANCE_ORDERS, PAGE_ROWS, InstanceConditions, instance_line, instances_asked
from cli.top.page import Page, Picture
from cli.top.reading import OneJob, Reader
from cli.top.rows import LETTER_WORDS, age_text, counts_text, event_grid, instance_grid, state_text
from cli.wire import v0


class JobPage(Page):
    orders = INSTANCE_ORDERS
    turns = True

    def __init__(self, job_id: str) -> None:
        super().__init__()
        self.job_id = job_id
        self.title = f"job {job_id[:8]}"

    def parse_filter(self) -> InstanceConditions:
        return instances_asked(self.wanted, INSTANCE_ORDERS[self.order_index], self.first)

    def make_query(self) -> Callable[[Reader], Picture]:
        asked, job_id = self.parse_filter(), self.job_id

        def ask(reader: Reader) -> Picture:
            found, now = reader.job(job_id, asked), datetime.now(UTC)
            total = found.instances.pagination.total
            has_more = total > asked.offset + PAGE_ROWS
            note = f"{f'of {total} | ' if has_more else ''}{LETTER_WORDS}"
            return Picture(instance_grid(found.instances.records, now), list(head(found, now)), note, has_more)

        return ask

    def same_as(self) -> str:
        return f"peloton job why {shlex.quote(self.job_id)}; peloton {instance_line(self.job_id, self.parse_filter())}"

    def open_page(self, key: str) -> Page:
        return InstancePage(self.job_id, int(key))


def head(found: OneJob, now: datetime) -> Iterator[Text]:
    """Yield lines on its properties and state, then why it waits, or how it ended."""
    job, runtime = found.job, found.job.runtime
    line = Text(f"{job.config.name or job.id.value} ", style="bold")
    line.append_text(state_text(v0.job.JobState.Name(runtime.state))).append("  ")
    line.append_text(counts_text(runtime.taskStats)).append(f" of {job.config.instanceCount}")
    yield line
    goal = v0.job.JobState.Name(runtime.goalState)
    about = [found.pool, job.config.owningTeam, v0.job.JobType.Name(job.config.type), f"goal {goal}", job.id.value]
    if age := age_text(runtime.creationTime, now):
        about.insert(0, f"{age} old")
    yield Text(" | ".join(filter(None, about)))
    if found.why.answer is None:
        yield Text(found.why.error, style="red")
    else:
        yield from (Text(line) for line in found.why.answer.text.splitlines())


class InstancePage(Page):
    """The events of one instance over its runs."""

    def __init__(self, job_id: str, instance_id: int) -> None:
        super().__init__()
        self.job_id, self.instance_id = job_id, instance_id
        self.title = f"instance {instance_id}"

    def make_query(self) -> Callable[[Reader], Picture]:
        job_id, instance_id = self.job_id, self.instance_id
        return lambda reader: Picture(event_grid(reader.events(job_id, instance_id)), note="events, newest first")

    def same_as(self) -> str:
        return f"peloton task events {shlex.quote(self.job_id)} {self.instance_id}"
