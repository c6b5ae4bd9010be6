"""The owner of the state of the hosts: one event at a time, with its time and its effects."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from peloton.hosts.effects import HostAvoided, effects_of, event
from peloton.hosts.state import HostState
from peloton.model.host_event import HostEvent, HostEventKind
from peloton.model.ids import Hostname
from peloton.model.misfit import HostRule, Refused
from services.hostmgr.hosts.host_event_recorder import HostEventRecorder
from services.hostmgr.hosts.host_owner import HostOwner

H1 = Hostname("h1")
AVOIDED = HostAvoided(H1, Refused(HostRule.AVOIDED), 60.0)


class Story:
    """A state with events of the test, its owner, and the recorded events of hosts."""

    def __init__(self) -> None:
        self.events: list[HostEvent] = []
        self.state = HostState(30.0)
        self.clock_s = 5.0
        recorder = HostEventRecorder("west", self.events.append, lambda: 7)
        self.owner = HostOwner(self.state, lambda: self.clock_s, lambda: 7, recorder)

    @event(HostAvoided)
    def avoid(self) -> tuple[float, int]:
        self.state.table.effects.append(AVOIDED)
        return self.state.table.now_s, self.state.table.now_ns

    @event()
    def avoid_without_declaration(self) -> None:
        self.avoid()

    @event(HostAvoided)
    def avoid_and_fail(self) -> None:
        self.avoid()
        raise ValueError("the event failed")


def test_an_event_has_its_time_and_its_effects(caplog: pytest.LogCaptureFixture) -> None:
    """The owner sets the time of the event, and logs and records its effect once."""
    story = Story()
    with caplog.at_level(logging.WARNING):
        assert (5.0, 7) == story.owner.apply(story.avoid)

    assert [(H1, HostEventKind.AVOIDED)] == [(one.hostname, one.kind) for one in story.events]
    assert ["h1"] == [record.getMessage().split()[1] for record in caplog.records]
    assert [] == story.state.take_effects()


def test_an_effect_that_an_event_does_not_declare_is_refused() -> None:
    """The page of events and effects, which is generated from the declarations, is complete."""
    story = Story()
    with pytest.raises(AssertionError, match="may not have the effect"):
        story.owner.apply(story.avoid_without_declaration)


def test_the_effects_of_a_failed_event_are_performed() -> None:
    """The state has changed, so its effects are recorded, and the caller gets the error."""
    story = Story()
    with pytest.raises(ValueError, match="the event failed"):
        story.owner.apply(story.avoid_and_fail)
    assert 1 == len(story.events)


def test_no_two_events_overlap() -> None:
    """Events of several threads are applied one after the other."""
    owner, inside, most = Story().owner, 0, 0

    def count() -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        threading.Event().wait(0.001)
        inside -= 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: owner.apply(count), range(40)))
    assert (0, 1) == (inside, most)


def test_an_event_that_breaks_an_invariant_is_found() -> None:
    """Tests validate the state after each event, but not after a query."""
    story = Story()
    story.state.leases["one"] = (60.0, [H1, H1])
    assert not story.owner.apply(story.state.holds_by_job)
    with pytest.raises(AssertionError, match="lease one lists a host twice"):
        story.owner.apply(story.state.hold, [], 0.0)


def test_a_part_is_applied_by_the_owner() -> None:
    """Methods and properties of a part of the state are answered by the owner; events keep their declarations."""
    story = Story()
    pools = story.owner.part(story.state.host_pools)
    assert (False, -1) == (pools.are_used, pools.version)
    assert 0 == story.owner.part(story.state.reservations).count()
    assert (HostAvoided,) == effects_of(story.state.avoidances.take)
