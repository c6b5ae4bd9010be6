"""``peloton host advice``: hosts under load, and services that answer too slowly."""

from __future__ import annotations

from collections.abc import Sequence

import click

from cli.command import Command
from cli.output import Row, Table, print_list, rows_wanted, say_more, silent_clusters_text
from cli.params import limit_option
from cli.settings import Settings, pass_settings
from cli.terminal import echo
from cli.times import seconds_text
from cli.wire import v0
from peloton.model.advice import Mark

MARKS = dict(enumerate(Mark, 1))
"""The marks by their numbers on the wire."""
TABLE: Table[Row] = Table(
    "Mark", "Of", "Name", "Since", "Cluster", "Why",
    whole=["Mark", "Of", "Name"],
    spare=["Cluster", "Since"],
    nothing="No marks: no host is measured, or none has this mark, and no pod reports latencies",
    name=lambda row: str(row[2]),
)  # fmt: skip


@click.command(cls=Command)
@click.option(
    "--mark",
    "marks",
    type=click.Choice([mark.lower() for mark in Mark]),
    multiple=True,
    help="Only hosts and services with this mark. May be repeated.",
)
@limit_option
@pass_settings
def advice(settings: Settings, marks: Sequence[str], limit: int | None) -> None:
    """List the marks of hosts by what they have in use, and of services by the latencies that their pods report, the
    worst first, each with its reason.

    \b
    Examples:
      peloton host advice
      peloton host advice --mark red --mark orange
    """
    wanted = [v0.advice.Mark.Value(f"MARK_{mark.upper()}") for mark in marks]
    answer = settings.client.advice.Advice(v0.advice.AdviceRequest(marks=wanted))
    found = [_row("host", host.hostname, host) for host in answer.hosts]
    found += [_row("service", service.job_id, service) for service in answer.services]
    found.sort(key=lambda row: (-row[0], *row[1:]))
    shown = found[: rows_wanted(settings, limit)]
    rows = [(MARKS[mark], *rest) for mark, *rest in shown]
    print_list(settings, answer, TABLE, rows)
    if len(shown) < len(found):
        say_more(len(shown), len(found))
    if answer.silent_clusters:
        echo(silent_clusters_text(answer.silent_clusters), err=True)


def _row(what: str, name: str, one: v0.advice.HostMark | v0.advice.ServiceMark) -> tuple[int, str, str, str, str, str]:
    return one.mark, what, name, seconds_text(one.since), one.cluster, one.reason
