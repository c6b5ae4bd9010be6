"""``peloton respool history``: a pool's reservation, entitlement, allocation and demand over time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from cli.command import Command
from cli.output import Row, Table, print_for_programs, print_table
from cli.params import POOL_PATH
from cli.series import HEADS, SPARE, WHOLE, clock, history_options, intervals_text, rows
from cli.settings import Settings, pass_settings
from cli.terminal import echo
from cli.wire import v0

TABLE: Table[Row] = Table(*HEADS, whole=WHOLE, spare=SPARE)
MARKS_MAX = 20


@click.command("history", cls=Command)
@click.argument("path", metavar="POOL", type=POOL_PATH, default="/")
@history_options
@pass_settings
def history(settings: Settings, path: str, span: dict[str, Any]) -> None:
    """Show reservation, entitlement, allocation and demand of POOL over time, and preemptions. Without POOL the whole
    cluster.

    Minutes are kept for a day, hours for a year. A dot in a line is a time without records.

    \b
    Examples:
      peloton respool history /eng/maps --since 24h --kind cpu
      peloton respool history / --since 720h --step 24h -o json
    """
    request = v0.history.GetPoolHistoryRequest(paths=[path], **span)
    answer = settings.client.history.GetPoolHistory(request)
    if print_for_programs(settings, answer, (pool.path for pool in answer.pools)):
        return
    (pool,) = answer.pools
    if not any(pool.covered_s):
        echo(f"Nothing of {path} was recorded in that time: the leading resource manager does it once a minute")
        return
    print_table(TABLE, rows(pool.columns, pool.covered_s, "instances"), settings.output == "wide")
    echo(intervals_text(answer))
    for line in mark_lines(answer, pool):
        echo(line)


def mark_lines(answer: v0.history.GetPoolHistoryResponse, pool: v0.history.PoolHistory) -> Iterator[str]:
    """Yield lines on the last preemptions."""
    if len(pool.preemptions) > MARKS_MAX:
        yield f"The last {MARKS_MAX} of {len(pool.preemptions)} preemptions:"
    for mark in pool.preemptions[-MARKS_MAX:]:
        cause = f"for {mark.for_pool}" if mark.for_pool else "for several pools"
        if mark.for_pool == pool.path:
            cause = "for gangs of a higher priority in the same pool"
        yield f"{clock(answer, mark.index)}  {mark.instances} instances preempted {cause}"
