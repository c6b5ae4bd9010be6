"""Host pools that serve some workloads only divide the hosts into compartments, each with a capacity of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from peloton.lifecycle.reason_text import queue_text
from peloton.model.host import HostPoolCapacity
from peloton.model.host_pool import Workload
from peloton.model.ids import JobId
from peloton.model.resources import Resources
from peloton.model.respool import PoolSpec
from peloton.scheduling.compartments import NO_HOST_POOL, CompartmentLoad, compartments, part_of
from peloton.scheduling.cycle import Evictable, Plan, Snapshot, plan_cycle
from peloton.scheduling.eviction import HeldRun
from peloton.scheduling.gangs import GangRun, QueueKind, Usage
from peloton.scheduling.invariants import above_bounds
from peloton.scheduling.tree import CPU, Ints, build_tree
from tests.nightly import examples
from tests.unit.scheduling.pool_table import LICENSE, amounts, pool, pool_id

ALL = tuple(work for work in Workload if work)
BATCH, SHARED, STATELESS, STATEFUL, GPU = ALL
REST = (SHARED, STATEFUL, GPU)


def hosts(name: str, cpu: int, *serves: Workload, gpu: int = 0) -> HostPoolCapacity:
    return HostPoolCapacity(name, frozenset(serves), Resources.of(cpu, gpu=gpu))


def run(job: str, workload: Workload, need: str = "1", count: int = 1, **more: Any) -> GangRun:
    defaults: dict[str, Any] = {"gang_size": 1, "priority": 0, "queue_seq": 0}
    return GangRun(JobId(job), 0, count, need=tuple(amounts(need)), workload=workload, **(defaults | more))


class Cluster:
    """Pools with queues and held gangs, over host pools."""

    def __init__(self, host_pools: Sequence[HostPoolCapacity], *pools: PoolSpec) -> None:
        self.found = compartments(host_pools)
        self.part_of = part_of(self.found)
        self.tree = build_tree(pools)
        self.up = self.tree.compute_capacity(sum((one.up for one in host_pools), Resources()))
        self.waiting: dict[int, dict[QueueKind, list[GangRun]]] = {}
        self.held: list[HeldRun] = []

    def queue(self, path: str, *runs: GangRun) -> Cluster:
        for one in runs:
            queue = self.waiting.setdefault(self.tree.row[pool_id(path)], {}).setdefault(one.queue, [])
            queue.append(one)
            queue.sort(key=lambda each: each.order)
        return self

    def holds(self, path: str, *runs: GangRun) -> Cluster:
        self.held += [HeldRun(self.tree.row[pool_id(path)], one, True) for one in runs]
        return self

    def usage(self) -> Usage:
        usage = Usage(*self._zeros(), parts=tuple(Usage(*self._zeros()) for _ in self.found), part_of=self.part_of)
        for one in self.held:
            usage.charge(one.pool, one.run, one.run.gang_count)
        return usage

    def _zeros(self) -> list[Ints]:
        return [np.zeros_like(self.tree.reservation) for _ in range(4)]

    def snapshot(self, due: Sequence[str] | None = None) -> Snapshot:
        """Make a snapshot. ``due``: pools that have been over their entitlement for long enough; None: no round of
        preemption.
        """
        wanted = Usage(*self._zeros(), parts=tuple(Usage(*self._zeros()) for _ in self.found), part_of=self.part_of)
        for row, queues in self.waiting.items():
            for one in (one for queue in queues.values() for one in queue):
                wanted.charge(row, one, one.gang_count)
        pairs = zip(self.found, wanted.parts, strict=True)
        usage, rows = self.usage(), frozenset(self.tree.row[pool_id(path)] for path in due or ())
        return Snapshot(
            self.tree,
            self.up,
            0,
            usage,
            wanted.non_slack,
            wanted.slack,
            self.waiting,
            10_000,
            evictable=None if due is None else Evictable(self.held, usage.without(usage), rows, 10_000),
            compartments=[CompartmentLoad(one, part.non_slack, part.slack) for one, part in pairs],
        )

    def plan(self, due: Sequence[str] | None = None) -> Plan:
        return plan_cycle(self.snapshot(due))

    def cpus(self, plan: Plan, path: str) -> dict[str, int]:
        """Entitled cpus of a pool by compartment."""
        row = self.tree.row[pool_id(path)]
        return {part.host_pools: int(part.total[row, CPU]) // 1000 for part in plan.entitlement.parts}


def count_admitted(plan: Plan) -> dict[str, int]:
    return {chosen.run.job_id: chosen.gang_count for chosen in plan.admission.admitted}


def whys(plan: Plan) -> dict[str, str]:
    return {one.job_id: queue_text(reason) for one, reason in plan.admission.heads.values()}


def test_compartments_are_connected_host_pools() -> None:
    """Host pools that share a workload are one compartment; workloads without a host pool have a compartment without
    hosts.
    """
    found = compartments(
        [hosts("a", 1, BATCH), hosts("b", 2, SHARED, GPU), hosts("c", 4, BATCH, GPU), hosts("spare", 8),
         hosts("d", 16, STATELESS)]
    )  # fmt: skip

    assert [(one.host_pools, one.workloads, one.capacity.cpu_milli) for one in found] == [
        ("host pool d", frozenset({STATELESS}), 16_000),
        ("host pools a, b, c", frozenset({BATCH, SHARED, GPU}), 7_000),
        (NO_HOST_POOL, {STATEFUL}, 0),
    ]


def test_one_for_everything_is_none() -> None:
    """A cluster where any workload may use any host has no compartments; hosts that serve no workload divide it."""
    assert compartments([]) == ()
    assert compartments([hosts("a", 1, *ALL), hosts("b", 1, GPU)]) == ()
    assert [one.capacity.cpu_milli for one in compartments([hosts("a", 1, *ALL), hosts("spare", 2)])] == [1_000]


def test_no_pod_is_admitted_against_hosts_that_do_not_serve_it() -> None:
    """Batch pods stop at the capacity of their host pool, with a reason; services continue."""
    cluster = Cluster([hosts("batch", 2, BATCH, *REST), hosts("services", 8, STATELESS)], pool("/p", "0", "100"))
    cluster.queue("/p", run("batch", BATCH, count=5), run("web", STATELESS, count=6, queue_seq=1))

    plan = cluster.plan()

    assert count_admitted(plan) == {"batch": 2, "web": 6}
    assert whys(plan) == {"batch": "cpu 1 wanted, 0 left of the entitlement of /p in host pool batch: 2"}


def test_entitlement_follows_the_hosts_that_a_pool_can_use() -> None:
    """One of two pools of equal share cannot use a part, as its pods run elsewhere: the other is entitled to it."""
    cluster = Cluster(
        [hosts("batch", 20, BATCH, *REST), hosts("services", 80, STATELESS)],
        pool("/jobs", "0", "100"),
        pool("/sites", "0", "100"),
    )
    cluster.queue("/jobs", run("batch", BATCH, count=100)).queue("/sites", run("web", STATELESS, count=100))

    assert count_admitted(cluster.plan()) == {"batch": 20, "web": 80}


def test_larger_than_the_compartment_is_hopeless() -> None:
    """A gang that fits the cluster, and not the hosts that serve it, is passed over with these hosts' numbers."""
    cluster = Cluster([hosts("batch", 2, BATCH, *REST), hosts("services", 8, STATELESS)], pool("/p", "0", "100"))
    cluster.queue("/p", run("big", BATCH, "3"), run("small", BATCH, queue_seq=1))

    plan = cluster.plan()

    assert count_admitted(plan) == {"small": 1}
    assert [queue_text(reason) for reason in plan.admission.passed_over.values()] == [
        "cpu 3 wanted, more than the capacity of host pool batch: 2"
    ]


