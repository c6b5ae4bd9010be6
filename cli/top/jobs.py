"""The page of jobs, which the API filters and cuts into pages."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from cli.top.asked import JOB_ORDERS, PAGE_ROWS, JobConditions, job_line, jobs_asked
from cli.top.job import JobPage
from cli.top.page import Page, Picture
from cli.top.reading import Reader
from cli.top.rows import LETTER_WORDS, job_grid
from cli.wire import v0


class JobsPage(Page):
    title = "Jobs"
    orders = JOB_ORDERS
    turns = True
    pool = ""

    def __init__(self) -> None:
        super().__init__()
        self._tokens = {0: ""}  # by the first row of each page

    def parse_filter(self) -> JobConditions:
        return jobs_asked(self.wanted, JOB_ORDERS[self.order_index], self._tokens.get(self.first, ""), self.pool)

    def make_query(self) -> Callable[[Reader], Picture]:
        asked = self.parse_filter()
        return lambda reader: jobs_picture(reader.jobs(asked))

    def show(self, picture: Picture) -> None:
        self._tokens[self.first + PAGE_ROWS] = picture.next_token
        super().show(picture)

    def same_as(self) -> str:
        return f"peloton {job_line(self.parse_filter())}"

    def open_page(self, key: str) -> Page:
        return JobPage(key)


def jobs_picture(found: v0.table.ListJobsResponse) -> Picture:
    """Return the picture of one page.

    A page may be short, or empty, before the last one: the API examines a limited number of jobs per call.
    """
    token = found.nextPageToken
    return Picture(job_grid(found.jobs, datetime.now(UTC)), (), LETTER_WORDS, bool(token), token)
