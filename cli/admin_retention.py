"""``peloton admin retention``: classes of records, their sizes and ages, and what the next round deletes."""

from __future__ import annotations

import click

from cli.command import Command
from cli.output import Table, print_list
from cli.settings import Settings, pass_settings
from cli.terminal import echo
from cli.times import seconds_text
from cli.wire import v0

MIB = 1 << 20
DUE_MAX = 10_000
TABLE: Table[v0.retention.RecordClass] = Table(
    ("Class", lambda one: one.name),
    ("Days", lambda one: one.days or "--"),
    ("Rows", lambda one: count_text(one.row_count)),
    ("MiB", lambda one: mib_text(one.byte_count)),
    ("Due", lambda one: f"{one.due_count}+" if one.due_count >= DUE_MAX else one.due_count),
    ("Deleted", lambda one: one.deleted_count),
    ("Archived MiB", lambda one: mib_text(one.archived_bytes) if one.is_archived else "--"),
    ("Last round", lambda one: seconds_text(one.last_round_time)),
    ("Kept", lambda one: one.rule),
    ("Note", lambda one: one.note or "--"),
    whole=["Class", "Days", "Rows", "MiB", "Due"],
    spare=["Last round", "Archived MiB", "Deleted", "Note", "Kept"],
    nothing="There are no classes",
    name=lambda one: one.name,
)


@click.command("retention", cls=Command)
@pass_settings
def retention(settings: Settings) -> None:
    """Show how long records are kept, how many there are, and how many the next round would delete.

    It deletes nothing itself: the leading resource manager does, every few minutes. Due are jobs for the classes of
    jobs and their pods, rows for others.

    \b
    Examples:
      peloton admin retention
      peloton admin retention -o wide
    """
    answer = settings.client.retention.GetRetention(v0.retention.GetRetentionRequest())
    print_list(settings, answer, TABLE, answer.classes)
    if not settings.is_for_programs:
        every = f"Every {answer.period_s:g} s" if answer.period_s else "Off"
        echo(f"{every}; archive: {answer.archive or 'none'}")


def count_text(count: int) -> str:
    return "?" if count < 0 else str(count)


def mib_text(size: int) -> str:
    return "?" if size < 0 else f"{size / MIB:.1f}"
