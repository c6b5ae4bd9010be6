"""A lease evaluates kinds of hosts; it takes the same hosts as an evaluation of each host would."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from peloton.hosts.avoidances import HostAvoidances
from peloton.hosts.host_chooser import LEASED
from peloton.lifecycle.constraints import pod_labels_named
from peloton.model.host import POD_SLOTS_UNLIMITED, ComingBack, HostState
from peloton.model.ids import Hostname, JobId
from peloton.model.maintenance import HostMaintenance
from peloton.model.misfit import Misfit
from peloton.model.pod import AllOf, HostLabel, PodLabel, PodShape, Strategy
from peloton.model.reason import RefusingHosts, merge_misfits
from peloton.model.reservation import HostReservation, SoonestHost
from peloton.model.resources import Resources, compute_needed, free_share
from peloton.scheduling import fit
from services.hostmgr.driver import FreeResources
from services.hostmgr.hosts.host_cache import HostCache
from tests.unit.hostmgr.test_hosts import JOB, OTHER, agent, free_part, pool_with, shape

NAMES = [f"h{number}" for number in range(8)]
RACK_B, ON_H3 = HostLabel("rack", "b"), HostLabel("hostname", "h3")
ALONE = PodLabel("app", "web", "<", 1)
H0_TWICE = [("h0", 1), ("h0", 2), ("h1", 1), ("h2", 1), ("h3", 1)]
"""Two offers of one host: twice the ports of the others."""
SHAPES = st.builds(
    shape,
    st.sampled_from([0.5, 1.0, 2.0, 4.0]),
    port_count=st.sampled_from([0, 0, 6]),
    revocable=st.booleans(),
    strategy=st.sampled_from(Strategy),
    constraint=st.sampled_from([None, None, RACK_B, ON_H3, ALONE, AllOf((RACK_B, ALONE))]),
)
FREE_RESOURCES_OF_HOSTS = st.builds(
    free_part,
    st.sampled_from(NAMES),
    cpus=st.sampled_from([0.5, 1.0, 4.0]),
    revocable=st.sampled_from([0, 2.0]),
    rack=st.sampled_from("ab"),
    number=st.integers(1, 2),
    slots=st.sampled_from([POD_SLOTS_UNLIMITED, POD_SLOTS_UNLIMITED, 0, 1, 2]),
)
BEYOND = st.sampled_from([-1_000, -300, 1, 500])
ACTS = st.one_of(
    st.tuples(st.just("room"), FREE_RESOURCES_OF_HOSTS),
    st.tuples(st.just("take back"), st.sampled_from([f"{name}-O{number}" for name in NAMES for number in (1, 2)])),
    st.tuples(st.just("return"), st.sampled_from(NAMES)),
    st.tuples(st.just("lease"), st.tuples(SHAPES, st.integers(1, 5))),
    st.tuples(st.just("claim"), st.sampled_from(NAMES)),
    st.tuples(st.just("close"), st.sets(st.sampled_from(NAMES))),
    st.tuples(st.just("maintain"), st.dictionaries(st.sampled_from(NAMES), st.booleans())),
    st.tuples(st.just("hold"), st.sampled_from(NAMES)),
    st.tuples(st.just("label"), st.sampled_from(NAMES)),
    st.tuples(st.just("reserve"), st.sampled_from(NAMES)),
    st.tuples(st.just("measure"), st.dictionaries(st.sampled_from(NAMES), st.tuples(BEYOND, BEYOND))),
)


def act(pool: HostCache, what: str, on: Any) -> None:
    match what:
        case "room":
            pool.add_resources([on])
        case "take back":
            pool.remove_resources([on])
        case "return":
            for number in (1, 2):
                pool.remove_resources([f"{on}-O{number}"])
            pool.set_hosts([agent(name, 2_000, 0) for name in NAMES if name != on])
            pool.set_hosts([agent(name, 2_000, 0) for name in NAMES])
            pool.add_resources([free_part(on)])
        case "lease":
            pool.acquire(OTHER, [on], 0.0)
        case "claim":
            lease = pool.acquire(OTHER, [(shape(0.5), 2)], 0.0)
            pool.claim(lease.lease_id, [on])
        case "close":
            pool.close_to_revocable(dict.fromkeys(on, 0))
        case "maintain":
            pool.set_maintained(make_maintenance(name, is_unavailable) for name, is_unavailable in on.items())
        case "hold":
            pool.hold([ComingBack(OTHER, 0, on, Resources(1_000), 0)], 0.0)
        case "reserve":
            pool._state.table.reservations.drop([OTHER])
            host = SoonestHost(Hostname(on), "cpu", 1, 2, 3)
            if pool._state.table.reservations.on(Hostname(on)) is None:
                made = HostReservation(OTHER, 0, shape(2.0), host, 0, 10**12)
                pool._state.table.reservations.add(made, 1_000.0, 0.0)
        case "measure":
            pool.loads.set_measured(on, [Hostname(NAMES[0])])
        case "label":
            pool.pods_launched(OTHER, [(NAMES.index(on), 0, on, (("app", "web"),))])


def make_maintenance(name: str, is_unavailable: bool) -> HostMaintenance:
    return HostMaintenance(
        "",
        Hostname(name),
        HostState.DRAINING if is_unavailable else HostState.UP,
        HostState.DOWN,
        drained_from_ns=is_unavailable,
    )


class Scan:
    """A scan that evaluates one host after the other with ``fit``."""

    def __init__(self, pool: HostCache, wanted: PodShape) -> None:
        chooser: Any = pool._state.chooser
        self.wanted, self.table = wanted, chooser.table
        self.free_resources: dict[str, int] = {}
        self.amounts: dict[str, int] = {}  # pods that fit, whatever the constraint says of other pods there
        self.refused: list[tuple[Misfit, int]] = []
        self.seen = {}
        named = pod_labels_named(wanted.constraint)
        for host in self.table.free_resources.hosts.values():
            reason = LEASED if host.lease_id else chooser.misfit_on(host, wanted, frozenset())
            self.seen[host.hostname] = seen = chooser._as_seen(host, frozenset())
            if reason:
                self.refused.append((reason, 1))
                continue
            most = self.amounts[host.hostname] = fit.count_fits(wanted, seen.view)
            if wanted.constraint is not None and named:
                there = dict(self.table.pod_labels.on_host(host.hostname, named))
                most = fit.count_fits_with(wanted.constraint, host.labels, there, named, most)
            self.free_resources[host.hostname] = most
        self.weights = self.table.free_resources.fleet.weights.tolist()

    def leftover(self, name: str) -> int:
        return sum(have * weight for have, weight in zip(self.seen[name].free, self.weights, strict=True))

    def share(self, name: str, put: int) -> int:
        host = self.seen[name]
        free = fit.free_for(self.wanted, host.view)
        need = compute_needed(self.wanted.resources)
        left = [have - put * amount for have, amount in zip(free, need, strict=True)]
        return free_share(left, self.table.capacity_of(name), need)

    def unused(self, name: str, put: int) -> int:
        """Return the smaller unused part, in millionths, of cpu and memory."""
        fleet, need = self.table.free_resources.fleet, compute_needed(self.wanted.resources)
        free, total = self.seen[name].free, self.table.capacity_of(name)
        cpu, memory = fleet.loads.of(fleet.row_of[name])
        amounts = (
            (free.cpu_milli - put * need.cpu_milli, total.cpu_milli, cpu),
            (free.memory_mib - put * need.memory_mib, total.memory_mib, memory),
        )
        return min(((have - beyond * of // 1000) * 10**6 // of for have, of, beyond in amounts if of), default=10**6)

    def taken(self, count: int) -> list[str]:
        """Return the hosts of a number of pods, in the order of their first pod."""
        placed: list[str] = []
        for is_last in (False, True):
            names = [name for name in self.free_resources if (name in self.table.maintained) == is_last]
            placed += self._laid(names, count - len(placed))
        return list(dict.fromkeys(placed))

    def _laid(self, names: list[str], count: int) -> list[str]:
        order = {name: self.seen[name].order for name in names}
        is_used = {
            name: not self.table.capacity_of(name).fits_in(self.table.free_resources.hosts[name].free) for name in names
        }
        is_used |= dict.fromkeys(self.table.find_kept_hosts(), True)
        put = Counter[str]()
        match self.wanted.strategy:
            case Strategy.PACK_HOST:
                used = sorted((n for n in names if is_used[n]), key=lambda n: (self.leftover(n), order[n]))
                placed = self._list_filled(used, count)
                left = count - len(placed)
                unused = [name for name in names if not is_used[name]]
                unused.sort(key=lambda n: (-min(self.amounts[n], left), self.leftover(n), order[n]))
                return placed + self._list_filled(unused, left)
            case Strategy.DEFRAGMENT:
                return self._list_filled(sorted(names, key=lambda n: (*self._by_gpu(n), order[n])), count)
        for _ in range(count):
            open_hosts = [name for name in names if put[name] < self.free_resources[name]]
            if not open_hosts:
                break
            if self.wanted.strategy is Strategy.SPREAD_JOB:
                put[min(open_hosts, key=lambda n: (put[n], order[n]))] += 1
            elif self.wanted.strategy is Strategy.LEAST_LOADED:
                put[min(open_hosts, key=lambda n: (-self.unused(n, put[n]), n))] += 1
            else:
                put[min(open_hosts, key=lambda n: (-self.share(n, put[n]), n))] += 1
        return list(put.elements())

    def _by_gpu(self, name: str) -> tuple[int, ...]:
        cpu, memory, disk, gpu = self.seen[name].free
        return gpu, cpu, memory, disk

    def _list_filled(self, names: list[str], count: int) -> list[str]:
        every = [name for name in names for _ in range(self.free_resources[name])]
        return every[: max(count, 0)]


def scan_pool(pool: HostCache, wanted: PodShape, count: int) -> tuple[set[str], tuple[RefusingHosts, ...]]:
    """Return the hosts that a scan takes, and the reasons for the others if they are too few."""
    scan = Scan(pool, wanted)
    return set(scan.taken(count)), merge_misfits(scan.refused) if sum(scan.free_resources.values()) < count else ()


@given(st.lists(FREE_RESOURCES_OF_HOSTS, max_size=8), st.lists(ACTS, max_size=12), SHAPES, st.integers(1, 12))
@example([], [("hold", Hostname("h0")), ("room", free_part("h0", cpus=0.5, number=1))], shape(1), 1)
@example([], [("return", "h0")] * 3, shape(0.5), 1)
@example([], [("room", free_part("h2", cpus=0.5, slots=0)), ("reserve", "h2")], shape(0.5), 1)
@example([free_part(name, number=n) for name, n in H0_TWICE], [], shape(0.5, port_count=6, constraint=ALONE), 3)
def test_a_lease_takes_what_a_scan_of_all_hosts_takes(
    free_resources: list[FreeResources], acts: list[tuple[str, Any]], wanted: PodShape, count: int
) -> None:
    """The hosts are the same, and so are the reasons when they are too few, after any history."""
    pool = pool_with(*free_resources)
    pool.set_hosts([agent(name, 2_000, 0) for name in NAMES])
    for what, on in acts:
        act(pool, what, on)
    pool._state.avoidances = HostAvoidances(lambda: len(NAMES))  # no host is avoided for having been gone
    hosts, reasons = scan_pool(pool, wanted, count)

    lease = pool.acquire(JOB, [(wanted, count)], 0.0)

    assert (hosts, reasons) == ({host.hostname for host in lease.hosts}, lease.refused.get(wanted, ()))


def test_a_host_that_was_away_is_leased_once() -> None:
    """The host is its own kind, after the hosts that stayed, and a lease of more hosts takes all of them."""
    pool = pool_with(free_part("h1"), free_part("h2"))
    pool.remove_resources(["h1-O1"])
    pool.set_hosts([agent("h2", 0, 0)])
    pool.add_resources([free_part("h1"), free_part("h3")])

    lease = pool.acquire(JOB, [(shape(4), 3)], 0.0)

    assert ["h2", "h1", "h3"] == [host.hostname for host in lease.hosts]


def test_hosts_that_come_and_go_leave_nothing_behind() -> None:
    """The records kept of hosts, and so the cost of a lease, stay proportional to the hosts,
    however often they change.
    """
    pool = pool_with(*(free_part(name) for name in NAMES))
    for turn in range(1_000):
        lease = pool.acquire(JobId(f"job-{turn}"), [(shape(), 32)], 0.0)
        pool.release(lease.lease_id)

    fleet = pool._state.table.free_resources.fleet
    assert (len(NAMES), len(NAMES), 0) == (len(fleet), len(fleet.names), fleet.mark)
    assert [host.hostname for host in pool.acquire(JOB, [(shape(), 8)], 0.0).hosts] == NAMES[:2]
