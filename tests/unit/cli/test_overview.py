"""``peloton overview``: requests and printed texts."""

from __future__ import annotations

import json

from peloton.api.v0.overview import overview_pb2 as pb
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi

CLUSTER = pb.ClusterOverview(
    cluster="west",
    cluster_kind="mesos",
    amounts=[
        pb.KindAmounts(
            kind="cpu", capacity=16, away=8, allocation=4, used=6, measured_capacity=8, slack=4, slack_held=1
        ),
        pb.KindAmounts(kind="gpu"),
    ],
    hosts=pb.HostCounts(total=3, states={"UP": 2, "DRAINING": 1}, in_maintenance=1, avoided=1, marks={"RED": 1}),
)
ANSWER = pb.GetOverviewResponse(
    clusters=[CLUSTER, pb.ClusterOverview(cluster="east", is_silent=True)],
    jobs={"RUNNING": 1_200, "SUCCEEDED": 5},
    pods={"RUNNING": 7},
    counted_time="2026-01-02T03:04:05Z",
    roles=[
        pb.RoleLease(role="hostmgr/east", seconds_left=-3),
        pb.RoleLease(role="resmgr", address="10.0.0.1:1", seconds_left=4.25),
    ],
    temporal_address="temporal:7233",
    temporal_namespace="prod",
)
PROBLEM = pb.Problem(
    severity=pb.SEVERITY_CRITICAL,
    text="Host h1 left",
    subject_kind=pb.SUBJECT_KIND_HOST,
    subject_id="h1",
    since="2026-01-02T03:04:05Z",
    command="peloton host why h1",
)


def test_what_is_wrong_comes_first(run: Run, api: FakeApi) -> None:
    """Each problem has the command that shows more, and the last line counts the problems left out."""
    wrong = pb.GetOverviewResponse(problems=[PROBLEM], problems_left_out=2)
    wrong.MergeFrom(ANSWER)
    api.answers["overview.GetOverview"] = [wrong]

    lines = run("overview").stdout.splitlines()

    assert ["Severity", "Since", "What", "More"] == lines[0].split()
    assert "CRITICAL  2026-01-02T03:04:05Z  Host h1 left  peloton host why h1" == lines[1]
    assert "and 2 more" == lines[2]


def test_clusters_counts_and_leaders(run: Run, api: FakeApi) -> None:
    """Unknown values are empty, not 0."""
    api.answers["overview.GetOverview"] = [ANSWER]

    lines = run("overview").stdout.splitlines()

    assert "Nothing is wrong" == lines[0]
    assert "west     cpu (cores)  16        8     4 (25%)    6.00 of 8  4      1" == lines[3]
    assert "west     gpu (gpus)   0         0     0" == lines[4]
    assert "east     no answer" == lines[5]
    assert [
        "Hosts of west: 2 UP, 1 DRAINING, 1 in maintenance, 1 avoided, marked 1 RED",
        "Jobs: 1,200 RUNNING, 5 SUCCEEDED",
        "Pods: 7 RUNNING",
        "Role hostmgr/east: no leader",
        "Role resmgr: led at 10.0.0.1:1, lease for 4.2 s more",
        "Temporal: temporal:7233, namespace prod",
    ] == lines[7:]


def test_a_count_that_takes_long(run: Run, api: FakeApi) -> None:
    """The other parts are printed without the counts."""
    api.answers["overview.GetOverview"] = [pb.GetOverviewResponse(clusters=[CLUSTER])]

    assert run("overview").stdout.splitlines()[-1].startswith("Jobs and pods are being counted")


def test_the_overview_for_programs(run: Run, api: FakeApi) -> None:
    """JSON has the complete answer, and ``-o name`` the subjects of the problems."""
    api.answers["overview.GetOverview"] = [pb.GetOverviewResponse(problems=[PROBLEM])]

    assert "Host h1 left" == json.loads(run("--json overview").stdout)["problems"][0]["text"]
    assert "h1\n" == run("-o name overview").stdout
