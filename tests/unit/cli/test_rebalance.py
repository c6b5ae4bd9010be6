"""Requests, output and exit codes of ``peloton host rebalance``."""

from __future__ import annotations

import json

import pytest

from peloton.api.v0.rebalance import rebalance_pb2 as pb
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi

JOB, BIG = "91b1b8e5-2ba8-11e7-bc23-0242ac11000d", "00000000-0000-4000-8000-00000000000b"
PLAN = pb.PlanRebalanceResponse(
    moves=[pb.Move(job_id=JOB, instance_id=3, source="h1", target="h2", goal=pb.GOAL_FREE, reason="frees resources")],
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
    moves=[pb.PastMove(job_id=JOB, instance_id=3, source="h1", target="h2", state="MOVING", reason="frees resources")],
)


def test_a_plan_lists_moves_and_staying_pods(run: Run, api: FakeApi) -> None:
    """The plan lists moves with goals, pods that stay, pods that fit on no host, and clusters without an answer."""
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


def test_the_command_alone_moves_nothing(run: Run, api: FakeApi) -> None:
    """The command without --plan or a subcommand is a usage error and sends no request."""
    result = run("host rebalance")

    assert (2, []) == (result.exit_code, api.requests("rebalances.PlanRebalance"))
    assert "--plan" in result.stderr


def test_a_plan_changes_nothing(run: Run, api: FakeApi) -> None:
    """--plan before a subcommand is a usage error."""
    result = run("host rebalance --plan start")

    assert (2, []) == (result.exit_code, api.requests("rebalances.StartRebalance"))
    assert "--plan, --goal and --moves cannot precede start, which has options of its own" in result.stderr


def test_start_sends_goals_and_budget(run: Run, api: FakeApi) -> None:
    """The request has the goals, the budget and the cluster; a budget above the limit is a usage error."""
    api.answers["rebalances.StartRebalance"] = [pb.StartRebalanceResponse(rebalances=[ROW])]

    result = run("host rebalance start --goal free --goal empty --per-hour 20 --cluster east")

    assert (0, "The rebalancing of cluster east is RUNNING\n") == (result.exit_code, result.stdout)
    wanted = pb.StartRebalanceRequest(cluster="east", goals=[pb.GOAL_FREE, pb.GOAL_EMPTY], moves_per_hour=20)
    assert [wanted] == api.requests("rebalances.StartRebalance")
    assert 2 == run("host rebalance start --per-hour 10001").exit_code


@pytest.mark.parametrize("verb", ["Pause", "Resume", "Stop"])
def test_pause_resume_and_stop(run: Run, api: FakeApi, verb: str) -> None:
    """Each command applies to one cluster, or to all clusters with a rebalancing."""
    method = f"rebalances.{verb}Rebalance"
    answer = getattr(pb, f"{verb}RebalanceResponse")(rebalances=[ROW])
    api.answers[method] = [answer, answer]

    assert "The rebalancing of cluster east is RUNNING\n" == run(f"host rebalance {verb.lower()}").stdout
    assert "east\n" == run(f"-o name host rebalance {verb.lower()} --cluster east").stdout
    assert ["", "east"] == [request.cluster for request in api.requests(method)]


def test_status_shows_progress_budget_and_blocked_pods(run: Run, api: FakeApi) -> None:
    """The status also lists the latest moves with their reasons."""
    api.answers["rebalances.QueryRebalance"] = [pb.QueryRebalanceResponse(rebalances=[ROW])]

    lines = run("host rebalance status --moves 5").stdout.splitlines()

    assert [
        "Cluster east is RUNNING: free, empty; 7 moves, 1 of them under way; 3 of 60 within the hour",
        "It waits for 1 pod to run again",
        f"Pods that fit on no host, and for which moves cannot free enough resources: of job {BIG}",
        "Pods that stay: 2 kept by the SLA",
    ] == lines[:4]
    assert [JOB, "3", "h1", "h2", "MOVING"] == lines[5].split()[:5]
    assert lines[5].endswith("frees resources")
    assert [pb.QueryRebalanceRequest(moves_limit=5)] == api.requests("rebalances.QueryRebalance")


def test_status_without_a_rebalancing(run: Run, api: FakeApi) -> None:
    """The status says that rebalancing is off."""
    api.answers["rebalances.QueryRebalance"] = [pb.QueryRebalanceResponse(), pb.QueryRebalanceResponse()]

    assert "Rebalancing is off: no cluster has ever been rebalanced\n" == run("host rebalance status").stdout
    only = run("host rebalance status --cluster east").stdout
    assert "Rebalancing is off: cluster east has never been rebalanced\n" == only
