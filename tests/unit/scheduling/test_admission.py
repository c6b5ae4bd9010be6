"""Admission: the gangs that are admitted, the gangs that wait, and the reasons."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from peloton.lifecycle.reason_text import backfill_text, queue_text
from peloton.model.ids import JobId
from peloton.model.reason import Rule
from peloton.model.respool import PoolSpec
from peloton.scheduling.admission import Admission, Ledger, admit, take
from peloton.scheduling.backfill import DEFAULT_BACKFILL, PASSED_MAX, Backfill
from peloton.scheduling.cycle import Snapshot, plan_cycle
from peloton.scheduling.entitlement import Entitlement, Load, entitle
from peloton.scheduling.gangs import GangRun, QueueKind, Usage
from peloton.scheduling.tree import PoolTree, build_tree
from tests.nightly import examples
from tests.unit.scheduling.pool_table import amounts, pool, pool_id


def run(
    job: str,
    need: str = "1",
    count: int = 1,
    size: int = 1,
    priority: int = 0,
    seq: int = 0,
    preemptible: bool = True,
    revocable: bool = False,
    controller: bool = False,
    start: int = 0,
) -> GangRun:
    """``need`` is of one gang."""
    return GangRun(
        JobId(job), start, count, size, tuple(amounts(need)), priority, seq, preemptible, revocable, controller
    )


class Cluster:
    """Pools with queues and usage; ``admit`` computes entitlements and admits."""

    def __init__(self, *pools: PoolSpec, capacity: str = "100", slack_cpu: int = 0) -> None:
        self.tree: PoolTree = build_tree(pools)
        zeros = np.zeros_like(self.tree.reservation)
        self.usage = Usage(zeros.copy(), zeros.copy(), zeros.copy(), zeros.copy())
        self.capacity = np.array(amounts(capacity), np.int64)
        self.slack_cpu = slack_cpu * 1000
        self.waiting: dict[int, dict[QueueKind, list[GangRun]]] = {}
        self.demand, self.slack_demand = zeros.copy(), zeros.copy()

    def queue(self, path: str, *runs: GangRun) -> Cluster:
        row = self.tree.row[pool_id(path)]
        for one in runs:
            queue = self.waiting.setdefault(row, {}).setdefault(one.queue, [])
            queue.append(one)
            queue.sort(key=lambda r: r.order)
            column = self.slack_demand if one.revocable else self.demand
            column[row] += np.array(one.need) * one.gang_count
        return self

    def holds(self, path: str, need: str, *columns: str) -> Cluster:
        for column in columns or ("non_slack",):
            getattr(self.usage, column)[self.tree.row[pool_id(path)]] += amounts(need)
        return self

    def entitlement(self) -> Entitlement:
        load = Load(self.demand, self.slack_demand, self.usage.non_slack, self.usage.slack)
        return entitle(self.tree, load, self.capacity, self.slack_cpu)

    def admit(self, pod_limit: int = 1000, begin_at: int = 0, backfill: Backfill = DEFAULT_BACKFILL) -> Admission:
        now = (self.tree, self.entitlement(), self.usage, self.waiting, pod_limit, begin_at)
        return admit(*now, backfill=backfill)


def names(admission: Admission) -> list[tuple[str, int]]:
    return [(chosen.run.job_id, chosen.gang_count) for chosen in admission.admitted]


def heads(admission: Admission) -> dict[str, Rule]:
    return {one.job_id: reason.rule for one, reason in admission.heads.values()}


def texts(admission: Admission) -> list[str]:
    reasons = [reason for _, reason in admission.heads.values()]
    reasons += admission.passed_over.values()
    return [queue_text(reason) for reason in [*reasons, *admission.passed.values()]]


def test_higher_priority_goes_first() -> None:
    """Higher priority is admitted first, in whatever order gangs came."""
    cluster = Cluster(pool("/p", "2", "2")).queue("/p", run("low", seq=1), run("high", priority=5, seq=2, count=2))

    admission = cluster.admit()

    assert names(admission) == [("high", 2)]
    assert heads(admission) == {"low": Rule.POOL_LIMIT}


def test_equal_priority_is_first_come_first_served() -> None:
    """Runs of equal priority are admitted by their sequence number, the lower one first."""
    cluster = Cluster(pool("/p", "3", "3")).queue("/p", run("second", seq=2, count=2), run("first", seq=1, count=2))

    assert names(cluster.admit()) == [("first", 2), ("second", 1)]


def test_head_of_line_blocks_its_queue() -> None:
    """A big head that does not fit now blocks smaller ones behind it."""
    cluster = Cluster(pool("/p", "10", "10")).holds("/p", "5")
    cluster.queue("/p", run("big", need="6", seq=1), run("small", need="1", seq=2))

    admission = cluster.admit()

    assert names(admission) == []
    assert texts(admission) == ["cpu 6 wanted, 5 left of the pool limit of /p: 10"]


def test_hopeless_head_is_passed_over() -> None:
    """A gang that is larger than the pool's limit does not block the gangs behind it, and has a reason."""
    cluster = Cluster(pool("/p", "10", "10"))
    cluster.queue("/p", run("huge", need="12", size=4, seq=1), run("small", need="1", seq=2))

    admission = cluster.admit()

    assert names(admission) == [("small", 1)]
    assert texts(admission) == ["gang of 4: cpu 12 wanted, more than the pool limit of /p: 10"]


