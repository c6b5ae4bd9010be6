"""A lease looks at kinds of hosts; it takes the same hosts as a look at each host would."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from peloton.lifecycle.constraints import pod_labels_named
from peloton.model.host import POD_SLOTS_UNLIMITED, ComingBack, HostState
from peloton.model.ids import Hostname, JobId
from peloton.model.maintenance import HostMaintenance
from peloton.model.pod import AllOf, HostLabel, PodLabel, PodShape, Strategy
from peloton.model.reason import Misfit, RefusingHosts, merged
from peloton.model.resources import Resources, free_share
from peloton.scheduling import fit
from services.hostmgr.driver import Room
from services.hostmgr.hosts.host_chooser import LEASED
from services.hostmgr.hosts.pool import HostPool
from tests.unit.hostmgr.test_hosts import JOB, OTHER, agent, pool_with, room, shape

NAMES = [f"h{number}" for number in range(8)]
RACK_B, ON_H3 = HostLabel("rack", "b"), HostLabel("hostname", "h3")
ALONE = PodLabel("app", "web", "<", 1)
SHAPES = st.builds(
    shape,
    st.sampled_from([0.5, 1.0, 2.0, 4.0]),
    port_count=st.sampled_from([0, 0, 6]),
    revocable=st.booleans(),
    strategy=st.sampled_from(Strategy),
    constraint=st.sampled_from([None, None, RACK_B, ON_H3, ALONE, AllOf((RACK_B, ALONE))]),
)
ROOMS = st.builds(
    room,
    st.sampled_from(NAMES),
    cpus=st.sampled_from([0.5, 1.0, 4.0]),
    revocable=st.sampled_from([0, 2.0]),
    rack=st.sampled_from("ab"),
    number=st.integers(1, 2),
    slots=st.sampled_from([POD_SLOTS_UNLIMITED, POD_SLOTS_UNLIMITED, 0, 1, 2]),
)
ACTS = st.one_of(
    st.tuples(st.just("room"), ROOMS),
    st.tuples(st.just("take back"), st.sampled_from([f"{name}-O{number}" for name in NAMES for number in (1, 2)])),
    st.tuples(st.just("return"), st.sampled_from(NAMES)),
    st.tuples(st.just("lease"), st.tuples(SHAPES, st.integers(1, 5))),
    st.tuples(st.just("claim"), st.sampled_from(NAMES)),
    st.tuples(st.just("close"), st.sets(st.sampled_from(NAMES))),
    st.tuples(st.just("maintain"), st.dictionaries(st.sampled_from(NAMES), st.booleans())),
    st.tuples(st.just("hold"), st.sampled_from(NAMES)),
    st.tuples(st.just("label"), st.sampled_from(NAMES)),
)


def act(pool: HostPool, what: str, on: Any) -> None:
    match what:
        case "room":
            pool.add_room([on])
        case "take back":
            pool.remove_room([on])
        case "return":
            for number in (1, 2):
                pool.remove_room([f"{on}-O{number}"])
            pool.set_hosts([agent(name, 2_000, 0) for name in NAMES if name != on])
            pool.set_hosts([agent(name, 2_000, 0) for name in NAMES])
            pool.add_room([room(on)])
        case "lease":
            pool.acquire(OTHER, [on], 0.0)
        case "claim":
            lease = pool.acquire(OTHER, [(shape(0.5), 2)], 0.0)
            pool.claim(lease.lease_id, [on])
        case "close":
            pool.close_to_revocable(dict.fromkeys(on, 0))
        case "maintain":
            pool.set_maintained(maintained(name, is_away) for name, is_away in on.items())
        case "hold":
            pool.hold([ComingBack(OTHER, 0, on, Resources(1_000), 0)], 0.0)
        case "label":
            pool.pods_launched(OTHER, [(NAMES.index(on), 0, on, (("app", "web"),))])


def maintained(name: str, is_away: bool) -> HostMaintenance:
    return HostMaintenance(
        "", Hostname(name), HostState.DRAINING if is_away else HostState.UP, HostState.DOWN, drained_from_ns=is_away
    )


def scanned(pool: HostPool, wanted: PodShape, count: int) -> tuple[list[str], tuple[RefusingHosts, ...]]:
    """The hosts that a look at each host in its order takes, and why the others were not, should they be too few."""
    chooser: Any = pool._chooser
    hosts = list(chooser.table.rooms.hosts.values())
    if wanted.strategy is Strategy.EMPTIEST_HOST:
        share = {h.hostname: free_share(h.free, chooser.table.capacity_of(h.hostname), wanted.resources) for h in hosts}
        hosts.sort(key=lambda host: (host.hostname in chooser.table.maintained, -share[host.hostname], host.hostname))
    else:
        hosts.sort(key=lambda host: host.hostname in chooser.table.maintained)
    taken: list[str] = []
    refused: list[tuple[Misfit, int]] = []
    is_one_each = wanted.strategy is not Strategy.PACK_HOST or bool(pod_labels_named(wanted.constraint))
    for host in hosts:
        if count <= 0:
            return taken, ()
        reason = LEASED if host.lease_id else chooser._misfit(host, wanted, frozenset())
        if reason:
            refused.append((reason, 1))
            continue
        taken.append(host.hostname)
        count -= 1 if is_one_each else fit.room(wanted, chooser._as_seen(host, frozenset()).view)
    return taken, merged(refused) if count > 0 else ()


@given(st.lists(ROOMS, max_size=8), st.lists(ACTS, max_size=12), SHAPES, st.integers(1, 12))
@example([], [("hold", Hostname("h0")), ("room", room("h0", cpus=0.5, number=1))], shape(1), 1)
def test_a_lease_takes_what_a_scan_of_all_hosts_takes(
    rooms: list[Room], acts: list[tuple[str, Any]], wanted: PodShape, count: int
) -> None:
    """The same hosts in the same order, and the same reasons when they are too few, whatever happened before."""
    pool = pool_with(*rooms)
    pool.set_hosts([agent(name, 2_000, 0) for name in NAMES])
    for what, on in acts:
        act(pool, what, on)
    hosts, reasons = scanned(pool, wanted, count)

    lease = pool.acquire(JOB, [(wanted, count)], 0.0)

    assert (hosts, reasons) == ([host.hostname for host in lease.hosts], lease.refused.get(wanted, ()))


def test_hosts_that_differ_in_the_number_of_pod_slots_are_of_one_kind() -> None:
    """Those without any are of another."""
    pool = pool_with(*(room(name, slots=slots) for slots, name in enumerate(NAMES)))

    kinds = [list(each.members) for each in pool._table.rooms.ready.classes()]

    assert [NAMES[:1], NAMES[1:]] == kinds


def test_a_host_that_was_away_is_leased_once() -> None:
    """It counts for itself alone, behind those that stayed, and a lease of more hosts gets the others."""
    pool = pool_with(room("h1"), room("h2"))
    pool.remove_room(["h1-O1"])
    pool.set_hosts([agent("h2", 0, 0)])
    pool.add_room([room("h1"), room("h3")])

    lease = pool.acquire(JOB, [(shape(4), 3)], 0.0)

    assert ["h2", "h1", "h3"] == [host.hostname for host in lease.hosts]


def test_hosts_that_come_and_go_leave_nothing_behind() -> None:
    """However often hosts change, what is kept of them stays in proportion to them, and so does the cost of a lease."""
    pool = pool_with(*(room(name) for name in NAMES))
    for turn in range(1_000):
        lease = pool.acquire(JobId(f"job-{turn}"), [(shape(), 32)], 0.0)
        pool.release(lease.lease_id)

    (only,) = pool._table.rooms.ready.classes()
    assert list(only.members) == NAMES
    assert len(only._heap) < 200
    assert [host.hostname for host in pool.acquire(JOB, [(shape(), 8)], 0.0).hosts] == NAMES[:2]
