"""Events of hosts: written with the changes, returned newest first, and deleted in bounded steps."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from peloton.errors import Aborted, NotFound
from peloton.lifecycle.host_events import TEXT_MAX
from peloton.model.host import HostState
from peloton.model.host_event import HostEvent, HostEventKind
from peloton.model.host_pool import DEFAULT_HOST_POOL, HostPool
from peloton.model.ids import Hostname
from peloton.model.maintenance import Blocker, DrainProgress, MaintenanceAct, MaintenanceRequest
from peloton.model.mover import Made, MoverRule
from peloton.ports import PERSON
from services.storage.hosts import host_events
from services.storage.storage import Storage
from tests.conformance.storage.builders import NOW, SECOND, Clock, a_config, create
from tests.conformance.storage.plans import plans_of, steps_of

C, H1, H2 = "cluster", Hostname("h1"), Hostname("h2")
DRAINING, DRAINED, DOWN = HostState.DRAINING, HostState.DRAINED, HostState.DOWN
MINUTE = 60 * SECOND
Kind = HostEventKind


def list_events(storage: Storage, hostname: str = H1) -> list[tuple[str, str]]:
    """Return kind and text of each event, the oldest first."""
    events = storage.host_events.page(hostname)
    assert all(event.cluster == C for event in events)
    return [(event.kind.value, event.text) for event in reversed(events)]


def an_event(hostname: str = H1, at_ns: int = NOW, kind: Kind = Kind.AVOIDED, text: str = "Avoided") -> HostEvent:
    return HostEvent(Hostname(hostname), kind, text, at_ns, C, at_ns + SECOND)


def test_hosts_join_leave_and_come_back(storage: Storage, clock: Clock) -> None:
    """The first hosts of a cluster have no event of joining. A repeated claim adds no event. A host that is DOWN for
    maintenance is not lost."""
    storage.hosts.claim(C, [H1], is_first=True)
    assert [] == list_events(storage)
    storage.hosts.claim(C, [H1, H2])
    storage.hosts.disclaim(C, [H1])
    storage.hosts.disclaim(C, [H1])
    clock.advance(180)
    storage.hosts.claim(C, [H1, H2])

    assert [
        ("LEFT", f"Left cluster {C}: its agent is no longer registered"),
        ("JOINED", "Came back after 3 min"),
    ] == list_events(storage)
    assert [("JOINED", f"Joined cluster {C}")] == list_events(storage, H2)
    storage.maintenance.request(C, [MaintenanceRequest(H1, "ip")], 1, NOW)
    storage.maintenance.move(C, H1, DRAINING, DRAINED, NOW)
    storage.maintenance.move(C, H1, DRAINED, DOWN, NOW)
    storage.hosts.disclaim(C, [H1])
    assert ("LEFT", f"Left cluster {C} for its maintenance") == list_events(storage)[-1]
    storage.hosts.claim("other", [H1])
    assert "Joined cluster other, 0 s after it left cluster cluster" == storage.host_events.page(H1)[0].text


def test_a_name_that_another_cluster_has_joins_nothing(storage: Storage) -> None:
    """A host whose name is refused has no event."""
    storage.hosts.claim(C, [H1], is_first=True)

    assert {H1: C} == storage.hosts.claim("other", [H1, H2])

    assert [H2] == [event.hostname for event in storage.host_events.page()]


def test_many_hosts_take_few_transactions(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events of hosts that leave together are written with them, in the same portions."""
    names = [f"h{number:04}" for number in range(1_200)]
    storage.hosts.claim(C, names, is_first=True)
    write, writes = storage.db.write, list[int]()

    def count_write(work: Any) -> Any:
        writes.append(1)
        return write(work)

    monkeypatch.setattr(storage.db, "write", count_write)

    storage.hosts.disclaim(C, names)
    storage.hosts.claim(C, names)

    assert 6 == len(writes)
    assert {"LEFT": 1_200, "JOINED": 1_200} == Counter(event.kind for event in storage.host_events.page(limit=5_000))


