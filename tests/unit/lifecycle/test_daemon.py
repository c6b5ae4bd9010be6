"""Instances of a daemon that follow its hosts."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from peloton.lifecycle.daemon import KEPT_S, FollowPlan, choose_evictions, follow_hosts
from peloton.model.daemon import Neighbour, Seat
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.resources import Resources
from peloton.model.times import NS_PER_S

NOW = 1_700_000_000 * NS_PER_S
KEPT_NS = KEPT_S * NS_PER_S
HERE, THERE = "here", "there"


def hosts(*names: str) -> list[Hostname]:
    return [Hostname(name) for name in names]


def a_seat(instance: int, host: str, gone_ns: int = 0, cluster: str = HERE, is_wanted: bool | None = None) -> Seat:
    return Seat(instance, Hostname(host), cluster, gone_ns, not gone_ns if is_wanted is None else is_wanted)


def test_each_host_that_matches_gets_an_instance() -> None:
    """Each host without an instance receives one, in order of names."""
    plan = follow_hosts(HERE, hosts("c", "a", "b"), [a_seat(0, "b")], NOW)
    assert FollowPlan(fresh=tuple(hosts("a", "c"))) == plan


def test_the_instance_of_a_host_that_leaves_ends() -> None:
    """The instance of a host that left is ended once: an instance of a host known to be gone is not changed."""
    assert FollowPlan(gone=(1,)) == follow_hosts(HERE, hosts("a"), [a_seat(0, "a"), a_seat(1, "b")], NOW)
    assert FollowPlan() == follow_hosts(HERE, hosts("a"), [a_seat(0, "a"), a_seat(1, "b", NOW - 1)], NOW)


def test_an_instance_that_a_start_of_the_job_revived_ends_again() -> None:
    """A start of the job revives the instance of a host that is still gone: it ends again."""
    seats = [a_seat(0, "a", NOW - 1, is_wanted=True)]
    assert FollowPlan(gone=(0,)) == follow_hosts(HERE, [], seats, NOW)


def test_a_host_that_comes_back_has_its_instance() -> None:
    """A host that comes back has its instance again, also after a long time, and from another cluster."""
    seats = [a_seat(0, "a", NOW - 2 * KEPT_NS), a_seat(1, "b", NOW - 1, THERE)]
    assert FollowPlan(back=(0, 1)) == follow_hosts(HERE, hosts("a", "b"), seats, NOW)


def test_an_instance_that_people_stopped_stays_so() -> None:
    """A stopped instance remains stopped while its host does not change."""
    assert FollowPlan() == follow_hosts(HERE, hosts("a"), [a_seat(0, "a", is_wanted=False)], NOW)


def test_hosts_of_other_clusters_are_left_to_their_own() -> None:
    """A list of one cluster's hosts says nothing about the hosts of another."""
    assert FollowPlan() == follow_hosts(HERE, [], [a_seat(0, "a", cluster=THERE)], NOW)


def test_the_instance_of_a_host_that_is_long_gone_goes_to_a_new_one() -> None:
    """The instance of a host that is gone for the kept time is assigned to a new host, and not earlier."""
    seats = [a_seat(0, "old", NOW - KEPT_NS)]
    assert FollowPlan(taken=((0, Hostname("new")),)) == follow_hosts(HERE, hosts("new"), seats, NOW)
    assert FollowPlan(fresh=tuple(hosts("new"))) == follow_hosts(HERE, hosts("new"), seats, NOW - 1)


def test_a_plan_is_bounded_and_says_that_there_is_more() -> None:
    """Instances that end come first; created instances come last, and have a bound of their own."""
    seats = [a_seat(0, "x"), a_seat(1, "a", NOW - 1)]
    plan = follow_hosts(HERE, hosts("a", "b", "c"), seats, NOW, 3, 1)
    assert FollowPlan(gone=(0,), back=(1,), fresh=tuple(hosts("b")), more=True) == plan
    assert FollowPlan(gone=(0,), more=True) == follow_hosts(HERE, hosts("a", "b", "c"), seats, NOW, 1, 9)
    whole = follow_hosts(HERE, hosts("a", "b", "c"), seats, NOW, 3, 2)
    assert (4, False) == (whole.count, whole.more)


class Seats:
    """Instances of hosts, changed by plans as in storage."""

    def __init__(self) -> None:
        self.by_instance: dict[int, Seat] = {}

    def apply(self, plan: FollowPlan, cluster: str, now_ns: int) -> None:
        seats = self.by_instance
        for instance in plan.gone:
            old = seats[instance]
            seats[instance] = Seat(instance, old.hostname, old.cluster, old.gone_ns or now_ns, False)
        for instance in plan.back:
            seats[instance] = Seat(instance, seats[instance].hostname, cluster)
        for instance, hostname in plan.taken:
            seats[instance] = Seat(instance, hostname, cluster)
        for instance, hostname in enumerate(plan.fresh, len(seats)):
            seats[instance] = Seat(instance, hostname, cluster)

    def follow(self, cluster: str, matching: Iterable[Hostname], now_ns: int, limit: int) -> int:
        plans = 0
        while (
            plan := follow_hosts(cluster, set(matching), list(self.by_instance.values()), now_ns, limit, limit)
        ).count:
            self.apply(plan, cluster, now_ns)
            plans += 1
        return plans