def test_non_preemptible_waits_aside() -> None:
    """A non-preemptible head that does not fit its reservation does not block preemptible gangs."""
    cluster = Cluster(pool("/p", "10", "100")).holds("/p", "8", "non_slack", "non_preemptible")
    cluster.queue("/p", run("service", need="4", seq=1, preemptible=False), run("batch", need="4", seq=2))

    admission = cluster.admit()

    assert names(admission) == [("batch", 1)]
    assert texts(admission) == ["cpu 4 wanted, 2 left of the reservation for non-preemptible pods of /p: 10"]


def test_non_preemptible_goes_before_ordinary() -> None:
    """The reservation serves non-preemptible gangs first, whatever the priorities."""
    cluster = Cluster(pool("/p", "10", "10"))
    cluster.queue("/p", run("batch", need="10", priority=9), run("service", need="10", preemptible=False, seq=1))

    assert names(cluster.admit()) == [("service", 1)]


def test_controller_limit() -> None:
    """A controller outside of a gang waits when controllers hold their part; other pods run."""
    cluster = Cluster(pool("/p", "10", "100", controller_limit="20")).holds("/p", "2", "non_slack", "controller")
    cluster.queue("/p", run("driver", controller=True), run("executor", count=3, seq=1))

    admission = cluster.admit()

    assert names(admission) == [("executor", 3)]
    assert texts(admission) == ["cpu 1 wanted, 0 left of the controller limit of /p: 2"]


def test_controller_in_a_gang_is_not_limited() -> None:
    """A controller limit applies to controllers outside of gangs only."""
    cluster = Cluster(pool("/p", "10", "100", controller_limit="0"))
    cluster.queue("/p", run("gang", need="4", size=2, controller=True))

    assert names(cluster.admit()) == [("gang", 1)]


def test_revocable_uses_slack() -> None:
    """Three revocable pods, slack for two: two run, and the cluster's own cpu does not matter."""
    cluster = Cluster(pool("/p", "0", "1"), capacity="1", slack_cpu=4).holds("/p", "1")
    cluster.queue("/p", run("best-effort", need="2", count=3, revocable=True))

    admission = cluster.admit()

    assert names(admission) == [("best-effort", 2)]
    assert texts(admission) == ["cpu 2 wanted, 0 left of the slack entitlement of /p: 4"]


def test_revocable_borrows_memory_within_the_slack_limit() -> None:
    """Revocable pods borrow memory only up to a fifth of the reservation."""
    cluster = Cluster(pool("/p", "0/100", "0/1000"), capacity="0/1000", slack_cpu=100)
    cluster.queue("/p", run("best-effort", need="1/8", count=5, revocable=True))

    assert names(cluster.admit()) == [("best-effort", 2)]


def test_gangs_are_whole() -> None:
    """A gang that is larger than the remainder admits no member."""
    cluster = Cluster(pool("/p", "10", "10")).queue("/p", run("train", need="4", size=4, count=3))

    assert names(cluster.admit()) == [("train", 2)]


def test_bound_cuts_between_gangs() -> None:
    """A bound of one pass holds without cutting a gang, and the next pass continues with the next pool."""
    cluster = Cluster(pool("/a", "50", "50"), pool("/b", "50", "50"))
    cluster.queue("/a", run("gang", need="8", size=8, count=3)).queue("/b", run("other"))

    admission = cluster.admit(pod_limit=10)

    assert names(admission) == [("gang", 2)]
    assert heads(admission) == {"gang": Rule.BATCH_BOUND}
    assert names(cluster.admit(pod_limit=1, begin_at=admission.resume_at)) == [("other", 1)]