def test_a_maintenance_from_its_request_to_its_end(storage: Storage) -> None:
    """Each step has one event with its numbers. A repeated or refused step has none."""
    job = create(storage, a_config())
    records, blocked = storage.maintenance, Blocker(job, 5, "its SLA keeps 5")
    asked = [MaintenanceRequest(name, "ip", deadline_s=60, reason="a new disk") for name in (H1, H2)]
    records.request(C, asked, 1, NOW)
    records.request(C, asked, 1, NOW)
    at = NOW
    for pods, leaving in ((8, 3), (7, 3), (5, 5), (3, 3), (1, 1)):
        at += MINUTE
        host = records.get(C, H1)
        assert host is not None
        blockers = (blocked,) if pods == 8 else ()
        records.note_drain(host, DrainProgress(pods, leaving, blockers), at)
    records.steer(C, [H1], MaintenanceAct.FORCE, 1, at)
    with pytest.raises(NotFound, match="not DOWN"):
        records.steer(C, [H1], MaintenanceAct.COMPLETE, 1, at)
    for before, after in ((DRAINING, DRAINED), (DRAINING, DRAINED), (DRAINED, DOWN)):
        records.move(C, H1, before, after, at)
    with pytest.raises(Aborted):
        records.steer(C, [H1, H2], MaintenanceAct.CANCEL, 1, at)
    records.steer(C, [H1], MaintenanceAct.COMPLETE, 1, at + 120 * MINUTE)
    records.end(C, H1, 1, at + 121 * MINUTE)
    records.end(C, H1, 1, at + 122 * MINUTE)
    records.steer(C, [H2], MaintenanceAct.CANCEL, 1, at)

    assert [
        ("MAINTENANCE_ASKED", "Maintenance requested: a new disk"),
        ("DRAINING", "Drain begun for its maintenance; 1 host of the cluster unavailable"),
        ("DRAIN_PROGRESS", "8 pods remaining, 3 of them terminating; 5 pods of 1 job blocked by their "
         f"SLA, first of job {job}: its SLA keeps 5"),
        ("DRAIN_PROGRESS", "7 pods remaining, 3 of them terminating"),
        ("DRAIN_PROGRESS", "3 pods remaining, 3 of them terminating"),
        ("DRAIN_PROGRESS", "1 pod remaining, 1 of them terminating"),
        ("DRAIN_FORCED", "Drain forced 5 min after it began: pods leave even if the SLA of their jobs forbids it"),
        ("DRAINED", "Drained in 5 min: forced"),
        ("DOWN", "Down for maintenance"),
        ("COMPLETED", "Maintenance completed after 2 h down: the host may come back"),
        ("UP", "Takes pods again, 2 h after its drain began"),
    ] == list_events(storage)  # fmt: skip
    assert ["MAINTENANCE_ASKED", "DRAINING", "CANCELLED"] == [kind for kind, _ in list_events(storage, H2)]
    assert ", 2 h after the request; 1 host of the cluster unavailable" in list_events(storage, H2)[1][1]
    assert "Maintenance cancelled while the host was DRAINING" == list_events(storage, H2)[-1][1]


@pytest.fixture
def pools(storage: Storage) -> Storage:
    storage.hosts.claim(C, [H1, H2], is_first=True)
    for name in ("batch", "services"):
        storage.host_pools.create(HostPool(name))
    return storage


def test_moves_by_hand(pools: Storage) -> None:
    """Moves by hand have events: at once, drained, cancelled, and ended by the deletion of the host pool."""
    records, maintenance = pools.host_pools, pools.maintenance
    records.relabel(H1, DEFAULT_HOST_POOL, "batch", NOW)
    records.relabel(H1, "batch", "batch", NOW)
    records.desire([H1], "services", NOW)
    records.desire([H1], "services", NOW)
    maintenance.request(C, [MaintenanceRequest(H1, "ip", to_pool="services")], 1, NOW)
    maintenance.move(C, H1, DRAINING, DRAINED, NOW + 3 * MINUTE)
    maintenance.relabel(C, H1, NOW + 3 * MINUTE)
    maintenance.end(C, H1, 1, NOW + 3 * MINUTE)
    records.desire([H1], "batch", NOW)
    records.desire([H1], "services", NOW)
    records.delete("services")

    assert [
        ("POOL_CHANGED", "Moved from host pool default to batch, at once, by hand"),
        ("POOL_WANTED", "To move from host pool batch to services once it is drained, by hand"),
        (
            "DRAINING",
            "Drain begun to move to host pool services; 1 host of the cluster unavailable",
        ),
        ("DRAINED", "Drained in 3 min"),
        ("POOL_CHANGED", "Moved from host pool batch to services, drained"),
        ("UP", "Takes pods again, 3 min after its drain began"),
        ("POOL_WANTED", "To move from host pool services to batch once it is drained, by hand"),
        ("POOL_WANTED", "To stay in host pool services, by hand"),
        ("POOL_CHANGED", "Moved from host pool services to default, as host pool services is deleted"),
    ] == list_events(pools)


