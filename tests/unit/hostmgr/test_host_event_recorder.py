"""Events of hosts that a host manager records, and the writer that stores them."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from peloton.errors import Unavailable
from peloton.lifecycle.volumes import volume_label
from peloton.model.advice import Mark
from peloton.model.host_event import HostEvent, HostEventKind
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.misfit import FailedPods, FlappingHost
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
WHY = FailedPods(3, 2, 4)


class Recording:
    def __init__(self) -> None:
        self.events: list[HostEvent] = []
        self.recorder = HostEventRecorder("west", self.events.append, lambda: NOW)

    def take(self) -> list[tuple[HostEventKind, str]]:
        taken = [(event.kind, event.text) for event in self.events]
        assert all((event.cluster, event.at_ns) == ("west", NOW) for event in self.events)
        self.events.clear()
        return taken


def make_host(name: str = "h1", capacity: Resources = Resources.of(4, 2_048), **more: Any) -> RegisteredHost:  # noqa: B008
    labels: dict[str, str | Mapping[str, int]] = {"rack": "a", "hostname": name}
    return RegisteredHost(f"{name}-S", Hostname(name), "", capacity, Resources(), labels, **more)


def test_a_host_changes_while_it_is_registered() -> None:
    """Changes of capacity, labels, agent id and cordon are events. Allocations and labels of volumes are not, and joins
    are recorded elsewhere.
    """
    recording, host = Recording(), make_host()
    recording.recorder.record_hosts([host, make_host("h2")])
    recording.recorder.record_hosts([host])
    held = replace(host, held=Resources.of(1), labels={**host.labels, volume_label("v1"): "here"})
    recording.recorder.record_hosts([held, make_host("h2")])
    others = replace(host, capacity=Resources.of(3, 2_048), held_by_others=Resources.of(1))
    recording.recorder.record_hosts([others])
    assert [] == recording.take()

    recording.recorder.record_hosts([replace(host, host_id="new", capacity=Resources.of(8, 1_024))])
    assert [
        (
            HostEventKind.CHANGED,
            "Registered again as new, before as h1-S; cpu 4 is 8 now; memory 2048 MiB is 1024 MiB now",
        )
    ] == recording.take()
    recording.recorder.record_hosts([host])
    recording.take()
    recording.recorder.record_hosts([replace(host, labels={"rack": "b", "zone": "z"}, withdrawn="cordoned by kubectl")])
    assert [
        (HostEventKind.CHANGED, "Label hostname=h1 is gone; label rack=a is b now; label zone=z is new"),
        (HostEventKind.CORDONED, "Takes no pods: cordoned by kubectl"),
    ] == recording.take()
    recording.recorder.record_hosts([replace(host, labels={"rack": "b", "zone": "z"})])
    assert [(HostEventKind.UNCORDONED, "Takes pods again; it did not before: cordoned by kubectl")] == recording.take()
    recording.recorder.record_hosts([replace(host, labels={f"l{at}": "1" for at in range(9)})])
    ((_, text),) = recording.take()
    assert text.endswith("; 6 more labels changed")


CORDON = "cordoned by kubectl"


def test_a_host_that_is_still_cordoned_has_no_new_event() -> None:
    """A new leader records no event for a host that is still cordoned, or that returns cordoned."""
    recording, cordoned = Recording(), make_host("h2", withdrawn=CORDON)
    recording.recorder.succeed([HostEvent(H2, HostEventKind.CORDONED, "", NOW, "west")])

    recording.recorder.record_hosts([make_host(), cordoned])
    recording.recorder.record_hosts([make_host()])
    recording.recorder.record_hosts([make_host(), cordoned])

    assert [] == recording.take()
    recording.recorder.record_hosts([make_host(), make_host("h2")])
    assert [(HostEventKind.UNCORDONED, f"Takes pods again; it did not before: {CORDON}")] == recording.take()
    recording.recorder.record_hosts([make_host()])
    recording.recorder.record_hosts([make_host(), make_host("h2")])
    assert [] == recording.take()


def test_a_cordon_that_changed_while_no_host_manager_led() -> None:
    """The next leader records the change, even for a host that is missing when it starts."""
    recording = Recording()
    recording.recorder.succeed([HostEvent(H2, HostEventKind.CORDONED, "", NOW, "west")])

    recording.recorder.record_hosts([make_host(withdrawn=CORDON)])
    assert [(HostEventKind.CORDONED, f"Takes no pods: {CORDON}")] == recording.take()

    recording.recorder.record_hosts([make_host(withdrawn=CORDON), make_host("h2")])
    assert [(HostEventKind.UNCORDONED, "Takes pods again, since a time at which no host manager saw it")] == (
        recording.take()
    )


def test_reservations_end_with_the_host_manager_that_made_them() -> None:
    """The next leader records their end, because reservations are only in memory."""
    recording = Recording()

    recording.recorder.succeed([HostEvent(H1, HostEventKind.RESERVED, "", NOW - 90 * SECOND, "west", NOW + SECOND)])

    assert [(HostEventKind.GIVEN_BACK, "Reservation ended after 90 s: another host manager leads")] == recording.take()


def test_a_host_of_another_cluster_is_ignored() -> None:
    """Hosts in ``but`` belong to another cluster, and no event is recorded for them."""
    recording = Recording()
    recording.recorder.record_hosts([make_host()], but=["h1"])
    recording.recorder.record_hosts([make_host(capacity=Resources.of(8))])

    assert [] == recording.take()


def test_avoided_and_marked_hosts() -> None:
    """The events have the duration of an avoidance and the measurement of a mark."""
    recording = Recording()
    recording.recorder.record_avoided(H1, WHY, 600.0)
    assert NOW + 600 * SECOND == recording.events[0].until_ns
    recording.recorder.record_avoided(H1, FlappingHost(3, 40), 60.0)
    recording.recorder.record_mark(H2, Mark.RED, Mark.GREEN, "cpu 95 %, red from 90 %")

    assert [
        (HostEventKind.AVOIDED, "Avoided for 10 min after 3 pods of 2 jobs failed there within 4 s"),
        (HostEventKind.FLAPPING, "Avoided for 60 s after it was gone and came back 3 times within 40 s"),
        (HostEventKind.MARKED, "Marked red, before green: cpu 95 %, red from 90 %"),
    ] == recording.take()


def test_the_host_cache_records_avoided_hosts() -> None:
    """One event is recorded when a host becomes avoided, and none while it stays avoided."""
    recording = Recording()
    cache = HostCache(30.0, recorder=recording.recorder)
    cache.set_hosts([make_host(name) for name in ("h1", "h2", "h3", "h4", "h5", "h6", "h7", "h8")])

    cache.avoidances.take(SICK, 0.0)
    cache.avoidances.take([replace(SICK[0], pod_id=PodId(JobId("late"), 0, 1))], 1.0)

    ((kind, text),) = recording.take()
    assert (HostEventKind.AVOIDED, "3 pods of 2 jobs failed" in text) == (kind, True)


class Store:
    """Store of events that fails while ``is_unavailable``."""

    def __init__(self) -> None:
        self.batches: list[list[HostEvent]] = []
        self.has_refused, self.is_unavailable = threading.Event(), False

    def write(self, events: Sequence[HostEvent]) -> None:
        if self.is_unavailable:
            self.has_refused.set()
            raise Unavailable("storage does not answer")
        self.batches.append(list(events))

    def numbers(self) -> list[int]:
        return [event.at_ns for batch in self.batches for event in batch]


def make_event(number: int) -> HostEvent:
    return HostEvent(H1, HostEventKind.AVOIDED, "Avoided", number)


def test_events_are_written_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """All events are written in order, including those added just before the stop."""
    monkeypatch.setattr(event_writer, "BATCH_MAX", 10)
    store = Store()
    writer = EventWriter(store.write, gather_s=60.0)
    for number in range(25):
        writer.add(make_event(number))
    writer.start()
    writer.stop()

    assert (list(range(25)), [10, 10, 5]) == (store.numbers(), [len(batch) for batch in store.batches])


def test_events_wait_for_storage() -> None:
    """Events whose write failed are written once when storage is available again."""
    store = Store()
    store.is_unavailable = True
    writer = EventWriter(store.write, gather_s=0.0, retry_s=0.0)
    writer.start()
    for number in range(30):
        writer.add(make_event(number))
    assert store.has_refused.wait(60)
    store.is_unavailable = False
    writer.stop()

    assert list(range(30)) == store.numbers()


def test_the_queue_of_events_is_bounded(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The oldest events are dropped with a warning that counts them."""
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
