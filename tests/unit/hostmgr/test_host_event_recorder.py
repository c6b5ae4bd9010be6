"""Decisions of a host manager about hosts, recorded as events, and their way to storage."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest

from peloton.errors import Unavailable
from peloton.lifecycle.volumes import volume_label
from peloton.model.advice import Mark
from peloton.model.host_event import HostEvent, HostEventKind
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.reason import HostRule, Misfit
from peloton.model.resources import Resources
from services.hostmgr import event_writer
from services.hostmgr.driver import RegisteredHost
from services.hostmgr.event_writer import EventWriter
from services.hostmgr.hosts.host_cache import HostCache
from services.hostmgr.hosts.host_event_recorder import HostEventRecorder
from tests.unit.hostmgr.test_avoidances import SICK

H1, H2 = Hostname("h1"), Hostname("h2")
SECOND = 10**9
NOW = 1_000 * SECOND
WHY = Misfit(HostRule.AVOIDED, wanted=3, bound=2, left=4)


class Story:
    def __init__(self) -> None:
        self.events: list[HostEvent] = []
        self.recorder = HostEventRecorder("west", self.events.append, lambda: NOW)

    def reported(self) -> list[tuple[HostEventKind, str]]:
        reported = [(event.kind, event.text) for event in self.events]
        assert all((event.cluster, event.at_ns) == ("west", NOW) for event in self.events)
        self.events.clear()
        return reported


def a_host(name: str = "h1", capacity: Resources = Resources.of(4, 2_048), **more: object) -> RegisteredHost:  # noqa: B008
    labels = {"rack": "a", "hostname": name}
    return RegisteredHost(f"{name}-S", Hostname(name), "", capacity, Resources(), labels, **more)  # type: ignore[arg-type]


def test_a_host_changes_while_it_is_registered() -> None:
    """New capacity, labels, agent and cordons are events; allocations and labels of volumes are not, and joining is
    recorded elsewhere.
    """
    story, host = Story(), a_host()
    story.recorder.record_hosts([host, a_host("h2")])
    story.recorder.record_hosts([host])
    held = replace(host, held=Resources.of(1), labels={**host.labels, volume_label("v1"): "here"})
    story.recorder.record_hosts([held, a_host("h2")])
    others = replace(host, capacity=Resources.of(3, 2_048), held_by_others=Resources.of(1))
    story.recorder.record_hosts([others])
    assert [] == story.reported()

    story.recorder.record_hosts([replace(host, host_id="new", capacity=Resources.of(8, 1_024))])
    assert [
        (
            HostEventKind.CHANGED,
            "Registered again as new, before as h1-S; cpu 4 is 8 now; memory 2048 MiB is 1024 MiB now",
        )
    ] == story.reported()
    story.recorder.record_hosts([host])
    story.reported()
    story.recorder.record_hosts([replace(host, labels={"rack": "b", "zone": "z"}, withdrawn="cordoned by kubectl")])
    assert [
        (HostEventKind.CHANGED, "Label hostname=h1 is gone; label rack=a is b now; label zone=z is new"),
        (HostEventKind.CORDONED, "Takes no pods: cordoned by kubectl"),
    ] == story.reported()
    story.recorder.record_hosts([replace(host, labels={"rack": "b", "zone": "z"})])
    assert [(HostEventKind.UNCORDONED, "Takes pods again; it did not before: cordoned by kubectl")] == story.reported()
    story.recorder.record_hosts([replace(host, labels={f"l{at}": "1" for at in range(9)})])
    ((_, text),) = story.reported()
    assert text.endswith("; 6 more labels changed")


CORDON = "cordoned by kubectl"


def test_hosts_that_are_cordoned_or_not_as_their_last_event_says() -> None:
    """A host manager that begins to lead finds nothing new, nor when such a host comes back."""
    story, cordoned = Story(), a_host("h2", withdrawn=CORDON)
    story.recorder.succeed([HostEvent(H2, HostEventKind.CORDONED, "", NOW, "west")])

    story.recorder.record_hosts([a_host(), cordoned])
    story.recorder.record_hosts([a_host()])
    story.recorder.record_hosts([a_host(), cordoned])

    assert [] == story.reported()
    story.recorder.record_hosts([a_host(), a_host("h2")])
    assert [(HostEventKind.UNCORDONED, f"Takes pods again; it did not before: {CORDON}")] == story.reported()
    story.recorder.record_hosts([a_host()])
    story.recorder.record_hosts([a_host(), a_host("h2")])
    assert [] == story.reported()


def test_a_cordon_that_changed_while_no_host_manager_led() -> None:
    """The next host manager records the change, even of a host that is missing when it starts."""
    story = Story()
    story.recorder.succeed([HostEvent(H2, HostEventKind.CORDONED, "", NOW, "west")])

    story.recorder.record_hosts([a_host(withdrawn=CORDON)])
    assert [(HostEventKind.CORDONED, f"Takes no pods: {CORDON}")] == story.reported()

    story.recorder.record_hosts([a_host(withdrawn=CORDON), a_host("h2")])
    assert [(HostEventKind.UNCORDONED, "Takes pods again, since a time at which no host manager saw it")] == (
        story.reported()
    )


def test_reservations_end_with_the_host_manager_that_made_them() -> None:
    """The next host manager records their end: reservations were in memory."""
    story = Story()

    story.recorder.succeed([HostEvent(H1, HostEventKind.RESERVED, "", NOW - 90 * SECOND, "west", NOW + SECOND)])

    assert [(HostEventKind.GIVEN_BACK, "Reservation ended after 90 s: another host manager leads")] == story.reported()


def test_a_host_whose_name_another_cluster_has_is_not_read() -> None:
    """The host belongs to the other cluster."""
    story = Story()
    story.recorder.record_hosts([a_host()], but=["h1"])
    story.recorder.record_hosts([a_host(capacity=Resources.of(8))])

    assert [] == story.reported()


def test_hosts_are_avoided_and_marked() -> None:
    """The events have the duration of the avoidance and the measurement of the mark."""
    story = Story()
    story.recorder.record_avoided(H1, WHY, 600.0)
    assert NOW + 600 * SECOND == story.events[0].until_ns
    story.recorder.record_avoided(H1, Misfit(HostRule.FLAPPING, wanted=3, left=40), 60.0)
    story.recorder.record_mark(H2, Mark.RED, Mark.GREEN, "cpu 95 %, red from 90 %")

    assert [
        (HostEventKind.AVOIDED, "Avoided for 10 min after 3 pods of 2 jobs failed there within 4 s"),
        (HostEventKind.FLAPPING, "Avoided for 60 s after it was gone and came back 3 times within 40 s"),
        (HostEventKind.MARKED, "Marked red, before green: cpu 95 %, red from 90 %"),
    ] == story.reported()


def test_the_host_cache_reports_what_it_decides() -> None:
    """One event is recorded each time that a host begins to be avoided."""
    story = Story()
    cache = HostCache(30.0, recorder=story.recorder)
    cache.set_hosts([a_host(name) for name in ("h1", "h2", "h3", "h4", "h5", "h6", "h7", "h8")])

    cache.avoidances.take(SICK, 0.0)
    cache.avoidances.take([replace(SICK[0], pod_id=PodId(JobId("late"), 0, 1))], 1.0)

    ((kind, text),) = story.reported()
    assert (HostEventKind.AVOIDED, "3 pods of 2 jobs failed" in text) == (kind, True)


class Store:
    """A store that fails while it is unavailable."""

    def __init__(self) -> None:
        self.batches: list[list[HostEvent]] = []
        self.refused, self.is_unavailable = threading.Event(), False

    def write(self, events: Sequence[HostEvent]) -> None:
        if self.is_unavailable:
            self.refused.set()
            raise Unavailable("storage does not answer")
        self.batches.append(list(events))

    def numbers(self) -> list[int]:
        return [event.at_ns for batch in self.batches for event in batch]


def make_event(number: int) -> HostEvent:
    return HostEvent(H1, HostEventKind.AVOIDED, "Avoided", number)


def test_events_are_written_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """All events are written in order, even those just before the stop."""
    monkeypatch.setattr(event_writer, "BATCH_MAX", 10)
    store = Store()
    writer = EventWriter(store.write, gather_s=60.0)
    for number in range(25):
        writer.add(make_event(number))
    writer.start()
    writer.stop()

    assert (list(range(25)), [10, 10, 5]) == (store.numbers(), [len(batch) for batch in store.batches])


def test_events_wait_for_storage() -> None:
    """Events whose write failed are written later, once."""
    store = Store()
    store.is_unavailable = True
    writer = EventWriter(store.write, gather_s=0.0, retry_s=0.0)
    writer.start()
    for number in range(30):
        writer.add(make_event(number))
    assert store.refused.wait(10)
    store.is_unavailable = False
    writer.stop()

    assert list(range(30)) == store.numbers()


def test_no_more_events_wait_than_a_bound(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The newest are kept, and the others are counted."""
    monkeypatch.setattr(event_writer, "WAITING_MAX", 20)
    store = Store()
    writer = EventWriter(store.write, gather_s=0.0)
    for number in range(30):
        writer.add(make_event(number))
    writer.start()
    writer.stop()

    assert list(range(10, 30)) == store.numbers()
    assert ["queue of host events is full (20): dropped the 10 oldest"] == [
        record.getMessage() for record in caplog.records
    ]