def test_moves_by_the_mover(pools: Storage) -> None:
    """A move by the mover has an event with its reason, and so has a move that maintenance overrides, whose host
    arrives nevertheless."""
    why = "82 % of services in use, from 80 %"
    made = Made(DEFAULT_HOST_POOL, "services", MoverRule.LOAD, why, (H1, H2), NOW)
    pools.mover.lend(made, DEFAULT_HOST_POOL, 5)
    assert [] == list_events(pools), "it is off"
    pools.mover.switch(True)
    pools.mover.lend(made, DEFAULT_HOST_POOL, 5)
    pools.maintenance.request(C, [MaintenanceRequest(H1, "ip", to_pool="services")], 1, NOW)
    pools.maintenance.request(C, [MaintenanceRequest(H1, "ip", reason="it smokes")], 1, NOW)
    pools.host_pools.arrive(H1, "services", NOW)
    stuck = Made(DEFAULT_HOST_POOL, "services", MoverRule.STUCK, "not empty after 3600 s", (H1, H2), NOW + 1)
    pools.mover.give_up(stuck, NOW)

    wanted = ("POOL_WANTED", f"To move from host pool default to services once it is drained, by the mover: {why}")
    assert [
        wanted,
        (
            "DRAINING",
            "Drain begun to move to host pool services; 1 host of the cluster unavailable",
        ),
        ("MAINTENANCE_ASKED", "Maintenance requested, instead of the move to host pool services: it smokes"),
        ("POOL_CHANGED", "Moved from host pool default to services, emptied by its maintenance"),
    ] == list_events(pools)
    stays = ("POOL_WANTED", "To stay in host pool default, by the mover: not empty after 3600 s")
    assert [wanted, stays] == list_events(pools, H2)


def test_pages_continue_from_a_number(storage: Storage) -> None:
    """Pages continue backwards from the last number of a page and forwards from the first, also by kind."""
    kinds = [Kind.AVOIDED, Kind.MARKED]
    storage.host_events.add([an_event(f"h{at % 3}", kind=kinds[at % 2], text=f"{at}") for at in range(20)])
    records, seen = storage.host_events, list[str]()

    page = records.page(limit=7)
    while page:
        seen += [event.text for event in page]
        page = records.page(limit=7, before=page[-1].seq)

    assert [str(at) for at in reversed(range(20))] == seen
    assert ["18", "12", "6", "0"] == [event.text for event in records.page("h0", [Kind.AVOIDED])]
    newest = records.page(limit=1)[0]
    assert [] == records.page(after=newest.seq)
    records.add([an_event(text="x" * (TEXT_MAX + 1) + "\x00")])
    (new,) = records.page(after=newest.seq)
    assert (TEXT_MAX, NOW, NOW + SECOND, C) == (len(new.text), new.at_ns, new.until_ns, new.cluster)
    assert [new] == records.page(kinds=list(Kind), limit=1)


def test_what_has_begun_and_not_ended(storage: Storage) -> None:
    """The answer contains the steps that have begun and not ended, for each host of a cluster."""
    cordoned, uncordoned, reserved, given_back = Kind.CORDONED, Kind.UNCORDONED, Kind.RESERVED, Kind.GIVEN_BACK
    lives = {
        "h1": [cordoned, reserved, Kind.AVOIDED],
        "h2": [cordoned, reserved, uncordoned],
        "h3": [uncordoned, cordoned, uncordoned, cordoned, reserved, given_back],
        "h4": [given_back],
    }
    events = [an_event(host, NOW + at, kind) for host, kinds in lives.items() for at, kind in enumerate(kinds)]
    elsewhere = HostEvent(H2, uncordoned, "of another cluster", NOW, "other")
    storage.host_events.add([*events, elsewhere])

    found = storage.host_events.open(C, {cordoned: uncordoned, reserved: given_back})

    expected = [(H1, cordoned, NOW), (H1, reserved, NOW + 1), (H2, reserved, NOW + 1), ("h3", cordoned, NOW + 3)]
    assert expected == [(event.hostname, event.kind, event.at_ns) for event in found]


