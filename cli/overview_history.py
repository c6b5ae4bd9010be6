"""``peloton overview history``: capacity, allocation and use of clusters, and hosts by state, over time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from cli.command import Command
from cli.output import Row, Table, print_for_programs, print_table
from cli.series import HEADS, SPARE, WHOLE, history_options, intervals_text, rows
from cli.settings import Settings, pass_settings
from cli.terminal import echo
from cli.wire import v0

TABLE: Table[Row] = Table("Cluster", *HEADS, whole=["Cluster", *WHOLE], spare=SPARE)


@click.command("history", cls=Command)
@click.option("--cluster", "clusters", multiple=True, help="Only this cluster; repeatable.")
@history_options
@pass_settings
def history(settings: Settings, clusters: tuple[str, ...], span: dict[str, Any]) -> None:
    """Show capacity, allocation, use and slack of clusters, and hosts by state, over time.

    Capacity counts the hosts that take pods, and registered counts all hosts. Use is measured, on the hosts that report
    it. Minutes are kept for a day, hours for a year. A dot in a line is a time without records.

    \b
    Examples:
      peloton overview history --since 24h --kind cpu
      peloton overview history --cluster west --since 720h --step 24h -o json
    """
    request = v0.history.GetClusterHistoryRequest(clusters=clusters, **span)
    answer = settings.client.history.GetClusterHistory(request)
    if print_for_programs(settings, answer, (one.cluster for one in answer.clusters)):
        return
    recorded = [one for one in answer.clusters if any(one.covered_s)]
    if recorded:
        print_table(TABLE, rows_of(recorded), settings.output == "wide")
        echo(intervals_text(answer))
    for one in answer.clusters:
        if one not in recorded:
            echo(f"Nothing of cluster {one.cluster} was recorded in that time: the leading resource manager asks "
                       "its host manager once a minute")  # fmt: skip
    if not answer.clusters:
        echo("There are no clusters")


def rows_of(clusters: list[v0.history.ClusterHistory]) -> Iterator[tuple[str, ...]]:
    for one in clusters:
        for row in rows(one.columns, one.covered_s, "hosts"):
            yield one.cluster, *row
