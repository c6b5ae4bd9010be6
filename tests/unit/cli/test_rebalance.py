"""``peloton host rebalance``: requests, printed texts and exit codes."""

from __future__ import annotations

import json

import pytest

from peloton.api.v0.rebalance import rebalance_pb2 as pb
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi

JOB, BIG = "91b1b8e5-2ba8-11e7-bc23-0242ac11000d", "00000000-0000-4000-8000-00000000000b"
PLAN = pb.PlanRebalanceResponse(
    moves=[pb.Move(job_id=JOB, instance_id=3, source="h1", target="h2", goal=pb.GOAL_FREE, reason="makes room")],
    stuck_job_ids=[BIG],
    staying=[
        pb.Staying(reason="kept by the SLA", pod_count=2, cluster="a"),
        pb.Staying(reason="kept by the SLA", pod_count=1, cluster="b"),
    ],
    silent_clusters=["c"],
)
ROW = pb.Rebalance(
    cluster="east",
    state="RUNNING",
    goals=[pb.GOAL_FREE, pb.GOAL_EMPTY],
    moves_per_hour=60,
    move_count=7,
    moving_count=1,
    hour_count=3,
    waiting_for="1 pod to run again",
    stuck_job_ids=[BIG],
    staying=[pb.Staying(reason="kept by the SLA", pod_count=2, cluster="east")],
    moves=[pb.PastMove(job_id=JOB, instance_id=3, source="h1", target="h2", state="MOVING", reason="makes room")],
)


def test_a_plan_says_what_moves_what_stays_and_why(run: Run, api: FakeApi) -> None:
    """The plan lists moves with their goals, pods that stay and pods that fit nowhere, and names silent clusters."""
    api.answers["rebalances.PlanRebalance"] = [PLAN]

    result = run("host rebalance --plan --goal free --goal empty --moves 20")

    assert 0 == result.exit_code
    assert [JOB, "3", "h1", "h2", "FREE"] == result.stdout.splitlines()[1].split()[:5]
    assert [
        f"Pods that fit on no host, and for which moves cannot free enough resources: of job {BIG}",
        "Pods that stay: 3 kept by the SLA",
    ] == result.stdout.splitlines()[-2:]
    assert "c" in result.stderr
    (request,) = api.requests("rebalances.PlanRebalance")
    assert pb.PlanRebalanceRequest(goals=[pb.GOAL_FREE, pb.GOAL_EMPTY], moves_max=20) == request


def test_a_plan_for_programs(run: Run, api: FakeApi) -> None:
    """JSON has the complete answer, and ``-o name`` the names of the pods."""
    api.answers["rebalances.PlanRebalance"] = [PLAN]

    assert "FREE" in json.loads(run("--json host rebalance --plan").stdout)["moves"][0]["goal"]
    assert f"{JOB}-3\n" == run("-o name host rebalance --plan").stdout


def test_nothing_is_moved_unasked(run: Run, api: FakeApi) -> None:
    """The command alone is wrong usage and sends nothing."""
    result = run("host rebalance")

    assert (2, []) == (result.exit_code, api.requests("rebalances.PlanRebalance"))
    assert "--plan" in result.stderr


def test_a_plan_changes_nothing(run: Run, api: FakeApi) -> None:
    """--plan with a command that changes something is wrong usage."""
    result = run("host rebalance --plan start")

    assert (2, []) == (result.exit_code, api.requests("rebalances.StartRebalance"))
    assert "--plan, --goal and --moves cannot precede start, which has options of its own" in result.stderr


def test_it_is_started_with_goals_and_a_budget(run: Run, api: FakeApi) -> None:
    """The request has the goals and the budget for one cluster, or for all."""
    api.answers["rebalances.StartRebalance"] = [pb.StartRebalanceResponse(rebalances=[ROW])]

    result = run("host rebalance start --goal free --goal empty --per-hour 20 --cluster east")

    assert (0, "The rebalancing of cluster east is RUNNING\n") == (result.exit_code, result.stdout)
    wanted = pb.StartRebalanceRequest(cluster="east", goals=[pb.GOAL_FREE, pb.GOAL_EMPTY], moves_per_hour=20)
    assert [wanted] == api.requests("rebalances.StartRebalance")
    assert 2 == run("host rebalance start --per-hour 10001").exit_code


@pytest.mark.parametrize("verb", ["Pause", "Resume", "Stop"])
def test_it_is_steered(run: Run, api: FakeApi, verb: str) -> None:
    """Each command steers one cluster, or all clusters with a rebalancing."""
    method = f"rebalances.{verb}Rebalance"
    answer = getattr(pb, f"{verb}RebalanceResponse")(rebalances=[ROW])
    api.answers[method] = [answer, answer]

    assert "The rebalancing of cluster east is RUNNING\n" == run(f"host rebalance {verb.lower()}").stdout
    assert "east\n" == run(f"-o name host rebalance {verb.lower()} --cluster east").stdout
    assert ["", "east"] == [request.cluster for request in api.requests(method)]


def test_its_state_names_progress_budget_and_blocks(run: Run, api: FakeApi) -> None:
    """The status has the latest moves with their reasons as well."""
    api.answers["rebalances.QueryRebalance"] = [pb.QueryRebalanceResponse(rebalances=[ROW])]

    lines = run("host rebalance status --moves 5").stdout.splitlines()

    assert [
        "Cluster east is RUNNING: free, empty; 7 moves, 1 of them under way; 3 of 60 within the hour",
        "It waits for 1 pod to run again",
        f"Pods that fit on no host, and for which moves cannot free enough resources: of job {BIG}",
        "Pods that stay: 2 kept by the SLA",
    ] == lines[:4]
    assert [JOB, "3", "h1", "h2", "MOVING"] == lines[5].split()[:5]
    assert lines[5].endswith("makes room")
    assert [pb.QueryRebalanceRequest(moves_limit=5)] == api.requests("rebalances.QueryRebalance")


def test_it_is_off_until_an_operator_starts_it(run: Run, api: FakeApi) -> None:
    """The status says that rebalancing is off."""
    api.answers["rebalances.QueryRebalance"] = [pb.QueryRebalanceResponse(), pb.QueryRebalanceResponse()]

    assert "Rebalancing is off: no cluster has ever been rebalanced\n" == run("host rebalance status").stdout
    only = run("host rebalance status --cluster east").stdout
    assert "Rebalancing is off: cluster east has never been rebalanced\n" == only
