"""The driver between masters: finding the leader, stepping back, and calls when a master hangs."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from peloton.errors import Unavailable
from services.hostmgr.mesos import subscription as module
from services.hostmgr.mesos import wire
from services.hostmgr.mesos.subscription import BACKOFF_MAX_S, Disconnected, Subscription, _backoff_s, local_address
from tests.unit.hostmgr.mesos.sockets import ACCEPTED, TIMEOUT_S, Requests, Server, chunk, record, stream_head


class Scheduler:
    """A scheduler that records its callbacks."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any]] = []
        self._changed = threading.Condition()

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda driver, *args: self._note(name, args)

    def _note(self, name: str, args: Any) -> None:
        with self._changed:
            self.seen.append((name, args))
            self._changed.notify_all()

    def wait(self, name: str, count: int = 1) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.count(name) >= count, TIMEOUT_S), (name, self.seen)

    def count(self, name: str) -> int:
        return [seen for seen, _ in self.seen].count(name)


class Master:
    """A master that subscribes each client and accepts calls; ``lead_to`` redirects instead. It sends nothing while it
    ``hangs``.
    """

    def __init__(self) -> None:
        self.lead_to = ""
        self.first_events: list[bytes] = []
        self.hangs = False
        self.subscribed_s: list[float] = []
        self._end = threading.Event()
        self.server = Server(self._serve)

    @property
    def address(self) -> str:
        return self.server.address

    @property
    def subscriptions(self) -> int:
        return len(self.subscribed_s)

    def _serve(self, connection: socket.socket) -> None:
        requests = Requests(connection)
        while (body := requests.next()) is not None:
            if self.hangs:
                self._end.wait(TIMEOUT_S)
                return
            if json.loads(body)["type"] != "SUBSCRIBE":
                connection.sendall(ACCEPTED)
                continue
            if self.lead_to:
                location = f"Location: //{self.lead_to}/api/v1/scheduler\r\nContent-Length: 0\r\n\r\n"
                connection.sendall(b"HTTP/1.1 307 Temporary Redirect\r\n" + location.encode())
                return
            self.subscribed_s.append(time.monotonic())
            subscribed = {"framework_id": {"value": "f"}, "heartbeat_interval_seconds": 15}
            events = [json.dumps({"type": "SUBSCRIBED", "subscribed": subscribed}).encode(), *self.first_events]
            connection.sendall(stream_head() + b"".join(chunk(record(event)) for event in events))
            if self.first_events:
                return
            self._end.wait()

    def close(self) -> None:
        self._end.set()
        self.server.close()


@pytest.fixture
def masters() -> Iterator[list[Master]]:
    made = [Master(), Master()]
    yield made
    for master in made:
        master.close()


@pytest.fixture
def start() -> Iterator[Callable[[str], tuple[Subscription, Scheduler]]]:
    drivers: list[Subscription] = []

    def one(address: str) -> tuple[Subscription, Scheduler]:
        scheduler = Scheduler()
        drivers.append(Subscription(scheduler, {"user": "root", "name": "test"}, address))
        drivers[-1].start()
        return drivers[-1], scheduler

    yield one
    for driver in drivers:
        driver.stop()
        driver.join()


Start = Callable[[str], tuple[Subscription, Scheduler]]


def test_the_wait_for_a_master_is_bounded_however_long_it_is_away() -> None:
    """An unavailable master is still polled every few seconds after days."""
    waits = [_backoff_s(failures) for failures in (0, 1, 10, 5_000, 1_000_000)]

    assert 0.0 == waits[0]
    assert all(0 < wait <= BACKOFF_MAX_S for wait in waits[1:])


def test_a_redirect_leads_to_the_leading_master(masters: list[Master], start: Start) -> None:
    """The driver follows the 307 of a master that does not lead."""
    standby, leader = masters
    standby.lead_to = leader.address

    driver, scheduler = start(standby.address)

    scheduler.wait("registered")
    assert (leader.address, 1) == (driver.master, leader.subscriptions)


def test_when_the_leader_dies_the_way_begins_again(masters: list[Master], start: Start) -> None:
    """The configured master redirects to the next leader; the address of the old leader is dropped."""
    configured, leader = masters
    configured.lead_to = leader.address
    driver, scheduler = start(configured.address)
    scheduler.wait("registered")

    configured.lead_to = ""
    leader.close()

    scheduler.wait("reregistered")
    assert (configured.address, 1) == (driver.master, configured.subscriptions)


