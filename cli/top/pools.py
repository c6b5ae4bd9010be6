"""The pages of the pool tree, and of one pool: why its queues wait, and its jobs."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace

from rich.text import Text

from cli.respool.tree import LEGEND
from cli.top.jobs import JobsPage, jobs_picture
from cli.top.page import Page, Picture
from cli.top.reading import Reader
from cli.top.rows import POOL_ORDERS, UNIT_TEXTS, kinds_of, pool_grid


class PoolsPage(Page):
    title = "Pools"
    orders = POOL_ORDERS

    def __init__(self) -> None:
        super().__init__()
        self._kind_index = 0

    def make_query(self) -> Callable[[Reader], Picture]:
        index, order, wanted, width = self._kind_index, POOL_ORDERS[self.order_index], self.wanted, self.width

        def ask(reader: Reader) -> Picture:
            answer = reader.pools()
            kinds = kinds_of(answer)
            kind = kinds[index % len(kinds)]
            others = ", others: r" if len(kinds) > 1 else ""
            legend = Text.from_markup(LEGEND)
            legend.truncate(width, overflow="ellipsis")
            return Picture(
                pool_grid(answer, kind, order, wanted, width), [legend], f"{UNIT_TEXTS.get(kind, kind)}{others}"
            )

        return ask

    def same_as(self) -> str:
        return "peloton respool tree"

    def open_page(self, key: str) -> Page:
        return PoolPage(key)

    def next_kind(self) -> bool:
        self._kind_index += 1
        return True


class PoolPage(JobsPage):
    """The page of one pool, with the jobs of the pools below it; they may be filtered like all jobs."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.pool = self.title = path

    def make_query(self) -> Callable[[Reader], Picture]:
        asked, path = self.parse_filter(), self.pool

        def ask(reader: Reader) -> Picture:
            why, jobs = reader.pool_why(path), jobs_picture(reader.jobs(asked))
            lines = (why.answer.text if why.answer is not None else why.error).splitlines()
            return replace(jobs, head=[Text(line.rstrip()) for line in lines])

        return ask

    def same_as(self) -> str:
        return f"peloton respool why {shlex.quote(self.pool)}; {super().same_as()}"