def test_a_limit_counts_everywhere() -> None:
    """A pool at its limit admits no run, whatever host is free, in the order of its queue."""
    cluster = Cluster([hosts("batch", 20, BATCH, *REST), hosts("services", 80, STATELESS)], pool("/p", "0", "5"))
    cluster.queue("/p", run("batch", BATCH, count=3), run("web", STATELESS, count=6, queue_seq=1))

    plan = cluster.plan()

    assert count_admitted(plan) == {"batch": 3, "web": 2}
    assert whys(plan) == {"web": "cpu 1 wanted, 0 left of the pool limit of /p: 5"}


def test_allocations_elsewhere_reduce_the_limit_to_distribute() -> None:
    """A pool that holds its limit in one compartment is entitled to none of another, whose capacity goes to other
    pools.
    """
    cluster = Cluster(
        [hosts("batch", 20, BATCH, *REST), hosts("services", 20, STATELESS)],
        pool("/full", "0", "10"),
        pool("/other", "0", "100"),
    )
    cluster.holds("/full", run("old", BATCH, count=10)).queue("/full", run("new", STATELESS, count=20))
    cluster.queue("/other", run("web", STATELESS, count=20))

    plan = cluster.plan()

    assert cluster.cpus(plan, "/full") == {"host pool batch": 10, "host pool services": 0}
    assert count_admitted(plan) == {"web": 20}


