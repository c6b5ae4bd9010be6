"""Usage of pods, measured on request."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import pytest

from peloton.errors import InvalidArgument
from peloton.model.ids import Hostname, JobId, PodId
from peloton.scheduling.qos import Use
from services.hostmgr import pod_uses
from services.hostmgr.driver import UseSample
from services.hostmgr.pod_uses import HOSTS_KEPT, HOSTS_PER_CALL_MAX, KEPT_S, SAMPLE_AGE_S, PodUses

A, B = Hostname("a"), Hostname("b")
POD = PodId(JobId("11111111-1111-1111-1111-111111111111"), 0, 1)


@dataclass
class Hosts:
    """Agents whose pods use half a core and 64 MiB; a clock that a test moves."""

    now_s: float = 1_000.0
    is_stale: bool = False
    away: set[Hostname] = field(default_factory=set)
    held: dict[Hostname, threading.Event] = field(default_factory=dict)
    asked: list[Hostname] = field(default_factory=list)

    def samples_of(self, hostname: Hostname) -> list[UseSample]:
        self.asked.append(hostname)
        if hostname in self.held:
            self.held[hostname].wait(60)
        if hostname in self.away:
            raise OSError("no route")
        at_s = 1_000.0 if self.is_stale else self.now_s
        return [UseSample("ours", POD, at_s / 2, at_s, 64), UseSample("theirs", None, at_s, at_s, 1)]

    def uses(self) -> PodUses:
        return PodUses(self.samples_of, lambda: self.now_s)


def test_two_samples_make_a_rate() -> None:
    """Pods of other frameworks are not shown."""
    hosts = Hosts()
    uses = hosts.uses()

    assert {} == uses.on([A])
    hosts.now_s += SAMPLE_AGE_S
    assert {POD: Use(500, 64)} == uses.on([A, A])
    assert [A, A] == hosts.asked


def test_a_sample_serves_all_who_read() -> None:
    """The agent is not asked again for some seconds."""
    hosts = Hosts()
    uses = hosts.uses()
    for _ in range(5):
        uses.on([A])
        hosts.now_s += SAMPLE_AGE_S / 5 - 0.001

    assert [A] == hosts.asked


def test_a_counter_that_stands_makes_no_rate() -> None:
    """The source is measured more rarely than it is read; when the counter moves again, the last rate holds until the
    next.
    """
    hosts = Hosts(is_stale=True)
    uses = hosts.uses()
    for _ in range(3):
        assert {} == uses.on([A])
        hosts.now_s += SAMPLE_AGE_S

    hosts.is_stale = False
    assert {POD: Use(500, 64)} == uses.on([A])
    hosts.now_s += SAMPLE_AGE_S
    assert {POD: Use(500, 64)} == uses.on([A])


def test_what_was_measured_long_ago_is_not_shown() -> None:
    """The measurement is dropped even if its host is unavailable now, and does not start a rate."""
    hosts = Hosts()
    uses = hosts.uses()
    uses.on([A])
    hosts.now_s += SAMPLE_AGE_S
    uses.on([A])

    hosts.away.add(A)
    hosts.now_s += SAMPLE_AGE_S
    assert {POD: Use(500, 64)} == uses.on([A])
    hosts.now_s += KEPT_S
    assert {} == uses.on([A])


def test_a_slow_host_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer has the usage of the other hosts; the slow host is read once at a time, and its
    usage is there later.
    """
    monkeypatch.setattr(pod_uses, "TIMEOUT_S", 0.01)
    hosts = Hosts(held={B: threading.Event()})
    uses = hosts.uses()
    for _ in range(3):
        uses.on([A, B])
        hosts.now_s += SAMPLE_AGE_S
    assert [B] == [name for name in hosts.asked if name == B]

    hosts.held.pop(B).set()
    monkeypatch.setattr(pod_uses, "TIMEOUT_S", 60.0)
    uses.on([B])
    hosts.now_s += SAMPLE_AGE_S
    assert {POD: Use(500, 64)} == uses.on([B])


def test_bounds() -> None:
    """The number of hosts in a call and of hosts with samples is limited."""
    hosts = Hosts()
    uses = hosts.uses()
    names = [Hostname(f"h{i}") for i in range(HOSTS_KEPT + 1)]

    with pytest.raises(InvalidArgument, match="101 hosts in one call, at most 100 are allowed"):
        uses.on(names[: HOSTS_PER_CALL_MAX + 1])
    for name in names:
        uses.on([name])
    hosts.now_s += SAMPLE_AGE_S

    assert {} == uses.on(names[:1]), "the one that was looked at longest ago is forgotten"
    assert {POD: Use(500, 64)} == uses.on(names[-1:])