def test_what_a_new_host_manager_reads_does_not_grow_with_old_events(storage: Storage) -> None:
    """Steps of SQLite's machine are equal for a few old events and for many; PostgreSQL scans no table."""
    ends = {Kind.CORDONED: Kind.UNCORDONED, Kind.RESERVED: Kind.GIVEN_BACK}

    def look() -> list[HostEvent]:
        return storage.host_events.open(C, ends)

    steps = []
    for rounds in (5, 500):
        cycle = [Kind.RESERVED, Kind.GIVEN_BACK, Kind.AVOIDED]
        storage.host_events.add([an_event(f"h{at % 4}", NOW + at, cycle[at // 4 % 3]) for at in range(rounds * 12)])
        assert [] == look()
        if storage.db.is_sqlite:
            steps.append(steps_of(storage, look))
    if steps:
        assert steps[1] < 1.1 * steps[0], steps
    plans = plans_of(storage, look)
    assert 2 == len(plans)
    assert all("ix_host_event_open" in plan for _, plan in plans), plans


@pytest.mark.parametrize("seed", range(3))
def test_what_is_too_old_or_too_much_is_forgotten(storage: Storage, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """The deletion agrees with an oracle over all events, whatever the bounds of a step. The newest events stay, and a
    second deletion changes nothing."""
    rng = random.Random(seed)
    most, per_host, kept_s = rng.randint(20, 90), rng.randint(2, 9), 100
    for name, value in (
        ("EVENTS_MAX", most), ("EVENTS_PER_HOST_MAX", per_host), ("CROWDED_MAX", rng.randint(1, 3))
    ):  # fmt: skip
        monkeypatch.setattr(host_events, name, value)
    at, events = NOW, list[HostEvent]()
    for number in range(120):
        at += rng.randint(0, 3) * SECOND
        events.append(an_event(f"h{rng.randint(0, 9)}", at, text=f"{number}"))
    storage.host_events.add(events)

    limit, records = rng.randint(1, 7), storage.host_events
    while old := records.list_old(at - kept_s * SECOND, limit):
        assert len(old) == records.forget([event.seq for event in old]) <= limit

    young = [event for event in events[-most:] if event.at_ns >= at - kept_s * SECOND]
    left, counts = list[str](), Counter[str]()
    for event in reversed(young):
        counts[event.hostname] += 1
        if counts[event.hostname] <= per_host:
            left.append(event.text)
    assert left == [event.text for event in storage.host_events.page(limit=200)]


def test_writers_at_once(open_storage: Callable[[], Storage]) -> None:
    """Numbers are unique when several threads write, alongside steps that write events with their rows."""
    storages = [open_storage() for _ in range(4)]

    def write(number: int) -> None:
        storage = storages[number % 4]
        storage.host_events.add([an_event(f"h{number}"), an_event(f"h{number}")])
        storage.maintenance.request(C, [MaintenanceRequest(Hostname(f"h{number}"), "")], 3, NOW)
        storage.hosts.claim(C, [f"h{number}"])

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, range(12)))

    events = storages[0].host_events.page(limit=100)
    assert 12 * 4 + 3 == len({event.seq for event in events}) == len(events)
    assert Counter({"AVOIDED": 24, "MAINTENANCE_ASKED": 12, "JOINED": 12, "DRAINING": 3}) == Counter(
        event.kind.value for event in events
    )


def test_maintenance_names_who_requested_it(storage: Storage) -> None:
    """Requests of a known user have its name; the steps between them have none."""
    storage.hosts.claim(C, [H1, H2], is_first=True)
    records, token = storage.maintenance, PERSON.set("ann")
    try:
        records.request(C, [MaintenanceRequest(H1, "ip", reason="a new disk"), MaintenanceRequest(H2, "ip")], 1, NOW)
        records.steer(C, [H1], MaintenanceAct.FORCE, 1, NOW + MINUTE)
        records.steer(C, [H2], MaintenanceAct.CANCEL, 1, NOW)
        for before, after in ((DRAINING, DRAINED), (DRAINED, DOWN)):
            records.move(C, H1, before, after, NOW + MINUTE)
        records.steer(C, [H1], MaintenanceAct.COMPLETE, 1, NOW + 2 * MINUTE)
    finally:
        PERSON.reset(token)

    texts = [text for _, text in list_events(storage) if "ann" in text]
    assert [
        "Maintenance requested by ann: a new disk",
        "Drain forced by ann 60 s after it began: pods leave even if the SLA of their jobs forbids it",
        "Maintenance completed by ann after 60 s down: the host may come back",
    ] == texts
    assert "Maintenance cancelled by ann before its turn" == list_events(storage, H2)[-1][1]
