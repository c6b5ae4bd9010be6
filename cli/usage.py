"""``peloton usage``: core-, GiB- and GPU-hours of pools and of owners."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

import click

from cli.command import Command
from cli.output import Row, Table, print_for_programs, print_table
from cli.params import POOL_PATH, SINCE
from cli.pools import number
from cli.settings import Settings, pass_settings
from cli.terminal import echo
from cli.wire import v0
from peloton.model.text import escape

HOURS = {"cpu": "core-hours", "memory": "memory GiB-hours", "disk": "disk GiB-hours", "gpu": "GPU-hours"}
HEADS = ("Pool", "Owner", "Day", "Kind", "Used", "Guaranteed", "Borrowed", "Lent")
TABLE: Table[Row] = Table(*HEADS, whole=["Pool", "Kind", "Used"], spare=["Lent"])
NO_OWNER, OTHERS = "(no owner)", "(others)"


@click.command("usage", cls=Command)
@click.argument("path", metavar="[POOL]", type=POOL_PATH, default="/")
@click.option("--by", type=click.Choice(["pool", "owner"]), default="pool", show_default=True, help="What a row is.")
@click.option("--owner", "owners", multiple=True, help="Only this owning team; repeatable. Implies --by owner.")
@click.option("--since", type=SINCE, default="720h", show_default=True, help="The start: 24h ago, or a time.")
@click.option("--until", type=SINCE, help="The end; now if absent.")
@click.option("--daily", is_flag=True, help="One row for each day in UTC.")
@click.option("--csv", "is_csv", is_flag=True, help="Print comma-separated values, with all digits.")
@pass_settings
def usage(
    settings: Settings, path: str, by: str, owners: tuple[str, ...], since: datetime, until: datetime | None,
    daily: bool, is_csv: bool,
) -> None:  # fmt: skip
    """Show core-, GiB- and GPU-hours of POOL and all pools below it, or of the owners of their jobs.

    Guaranteed is the part of the used hours within the pool's reservation, borrowed the part above it, lent the part of
    the reservation that other pools held. An owner's part of what a pool borrowed is in proportion to its allocation.
    The leading resource manager records usage once a minute; hours are kept for a year.

    \b
    Examples:
      peloton usage --since 24h
      peloton usage /eng --by owner --daily --csv > usage.csv
    """
    request = v0.history.GetUsageRequest(
        paths=[path],
        owners=owners,
        start=since.isoformat(timespec="seconds"),
        end=until.isoformat(timespec="seconds") if until else "",
        daily=daily,
    )
    answer = settings.client.history.GetUsage(request)
    is_by_owner = by == "owner" or bool(owners)
    chosen = answer.owners if is_by_owner else answer.pools
    if is_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(head.lower() for head in HEADS)
        writer.writerows((*map(as_csv_text, row[:4]), *row[4:]) for row in rows(chosen, str, is_by_owner))
    elif not print_for_programs(settings, answer, dict.fromkeys(one.owner or one.path for one in chosen)):
        if not chosen:
            echo(f"No usage of {path} was recorded in that time: the leading resource manager does it once a minute")
            return
        print_table(TABLE, rows(chosen, number, is_by_owner), settings.output == "wide")


def as_csv_text(text: str) -> str:
    """Return a text that a spreadsheet does not take for a formula, and a terminal shows."""
    shown = escape(text)
    return f"'{shown}" if shown.startswith(("=", "+", "-", "@")) else shown


def rows(
    chosen: Iterable[v0.history.Usage], text: Callable[[float], str], is_by_owner: bool
) -> Iterator[tuple[str, ...]]:
    """Yield a row for each kind of each pool or owner and day."""
    for one in chosen:
        owner = {"": NO_OWNER, "*": OTHERS}.get(one.owner, one.owner) if is_by_owner else ""
        for hours in one.hours:
            guaranteed = max(hours.used - hours.borrowed, 0.0)
            amounts = map(text, (hours.used, guaranteed, hours.borrowed, hours.lent))
            yield (one.path, owner, one.day or "all", HOURS.get(hours.kind, f"{hours.kind} hours"), *amounts)
