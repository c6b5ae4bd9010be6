"""Jobs as a table, by page: the API looks for them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from cli.queries import JobConditions
from cli.top.asked import JOB_ORDERS, PAGE_ROWS, job_line, jobs_asked
from cli.top.job import JobPage
from cli.top.page import Page, Picture
from cli.top.reading import JobList, Reader
from cli.top.rows import LETTER_WORDS, job_grid


class JobsPage(Page):
    title = "Jobs"
    orders = JOB_ORDERS
    turns = True

    def asked(self) -> JobConditions:
        return jobs_asked(self.wanted, JOB_ORDERS[self.order_index], self.first)

    def question(self) -> Callable[[Reader], Picture]:
        asked = self.asked()
        return lambda reader: jobs_picture(reader.jobs(asked), asked)

    def same_as(self) -> str:
        return f"peloton {job_line(self.asked())}"

    def opened(self, key: str) -> Page:
        return JobPage(key)


def jobs_picture(found: JobList, asked: JobConditions) -> Picture:
    grid = job_grid(found.response, found.pools, datetime.now(UTC))
    has_more = len(grid.rows) == PAGE_ROWS and found.response.pagination.total > asked.offset + PAGE_ROWS
    return Picture(grid, note=LETTER_WORDS, has_more=has_more)