def test_when_the_leader_falls_silent_the_way_begins_again(
    masters: list[Master], start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that hangs still accepts connections: the configured master redirects to the present leader."""
    configured, leader = masters
    configured.lead_to = leader.address
    driver, scheduler = start(configured.address)
    scheduler.wait("registered")

    configured.lead_to, leader.hangs = "", True
    monkeypatch.setattr(module, "MISSED_HEARTBEATS_MAX", 0.02)

    scheduler.wait("reregistered")
    assert (configured.address, 1) == (driver.master, leader.subscriptions)


def test_a_redirect_to_nowhere_is_tried_again(masters: list[Master], start: Start) -> None:
    """A dead leader does not block the driver: the first master is asked again."""
    configured, leader = masters
    configured.lead_to = leader.address
    leader.close()
    _, scheduler = start(configured.address)
    scheduler.wait("disconnected", 2)

    configured.lead_to = ""

    scheduler.wait("registered")


def test_who_was_superseded_stays_away(masters: list[Master], start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process took the framework: a reconnection at once would disconnect it in turn."""
    monkeypatch.setattr(module, "SUPERSEDED_WAIT_S", 0.3)
    master = masters[0]
    master.first_events = [b'{"type":"ERROR","error":{"message":"Framework failed over"}}']

    _, scheduler = start(master.address)
    scheduler.wait("reregistered")

    first, second = master.subscribed_s[:2]
    assert second - first >= 0.3
    assert ("error", ("Framework failed over",)) in scheduler.seen


@pytest.mark.parametrize("event", [b"no json", b'{"type":"OFFERS"}', b'{"type":"NEW","new":{}}', b"[1]"])
def test_an_event_that_makes_no_sense_does_not_end_the_driver(
    event: bytes, masters: list[Master], start: Start
) -> None:
    """A malformed event restarts the stream at worst."""
    master = masters[0]
    master.first_events = [event]

    _, scheduler = start(master.address)
    scheduler.wait("disconnected")
    master.first_events = []

    scheduler.wait("reregistered" if event != b"no json" else "registered")


def test_who_waits_behind_a_master_that_hangs_does_not_wait_in_turn(
    masters: list[Master], start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One caller waits for the timeout; all callers that waited for the connection meanwhile fail with that one."""
    monkeypatch.setattr(wire, "CALL_TIMEOUT_S", 0.5)
    master = masters[0]
    driver, scheduler = start(master.address)
    scheduler.wait("registered")
    master.hangs = True
    errors: list[type[Exception]] = []

    def call() -> None:
        try:
            driver.send_all([{"type": "REVIVE"}])
        except (OSError, Disconnected) as error:
            errors.append(type(error))

    callers = [threading.Thread(target=call) for _ in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(TIMEOUT_S)

    assert 8 == len(errors)
    assert errors.count(TimeoutError) < 4
    master.hangs = False
    assert [None] == driver.send_all([{"type": "REVIVE"}])


def test_a_zookeeper_that_is_away_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is one line for the log of a role that ends, and no thread is left over."""

    def away(self: Any) -> None:
        raise TimeoutError("Connection time-out")

    monkeypatch.setattr("services.hostmgr.mesos.pymesos.detector.MasterDetector.start", away)
    driver = Subscription(Scheduler(), {}, "zk://127.0.0.1:1/mesos")

    with pytest.raises(Unavailable, match=r"ZooKeeper of zk://127\.0\.0\.1:1/mesos not reached: Connection time-out"):
        driver.start()

    driver.join()


def test_nothing_is_sent_without_a_subscription(masters: list[Master], start: Start) -> None:
    """The error tells the caller that nothing was sent."""
    masters[0].lead_to = masters[0].address

    driver, scheduler = start(masters[0].address)
    scheduler.wait("disconnected")

    with pytest.raises(Disconnected):
        driver.send_all([{"type": "REVIVE"}])


@pytest.mark.parametrize("master", ["zk://a:1/mesos", "nonsense", "127.0.0.1:1"])
def test_the_own_address_needs_no_master(master: str) -> None:
    """The address is the host name with ZooKeeper, or with an unavailable master."""
    assert socket.gethostname() == local_address(master)
