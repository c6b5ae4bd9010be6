"""The offers that are kept, and the conditions of REVIVE and SUPPRESS."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, cast

import pytest

from peloton.hosts.state import PlacedPods
from peloton.model.host import ComingBack, HostLease
from peloton.model.ids import Hostname, JobId
from peloton.model.pod import HostLabel, HostPreference, PodShape, Strategy
from peloton.model.resources import Resources
from peloton.scheduling.placement import PackedPods
from services.hostmgr.driver import Claim, ClusterDriver, RegisteredHost
from services.hostmgr.hosts.host_cache import HostCache
from services.hostmgr.mesos import offer_controller
from services.hostmgr.mesos.offer_cache import OfferCache
from services.hostmgr.mesos.offer_controller import (
    KEPT_PER_USED,
    OFFERS_WAIT_S,
    REFUSED_S,
    WAITING_AGE_S,
    OfferController,
)
from services.hostmgr.mesos.subscription import Disconnected
from services.hostmgr.placing import obtain

Json = dict[str, Any]
JOB = JobId("00000000-0000-4000-8000-000000000001")
OTHER = JobId("00000000-0000-4000-8000-000000000002")
HOLD_S = 10.0
HANG_S = 5.0
SMALL, LARGE = PodShape(Resources.of(1)), PodShape(Resources.of(100))
ON_GPU = PodShape(Resources.of(1), constraint=HostLabel("gpu", "yes"))


class Mesos:
    """A Mesos master that records calls, and makes offers on request."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.calls: list[Json] = []
        self.fails: Exception | None = None
        self.answers = True
        self.subscribes = False  # during a call to Mesos
        self.pool = HostCache(30.0, clock=lambda: self.now_s)
        self.cache = OfferCache()
        self.controller = OfferController(self.take_idle, self.send_all, HOLD_S, clock=lambda: self.now_s)
        self.request_capacity, self.demand_met = self.controller.want, self.controller.record_demand_met
        self._count = 0
        self.pool.set_hosts(
            RegisteredHost(f"{name}-S", Hostname(name), "ip:1", Resources.of(4), Resources(), {}) for name in ("a", "b")
        )

    def take_idle(self, until_s: float, kept: int, limit: int) -> list[str]:
        return self.pool.take_idle(until_s, self.now_s, kept, limit)

    def lease(self, job: JobId, *wanted: tuple[PodShape, int]) -> HostLease:
        def acquire() -> PlacedPods:
            return self.pool.acquire(job, wanted, self.now_s), PackedPods()

        return obtain(self.pool, cast(ClusterDriver, self), (job, False), [shape for shape, _ in wanted], acquire)[0]

    def claim(self) -> Claim:
        """Claim a host for a launch of one pod."""
        lease = self.pool.acquire(JOB, [(SMALL, 1)], self.now_s)
        claims = self.pool.claim(lease.lease_id, [lease.hosts[0].hostname])
        self.controller.note_used(len(claims))
        return claims[lease.hosts[0].hostname]

    def send_all(self, calls: Sequence[Json]) -> list[None]:
        if self.fails:
            raise self.fails
        self.calls += calls
        if self.subscribes:
            driver = threading.Thread(target=self.controller.reset, daemon=True)
            driver.start()
            driver.join(HANG_S)
            assert not driver.is_alive(), "the driver waits for a call to Mesos"
        if self.answers and any(call["type"] == "REVIVE" for call in calls):
            threading.Thread(target=self.offer).start()
        return [None] * len(calls)

    def offer(self, *names: str, attributes: Sequence[Json] = ()) -> None:
        for name in names or ("a", "b"):
            self._count += 1
            cpus = {"name": "cpus", "type": "SCALAR", "scalar": {"value": 4.0}}
            ids = {"id": {"value": f"O{self._count}"}, "agent_id": {"value": f"{name}-S"}}
            offer = {**ids, "hostname": name, "resources": [cpus], "attributes": list(attributes)}
            self.pool.add_resources(self.cache.receive([offer]))
        self.controller.offers_came()

    def want(self, shape: PodShape = SMALL, count: int = 1, job: JobId = JOB) -> int:
        """Return the number of hosts that a lease has in the end; the lease is released."""
        lease = self.lease(job, (shape, count))
        self.pool.release(lease.lease_id)
        return len(lease.hosts)

    def run_periodic(self, after_s: float = 0.0) -> list[str]:
        """Run the periodic tasks and return the types of the calls made."""
        self.now_s += after_s
        before = len(self.calls)
        self.controller.run_periodic()
        return [call["type"] for call in self.calls[before:]]


