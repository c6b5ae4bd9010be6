"""``peloton host events``: the events of hosts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import click

from cli.command import Command
from cli.output import Table, print_for_programs, print_list, say_more
from cli.params import HOSTNAME, CountType
from cli.settings import Settings, pass_settings
from cli.terminal import echo
from cli.times import seconds_text
from cli.watching import Retrier, WatchPace
from cli.wire import v0
from peloton.model.host_event import HostEventKind

if TYPE_CHECKING:
    from peloton.api.v0.overview import overview_pb2

TABLE: Table[v0.overview.HostEvent] = Table(
    ("Time", lambda event: seconds_text(event.time)),
    ("Host", lambda event: event.hostname),
    ("Event", lambda event: kind_of(event)),
    ("What", lambda event: event.text),
    ("Until", lambda event: seconds_text(event.until) if event.until else ""),
    whole=["Time", "Host", "Event"],
    spare=["Until"],
    nothing="No events: none is kept, or the host is unknown",
    name=lambda event: event.hostname,
)
PAGE_MAX = 500
"""Limit of the events in one answer."""
SHOWN_DEFAULT = 100
PACE = WatchPace(interval_s=1.0)


@click.command(cls=Command)
@click.argument("host", type=HOSTNAME, required=False, default="")
@click.option(
    "--kind",
    "kinds",
    type=click.Choice([kind.lower().replace("_", "-") for kind in HostEventKind]),
    multiple=True,
    help="Only events of this kind. May be repeated.",
)
@click.option(
    "--limit", "-n", type=CountType(), default=SHOWN_DEFAULT, show_default=True, help="Print at most N events; 0: all."
)
@click.option("--follow", "-f", is_flag=True, help="Print the oldest first, then new events until Ctrl-C.")
@pass_settings
def events(settings: Settings, host: str, kinds: tuple[str, ...], limit: int, follow: bool) -> None:
    """Show what happened to HOST, or without HOST to all hosts, the newest first: it joined or left its cluster,
    changed, was avoided, marked, reserved, drained or moved to another host pool, each with its numbers.

    Events are kept for 30 days, at most 200 of a host. Times are UTC.

    \b
    Examples:
      peloton host events host1
      peloton host events --kind avoided --kind left
      peloton host events --follow
    """
    numbers = [v0.overview.HostEventKind.Value(f"HOST_EVENT_KIND_{kind.upper().replace('-', '_')}") for kind in kinds]
    request = v0.overview.ListHostEventsRequest(hostname=host, kinds=numbers)
    whole = read(settings, request, limit)
    if not follow:
        print_list(settings, whole, TABLE, whole.events)
        if whole.has_more:
            say_more(len(whole.events), None, f"--limit {2 * limit} shows more, --limit 0 all")
        return
    try:
        print_lines(settings, whole)
        for more in poll_new_events(settings, request, max((event.number for event in whole.events), default=0)):
            print_lines(settings, more)
    except KeyboardInterrupt:
        echo("Stopped watching.", err=True)
        sys.exit(130)


def read(
    settings: Settings, request: overview_pb2.ListHostEventsRequest, limit: int
) -> overview_pb2.ListHostEventsResponse:
    """Read events page by page, newest first, at most ``limit`` (0: all)."""
    found = v0.overview.ListHostEventsResponse()
    page = v0.overview.ListHostEventsRequest()
    page.CopyFrom(request)
    while True:
        page.limit = min(limit - len(found.events), PAGE_MAX) if limit else PAGE_MAX
        answer = settings.client.overview.ListHostEvents(page)
        found.events.extend(answer.events)
        found.has_more = answer.has_more
        if not answer.has_more or (limit and len(found.events) >= limit):
            return found
        page.before = answer.events[-1].number


def poll_new_events(
    settings: Settings, request: overview_pb2.ListHostEventsRequest, after: int
) -> Iterator[overview_pb2.ListHostEventsResponse]:
    """Poll for events after this number, and yield them; an outage of the API does not end it."""
    retrier = Retrier(settings.client, PACE, "events of hosts", "peloton host events")
    since = v0.overview.ListHostEventsRequest()
    since.CopyFrom(request)
    while True:
        PACE.sleep(PACE.interval_s)
        since.after = after
        found = retrier.ask(partial(echo, err=True), lambda: read(settings, since, 0))
        if found.events:
            after = found.events[0].number
            yield found


def print_lines(settings: Settings, found: overview_pb2.ListHostEventsResponse) -> None:
    """Print a line for each event, the oldest first."""
    for event in reversed(found.events):
        if not print_for_programs(settings, event, [event.hostname], lines=True):
            until = f" (until {seconds_text(event.until)})" if event.until else ""
            echo(f"{seconds_text(event.time)}  {event.hostname}  {kind_of(event)}  {event.text}{until}")


def kind_of(event: overview_pb2.HostEvent) -> str:
    return v0.overview.HostEventKind.Name(event.kind).removeprefix("HOST_EVENT_KIND_")