def test_ancestors_limit() -> None:
    """Pools below one parent never hold more than the parent's limit, even when entitlements just moved."""
    cluster = Cluster(pool("/eng", "10", "10"), pool("/eng/a", "5", "10"), pool("/eng/b", "5", "10"))
    cluster.holds("/eng/a", "9").queue("/eng/b", run("b", count=5))

    admission = cluster.admit()

    assert names(admission) == [("b", 1)]
    assert texts(admission) == ["cpu 1 wanted, 0 left of the pool limit of /eng: 10"]


def test_cluster_capacity() -> None:
    """Pools with reservations beyond the capacity are admitted up to the capacity of the cluster."""
    cluster = Cluster(pool("/a", "20", "100"), pool("/b", "20", "100"), capacity="30")
    cluster.queue("/a", run("a", count=20)).queue("/b", run("b", count=20))

    admission = cluster.admit()

    assert names(admission) == [("a", 20), ("b", 10)]
    assert texts(admission) == ["cpu 1 wanted, 0 left of the cluster capacity of /: 30"]


def test_only_kinds_asked_for_are_compared() -> None:
    """A pool that holds too much memory still admits a gang without memory."""
    cluster = Cluster(pool("/p", "10/10", "10/10"), capacity="10/10").holds("/p", "0/20").queue("/p", run("cpu"))

    assert names(cluster.admit()) == [("cpu", 1)]


def test_cycle_makes_one_plan() -> None:
    """A cycle answers with the entitlements it used and what they admit."""
    cluster = Cluster(pool("/p", "3", "3")).queue("/p", run("job", count=5))
    now = Snapshot(
        cluster.tree, cluster.capacity, 0, cluster.usage, cluster.demand, cluster.slack_demand, cluster.waiting, 100
    )

    plan = plan_cycle(now)

    assert names(plan.admission) == [("job", 3)]
    assert plan.entitlement.total[1].tolist() == [3000, 0, 0, 0]


RUNS = st.builds(
    lambda job, cpu, memory, count, size, priority, flags: run(
        job, f"{cpu}/{memory}", count, size, priority, int(job), *flags
    ),
    st.sampled_from("0123456789"),
    st.integers(0, 6),
    st.integers(0, 6),
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(0, 2),
    st.tuples(st.booleans(), st.booleans(), st.booleans()),
)


@given(st.lists(st.tuples(st.sampled_from(["/a", "/b/c", "/b/d"]), RUNS), max_size=12), st.integers(1, 60))
@settings(max_examples=examples(150), deadline=None)
def test_never_beyond_entitlement_or_limit(queued: Iterable[tuple[str, GangRun]], pod_limit: int) -> None:
    """Admitted runs keep to entitlement, reservation, controller limit and every limit above, for any queue."""
    cluster = Cluster(
        pool("/a", "5/5", "12/30", controller_limit="50"),
        pool("/b", "8/8", "15/15"),
        pool("/b/c", "2/2", "9/15"),
        pool("/b/d", "6/6", "15/9", "3"),
        capacity="20/25",
        slack_cpu=7,
    )
    for path, one in queued:
        cluster.queue(path, one)
    entitlement, tree = cluster.entitlement(), cluster.tree

    admission = cluster.admit(pod_limit)

    held = {name: np.zeros_like(tree.reservation) for name in ("non_slack", "slack", "non_preemptible", "controller")}
    physical = np.zeros_like(tree.reservation)
    for chosen in admission.admitted:
        need = np.array(chosen.run.need) * chosen.gang_count
        held["slack" if chosen.run.revocable else "non_slack"][chosen.pool] += need
        if not chosen.run.revocable and not chosen.run.preemptible:
            held["non_preemptible"][chosen.pool] += need
        if chosen.run.queue is QueueKind.CONTROLLER:
            held["controller"][chosen.pool] += need
        physical[chosen.pool] += need * [not chosen.run.revocable, 1, 1, 1]
    assert (held["non_slack"] <= entitlement.non_slack).all()
    assert (held["slack"] <= entitlement.slack).all()
    assert (held["non_preemptible"] <= tree.reservation).all()
    assert (held["controller"] <= tree.controller_limit).all()
    assert (tree.roll_up(physical) <= np.minimum(tree.limit, cluster.capacity)).all()