def test_a_reservation_goes_where_it_is_used() -> None:
    """A reservation is distributed first to held, then to waiting amounts; never more to hosts than their capacity."""
    cluster = Cluster(
        [hosts("batch", 10, BATCH, *REST), hosts("services", 90, STATELESS)],
        pool("/a", "40", "100"),
        pool("/b", "0", "100", share="1000"),
    )
    cluster.holds("/a", run("held", STATELESS, count=10))
    cluster.queue("/a", run("batch", BATCH, count=100), run("web", STATELESS, count=100, queue_seq=1))
    cluster.queue("/b", run("jobs", BATCH, count=100), run("site", STATELESS, count=200))

    assert cluster.cpus(cluster.plan(), "/a") == {"host pool batch": 3, "host pool services": 36}


def test_reservations_beyond_the_hosts_are_cut_in_proportion() -> None:
    """Two pools claim their reservations on hosts that have less than both: each has its part, not the first one."""
    cluster = Cluster(
        [hosts("batch", 9, BATCH, *REST), hosts("services", 91, STATELESS)],
        pool("/a", "20", "100"),
        pool("/b", "40", "100"),
    )
    cluster.queue("/a", run("first", BATCH, count=50)).queue("/b", run("second", BATCH, count=50))

    assert count_admitted(cluster.plan()) == {"first": 3, "second": 6}


def test_a_sibling_takes_no_guarantee_by_wanting_more() -> None:
    """A parent guarantees to each child its reservation, however much the other one requests elsewhere."""
    cluster = Cluster(
        [hosts("batch", 100, BATCH, *REST), hosts("services", 100, STATELESS)],
        pool("/org", "100", "200"),
        pool("/org/jobs", "50", "200"),
        pool("/org/sites", "50", "200"),
        pool("/rival", "0", "200", share="1000"),
    )
    cluster.queue("/org/jobs", run("batch", BATCH, count=1000)).queue("/org/sites", run("web", STATELESS, count=40))
    cluster.queue("/rival", run("more", STATELESS, count=1000), run("other", BATCH, count=1000))

    assert cluster.cpus(cluster.plan(), "/org/sites")["host pool services"] == 40


def test_a_gang_of_several_workloads_needs_capacity_for_each() -> None:
    """A gang with a member without gpus is admitted when both compartments have free capacity, and names the one that
    has not.
    """
    need = (("1", BATCH), ("2/0/0/2", GPU))
    apart = tuple((workload, tuple(amounts(text))) for text, workload in need)
    gang = run("train", BATCH, "3/0/0/2", gang_size=2, apart=apart)
    pools = [hosts("gpus", 4, GPU, gpu=4), hosts("rest", 2, BATCH, SHARED, STATELESS, STATEFUL)]

    fits = Cluster(pools, pool("/p", "0/0/0/0", "9/9/9/9")).queue("/p", gang)
    full = Cluster(pools, pool("/p", "0/0/0/0", "9/9/9/9")).queue("/p", gang).holds("/p", run("old", BATCH, "2"))

    assert count_admitted(fits.plan()) == {"train": 1}
    assert whys(full.plan()) == {
        "train": "gang of 2: cpu 1 wanted, 0 left of the entitlement of /p in host pool rest: 2"
    }


def test_pods_are_evicted_only_where_that_helps() -> None:
    """A pool above its entitlement of batch hosts releases pods there, and waiting services use none of it."""
    cluster = Cluster(
        [hosts("batch", 10, BATCH, *REST), hosts("services", 10, STATELESS)],
        pool("/a", "0", "100"),
        pool("/b", "10", "100"),
    )
    cluster.holds("/a", run("lent", BATCH, count=10), run("site", STATELESS, count=5))
    cluster.queue("/b", run("batch", BATCH, count=4))

    evicted = cluster.plan(due=["/a"]).evictions

    assert [(one.run.job_id, one.run.gang_count) for one in evicted] == [("lent", 4)]


LAYOUTS = st.lists(st.sets(st.sampled_from(ALL), min_size=1), min_size=1, max_size=3).flatmap(
    lambda served: st.tuples(*(st.tuples(st.just(one), st.integers(0, 12)) for one in served))
)
PATHS = ("/a", "/b/c", "/b/d")
WAITING = st.lists(
    st.tuples(
        st.sampled_from(PATHS),
        st.sampled_from(ALL),
        st.integers(1, 4),
        st.integers(1, 6),
        st.booleans(),
        st.integers(0, 2),
    ),
    max_size=12,
)


def drawn(layout: Sequence[tuple[set[Workload], int]], waiting: Sequence[tuple[object, ...]]) -> Cluster:
    cluster = Cluster(
        [hosts(f"h{at}", cpu, *served) for at, (served, cpu) in enumerate(layout)],
        pool("/a", "6", "14"),
        pool("/b", "8", "20"),
        pool("/b/c", "4", "9"),
        pool("/b/d", "4", "20"),
    )
    for at, (path, workload, cpu, count, preemptible, priority) in enumerate(waiting):
        cluster.queue(
            str(path),
            run(f"job{at}", Workload(str(workload)), str(cpu), int(str(count)), priority=priority, queue_seq=at,
                preemptible=preemptible),
        )  # fmt: skip
    return cluster


