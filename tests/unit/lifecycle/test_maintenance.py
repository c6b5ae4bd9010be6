"""Maintenance of hosts, as decisions: the next step, turns, evicted pods, allowed requests of an operator."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peloton.lifecycle.maintenance import (
    BLOCKERS_MAX,
    NEXT_STEP,
    DrainPlan,
    Step,
    details,
    drain_progress,
    next_step,
    plan_drain,
    refusal_of,
    turn_text,
    turns,
    unavailable_max,
)
from peloton.model.host import HostState
from peloton.model.ids import Hostname, JobId
from peloton.model.job import JobType
from peloton.model.maintenance import Blocker, DrainProgress, HostedPod, HostMaintenance, MaintenanceAct

UP, DRAINING, DRAINED, DOWN = HostState.UP, HostState.DRAINING, HostState.DRAINED, HostState.DOWN
A, B, C = (JobId(f"00000000-0000-4000-8000-00000000000{i}") for i in range(3))
SECOND = 1_000_000_000


def host(name: str = "h1", state: HostState = UP, goal: HostState = DOWN, seq: int = 1, **more: Any) -> HostMaintenance:
    return HostMaintenance("c", Hostname(name), state, goal, seq=seq, **more)


def test_there_is_a_step_for_every_state() -> None:
    """The table is total; only a host with state and goal UP has no step."""
    assert set(NEXT_STEP) == set(product((UP, DOWN), HostState))
    assert [pair for pair, step in NEXT_STEP.items() if step is Step.NONE] == [(UP, UP)]


AFTER = {
    Step.CORDON: DRAINING,
    Step.DRAIN: DRAINED,
    Step.TAKE_DOWN: DOWN,
    Step.BRING_UP: UP,
}


@given(st.sampled_from(list(HostState)), st.sampled_from([UP, DOWN]))
def test_steps_lead_to_the_goal(state: HostState, goal: HostState) -> None:
    """Steps lead to the goal from every state, three steps at most."""
    now = host(state=state, goal=goal)
    for _ in range(3):
        now = replace(now, state=AFTER.get(next_step(now), now.state))
    assert now.state is goal


BOUNDS = {
    "of none": (0, 0.1, 1),
    "of few": (9, 0.1, 1),
    "rounded down": (29, 0.1, 2),
    "all": (7, 1.0, 7),
    "0": (50, 0.0, 1),
}


@pytest.mark.parametrize(("count", "share", "expected"), BOUNDS.values(), ids=BOUNDS.keys())
def test_bound(count: int, share: float, expected: int) -> None:
    """A bound is a share of the hosts, at least one."""
    assert expected == unavailable_max(count, share)


TURNS: dict[str, tuple[list[HostMaintenance], int, list[str]]] = {
    "the first": ([host("b", seq=2), host("a", seq=1)], 1, ["a"]),
    "as many as fit": ([host(n, seq=i) for i, n in enumerate("abcd")], 3, ["a", "b", "c"]),
    "who is away counts": ([host("a", DRAINING), host("b", DOWN), host("c")], 2, []),
    "also on the way up": ([host("a", DRAINED, UP), host("c")], 1, []),
    "who was cancelled before its turn does not": ([host("a", UP, UP), host("c")], 1, ["c"]),
    "a bound of its own": ([host("a", DRAINING, seq=1), host("b", at_most=2, seq=2)], 1, ["b"]),
    "a tighter one holds back those behind": ([host("x", DOWN, seq=0), host("a", at_most=1), host("b", seq=2)], 9, []),
}


@pytest.mark.parametrize(("hosts", "bound", "expected"), TURNS.values(), ids=TURNS.keys())
def test_turns(hosts: list[HostMaintenance], bound: int, expected: list[str]) -> None:
    """Turns are given in the order of the requests, up to the bound."""
    assert expected == [h.hostname for h in turns(hosts, bound)]


@given(
    st.lists(st.tuples(st.sampled_from(list(HostState)), st.sampled_from([UP, DOWN]), st.integers(0, 4)), max_size=12),
    st.integers(1, 5),
)
def test_turns_keep_the_bound(rows: list[tuple[HostState, HostState, int]], bound: int) -> None:
    """No host begins beyond its bound, and none passes a waiting one; a second call at once gives no more turns."""
    hosts = [host(f"h{i}", state, goal, i, at_most=at_most) for i, (state, goal, at_most) in enumerate(rows)]
    begun = turns(hosts, bound)
    after = [replace(h, state=DRAINING) if h in begun else h for h in hosts]

    away = sum(h.is_unavailable for h in hosts)
    for number, chosen in enumerate(begun, away + 1):
        assert number <= (chosen.at_most or bound)
    waiting = [h for h in after if h.waits_for_turn]
    assert not begun or not waiting or begun[-1].seq < waiting[0].seq
    assert turns(after, bound) == []


def test_turn_text() -> None:
    """The text has the number of unavailable hosts, the bound, and the number of hosts that wait before it."""
    hosts = [host("a", DOWN), host("b", seq=2), host("c", seq=3)]

    assert turn_text(hosts[1], hosts, 1) == "its turn: 1 of at most 1 hosts are draining or down"
    assert turn_text(hosts[2], hosts, 1) == "its turn: 1 of at most 1 hosts are draining or down, 1 wait before it"


def test_plan_of_a_drain() -> None:
    """Batch jobs are evicted as jobs, services by instance; leaving pods are not changed; daemons leave last."""
    hosted_pods = [
        HostedPod(B, 4, JobType.SERVICE, False),
        HostedPod(A, 1, JobType.BATCH, False),
        HostedPod(B, 2, JobType.SERVICE, False),
        HostedPod(B, 7, JobType.SERVICE, True),
        HostedPod(A, 2, JobType.BATCH, False),
        HostedPod(C, 0, JobType.DAEMON, False),
    ]

    assert plan_drain(hosted_pods) == DrainPlan((A,), {B: (2, 4)}, pod_count=6, leaving_count=1)
    assert plan_drain(hosted_pods[-1:]) == DrainPlan((), {C: (0,)}, pod_count=1)


PROGRESS = {
    "launches": (0, [], "launches under way to end"),
    "all leave": (2, [], "the end of 2 pods"),
    "none may": (1, [Blocker(A, 1, "why")], "the SLA of 1 job to let 1 pod go"),
    "some may": (5, [Blocker(A, 1, ""), Blocker(B, 3, "")], "the end of 1 pod and the SLA of 2 jobs to let 4 pods go"),
}


@pytest.mark.parametrize(("count", "blockers", "text"), PROGRESS.values(), ids=PROGRESS.keys())
def test_progress(count: int, blockers: list[Blocker], text: str) -> None:
    """Progress has the reasons of the wait in words and numbers."""
    refused = sum(b.pod_count for b in blockers)
    expected = DrainProgress(count, count - refused, tuple(blockers), text)
    assert expected == drain_progress(DrainPlan(pod_count=count), blockers)


def test_progress_is_bounded() -> None:
    """Progress names some of the jobs, and counts all."""
    many = [Blocker(f"{i}", 1, "") for i in range(100)]

    progress = drain_progress(DrainPlan(pod_count=100), many)

    assert (len(progress.blockers), progress.waiting_for) == (BLOCKERS_MAX, "the SLA of 100 jobs to let 100 pods go")


def test_details() -> None:
    """Details for the Web UI have the state, the pods, the reason of the wait, and the jobs that block."""
    progress = DrainProgress(3, 1, (Blocker(A, 2, "2 of at most 2 are unavailable"),), "the end of 1 pod")

    assert details(host(state=DRAINING, progress=progress)).splitlines() == [
        "Host h1 is **DRAINING**: it is going down for maintenance.",
        "",
        "3 pods on the host, 1 terminating.",
        "",
        "It waits for the end of 1 pod.",
        "",
        f"- job {A}: 2 pods may not leave: 2 of at most 2 are unavailable",
    ]
    assert details(host(state=DOWN, goal=UP)) == "Host h1 is **DOWN**: it comes back up."
    assert details(host(state=DOWN)) == "Host h1 is **DOWN**: work on it, then complete its maintenance."


COMPLETE, CANCEL, FORCE = MaintenanceAct.COMPLETE, MaintenanceAct.CANCEL, MaintenanceAct.FORCE
LATE: dict[str, Any] = {"drained_from_ns": 100 * SECOND, "deadline_s": 60}
REFUSALS: dict[str, tuple[MaintenanceAct, HostMaintenance, str]] = {
    "complete, down": (COMPLETE, host(state=DOWN), ""),
    "complete, again": (COMPLETE, host(state=DOWN, goal=UP), ""),
    "complete, draining": (COMPLETE, host(state=DRAINING), "Host is not DOWN"),
    "cancel, waiting": (CANCEL, host(), ""),
    "cancel, draining": (CANCEL, host(state=DRAINING), ""),
    "cancel, drained": (CANCEL, host(state=DRAINED), ""),
    "cancel, again": (CANCEL, host(state=DRAINED, goal=UP), ""),
    "cancel, down": (CANCEL, host(state=DOWN), "host h1 is DOWN: complete its maintenance instead"),
    "force, waiting": (FORCE, host(), "host h1 waits for its turn: its drain has not begun"),
    "force, early": (
        FORCE,
        host(state=DRAINING, **LATE),
        "host h1 may be forced 60 s after its drain began: 11 s are left",
    ),
    "force, at the deadline": (FORCE, host(state=DRAINING, drained_from_ns=90 * SECOND, deadline_s=59), ""),
    "force, drained": (FORCE, host(state=DRAINED, **LATE), "host h1 is DRAINED: nothing is left to force"),
    "force, on its way up": (
        FORCE,
        host(state=DRAINING, goal=UP),
        "host h1 is DRAINING on its way back up: nothing is left to force",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("act", "asked", "expected"), REFUSALS.values(), ids=REFUSALS.keys())
def test_refusals(act: MaintenanceAct, asked: HostMaintenance, expected: str) -> None:
    """Requests are allowed or refused by the state of a host."""
    assert expected == refusal_of(act, asked, 149 * SECOND)


def test_pods_with_volumes_stay_until_an_operator_stops_them() -> None:
    """A pod with a volume counts as waiting with its job; a forced drain evicts it like others."""
    service = HostedPod(A, 0, JobType.SERVICE, is_leaving=False)
    hosted_pods = [service, replace(service, instance_id=1, has_volume=True)]

    plan = plan_drain(hosted_pods)
    progress = drain_progress(plan, [])

    assert ({A: (0,)}, {A: 1}) == (plan.disrupt, plan.keep)
    assert (2, 1) == (progress.pod_count, progress.leaving_count)
    assert "the end of 1 pod and an operator to stop 1 pod with its volume on the host" == progress.waiting_for
    assert [(A, 1)] == [(blocker.job_id, blocker.pod_count) for blocker in progress.blockers]
    assert DrainPlan(disrupt={A: (0, 1)}, pod_count=2) == plan_drain(hosted_pods, is_forced=True)
    stopped = [replace(one, is_leaving=True) for one in hosted_pods]
    assert DrainPlan(pod_count=2, leaving_count=2) == plan_drain(stopped)
