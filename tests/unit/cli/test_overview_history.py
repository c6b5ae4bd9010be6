"""``peloton overview history``: requests and printed texts."""

from __future__ import annotations

import json

from peloton.api.v0.history import history_pb2 as pb
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi

METHOD = "history.GetClusterHistory"
WEST = pb.ClusterHistory(
    cluster="west",
    covered_s=[60, 0, 60, 60],
    columns=[
        pb.Column(quantity=pb.QUANTITY_CAPACITY, kind="cpu", values=[80, 0, 80, 80]),
        pb.Column(quantity=pb.QUANTITY_SLACK_ALLOCATION, kind="cpu", values=[10, 0, 20, 40], maxima=[10, 0, 30, 80]),
        pb.Column(quantity=pb.QUANTITY_HOSTS_UP, values=[10, 0, 10, 10]),
    ],
)
EAST = pb.ClusterHistory(cluster="east", covered_s=[0, 0, 0, 0])
ANSWER = pb.GetClusterHistoryResponse(start="2026-01-31T08:00:00Z", step_s=60, count=4, clusters=[EAST, WEST])


def test_a_line_for_each_quantity_of_a_cluster(run: Run, api: FakeApi) -> None:
    """A gap is a dot; a cluster without samples is named, since an empty table would show it as idle."""
    api.answers[METHOD] = [ANSWER]

    result = run("overview history --since 2026-01-31T08:00:00Z --until 2026-01-31T08:04:00Z --kind cpu --step 1m")

    assert 0 == result.exit_code
    lines = result.stdout.splitlines()
    assert [
        ["west", "cpu(cores)", "capacity", "80", "80", "80", "80", "█·██"],
        ["west", "cpu(cores)", "slack", "allocation", "10", "40", "23.33", "80", "▃·▅█"],
        ["west", "hosts", "hosts", "up", "10", "10", "10", "10", "█·██"],
    ] == [line.split() for line in lines[1:4]]
    assert "4 intervals of 1 min from 2026-01-31 08:00 UTC on" == lines[4]
    assert lines[5].startswith("Nothing of cluster east was recorded in that time")
    (request,) = api.requests(METHOD)
    assert ("2026-01-31T08:00:00+00:00", "2026-01-31T08:04:00+00:00") == (request.start, request.end)
    assert ([], ["cpu"], 60) == (request.clusters, request.kinds, request.step_s)


def test_the_history_of_clusters_for_programs(run: Run, api: FakeApi) -> None:
    """JSON has the complete answer, and ``-o name`` the clusters; the overview itself is not requested."""
    api.answers[METHOD] = [ANSWER]

    assert 60 == json.loads(run("--json overview history --cluster west").stdout)["stepS"]
    assert "east\nwest\n" == run("-o name overview history").stdout
    assert [["west"], []] == [request.clusters for request in api.requests(METHOD)]
    assert [] == api.requests("overview.GetOverview")


def test_no_cluster_at_all(run: Run, api: FakeApi) -> None:
    """The command says that there are no clusters."""
    api.answers[METHOD] = [pb.GetClusterHistoryResponse(step_s=60, count=2)]

    assert "There are no clusters\n" == run("overview history").stdout
