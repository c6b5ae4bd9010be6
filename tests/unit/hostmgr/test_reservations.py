"""A host is reserved for a pod that has waited for long and fits on none now."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from peloton.hosts.reservations import ASKED_AGAIN_S
from peloton.lifecycle.reason_text import placement_text
from peloton.lifecycle.reservation import NAMED_MAX, limit_reserved, waiting_pods
from peloton.model.host import ComingBack, Desired, HostState, ReadyGang
from peloton.model.ids import Hostname, JobId
from peloton.model.maintenance import HostMaintenance
from peloton.model.pod import HostLabel, PodShape
from peloton.model.reservation import WaitingPod
from peloton.model.resources import Resources
from services.hostmgr.messages import (
    lease_from_wire,
    lease_to_wire,
    waiting_from_wire,
    waiting_to_wire,
)
from tests.nightly import examples
from tests.unit.hostmgr.reserving import AFTER_S, KEEP_S, World
from tests.unit.hostmgr.test_hosts import JOB, OTHER, THIRD, refusals_of, shape

LARGE, SMALL = shape(4), shape(1)
POLL_PERIOD_S = 20.0


def full(**cpus: float) -> World:
    """Fill the hosts with batch pods of one cpu, less one pod each."""
    world = World(**cpus)
    instance = 0
    for name, cpu in cpus.items():
        for _ in range(int(cpu) - 1):
            world.put(THIRD, instance, name, SMALL.resources)
            instance += 1
    return world


def waits(world: World, job: JobId = JOB, wanted: PodShape = LARGE) -> None:
    """Look for hosts until the pod of the job has waited for long enough."""
    world.look(job, [wanted])
    world.wait(AFTER_S)
    world.look(job, [wanted])


def test_a_stream_of_small_pods_does_not_starve_a_large_one() -> None:
    """Small pods take all resources that others free, except on the reserved host."""
    world, random = full(a=4, b=4), Random(1)
    running = sorted(world.pods)
    for turn in range(100):
        world.end(running.pop(random.randrange(len(running))))
        world.look(OTHER, [SMALL] * (8 + turn))  # more of them wait than are ended
        running = sorted(pod for pod in world.pods if pod.job_id != JOB)
        world.look(JOB, [LARGE])
        if any(pod.job_id == JOB for pod in world.pods):
            break
        world.wait(POLL_PERIOD_S)

    assert [JOB] == [pod.job_id for pod in world.pods if pod.job_id == JOB]
    assert {} == world.reserved


def test_the_host_is_the_one_where_the_smallest_part_has_to_end() -> None:
    """Pods of services stay, and leaving pods count as gone; the reason has the numbers."""
    world = full(a=4, b=8, c=8)
    world.services.add(OTHER)
    world.put(OTHER, 0, "b", SMALL.resources)
    world.leaving = {pod for pod, (host, _) in world.pods.items() if host == "c" and pod.instance_id % 2}

    waits(world)

    assert {JOB: "c"} == world.reserved
    [shown] = [host.reserved for host in world.cache.hosts() if host.reserved]
    assert f"for pod {JOB}-0 since 1970-01-01 00:02:00, until 00:32:00 UTC" in shown

    again = full(a=4, b=8)
    waits(again)
    [shown] = [host.reserved for host in again.cache.hosts() if host.reserved]
    assert {JOB: "b"} == again.reserved
    assert shown.endswith("cpu 3 of 7 that batch pods hold there has to end, the smallest part on 2 hosts")


def test_others_get_only_what_is_free_beyond_the_reserved_pod() -> None:
    """A pod that fits next to it is no loss; the reasons name the pod of the reservation and its time."""
    world = full(a=8)
    waits(world)
    for pod in sorted(world.pods)[:2]:
        world.end(pod)

    lease, _ = world.look(OTHER, [SMALL])
    assert {f"reserved for pod {JOB}-0": 1} == refusals_of(lease)
    _, batch = world.look(JOB, [LARGE, SMALL])
    reserved = "1 host: reserved for it since 1970-01-01 00:02:00, until 00:32:00 UTC"
    reported = f"{reserved}, not enough free resources yet, 1 cpu short: a"
    assert reported in placement_text(batch.why)

    for pod in sorted(world.pods)[:2]:
        world.end(pod)
    lease, _ = world.look(OTHER, [SMALL])
    assert [1_000] == [host.free.cpu_milli for host in lease.hosts]


def test_the_pod_goes_to_its_host_before_others_of_its_job() -> None:
    """The pod is placed first although others come before it; the reservation is over then."""
    world = full(a=4)
    first = [SMALL, LARGE]
    world.put(JOB, 0, "a", SMALL.resources)
    world.look(JOB, first)
    world.wait(AFTER_S)
    world.look(JOB, first)
    assert {JOB: "a"} == world.reserved
    for pod in sorted(world.pods):
        world.end(pod)

    world.look(JOB, first)

    assert [1] == [pod.instance_id for pod in world.pods]
    assert {} == world.reserved
    assert f"Reservation ended after 0 s: pod {JOB}-1 is launched here" == world.events[-1].text


def test_a_pod_for_which_a_host_is_reserved_has_not_failed() -> None:
    """Other pods of its shape count as failed placements; the pod may be placed elsewhere meanwhile."""
    world = full(a=4, b=4)
    world.look(JOB, [LARGE] * 3)
    world.wait(AFTER_S)
    lease, batch = world.look(JOB, [LARGE] * 3)

    assert ((0,), [(1, 2)]) == (batch.reserved, [one.instances for one in batch.unplaced])
    assert lease == lease_from_wire(lease_to_wire(lease, [LARGE]), [LARGE])
    elsewhere = {"a": "b", "b": "a"}[world.reserved[JOB]]
    for pod in [pod for pod, (host, _) in world.pods.items() if host == elsewhere]:
        world.end(pod)
    world.look(JOB, [LARGE])
    assert ([elsewhere], {}) == ([host for pod, (host, _) in world.pods.items() if pod.job_id == JOB], world.reserved)
    assert f"Reservation ended after 0 s: pod {JOB}-0 is launched on {elsewhere}" == world.events[-1].text


def test_a_pod_that_comes_back_finds_its_resources_on_a_reserved_host() -> None:
    """Held resources have priority over a reservation: an update in place is not delayed."""
    world = full(a=4)
    waits(world)
    [*_, last] = sorted(world.pods)
    world.cache.hold([ComingBack(OTHER, 0, Hostname("a"), SMALL.resources, 0)], world.now_s)
    world.end(last)
    world.size[Hostname("a")] = Resources.of(3, 10_000)  # the one cpu that was free is gone
    world.announce(Hostname("a"))

    lease = world.cache.acquire(OTHER, [(SMALL, 1)], world.now_s, desired=[Desired(0, Hostname("a"), SMALL)])

    assert [("a", 1_000)] == [(host.hostname, host.free.cpu_milli) for host in lease.hosts]


def test_none_is_reserved_where_waiting_does_not_help() -> None:
    """Services do not end, a pod that no host could take waits for none, and slack is measured; nor for a pod that
    has not waited for long, unless no host was found for it before."""
    services = full(a=4)
    services.services.add(THIRD)
    waits(services)
    hopeless, revocable, young = full(a=4), full(a=4), full(a=4)
    waits(hopeless, wanted=shape(5))
    waits(revocable, wanted=shape(4, revocable=True))
    young.look(JOB, [LARGE])
    young.wait(AFTER_S - 1)
    young.look(JOB, [LARGE])

    assert [{}] * 4 == [world.reserved for world in (services, hopeless, revocable, young)]
    young.look(JOB, [LARGE], vain_count=1)
    assert {JOB: "a"} == young.reserved


def test_a_host_that_does_not_suit_is_not_reserved() -> None:
    """Labels, maintenance, or held resources exclude the host."""
    world = full(a=4, b=4, c=4)
    world.cache.set_maintained([HostMaintenance("", Hostname("a"), HostState.UP, HostState.DOWN)])
    world.cache.hold([ComingBack(OTHER, 0, Hostname("b"), SMALL.resources, 1_000)], 0.0)
    waits(world)
    assert {JOB: "c"} == world.reserved

    other = full(a=4, b=4)
    waits(other, wanted=shape(4, constraint=HostLabel("hostname", "b")))
    assert {JOB: "b"} == other.reserved


def test_a_few_hosts_are_reserved_at_a_time() -> None:
    """A job has one reservation, and a small cluster one in all."""
    world = full(a=4, b=4)
    world.look(OTHER, [LARGE])
    waits(world)
    world.wait(1)
    world.look(OTHER, [LARGE])
    assert [JOB] == list(world.reserved)
    assert [1, 1, 2, 8, 8] == [limit_reserved(count) for count in (1, 19, 20, 80, 50_000)]


def test_a_reservation_is_given_back_in_time() -> None:
    """Other jobs are woken for the resources at once, and the pod waits as long until it has another reservation."""
    world = full(a=4)
    waits(world)
    world.look(OTHER, [LARGE])
    for _ in range(int(KEEP_S / POLL_PERIOD_S) - 1):
        world.wait(POLL_PERIOD_S)
        world.look(JOB, [LARGE])
    assert {JOB: "a"} == world.reserved

    world.now_s += POLL_PERIOD_S
    assert OTHER in world.reserver.review(world.now_s)

    assert ({}, "") == (world.reserved, "".join(host.reserved for host in world.cache.hosts()))
    world.look(JOB, [LARGE])
    assert {} == world.reserved
    (made, over) = world.events
    assert ("RESERVED", "GIVEN_BACK") == (made.kind, over.kind)
    assert made.text.startswith(f"Reserved for pod {JOB}-0 since ")
    assert KEEP_S * 10**9 == made.until_ns - made.at_ns
    assert f"Reservation expired after 30 min: not enough resources became free for pod {JOB}-0" == over.text
    world.wait(KEEP_S)
    world.look(JOB, [LARGE])
    assert {JOB: "a"} == world.reserved


def test_a_reservation_ends_with_the_wait_of_its_pod() -> None:
    """The reservation ends when the job looks for hosts without the pod, or no longer looks."""
    world = full(a=4)
    waits(world)
    world.wait(ASKED_AGAIN_S - 1)
    assert {JOB: "a"} == world.reserved
    world.wait(1)
    assert {} == world.reserved
    assert world.events[-1].text.endswith(f": pod {JOB}-0 no longer waits, or no longer fits the host")

    world.look(JOB, [LARGE])
    assert {JOB: "a"} == world.reserved
    world.cache.acquire(JOB, [(LARGE, 1)], world.now_s)
    assert {} == world.reserved
    assert ["RESERVED", "GIVEN_BACK"] * 2 == [event.kind for event in world.events]


def test_a_reservation_ends_with_its_host() -> None:
    """The reservation ends when the host leaves the cluster or is in maintenance; the next attempt chooses another."""
    world = full(a=4, b=4)
    waits(world)
    world.register([Hostname("b")])
    world.wait(1)
    assert {} == world.reserved
    world.look(JOB, [LARGE])
    assert {JOB: "b"} == world.reserved
    world.cache.set_maintained([HostMaintenance("", Hostname("b"), HostState.DRAINING, HostState.DOWN)])
    world.wait(1)
    assert {} == world.reserved


def test_pods_that_have_waited_are_named_on_the_wire() -> None:
    """The longest first, a bounded number of them; members of gangs have a way of their own."""
    gangs = [ReadyGang(SMALL, ((i, 1),), waited_s=float(i)) for i in range(NAMED_MAX + 50)]
    gangs += [ReadyGang(LARGE, ((500, 1), (501, 1)), waited_s=1e9), ReadyGang(LARGE, ((600, 1),), vain_count=2)]

    found = waiting_pods(gangs)

    assert ([600, 149], NAMED_MAX) == ([pod.instance_id for pod in found[:2]], len(found))
    assert list(found) == waiting_from_wire(waiting_to_wire(found, [SMALL, LARGE]), [SMALL, LARGE])
    assert WaitingPod(600, LARGE, 0.0, 2) == found[0]


JOBS = [JobId(f"job{number}") for number in range(4)]
ACTS = st.one_of(
    st.tuples(st.just("look"), st.sampled_from(JOBS), st.lists(st.sampled_from([1.0, 2.0, 4.0, 6.0]), max_size=4)),
    st.tuples(st.just("end"), st.integers(0, 50), st.just(None)),
    st.tuples(st.just("wait"), st.sampled_from([1.0, 30.0, 125.0, 900.0]), st.just(None)),
    st.tuples(st.just("register"), st.sets(st.sampled_from("abc")), st.just(None)),
    st.tuples(st.just("maintain"), st.sets(st.sampled_from("abc")), st.just(None)),
    st.tuples(st.just("hold"), st.sampled_from("abc"), st.integers(1, 4)),
)


def act(world: World, what: str, on: Any, more: Any) -> None:
    match what:
        case "look":
            world.look(on, [shape(cpu) for cpu in more])
        case "end" if world.pods:
            world.end(sorted(world.pods)[on % len(world.pods)])
        case "wait":
            world.wait(on)
        case "register":
            world.register([Hostname(name) for name in on])
        case "maintain":
            world.cache.set_maintained(
                HostMaintenance("", Hostname(n), HostState.DRAINING, HostState.DOWN) for n in sorted(on)
            )
        case "hold":
            amounts = Resources.of(more, 1)
            world.cache.hold([ComingBack(JobId("service"), more, Hostname(on), amounts, 0)], world.now_s)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(ACTS, max_size=40))
def test_a_reservation_never_leaks(acts: Sequence[tuple[str, Any, Any]]) -> None:
    """Whatever happens: few at a time, one for a host and a job, none longer than its time, and none in the end; nor is
    a host ever overcommitted."""
    world = World(a=6, b=4, c=4)
    since_s: dict[tuple[JobId, str], float] = {}
    for what, on, more in acts:
        act(world, what, on, more)
        kept = world.reserved
        since_s = {one: since_s.get(one, world.now_s) for one in kept.items()}
        assert len(kept) == len({*kept.values()}) <= limit_reserved(3)
        if what == "wait":
            assert all(world.now_s - begun_s < KEEP_S for begun_s in since_s.values())
        for name, size in world.size.items():
            held = [amounts for host, amounts in world.pods.values() if host == name]
            assert sum(held, Resources()).fits_in(size)

    world.wait(KEEP_S)

    table = world.cache._state.table
    assert ({}, set()) == (world.reserved, {*table.find_kept_hosts()} - {*table.holds.hostnames()})
