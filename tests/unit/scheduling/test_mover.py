"""The number of hosts that move between host pools: tables, and host pools over days that come to rest."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from peloton.model.ids import Hostname
from peloton.model.mover import Made, MoverRule
from peloton.model.times import NS_PER_S
from peloton.scheduling.mover import (
    HostPoolLoad,
    MoverPolicy,
    PastShift,
    Shift,
    TakerState,
    list_past,
    plan,
    return_delay_s,
    shift_text,
)

POLICY = MoverPolicy()
SIZE = 1_000
STEP_S = 30.0


class Day:
    """The host pool services receives hosts from batch, and then from spare; a move lasts ``drain_s``."""

    def __init__(self, hosts: dict[str, int], minimum: dict[str, int], drain_s: float, policy: MoverPolicy) -> None:
        self.hosts, self.minimum, self.drain_s, self.policy = dict(hosts), minimum, drain_s, policy
        self.lent: Counter[str] = Counter()
        self.watch, self.now_s, self.busy_until_s = TakerState(), 0.0, 0.0
        self.shifts: list[tuple[float, Shift]] = []
        self.past: list[PastShift] = []
        self._seen: tuple[tuple[int, ...], HostPoolLoad, list[HostPoolLoad]] | None = None

    def _pools(self, *amounts: int) -> tuple[HostPoolLoad, list[HostPoolLoad]]:
        """Return the same values as before while the amounts have not changed: a day has thousands of steps."""
        if self._seen is None or self._seen[0] != amounts:
            pools = [HostPoolLoad(name, self.hosts[name], self.minimum[name], host_size=SIZE) for name in self.hosts]
            used, marked, waiting = amounts
            taker = replace(pools[0], used=used, marked_count=marked, waiting_count=waiting)
            self._seen = amounts, taker, pools[1:]
        return self._seen[1:]

    def step(self, used: int, marked: int = 0, waiting: int = 0) -> tuple[Shift, ...]:
        taker, givers = self._pools(used, marked, waiting)
        moving = int(self.now_s < self.busy_until_s)
        self.watch, made = plan(self.watch, self.past, taker, givers, self.lent, moving, self.now_s, self.policy)
        for shift in made:
            assert shift.count > 0
            self.hosts[shift.source] -= shift.count
            self.hosts[shift.destination] += shift.count
            other, sign = (shift.source, 1) if shift.destination == "services" else (shift.destination, -1)
            self.lent[other] += sign * shift.count
            self.shifts.append((self.now_s, shift))
            self.past.append(PastShift(self.now_s, shift.count, is_return=shift.rule is MoverRule.SPARE))
            del self.past[:-100]
        if made:
            self._seen = None
            self.busy_until_s = self.now_s + self.drain_s
        self.now_s += STEP_S
        return made

    def run(self, hours: float, used: int, marked: int = 0) -> list[tuple[float, Shift]]:
        begun = len(self.shifts)
        for _ in range(int(hours * 3_600 / STEP_S)):
            self.step(used, marked)
        return self.shifts[begun:]


def day(services: int = 10, batch: int = 20, spare: int = 5, **policy: int) -> Day:
    hosts = {"services": services, "batch": batch, "spare": spare}
    return Day(hosts, {"services": 10, "batch": 4, "spare": 0}, 90.0, replace(POLICY, **policy))


def test_a_spike_takes_hosts_and_gives_them_back() -> None:
    """A spike moves hosts up to the target, with the numbers; they return when the load has been low for long."""
    found = day()

    up = found.run(2, used=13_000)
    assert Shift("batch", "services", 5, MoverRule.LOAD, 13_000, 10_000) == up[0][1]
    assert 60.0 <= up[0][0] <= 90.0
    assert {"services": 20, "batch": 10, "spare": 5} == found.hosts

    assert [] == found.run(2, used=12_900)
    down = found.run(3, used=5_000)
    assert {MoverRule.SPARE} == {shift.rule for _, shift in down}
    assert down[0][0] >= 4 * 3_600 + POLICY.return_after_s
    assert {"services": 10, "batch": 20, "spare": 5} == found.hosts


def test_pods_that_wait_and_red_hosts_are_urgent() -> None:
    """Waiting pods and red hosts are served after a quarter of a minute, other demand after a whole one."""
    waiting, marked = day(), day()
    while not waiting.step(5_000, waiting=2) and waiting.now_s < 900:
        pass
    while not marked.step(5_000, marked=4) and marked.now_s < 900:
        pass

    assert [(30.0, 2, MoverRule.WAITING)] == [(at, one.count, one.rule) for at, one in waiting.shifts]
    assert [(60.0, 1, MoverRule.MARKS)] == [(at, one.count, one.rule) for at, one in marked.shifts]


def test_services_that_answer_slowly_take_hosts() -> None:
    """Slow services receive hosts one at a time, and only as long as their hosts are well used: idle ones would not
    help.
    """
    policy, pools = replace(POLICY, take_after_red_s=0.0), [HostPoolLoad("batch", 5, 0)]

    def find_lacks(used: int) -> list[tuple[int, MoverRule]]:
        taker = HostPoolLoad("services", 10, 0, used, SIZE, slow_count=2)
        return [(one.count, one.rule) for one in plan(TakerState(), (), taker, pools, {}, 0, 0.0, policy)[1]]

    assert [(1, MoverRule.LATENCY)] == find_lacks(used=6_600)
    assert [] == find_lacks(used=6_500)


def test_a_short_peak_moves_nothing() -> None:
    """A peak that does not last moves no host."""
    found = day()
    for _ in range(50):
        found.run(30 / 3_600, used=9_900)
        found.run(30 / 3_600, used=5_000)

    assert [] == found.shifts


def test_who_gave_back_too_early_waits_twice_as_long() -> None:
    """A pool that returned hosts too early waits twice as long, so that a recurring load costs fewer and fewer
    moves.
    """
    found = day()
    for _ in range(20):
        found.run(0.4, used=13_000)
        found.run(0.4, used=5_000)

    days = [at_s for at_s, shift in found.shifts if shift.destination != "services"]
    assert len([at_s for at_s in days if at_s > 8 * 3_600]) < len([at_s for at_s in days if at_s <= 8 * 3_600])
    assert return_delay_s(found.past, POLICY) > POLICY.return_after_s


def test_a_host_pool_below_its_minimum_fetches_hosts() -> None:
    """A host pool below its minimum receives hosts without any demand, after the time of a load that lasts, with its
    numbers.
    """
    found = day(services=7)

    found.run(0.5, used=0)

    (at_s, shift), *others = found.shifts
    assert (60.0, Shift("batch", "services", 3, MoverRule.MINIMUM, 7, 10), []) == (at_s, shift, others)
    assert "services has 7 hosts, fewer than its minimum of 10" == shift_text(shift, POLICY)


def test_one_that_gives_hosts_takes_some_only_below_its_minimum() -> None:
    """A giver receives hosts only below its minimum, however high its load and demand; hosts that it has borrowed
    return when it has enough again.
    """
    busy = HostPoolLoad("batch", 4, 4, 9_999, SIZE, marked_count=4, red_count=4, waiting_count=9, takes=False)
    spare, owing = HostPoolLoad("spare", 5, 2, takes=False), HostPoolLoad("services", 3, 2)

    def plan_one(pool: HostPoolLoad, lent: dict[str, int]) -> tuple[Shift, ...]:
        at_once = replace(POLICY, take_after_s=0.0, take_after_red_s=0.0, return_after_s=0.0)
        return plan(TakerState(), (), pool, [owing, spare], lent, 0, 0.0, at_once)[1]

    assert () == plan_one(busy, {})
    assert [("services", 1), ("spare", 1)] == [
        (one.source, one.count) for one in plan_one(replace(busy, host_count=2), {})
    ]
    assert (Shift("batch", "spare", 1, MoverRule.SPARE, 6, 5),) == plan_one(replace(busy, host_count=6), {"spare": 1})
    assert () == plan_one(replace(busy, host_count=6), {}), "nobody has lent it any"


def test_the_budget_of_an_hour_is_what_has_moved() -> None:
    """Moves by any actor count in the budget of an hour, which is computed from the log alone. Hosts that were not
    moved in the end count once.
    """
    now_ns, why = 10_000 * NS_PER_S, "why"

    def make_shift(rule: MoverRule, source: str, destination: str, ago_s: int, count: int) -> Made:
        hosts = tuple(Hostname(f"h{at}") for at in range(count))
        return Made(source, destination, rule, why, hosts, now_ns - ago_s * NS_PER_S)

    log = [
        make_shift(MoverRule.STUCK, "batch", "services", 100, 4),
        make_shift(MoverRule.WAITING, "batch", "web", 200, 5),
        make_shift(MoverRule.SPARE, "services", "batch", 300, 3),
        make_shift(MoverRule.LOAD, "batch", "services", 3_599, 4),
        make_shift(MoverRule.LOAD, "batch", "services", 3_600, 5),
    ]
    past = list_past("services", log, now_ns, 50.0)
    assert [PastShift(-3_550.0, 5, False), PastShift(-3_549.0, 4, False), PastShift(-250.0, 3, True)] == list(past)

    def count(hosts_per_hour: int) -> int:
        policy = replace(POLICY, hosts_per_hour=hosts_per_hour, take_after_red_s=0.0)
        taker = HostPoolLoad("services", 10, 0, waiting_count=9)
        shifts = plan(TakerState(), past, taker, [HostPoolLoad("batch", 20, 0)], {}, 0, 50.0, policy)[1]
        return sum(shift.count for shift in shifts)

    assert [0, 0, 1, 2, 5] == [count(hosts) for hosts in (5, 7, 8, 9, 30)]


POLICIES = st.builds(
    MoverPolicy,
    high_percent=st.integers(70, 95),
    target_percent=st.integers(30, 69),
    hosts_at_a_time=st.integers(1, 8),
    hosts_per_hour=st.integers(1, 40),
)


@given(
    st.integers(1, 30), st.integers(0, 40), st.integers(0, 10), st.lists(st.integers(0, 40_000), max_size=6),
    st.integers(0, 600), POLICIES,
)  # fmt: skip
def test_properties(services: int, batch: int, spare: int, loads: list[int], drain_s: int, policy: MoverPolicy) -> None:
    """A host pool never falls below its minimum, no more hosts are returned than were lent, no budget is exceeded, no
    move is decided while hosts move; and at the last load everything comes to rest.
    """
    minimum = {"services": min(services, 3), "batch": min(batch, 4), "spare": 0}
    found = Day({"services": services, "batch": batch, "spare": spare}, minimum, float(drain_s), policy)
    total = sum(found.hosts.values())
    for used in loads:
        for _ in range(60):
            found.step(used)
            assert all(found.hosts[name] >= least for name, least in minimum.items())
            assert all(count >= 0 for count in found.lent.values())
            assert total == sum(found.hosts.values())
    last = loads[-1] if loads else 0
    found.run(90, last)
    assert [] == found.run(12, last)

    times = [at_s for at_s, shift in found.shifts for _ in range(shift.count)]
    for begin, at_s in enumerate(times):
        assert sum(1 for other in times[begin:] if other - at_s < 3_600) <= policy.hosts_per_hour
    counts = Counter(at_s for at_s in times)
    assert not counts or max(counts.values()) <= policy.hosts_at_a_time
    decided = sorted(counts)
    assert all(later - earlier >= drain_s for earlier, later in pairwise(decided))