@given(st.lists(RUNS, min_size=1, max_size=8))
@settings(max_examples=examples(100), deadline=None)
def test_waits_only_for_a_reason(runs: list[GangRun]) -> None:
    """Every run is admitted, blocked at the head of its queue, passed over, or behind such a head."""
    runs = [replace(one, start=100 * i) for i, one in enumerate(runs)]
    cluster = Cluster(pool("/a", "6/6", "12/12", controller_limit="50"), capacity="20/25", slack_cpu=7)
    cluster.queue("/a", *runs)

    admission = cluster.admit()

    for kind, queue in cluster.waiting[1].items():
        admitted = [c.run for c in admission.admitted if c.run.queue is kind and c.gang_count == c.run.gang_count]
        noted = admission.passed_over | admission.passed
        left = [one for one in queue if not any(one is a for a in admitted) and (one.job_id, one.start) not in noted]
        assert bool(left) == ((1, kind, 0) in admission.heads)
        if left:
            assert left[0] is admission.heads[1, kind, 0][0]


# -- backfill ----------------------------------------------------------------------------------------------------------


def two_services(cluster: Cluster) -> Cluster:
    """A large service that has to wait for the reservation, and a small one behind it that fits."""
    cluster.holds("/p", "8", "non_slack", "non_preemptible")
    large, small = (run(name, need, seq=at, preemptible=False) for at, (name, need) in enumerate(LARGE_AND_SMALL))
    return cluster.queue("/p", large, small)


LARGE_AND_SMALL = (("large", "4"), ("small", "2"))


def test_a_non_preemptible_gang_that_fits_passes_one_that_has_to_wait() -> None:
    """The larger gang reports the rule that blocks it, and for how long it may still be passed."""
    admission = two_services(Cluster(pool("/p", "10", "100"))).admit()

    assert names(admission) == [("small", 1)]
    assert texts(admission) == ["cpu 4 wanted, 2 left of the reservation for non-preemptible pods of /p: 10"]
    assert [backfill_text(reason) for reason in admission.passed.values()] == [
        "gangs behind it that fit may go first for 300 s more"
    ]


def test_a_gang_that_has_been_passed_for_long_enough_blocks_its_queue() -> None:
    """Resources that become free are kept for the passed gang from that time on."""
    admission = two_services(Cluster(pool("/p", "10", "100"))).admit(backfill=Backfill(300, {(JobId("large"), 0): 0}))

    assert names(admission) == []
    assert [backfill_text(reason) for _, reason in admission.heads.values()] == [
        "gangs behind it have gone first for long enough, and wait for it now"
    ]


def test_without_backfill_a_head_blocks_at_once() -> None:
    """A bound of 0 seconds is strict first come first served."""
    assert names(two_services(Cluster(pool("/p", "10", "100"))).admit(backfill=Backfill(0))) == []


def test_so_many_waiting_runs_are_passed_in_one_pass() -> None:
    """A run after the bound of passed runs blocks the queue, and a run behind it waits although it fits."""
    cluster = Cluster(pool("/p", "10", "100")).holds("/p", "8", "non_slack", "non_preemptible")
    large = [run(f"large-{at}", "4", seq=at, preemptible=False) for at in range(PASSED_MAX + 1)]
    cluster.queue("/p", *large, run("small", "2", seq=len(large), preemptible=False))

    admission = cluster.admit()

    assert names(admission) == []
    assert heads(admission) == {f"large-{PASSED_MAX}": Rule.RESERVATION}
    assert len(admission.passed) == PASSED_MAX


def test_offers_that_are_promised_are_for_the_gang_that_is_passed() -> None:
    """Two equal gangs that wait for resources of evicted pods have a promise each; a smaller one uses neither."""
    cluster = Cluster(pool("/a", "4", "4"), capacity="4").holds("/a", "3")
    first, second = (run(name, "2", seq=at, preemptible=False) for at, name in enumerate(("first", "second")))
    cluster.queue("/a", first, second, run("small", "1", seq=2, preemptible=False))

    assert names(cluster.admit()) == [("small", 1)]
    assert admit_while_leaving(cluster, leaving(cluster, "/a", "3")) == []


