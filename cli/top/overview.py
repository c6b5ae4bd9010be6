"""The overview page: the whole cluster, and its present faults."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from cli.top import faults
from cli.top.hosts import HostPage
from cli.top.job import JobPage
from cli.top.page import Page, Picture
from cli.top.pools import PoolPage
from cli.top.reading import Reader

DETAILS: dict[str, Callable[[str], Page]] = {"host": HostPage, "job": JobPage, "pool": PoolPage}


class OverviewPage(Page):
    title = "Overview"

    def make_query(self) -> Callable[[Reader], Picture]:
        width = self.width

        def ask(reader: Reader) -> Picture:
            seen = reader.overview()
            found = faults.faults(seen, datetime.now(UTC))
            wrong = sum(fault.weight is not faults.Weight.NOTE for fault in found) + seen.whole.problems_left_out
            return Picture(faults.fault_grid(found), faults.head(seen, width), f"Wrong now: {wrong}")

        return ask

    def same_as(self) -> str:
        return "peloton overview; peloton respool tree"

    def open_page(self, key: str) -> Page | None:
        what, _, name = key.partition(":")
        return DETAILS[what](name) if what in DETAILS and name else None