@pytest.fixture
def mesos() -> Mesos:
    """Return a Mesos with two hosts, both offered."""
    made = Mesos()
    made.offer()
    return made


def test_offers_are_held_for_their_time(mesos: Mesos) -> None:
    """Offers are declined when their time is over, with a filter."""
    assert [] == mesos.run_periodic(HOLD_S - 1)
    assert ["DECLINE"] == mesos.run_periodic(1)

    assert 0 == mesos.pool.resources_count
    decline = mesos.calls[-1]["decline"]
    assert {"refuse_seconds": REFUSED_S} == decline["filters"]
    assert [{"value": "O1"}, {"value": "O2"}] == decline["offer_ids"]


def test_mesos_makes_none_when_nothing_waits(mesos: Mesos) -> None:
    """Mesos receives one SUPPRESS, however long no job waits."""
    mesos.run_periodic(HOLD_S)

    assert ["SUPPRESS"] == mesos.run_periodic(WAITING_AGE_S)
    assert [] == mesos.run_periodic(3_600)


def test_who_waits_keeps_offers_coming(mesos: Mesos) -> None:
    """A failed lease keeps offers coming until it is older than the retry interval of a job."""
    mesos.run_periodic(HOLD_S)
    mesos.now_s += 3_600
    mesos.want(LARGE)

    assert [] == mesos.run_periodic(WAITING_AGE_S - 1)
    assert "SUPPRESS" in mesos.run_periodic(1)


def test_a_lease_asks_for_what_was_given_back(mesos: Mesos) -> None:
    """The lease revives offers and is given the declined resources at once."""
    mesos.run_periodic(HOLD_S)
    mesos.run_periodic(3_600)
    assert "SUPPRESS" == mesos.calls[-1]["type"]

    assert 1 == mesos.want()
    assert "REVIVE" == mesos.calls[-1]["type"]


def test_offers_that_suffice_are_not_asked_for(mesos: Mesos) -> None:
    """Sufficient offers cause no REVIVE, even while others are filtered."""
    mesos.now_s += HOLD_S / 2
    mesos.offer("b")
    assert ["DECLINE"] == mesos.run_periodic(HOLD_S / 2)

    assert 1 == mesos.want()
    assert "REVIVE" not in [call["type"] for call in mesos.calls]


@pytest.mark.parametrize(
    "shape",
    [
        PodShape(Resources.of(1), strategy=Strategy.EMPTIEST_HOST),
        PodShape(Resources.of(1), preferences=(HostPreference(1, HostLabel("rack", "a")),)),
    ],
    ids=["strategy", "preference"],
)
def test_pods_that_compare_hosts_see_all_of_them(mesos: Mesos, shape: PodShape) -> None:
    """A pod that fits an offer at hand would be placed there otherwise."""
    mesos.now_s += HOLD_S / 2
    mesos.offer("b")
    mesos.run_periodic(HOLD_S / 2)

    mesos.want(shape)
    assert "REVIVE" == mesos.calls[-1]["type"]


def test_what_fits_nowhere_asks_for_nothing(mesos: Mesos) -> None:
    """No agent has the resources free, so other frameworks keep their offers."""
    mesos.want(LARGE)
    mesos.run_periodic(HOLD_S)

    assert 0 == mesos.want(LARGE)
    assert ["DECLINE"] == [call["type"] for call in mesos.calls]