@given(st.lists(RUNS, max_size=10), st.lists(st.sampled_from("0123456789")), st.integers(0, 8))
@settings(max_examples=examples(200), deadline=None)
def test_equals_trying_one_gang_after_the_other(runs: list[GangRun], overdue: list[str], held: int) -> None:
    """A slow version is the expected result: each gang is admitted if it fits; if not, it blocks its queue unless it
    may be passed.
    """
    runs = [replace(one, start=100 * i) for i, one in enumerate(runs)]
    cluster = Cluster(pool("/a", "6/6", "12/12", controller_limit="50"), capacity="20/25", slack_cpu=7)
    cluster.queue("/a", *runs).holds("/a", f"{held}/0", "non_slack", "non_preemptible")
    backfill = Backfill(9, {(one.job_id, one.start): 0 for one in runs if one.job_id in overdue})

    expected: list[tuple[str, int]] = []
    ledger = Ledger(cluster.tree, cluster.entitlement(), cluster.usage)
    for kind in QueueKind:
        for one in cluster.waiting.get(1, {}).get(kind, ()):
            bounds, fitting = ledger.bounds(1, one), 0
            if ledger.first_refusal(one, bounds, is_final=True) is not None:
                continue
            while fitting < one.gang_count and ledger.first_refusal(one, bounds, is_final=False) is None:
                take(one, bounds, 1)
                fitting += 1
            expected += [(one.job_id, fitting)] if fitting else []
            if fitting < one.gang_count and (kind is QueueKind.ORDINARY or one.job_id in overdue):
                break

    assert expected == names(cluster.admit(backfill=backfill))


# -- while evicted pods are on their way out ---------------------------------------------------------------------------


def admit_while_leaving(cluster: Cluster, leaving: Usage) -> list[tuple[str, int]]:
    return names(admit(cluster.tree, cluster.entitlement(), cluster.usage, cluster.waiting, 1000, leaving=leaving))


def leaving(cluster: Cluster, path: str, need: str) -> Usage:
    zeros = np.zeros_like(cluster.tree.reservation)
    found = Usage(zeros.copy(), zeros.copy(), zeros.copy(), zeros.copy())
    found.non_slack[cluster.tree.row[pool_id(path)]] += amounts(need)
    return found


def test_promised_resources_go_to_no_other_gang() -> None:
    """A gang will fit when all evicted pods have left: resources that are free until then are not given to a smaller
    one behind it, nor kept from another pool that fits as well.
    """
    cluster = Cluster(pool("/a", "4", "6"), pool("/b", "2", "6"), capacity="6").holds("/a", "4")
    cluster.queue("/a", run("big", "4", size=4, preemptible=False), run("small", "1", seq=1))
    cluster.queue("/b", run("other", "1", seq=2))

    assert names(cluster.admit()) == [("small", 1), ("other", 1)]
    assert admit_while_leaving(cluster, leaving(cluster, "/a", "3")) == [("other", 1)]


def test_what_is_not_promised_is_for_everybody() -> None:
    """A gang that will not fit even then does not block others."""
    cluster = Cluster(pool("/a", "4", "6"), pool("/b", "2", "6"), capacity="6").holds("/a", "4")
    cluster.queue("/a", run("big", "4", size=4, preemptible=False), run("small", "1", seq=1))
    cluster.queue("/b", run("other", "1", seq=2))

    assert admit_while_leaving(cluster, leaving(cluster, "/a", "1")) == [("small", 1), ("other", 1)]


def test_no_gang_is_admitted_before_the_resources_are_free() -> None:
    """A promise is no free capacity; the part of a run that fits now is admitted."""
    cluster = Cluster(pool("/a", "6", "6"), capacity="6").holds("/a", "4").queue("/a", run("job", "1", count=9))

    assert admit_while_leaving(cluster, leaving(cluster, "/a", "3")) == [("job", 2)]


def test_without_preemption_the_reservation_does_not_bind() -> None:
    """Non-preemptible pods may use the whole entitlement of their pool without preemption."""
    cluster = Cluster(pool("/a", "2", "6"), capacity="6").queue("/a", run("fixed", "1", count=9, preemptible=False))
    now = (cluster.tree, cluster.entitlement(), cluster.usage, cluster.waiting, 1000)

    assert names(admit(*now)) == [("fixed", 2)]
    assert names(admit(*now, preempts=False)) == [("fixed", 6)]


@given(st.sampled_from(["/a", "/b/c"]), RUNS)
@settings(max_examples=examples(150), deadline=None)
def test_hopeless_is_what_a_rule_may_never_allow(path: str, one: GangRun) -> None:
    """A quick check for hopeless gangs has the same result as the rules, one by one."""
    cluster = Cluster(
        pool("/a", "3/3", "12/30", controller_limit="50"), pool("/b", "8/8", "5/4"), pool("/b/c", "2/2"), capacity="9/9"
    )
    ledger, row = Ledger(cluster.tree, cluster.entitlement(), cluster.usage), cluster.tree.row[pool_id(path)]

    refusal = ledger.first_refusal(one, ledger.bounds(row, one), is_final=True)
    assert (refusal is not None) == ledger.is_hopeless(row, one)