_CLUSTERS = st.fixed_dictionaries({HERE: st.sets(st.sampled_from("abcd")), THERE: st.sets(st.sampled_from("stuv"))})


@given(st.lists(st.tuples(_CLUSTERS, st.integers(0, 2)), max_size=8), st.integers(1, 5))
def test_following_comes_to_rest_with_one_instance_on_each_host(
    lives: list[tuple[dict[str, set[str]], int]], limit: int
) -> None:
    """Plans of any size come to rest, however hosts come and go, with no more instance numbers than hosts within the
    time in which instances are kept.
    """
    seats, now_ns = Seats(), NOW
    for clusters, weeks in lives:
        now_ns += weeks * KEPT_NS + 1
        homes = {s.hostname: i for i, s in seats.by_instance.items() if not s.gone_ns or now_ns < s.gone_ns + KEPT_NS}
        for cluster, names in clusters.items():
            matching = hosts(*names)
            assert seats.follow(cluster, matching, now_ns, limit) <= 16
            alive = [seat for seat in seats.by_instance.values() if seat.cluster == cluster and not seat.gone_ns]
            assert sorted(matching) == sorted(seat.hostname for seat in alive)
            assert all(seat.is_wanted for seat in alive)
        assert len(seats.by_instance) == len({seat.hostname for seat in seats.by_instance.values()})
        found = {seat.hostname: seat.instance_id for seat in seats.by_instance.values()}
        assert homes == {host: found[host] for host in homes}
    assert len(seats.by_instance) <= 8


# -- free resources of a host --------------------------------------------------------------------------------------

CAPACITY = Resources(4_000, 4_096)
JOB = JobId("00000000-0000-4000-8000-000000000001")


def a_pod(instance: int, cpu_milli: int, priority: int = 0, age: int = 0, **more: bool) -> Neighbour:
    holds, terms = Resources(cpu_milli, 100), {"may_leave": True, "is_leaving": False} | more
    return Neighbour(PodId(JOB, instance, 1), priority, NOW - age, holds, **terms)


def leaving(cpu_milli: int, *pods: Neighbour) -> list[int]:
    return [pod_id.instance_id for pod_id in choose_evictions(Resources(cpu_milli, 100), CAPACITY, pods)]


def test_the_least_important_and_youngest_pods_leave() -> None:
    """Pods leave only as many as needed, the least important and youngest first."""
    pods = [a_pod(0, 1_000, 5), a_pod(1, 1_000, 1, age=9), a_pod(2, 1_000, 1), a_pod(3, 1_000, 9)]
    assert [2] == leaving(500, *pods)
    assert [2, 1] == leaving(1_500, *pods)


def test_no_pod_leaves_without_effect() -> None:
    """No pod leaves where resources are free, where they become free soon, or where all pods would not be enough."""
    assert [] == leaving(1_000, a_pod(0, 3_000))
    assert [] == leaving(1_000, a_pod(0, 3_000), a_pod(1, 1_000, is_leaving=True))
    assert [] == leaving(2_000, a_pod(0, 3_000, may_leave=False), a_pod(1, 1_000))
    assert [] == leaving(5_000, a_pod(0, 4_000))


def test_a_pod_that_turns_out_to_be_of_no_use_stays() -> None:
    """A smaller pod stays if a larger one that leaves after it is enough by itself."""
    assert [1] == leaving(2_000, a_pod(0, 500, 1), a_pod(1, 3_000, 2))


_PODS = st.lists(
    st.builds(
        a_pod,
        st.integers(0, 10**6),
        st.integers(100, 2_000),
        st.integers(0, 3),
        st.integers(0, 9),
        may_leave=st.booleans(),
        is_leaving=st.booleans(),
    ),
    max_size=8,
    unique_by=lambda pod: pod.pod_id,
)


@given(st.integers(1, 4_000), _PODS)
def test_enough_is_evicted_or_nothing_happens(cpu_milli: int, pods: list[Neighbour]) -> None:
    """Preemptible pods that are not leaving are evicted only if all of them are needed; when none is, all of them would
    not be enough, or the resources are free.
    """
    chosen = set(leaving(cpu_milli, *pods))
    may = {pod.pod_id.instance_id for pod in pods if pod.may_leave and not pod.is_leaving}

    def fits(gone: set[int]) -> bool:
        stay = [pod.holds for pod in pods if not pod.is_leaving and pod.pod_id.instance_id not in gone]
        held = sum(stay, Resources(cpu_milli, 100))
        return held.fits_in(CAPACITY)

    assert chosen <= may
    assert bool(chosen) == (not fits(set()) and fits(may))
    assert not chosen or fits(chosen)
    assert all(not fits(chosen - {one}) for one in chosen)