@given(LAYOUTS, WAITING, WAITING)
@settings(max_examples=examples(200), deadline=None)
def test_compartments_are_never_exceeded(
    layout: Sequence[tuple[set[Workload], int]],
    first: Sequence[tuple[object, ...]],
    second: Sequence[tuple[object, ...]],
) -> None:
    """Runs that are admitted over two cycles stay in each compartment within its capacity and the pools' entitlements
    there, their sum within limits and reservations; and each gang that fits every rule is admitted.
    """
    cluster = drawn(layout, first)
    for arrivals in (second, ()):
        now = cluster.snapshot()
        plan = plan_cycle(now)
        for chosen in plan.admission.admitted:
            gone = replace(chosen.run, gang_count=chosen.gang_count)
            cluster.held.append(HeldRun(chosen.pool, gone, True))
        after = cluster.usage()

        assert list(above_bounds(now, plan, after)) == []
        for one, held in zip(cluster.found, after.parts, strict=True):
            assert (held.physical(cluster.tree)[0] <= np.array(tuple(one.capacity))).all()
        cluster.waiting = drawn(layout, arrivals).waiting


@given(st.integers(0, 30), WAITING)
@settings(max_examples=examples(100), deadline=None)
def test_hosts_for_everything_change_nothing(cpu: int, waiting: Sequence[tuple[object, ...]]) -> None:
    """Host pools of which each serves all workloads give the plan of a cluster without host pools."""
    with_pools = drawn([(set(ALL), cpu), (set(ALL), 3)], waiting)
    without = drawn([], waiting)
    without.up = with_pools.up

    one, other = with_pools.plan(), without.plan()

    assert one.admission == other.admission
    assert one.entitlement.total.tolist() == other.entitlement.total.tolist()


# -- licenses -------------------------------------------------------------------------------------------------------

DIVIDED = (hosts("batch", 50, BATCH, *REST), hosts("services", 50, STATELESS))


def test_licenses_are_divided_once_over_all_hosts() -> None:
    """Pods of two compartments share the licenses of their pools: one cycle admits no more than there are."""
    cluster = Cluster(DIVIDED, pool("/p", "0/0/0/0/5", "99/0/0/0/5"))
    cluster.queue("/p", run("batch", BATCH, "1/0/0/0/2", count=9))
    cluster.queue("/p", run("web", STATELESS, "1/0/0/0/1", count=9, queue_seq=1))

    plan = cluster.plan()

    assert count_admitted(plan) == {"batch": 2}
    assert whys(plan) == {"batch": f"{LICENSE} 2 wanted, 1 left of the pool limit of /p: 5"}


def test_a_pool_gets_back_licenses_from_pods_on_other_hosts() -> None:
    """A pool that lent licenses to pods of another compartment has them back by preemption, no more than it lacks."""
    shares = (pool(f"/{name}", "0/0/0/0/3", "99/0/0/0/6") for name in "ab")
    cluster = Cluster(DIVIDED, *shares)
    cluster.holds("/a", run("batch", BATCH, "1/0/0/0/1", count=6))
    cluster.queue("/b", run("web", STATELESS, "1/0/0/0/1", count=2))

    plan = cluster.plan(due=["/a"])

    assert [(one.run.job_id, one.run.gang_count, one.grounds.kind) for one in plan.evictions] == [("batch", 2, LICENSE)]
    assert plan.entitlement.total[:, 4].tolist() == [6, 4, 2]


@given(st.lists(st.tuples(st.sampled_from([BATCH, STATELESS]), st.integers(0, 3), st.integers(1, 4)), max_size=8))
@settings(max_examples=examples(60), deadline=None)
def test_licenses_stay_within_bounds(asked: list[tuple[Workload, int, int]]) -> None:
    """Whatever two pools queue for two compartments, no pool and no cycle exceeds its bounds."""
    cluster = Cluster(DIVIDED, *(pool(f"/{name}", "0/0/0/0/2", "99/0/0/0/5") for name in "ab"))
    for at, (workload, licenses, count) in enumerate(asked):
        cluster.queue(("/a", "/b")[at % 2], run(str(at), workload, f"1/0/0/0/{licenses}", count))

    now = cluster.snapshot()
    plan, after = plan_cycle(now), now.usage.copy()
    for chosen in plan.admission.admitted:
        after.charge(chosen.pool, chosen.run, chosen.gang_count)

    assert list(above_bounds(now, plan, after)) == []
