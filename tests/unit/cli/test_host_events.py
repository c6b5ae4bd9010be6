"""``peloton host events``: requests and output, by page and as a stream."""

from __future__ import annotations

import json
from itertools import count

import pytest

from cli.host import events as command
from cli.watching import WatchPace
from peloton.api.v0.overview import overview_pb2 as pb
from peloton.model.host_event import HostEventKind
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi

AVOIDED, LEFT = pb.HOST_EVENT_KIND_AVOIDED, pb.HOST_EVENT_KIND_LEFT


def an_event(number: int, kind: pb.HostEventKind.ValueType = LEFT, until: str = "") -> pb.HostEvent:
    return pb.HostEvent(
        number=number, hostname="h1", kind=kind, text=f"Event {number}", time="2026-01-02T03:04:05.6Z", until=until
    )


def test_the_newest_first(run: Run, api: FakeApi) -> None:
    """The request names the host and the kinds; a list that is cut says that there is more."""
    until = "2026-01-02T03:14:05Z"
    answer = pb.ListHostEventsResponse(events=[an_event(7, AVOIDED, until), an_event(3)], has_more=True)
    api.answers["overview.ListHostEvents"] = [answer]

    result = run("host events h1 --kind avoided --kind left -n 2")

    assert [
        ["2026-01-02T03:04:05Z", "h1", "AVOIDED", "Event", "7", until],
        ["2026-01-02T03:04:05Z", "h1", "LEFT", "Event", "3"],
    ] == [line.split() for line in result.stdout.splitlines()[1:]]
    assert "--limit 4 shows more" in result.stderr
    asked = pb.ListHostEventsRequest(hostname="h1", kinds=[AVOIDED, LEFT], limit=2)
    assert [asked] == api.requests("overview.ListHostEvents")


def test_all_of_them_come_page_by_page(run: Run, api: FakeApi) -> None:
    """Each page ends before the last event of the page before; JSON is one answer."""
    api.answers["overview.ListHostEvents"] = [
        pb.ListHostEventsResponse(events=[an_event(9), an_event(8)], has_more=True),
        pb.ListHostEventsResponse(events=[an_event(5)]),
    ]

    reported = json.loads(run("--json host events -n 0").stdout)

    assert (["9", "8", "5"], False) == ([event["number"] for event in reported["events"]], reported["hasMore"])
    assert [(500, 0), (500, 8)] == [(each.limit, each.before) for each in api.requests("overview.ListHostEvents")]


def test_events_as_they_happen(run: Run, api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream starts with the oldest event and continues with newer ones until Ctrl-C."""
    looks = count()

    def sleep(_: float) -> None:
        if next(looks) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(command, "PACE", WatchPace(sleep=sleep))
    api.answers["overview.ListHostEvents"] = [
        pb.ListHostEventsResponse(events=[an_event(2), an_event(1)]),
        pb.ListHostEventsResponse(),
        pb.ListHostEventsResponse(events=[an_event(4, AVOIDED, "2026-01-02T03:14:05Z"), an_event(3)]),
        pb.ListHostEventsResponse(),
    ]

    result = run("host events --follow")

    said = result.stdout.splitlines()
    assert ["Event 1", "Event 2", "Event 3", "Event 4"] == [line.split("  ")[3].partition(" (")[0] for line in said]
    assert said[3].endswith("(until 2026-01-02T03:14:05Z)")
    assert [0, 2, 2, 4] == [each.after for each in api.requests("overview.ListHostEvents")]
    assert 130 == result.exit_code


def test_nothing_has_happened(run: Run, api: FakeApi) -> None:
    """The command says that there are no events."""
    api.answers["overview.ListHostEvents"] = [pb.ListHostEventsResponse()]

    assert run("host events h9").stdout.startswith("No events")


def test_every_kind_has_its_number() -> None:
    """The enum of the wire has the same kinds in the same order."""
    names = [name.removeprefix("HOST_EVENT_KIND_") for name in pb.HostEventKind.keys()]  # noqa: SIM118

    assert ["INVALID", *HostEventKind] == names
