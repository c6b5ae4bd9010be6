"""Explanations for users: each scenario is a cluster and the text about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peloton.model.ids import JobId, RespoolId
from peloton.model.job import JobRecord, JobState, JobType, SlaSpec
from peloton.model.misfit import HostRule, LackingAmount, UnmetConstraint
from peloton.model.pod import PodState
from peloton.model.reason import ClusterReason, NoHost, RefusingHosts, Rule
from peloton.scheduling.cycle import Snapshot, plan_cycle
from peloton.scheduling.explain import JobUsage, Obstacle, compute_loans, find_holders, find_unqueued, list_waits
from services.resmgr.explain.text import describe_unqueued, headline, story, wait_lines
from tests.unit.scheduling.pool_table import amounts, pool, pool_id
from tests.unit.scheduling.test_admission import Cluster, run


def snapshot(cluster: Cluster) -> Snapshot:
    return Snapshot(
        cluster.tree,
        cluster.capacity,
        cluster.slack_cpu,
        cluster.usage,
        cluster.demand,
        cluster.slack_demand,
        cluster.waiting,
        pod_limit=1000,
    )


def hold_job(job: str, **columns: str) -> JobUsage:
    """A job that holds ``column=amounts``."""

    def read(column: str) -> tuple[int, ...]:
        return tuple(amounts(columns.get(column, "")))

    return JobUsage(JobId(job), read("non_slack"), read("slack"), read("non_preemptible"), read("controller"))


def explain_pool(cluster: Cluster, path: str, *jobs: JobUsage) -> str:
    now = snapshot(cluster)
    plan = plan_cycle(now)
    row = cluster.tree.row[pool_id(path)]
    held_in: dict[int, Sequence[JobUsage]] = {row: jobs}
    found = [
        line
        for wait in list_waits(now, plan, row)
        for line in wait_lines(wait, find_holders(now, plan, wait, lambda at: held_in.get(at, ())))
    ]
    return "\n".join(found)


def full_pool() -> str:
    cluster = Cluster(pool("/p", "2", "4")).holds("/p", "4").queue("/p", run("w", "1", count=3, seq=1))
    jobs = [
        hold_job("a", non_slack="1"),
        hold_job("b", non_slack="2"),
        hold_job("c", non_slack="0.5"),
        hold_job("d", non_slack="0.5"),
    ]
    return explain_pool(cluster, "/p", *jobs)


def line() -> str:
    cluster = Cluster(pool("/p", "2", "4")).holds("/p", "3")
    cluster.queue("/p", run("big", "2", priority=5, seq=2), run("low", "1", seq=1), run("same", "1", priority=5, seq=3))
    return explain_pool(cluster, "/p", hold_job("a", non_slack="3"))


def gang() -> str:
    cluster = Cluster(pool("/p", "2", "4")).holds("/p", "3")
    cluster.queue("/p", run("ever", "5", size=5, seq=1), run("later", "2", size=2, seq=2))
    return explain_pool(cluster, "/p", hold_job("a", non_slack="3"))


def lent_out() -> str:
    cluster = Cluster(pool("/a", "5", "10"), pool("/b", "5", "10"), capacity="10")
    cluster.holds("/b", "8").holds("/a", "2").queue("/a", run("w", "4", seq=1)).queue("/b", run("more", seq=2, count=9))
    return explain_pool(cluster, "/a", hold_job("x", non_slack="2"))


def above() -> str:
    cluster = Cluster(pool("/e", "4", "4"), pool("/e/a", "1", "4"), pool("/e/b", "1", "4"))
    return explain_pool(cluster.holds("/e/b", "4").queue("/e/a", run("w", "1", seq=1)), "/e/a")


def explain_reservation() -> str:
    cluster = Cluster(pool("/p", "2", "9")).holds("/p", "2", "non_slack", "non_preemptible")
    cluster.queue("/p", run("w", "1", preemptible=False, seq=1))
    return explain_pool(cluster, "/p", hold_job("a", non_slack="2", non_preemptible="2"), hold_job("b", non_slack="1"))


def controllers() -> str:
    cluster = Cluster(pool("/p", "4", "9", controller_limit="50")).holds("/p", "2", "non_slack", "controller")
    cluster.queue("/p", run("w", "1", controller=True, seq=1))
    return explain_pool(cluster, "/p", hold_job("a", non_slack="2", controller="2"))


def own_job() -> str:
    cluster = Cluster(pool("/p", "2", "4")).holds("/p", "3")
    return explain_pool(cluster.queue("/p", run("w", "2", seq=1), run("w", "1", seq=2, start=1)), "/p")


def explain_crowding() -> str:
    """Pool /e is entitled to its limit: resources that /far borrows would not help."""
    cluster = Cluster(pool("/e", "4", "4"), pool("/e/a", "3", "4"), pool("/e/b", "1", "4"), pool("/far", "0", "9"))
    cluster.holds("/e/b", "2").holds("/far", "9").holds("/e/a", "1")
    return explain_pool(cluster.queue("/e/a", run("w", "3", seq=1)).queue("/e/b", run("v", "1", seq=2)), "/e/a")


def slack() -> str:
    cluster = Cluster(pool("/p", "2", "4"), slack_cpu=3).holds("/p", "2", "slack")
    cluster.queue("/p", run("w", "2", revocable=True, seq=1))
    return explain_pool(cluster, "/p", hold_job("a", slack="2"), hold_job("b", non_slack="1"))


def no_gpu() -> str:
    cluster = Cluster(pool("/p", "2", "4/0/0/2"), capacity="10").queue("/p", run("w", "1/0/0/2", seq=1))
    return explain_pool(cluster, "/p")


def at_once() -> str:
    return explain_pool(Cluster(pool("/p", "2", "2")).queue("/p", run("w", "1", count=3, seq=1)), "/p")


SCENARIOS: dict[str, tuple[Callable[[], str], str]] = {
    "the limit of a full pool, and its largest jobs": (
        full_pool,
        """\
        instances 0-2 in the ordinary queue of /p, 0 gangs ahead: cpu 1 wanted, 0 left of the pool limit of /p: 4
          held by job b: cpu 2; job a: cpu 1; job c: cpu 0.5""",
    ),
    "behind somebody: by priority, or by age": (
        line,
        """\
        instance 0 in the ordinary queue of /p, 0 gangs ahead: cpu 2 wanted, 1 left of the pool limit of /p: 4
          held by job a: cpu 3
        instance 0 in the ordinary queue of /p, 1 gang ahead: waits behind job big in the queue of /p; that one: cpu 2 wanted, 1 left of the pool limit of /p: 4
          held by job a: cpu 3
        instance 0 in the ordinary queue of /p, 2 gangs ahead: waits behind job big, of higher priority, in the queue of /p; that one: cpu 2 wanted, 1 left of the pool limit of /p: 4
          held by job a: cpu 3""",  # noqa: E501
    ),
    "gangs are too big for ever, or for now": (
        gang,
        """\
        instances 0-4 (1 gang of 5) in the ordinary queue of /p, 0 gangs ahead: gang of 5: cpu 5 wanted, more than the pool limit of /p: 4
        instances 0-1 (1 gang of 2) in the ordinary queue of /p, 1 gang ahead: gang of 2: cpu 2 wanted, 1 left of the pool limit of /p: 4
          held by job a: cpu 3""",  # noqa: E501
    ),
    "an entitlement, and the pool that borrows": (
        lent_out,
        """\
        instance 0 in the ordinary queue of /a, 0 gangs ahead: cpu 4 wanted, 3 left of the entitlement of /a: 5
          held by job x: cpu 2; pool /b: cpu 8 (3 above its reservation)""",
    ),
    "the limit of a pool above, and its leaves": (
        above,
        """\
        instance 0 in the ordinary queue of /e/a, 0 gangs ahead: cpu 1 wanted, 0 left of the pool limit of /e: 4
          held by pool /e/b: cpu 4 (3 above its reservation)""",
    ),
    "the reservation, and only who cannot be preempted": (
        explain_reservation,
        """\
        instance 0 in the non-preemptible queue of /p, 0 gangs ahead: cpu 1 wanted, 0 left of the reservation for non-preemptible pods of /p: 2
          held by job a: cpu 2
          gangs behind it that fit may go first for 300 s more""",  # noqa: E501
    ),
    "the controller limit": (
        controllers,
        """\
        instance 0 in the controller queue of /p, 0 gangs ahead: cpu 1 wanted, 0 left of the controller limit of /p: 2
          held by job a: cpu 2
          gangs behind it that fit may go first for 300 s more""",
    ),
    "behind instances of the same job": (
        own_job,
        """\
        instance 0 in the ordinary queue of /p, 0 gangs ahead: cpu 2 wanted, 1 left of the pool limit of /p: 4
        instance 1 in the ordinary queue of /p, 1 gang ahead: waits behind other instances of the job; for them: cpu 2 wanted, 1 left of the pool limit of /p: 4""",  # noqa: E501
    ),
    "only those who can give way are named": (
        explain_crowding,
        """\
        instance 0 in the ordinary queue of /e/a, 0 gangs ahead: cpu 3 wanted, 2 left of the entitlement of /e/a: 3
          held by pool /e/b: cpu 2 (1 above its reservation)""",
    ),
    "slack, and who runs on it": (
        slack,
        """\
        instance 0 in the revocable queue of /p, 0 gangs ahead: cpu 2 wanted, 1 left of the slack entitlement of /p: 3
          held by job a: cpu 2
          gangs behind it that fit may go first for 300 s more""",
    ),
    "a kind that the cluster does not have": (
        no_gpu,
        """\
        instance 0 in the ordinary queue of /p, 0 gangs ahead: gpu 2 wanted, more than the cluster capacity of /: 0""",
    ),
    "some go at once, the rest wait": (
        at_once,
        """\
        instances 0-1 in the ordinary queue of /p, 0 gangs ahead: waits for the next admission cycle
        instance 2 in the ordinary queue of /p, 2 gangs ahead: cpu 1 wanted, 0 left of the pool limit of /p: 2""",
    ),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_is_reported(name: str) -> None:
    """Explanations have the position, the rule that binds with its numbers, and the holders of the missing
    resources.
    """
    tell, expected = SCENARIOS[name]

    assert tell() == dedent(expected)


QUEUES = st.lists(
    st.tuples(st.integers(1, 6), st.integers(1, 4), st.integers(1, 3), st.integers(0, 2), st.booleans()), max_size=8
)


@given(QUEUES, st.integers(0, 6))
def test_every_waiting_gang_has_an_answer(queued: list[tuple[int, int, int, int, bool]], used: int) -> None:
    """Explained gangs are the gangs in the queue, in its order; gangs without a reason are the admitted ones."""
    cluster = Cluster(pool("/p", "3", "8")).holds("/p", str(used))
    runs = [
        run(f"j{n}", str(cpu), count=count, size=size, priority=priority, seq=n, preemptible=preemptible)
        for n, (cpu, count, size, priority, preemptible) in enumerate(queued)
    ]
    now = snapshot(cluster.queue("/p", *runs))
    plan = plan_cycle(now)
    row = cluster.tree.row[pool_id("/p")]

    found = list(list_waits(now, plan, row))

    for queue in now.waiting.get(row, {}).values():
        mine = [wait for wait in found if wait.run in queue]
        assert sum(wait.gang_count for wait in mine) == sum(one.gang_count for one in queue)
        ahead = [wait.gangs_ahead for wait in mine]
        assert ahead == [sum(wait.gang_count for wait in mine[:n]) for n in range(len(mine))]
    going = sum(wait.gang_count for wait in found if wait.reason.rule is Rule.NO_CYCLE)
    assert going == sum(chosen.gang_count for chosen in plan.admission.admitted)


def test_loans() -> None:
    """Amounts above a reservation are borrowed from the pools on the way up that do not use theirs; a STATIC pool lends
    none.
    """
    cluster = Cluster(
        pool("/a", "5", "10"), pool("/b", "5", "10"), pool("/s", "5", "10", type="STATIC"), capacity="15"
    ).holds("/b", "8")
    now = snapshot(cluster)

    lender, borrower = (compute_loans(now, plan_cycle(now), cluster.tree.row[pool_id(path)]) for path in ("/a", "/b"))

    assert [(one.pool_path, one.amount) for one in (*lender.lent, *lender.borrowers)] == [("/a", 5000), ("/b", 3000)]
    assert [(one.pool_path, one.amount) for one in (*borrower.borrowed, *borrower.lenders)] == [
        ("/b", 3000),
        ("/a", 5000),
    ]
    assert (lender.borrowed, borrower.lent) == ((), ())


def test_a_parent_does_not_lend_what_its_static_children_keep() -> None:
    """A parent lends the last of 6 reserved cores: 1 is held and 4 are kept by an idle STATIC child."""
    cluster = Cluster(
        pool("/a", "6", "10"),
        pool("/a/s", "4", "10", type="STATIC"),
        pool("/a/e", "2", "10"),
        pool("/b", "5", "10"),
        capacity="15",
    )
    cluster = cluster.holds("/a/e", "1").holds("/b", "8")
    now = snapshot(cluster)

    found = [
        compute_loans(now, plan_cycle(now), cluster.tree.row[pool_id(path)]) for path in ("/a", "/a/e", "/a/s", "/b")
    ]

    assert [[(one.pool_path, one.amount) for one in (*each.lent, *each.lenders)] for each in found] == [
        [("/a", 1000)],
        [("/a/e", 1000)],
        [],
        [("/a", 1000)],
    ]


@pytest.mark.parametrize(("capacity", "wanted"), [("10", 2000), ("15", 0)])
def test_wanted_back(capacity: str, wanted: int) -> None:
    """A lender wants back the demand of its queue, unless there is enough for both."""
    cluster = Cluster(pool("/a", "5", "10"), pool("/b", "5", "10"), capacity=capacity).holds("/b", "8").holds("/a", "2")
    now = snapshot(cluster.queue("/a", run("w", "2", seq=1)))

    (lender,) = compute_loans(now, plan_cycle(now), cluster.tree.row[pool_id("/b")]).lenders

    assert (lender.pool_path, lender.amount, lender.wanted_back) == ("/a", 3000, wanted)


JOB = JobRecord(
    JobId("j"), "name", JobType.BATCH, "", RespoolId("p"), 6, SlaSpec(), JobState.RUNNING, JobState.SUCCEEDED
)


def test_the_maximum_of_running_instances() -> None:
    """Instances that are not queued because enough of the job run are reported with both numbers."""
    job = replace(JOB, sla=SlaSpec(maximum_running_instances=4))

    (found,) = find_unqueued(job, {PodState.RUNNING: 4, PodState.INITIALIZED: 2}, ())

    assert (found.obstacle, found.pod_count, found.left, found.bound) == (Obstacle.MAXIMUM_RUNNING, 2, 0, 4)
    assert (
        describe_unqueued(found) == "2 instances not queued yet: at most 4 may run at a time, 4 are queued or running"
    )


def test_no_host() -> None:
    """The reason of a failed placement is reported while admitted instances wait for a host, and not longer."""
    refusing = (
        RefusingHosts.of(3, LackingAmount(HostRule.FREE_RESOURCES, "gpu", 2_000, 1_000)),
        RefusingHosts.of(1, UnmetConstraint("label rack=b")),
    )
    note = (ClusterReason(pods=(NoHost(2, hosts=refusing),)),)

    (found,) = find_unqueued(JOB, {PodState.READY: 2, PodState.RUNNING: 4}, note)

    assert (Obstacle.NO_HOST, 2, note) == (found.obstacle, found.pod_count, found.placement)
    reported = (
        "admitted, but 2 pods without a host (3 hosts: less than 2 gpu free, 1 at most; 1 host: label rack=b not met)"
    )
    assert reported == describe_unqueued(found)
    assert list(find_unqueued(JOB, {PodState.RUNNING: 6}, note)) == []


def test_jobs_that_do_not_wait() -> None:
    """A running job reports its states, and that no instance waits; a stopped one that it is being stopped."""
    running = {PodState.RUNNING: 5, PodState.SUCCEEDED: 1}

    assert headline(JOB, "/p", running) == "Job name is RUNNING in pool /p: 5 RUNNING, 1 SUCCEEDED"
    assert headline(replace(JOB, creator="ann"), "/p", running).startswith(
        "Job name, created by ann, is RUNNING in pool"
    )
    assert list(story(JOB, running, [], [], [])) == ["nothing waits: 5 instances on hosts"]
    stopped = replace(JOB, goal=JobState.KILLED)
    assert list(story(stopped, running, [], [], [])) == ["it is being stopped"]
