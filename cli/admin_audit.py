"""``peloton admin audit``: who did what to what, with which result."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial

import click

from cli.errors import Failed
from cli.output import Table, as_json_line, print_for_programs, print_list, say_more
from cli.params import SINCE
from cli.settings import Settings, pass_settings
from cli.terminal import echo
from cli.watching import Retrier, WatchPace
from cli.wire import v0

PAGE_MAX = 1_000
LIMIT = 50
PACE = WatchPace(interval_s=1.0)
NS_PER_S = 10**9


def time_text(at_ns: int) -> str:
    return f"{datetime.fromtimestamp(at_ns // NS_PER_S, UTC):%Y-%m-%dT%H:%M:%SZ}"


def who(entry: v0.audit.AuditEntry) -> str:
    """Return the caller, and the one that called on its behalf."""
    name = entry.caller or "--"
    return f"{name} (by {entry.via})" if entry.via else name


def method_of(entry: v0.audit.AuditEntry) -> str:
    """Return the method with the last part of the name of its service."""
    return entry.method.rpartition(".")[2]


TABLE: Table[v0.audit.AuditEntry] = Table(
    ("Entry", lambda one: one.seq),
    ("Time", lambda one: time_text(one.at_ns)),
    ("Who", who),
    ("Method", method_of),
    ("Object", lambda one: one.object or "--"),
    ("Result", lambda one: one.result),
    ("From", lambda one: one.peer or "--"),
    ("Reason", lambda one: one.reason or "--"),
    whole=["Time", "Who", "Method", "Result"],
    spare=["From", "Entry", "Reason"],
    nothing="The audit log has no such entry: PELOTON_AUDIT of role api says whether calls are noted",
    name=lambda one: str(one.seq),
)


@click.command()
@click.option("--user", default="", help="Only calls of this user, or on behalf of users by it.")
@click.option("--method", default="", help="Only methods with this text, such as JobManager/Create.")
@click.option("--object", "object_", default="", help="Only objects with this text, such as the id of a job.")
@click.option("--result", default="", help="Only this result: OK, PERMISSION_DENIED, UNAUTHENTICATED...")
@click.option("--since", type=SINCE, help="Only entries since TIME: a duration before now, or a time.")
@click.option("--until", type=SINCE, help="Only entries before TIME.")
@click.option(
    "--limit", "-n", type=click.IntRange(1), default=LIMIT, show_default=True, help="At most so many entries."
)
@click.option("--follow", "-f", is_flag=True, help="Also print entries as they are written.")
@click.option("--verify", is_flag=True, help="Check the chain of hashes, and name the first broken entry.")
@click.option("--export", is_flag=True, help="Print all entries as lines of JSON, the oldest first.")
@pass_settings
def audit(
    settings: Settings,
    user: str,
    method: str,
    object_: str,
    result: str,
    since: datetime | None,
    until: datetime | None,
    limit: int,
    follow: bool,
    verify: bool,
    export: bool,
) -> None:
    """List entries of the audit log, the newest first. It needs role admin.

    Entries have the caller, the method, the object and the result of each change, refusal and sign-in. --verify reads
    the whole log, and exits with 1 when an entry was changed, removed or added later.

    \b
    Examples:
      peloton admin audit --user alice --since 24h
      peloton admin audit --result PERMISSION_DENIED --follow
      peloton admin audit --verify
      peloton admin audit --export > audit.jsonl
    """
    if verify:
        verify_log(settings)
        return
    wanted = v0.audit.AuditQueryRequest(
        user=user,
        method=method,
        object=object_,
        result=result,
        since_ns=int(since.timestamp() * NS_PER_S) if since else 0,
        until_ns=int(until.timestamp() * NS_PER_S) if until else 0,
    )
    if export:
        for answer in pages(settings, wanted):
            for entry in answer.entries:
                echo(as_json_line(entry))
    elif follow:
        follow_log(settings, wanted, limit)
    else:
        newest = read_newest(settings, wanted, limit)
        print_list(settings, newest, TABLE, newest.entries)
        if len(newest.entries) == limit:
            say_more(limit, None, f"--limit {2 * limit} shows more, --export all")


def read_newest(settings: Settings, wanted: v0.audit.AuditQueryRequest, limit: int) -> v0.audit.AuditQueryResponse:
    """Read the newest entries, page by page."""
    found, page = v0.audit.AuditQueryResponse(), v0.audit.AuditQueryRequest()
    page.CopyFrom(wanted)
    page.is_newest_first = True
    while True:
        page.limit = min(limit - len(found.entries), PAGE_MAX)
        answer = settings.client.audit.Query(page)
        found.head_seq, found.anchor_seq = answer.head_seq, answer.anchor_seq
        found.entries.extend(answer.entries)
        if len(answer.entries) < page.limit or len(found.entries) >= limit:
            return found
        page.before_seq = answer.entries[-1].seq


def pages(settings: Settings, wanted: v0.audit.AuditQueryRequest) -> Iterator[v0.audit.AuditQueryResponse]:
    """Yield all entries, the oldest first."""
    page = v0.audit.AuditQueryRequest()
    page.CopyFrom(wanted)
    page.limit = PAGE_MAX
    while True:
        answer = settings.client.audit.Query(page)
        yield answer
        if len(answer.entries) < PAGE_MAX:
            return
        page.after_seq = answer.entries[-1].seq


def follow_log(settings: Settings, wanted: v0.audit.AuditQueryRequest, limit: int) -> None:
    retrier = Retrier(settings.client, PACE, "the audit log", "peloton admin audit --follow")
    newest = read_newest(settings, wanted, limit)
    entries = list(reversed(newest.entries))
    wanted.after_seq = newest.entries[0].seq if entries else 0
    wanted.limit = PAGE_MAX
    try:
        while True:
            for entry in entries:
                print_entry(settings, entry)
                wanted.after_seq = entry.seq
            PACE.sleep(PACE.interval_s)
            answer = retrier.ask(partial(echo, err=True), lambda: settings.client.audit.Query(wanted))
            entries = list(answer.entries)
    except KeyboardInterrupt:
        echo("Stopped watching.", err=True)
        sys.exit(130)


def print_entry(settings: Settings, entry: v0.audit.AuditEntry) -> None:
    if not print_for_programs(settings, entry, [str(entry.seq)], lines=True):
        reason = f": {entry.reason}" if entry.reason else ""
        did = f"{method_of(entry)}  {entry.object or '--'}  {entry.result}{reason}"
        echo(f"{time_text(entry.at_ns)}  {who(entry)}  {did}")


def verify_log(settings: Settings) -> None:
    """Check the chain. Raises Failed for a broken one."""
    from peloton.access.audit import Draft, Entry, Verification

    check: Verification | None = None
    head_seq = 0
    for answer in pages(settings, v0.audit.AuditQueryRequest()):
        if check is None:
            check, head_seq = Verification(answer.anchor_seq, answer.anchor_hash), answer.head_seq
        for one in answer.entries:
            names = (field.name for field in one.DESCRIPTOR.fields if field.name not in ("seq", "hash"))
            check.add(Entry(one.seq, Draft(**{name: getattr(one, name) for name in names}), one.hash))
    assert check is not None
    check.finish(head_seq)
    if check.fault:
        raise Failed(f"The audit log is broken: {check.fault}")
    echo(f"The audit log is whole: entries up to {check.seq}, whose hash is {check.hash or '--'}")
    if check.lost_count:
        echo(f"{check.lost_count} calls are not in it, as entries audit/Lost say")
    for name in check.find_running():
        number = check.writers[name].last
        echo(f"Process {name} runs, or was killed: its last entry is number {number}, and later ones may be missing")