def revives_while_waiting(mesos: Mesos, shape: PodShape, for_s: float, job: JobId = JOB) -> list[float]:
    """Return the times of REVIVE calls for a job that looks for hosts every 30 s and finds too few."""
    asked: list[float] = []
    begin_s = mesos.now_s
    while mesos.now_s < begin_s + for_s:
        before = len(mesos.calls)
        assert 0 == mesos.want(shape, job=job)
        asked += [mesos.now_s - begin_s for call in mesos.calls[before:] if call["type"] == "REVIVE"]
        mesos.run_periodic(HOLD_S)
        mesos.run_periodic(30 - HOLD_S)
    return asked


def test_who_is_not_helped_by_offers_asks_ever_more_rarely(mesos: Mesos) -> None:
    """Free resources exist, but no host has the label: other frameworks are offered them meanwhile. Other jobs cause a
    REVIVE at once, and so do other pods of this job.
    """
    mesos.run_periodic(HOLD_S)

    asked = revives_while_waiting(mesos, ON_GPU, 2_400)

    assert [0, 60, 180, 420, 900, 1_500, 2_100] == asked
    assert [0] == revives_while_waiting(mesos, ON_GPU, 30, OTHER)
    both = mesos.lease(JOB, (ON_GPU, 1), (SMALL, 1))
    assert (1, frozenset({ON_GPU})) == (len(both.hosts), both.short)


def test_who_found_enough_begins_again(mesos: Mesos) -> None:
    """The next shortage of the job causes a REVIVE at once."""
    mesos.run_periodic(HOLD_S)
    assert [0, 60] == revives_while_waiting(mesos, ON_GPU, 90)
    gpu = {"name": "gpu", "type": "TEXT", "text": {"value": "yes"}}
    mesos.offer("c", attributes=[gpu])
    assert 1 == mesos.want(ON_GPU)
    mesos.run_periodic(HOLD_S)

    assert [0] == revives_while_waiting(mesos, ON_GPU, 30)


def test_a_host_that_joins_ends_the_waits(mesos: Mesos) -> None:
    """The next shortage causes a REVIVE at once, as the host may be the one that the pods need."""
    mesos.run_periodic(HOLD_S)
    assert [0, 60] == revives_while_waiting(mesos, ON_GPU, 90)

    mesos.controller.hosts_joined()

    assert [0, 60] == revives_while_waiting(mesos, ON_GPU, 90)


def test_who_found_nothing_asks_when_mesos_makes_no_offers(mesos: Mesos) -> None:
    """A REVIVE is needed to learn about new hosts."""
    mesos.run_periodic(HOLD_S)
    assert [0, 60, 180] == revives_while_waiting(mesos, ON_GPU, 210)
    mesos.run_periodic(WAITING_AGE_S)
    assert "SUPPRESS" == mesos.calls[-1]["type"]

    assert [0] == revives_while_waiting(mesos, ON_GPU, 30)


