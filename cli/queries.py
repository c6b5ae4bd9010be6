"""Options that the queries of jobs, services, tasks and pods share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import click

from cli.output import say_more
from cli.params import COUNT, COUNT_FROM_1, LABELS, POOL_PATH, WORDS, Label, StatesType, together
from cli.wire import v0, v1

SECONDS_PER_DAY = 86_400
READ_MAX = 10_000
"""Limit of the jobs that the API examines for one query."""


Option = Callable[[Any], Any]


def page_options(noun: str, order: str, sort: Option, *behind_limit: Option) -> Option:
    return together(
        click.option("--limit", "-n", type=COUNT_FROM_1, default=100, show_default=True, help=f"{noun} to print."),
        *behind_limit,
        click.option("--offset", "-o", type=COUNT, default=0, show_default=True, help=f"{noun} to skip."),
        sort,
        click.option("--sortorder", "-a", type=click.Choice(["ASC", "DESC"], case_sensitive=False), default=order,
                     show_default=True, help="Ascending or descending."),
    )  # fmt: skip


def pod_options(noun: str, states: StatesType, sort: Option) -> Option:
    return together(
        click.option("--states", "-s", type=states, default="", help="Only these states."),
        click.option("--names", type=WORDS, default="", help=f"Only {noun.lower()} of these names."),
        click.option("--hosts", type=WORDS, default="", help=f"Only {noun.lower()} on these hosts."),
        page_options(noun, "ASC", sort),
    )


@dataclass(frozen=True)
class JobConditions:
    """The conditions of ``query`` of jobs and of services; the fields are the names of its options."""

    labels: tuple[Label, ...]
    respool: str | None
    keywords: tuple[str, ...]
    states: tuple[str, ...]
    owner: str
    creator: str
    name: str
    timerange: int
    limit: int
    total: int | None
    offset: int
    sort: tuple[str, ...]
    sortorder: str

    @property
    def considered(self) -> int:
        return self.total or self.offset + self.limit + 1

    def fill(self, spec: v0.job.QuerySpec | v1.job.QuerySpec) -> None:
        """Set the conditions that both versions spell alike."""
        for key, value in self.labels:
            spec.labels.add(key=key, value=value)
        spec.keywords.extend(self.keywords)
        spec.owner, spec.creator, spec.name = self.owner, self.creator, self.name

    def fill_created(self, created: v0.peloton.TimeRange | v1.peloton.TimeRange) -> None:
        now_s = int(time.time())
        created.min.seconds, created.max.seconds = now_s - self.timerange * SECONDS_PER_DAY, now_s


def job_conditions(noun: str, configuration: str, states: StatesType) -> Option:
    """Add the options of JobConditions, which is the last parameter of the function."""
    sort = click.option(
        "--sort", "-p", type=WORDS, default="creation_time", show_default=True, help="Fields to sort by."
    )
    total = click.option(
        "--total", "-q", type=COUNT_FROM_1, help=f"Consider N {noun.lower()}; if absent as many as needed."
    )
    options = together(
        click.option("--labels", "-l", type=LABELS, default="", help="Only with all of these labels."),
        click.option("--respool", "-r", type=POOL_PATH, help=f"Only {noun.lower()} of this pool."),
        click.option("--keywords", "-k", type=WORDS, default="",
                     help=f"Only {noun.lower()} with all of these words in the {configuration}."),
        click.option("--states", "-s", type=states, default="", help="Only these states."),
        click.option("--owner", default="", metavar="TEAM", help=f"Only {noun.lower()} of this owning team."),
        click.option("--creator", default="", metavar="USER", help=f"Only {noun.lower()} that USER created."),
        click.option("--name", default="", metavar="TEXT", help=f"Only {noun.lower()} whose name contains TEXT."),
        click.option("--timerange", "-d", type=COUNT, default=0, metavar="DAYS",
                     help=f"Only {noun.lower()} created in the last DAYS days."),
        page_options(noun, "DESC", sort, total),
    )  # fmt: skip

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def command(*args: Any, **given: Any) -> None:
            function(*args, JobConditions(**given))

        return options(command)

    return decorate


def set_v0_page(
    page: v0.query.PaginationSpec, offset: int, limit: int, considered: int, sort: Iterable[str], order: str
) -> None:
    page.Clear()
    page.offset, page.limit, page.maxLimit = offset, limit, considered
    for field in sort:
        page.orderBy.add(order=v0.query.OrderBy.Order.Value(order.upper())).property.value = field


def set_v1_page(
    page: v1.query.PaginationSpec, offset: int, limit: int, considered: int, sort: Iterable[str], order: str
) -> None:
    page.offset, page.limit, page.max_limit = offset, limit, considered
    for field in sort:
        page.order_by.add(order=v1.query.OrderBy.Order.Value(f"ORDER_BY_{order.upper()}")).property.value = field


def say_if_more(end: int, found: v0.query.Pagination | v1.query.Pagination, how: str) -> None:
    """Print that there are more after ``end``, the last one shown. The API counts no further than it examines."""
    if end < found.total:
        say_more(end, found.total if found.total < READ_MAX else None, how)
    elif found.total >= READ_MAX or found.cut:
        say_more(end, None, "older ones are found with conditions, see `peloton job query --help`")