def test_of_many_unmet_requests_the_last_ones_are_remembered(mesos: Mesos, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job beyond the limit causes one more REVIVE."""
    monkeypatch.setattr(offer_controller, "FAILED_MAX", 1)
    mesos.run_periodic(HOLD_S)

    assert [[0], [0], [0]] == [revives_while_waiting(mesos, ON_GPU, 30, job) for job in (JOB, OTHER, JOB)]


def test_a_lease_does_not_wait_long_for_mesos(mesos: Mesos) -> None:
    """A second one does not wait again for the same offers."""
    mesos.answers = False
    mesos.run_periodic(HOLD_S)
    mesos.run_periodic(3_600)

    assert 0 == mesos.want()
    mesos.now_s += OFFERS_WAIT_S
    assert 0 == mesos.want()
    assert 1 == [call["type"] for call in mesos.calls].count("REVIVE")


def test_a_question_that_was_lost_is_asked_again(mesos: Mesos) -> None:
    """The next lease repeats the lost call."""
    mesos.run_periodic(HOLD_S)
    mesos.run_periodic(3_600)
    mesos.fails = Disconnected("away")
    assert 0 == mesos.want()

    mesos.fails = None
    assert 1 == mesos.want()


def test_offers_whose_refusal_was_lost_go_back_once_more(mesos: Mesos) -> None:
    """Mesos may still count the offers as held."""
    mesos.fails = OSError("broken pipe")
    with pytest.raises(OSError, match="broken pipe"):
        mesos.run_periodic(HOLD_S)

    mesos.fails = None
    mesos.run_periodic()
    assert [{"value": "O1"}, {"value": "O2"}] == mesos.calls[-1]["decline"]["offer_ids"]
    assert {"refuse_seconds": 0} == mesos.calls[-1]["decline"]["filters"]
    mesos.want(count=9)
    assert "REVIVE" == mesos.calls[-1]["type"]


def test_a_new_subscription_hides_nothing(mesos: Mesos) -> None:
    """Filters end with the subscription, in Mesos and in the keeper."""
    mesos.run_periodic(HOLD_S)
    mesos.run_periodic(3_600)
    mesos.controller.reset()
    mesos.pool.forget_resources()

    assert 0 == mesos.want()
    assert "REVIVE" not in [call["type"] for call in mesos.calls]


def test_a_subscription_waits_for_no_demand(mesos: Mesos) -> None:
    """The thread of events continues while a call to a master hangs."""
    mesos.subscribes = True

    mesos.run_periodic(HOLD_S)
    mesos.run_periodic(WAITING_AGE_S)
    mesos.want()

    assert ["DECLINE", "SUPPRESS", "REVIVE"] == [call["type"] for call in mesos.calls]


def test_a_new_subscription_may_have_heard_what_the_old_one_was_notified(mesos: Mesos) -> None:
    """The next lease calls REVIVE, since a SUPPRESS may have reached the new subscription."""
    mesos.run_periodic(HOLD_S)
    mesos.subscribes = True
    assert ["SUPPRESS"] == mesos.run_periodic(WAITING_AGE_S)
    mesos.subscribes = False

    assert 1 == mesos.want()


def test_leased_hosts_and_held_offers_are_not_given_back(mesos: Mesos) -> None:
    """Offers are kept for their lease or hold."""
    mesos.now_s += HOLD_S
    (leased,) = mesos.pool.acquire(JOB, [(SMALL, 1)], mesos.now_s).hosts
    other = "b" if leased.hostname == "a" else "a"
    mesos.pool.hold([ComingBack(JOB, 1, Hostname(other), Resources.of(1), 30)], mesos.now_s)

    assert [] == mesos.run_periodic()
    assert 2 == mesos.pool.resources_count


def test_a_large_job_keeps_its_offers(mesos: Mesos) -> None:
    """The number of idle offers that are kept follows the number that launches use."""
    mesos.run_periodic()
    mesos.claim()
    assert KEPT_PER_USED > 1

    assert [] == mesos.run_periodic(HOLD_S)
    assert 1 == mesos.pool.resources_count
    assert ["DECLINE"] == mesos.run_periodic(2 * HOLD_S)
    assert 0 == mesos.pool.resources_count


def test_what_is_given_back_is_free(mesos: Mesos) -> None:
    """Declined offers count as free by the report of the agents; used ones do not."""
    mesos.claim()
    assert Resources.of(4) == mesos.pool.free()
    mesos.run_periodic()
    mesos.run_periodic(3 * HOLD_S)

    assert 0 == mesos.pool.resources_count
    assert Resources.of(4) == mesos.pool.free()
    assert [0, 4_000] == sorted(host.free.cpu_milli for host in mesos.pool.hosts())
