"""``peloton host advice``: requests, printed texts and exit codes."""

from __future__ import annotations

import json

from peloton.api.v0.advice import advice_pb2 as pb
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi

JOB, SINCE = "91b1b8e5-2ba8-11e7-bc23-0242ac11000d", "2026-01-02T03:04:05.678Z"
ADVICE = pb.AdviceResponse(
    hosts=[
        pb.HostMark(hostname="h1", mark=pb.MARK_GREEN, since=SINCE, reason="cpu 5 %"),
        pb.HostMark(hostname="h2", mark=pb.MARK_ORANGE, since=SINCE, reason="cpu 85 %, orange from 80 %"),
    ],
    services=[pb.ServiceMark(job_id=JOB, mark=pb.MARK_RED, since=SINCE, reason="p99 900 ms, red from 500 ms")],
    silent_clusters=["c"],
)


def test_the_worst_come_first(run: Run, api: FakeApi) -> None:
    """Hosts and services are in one list, each with its reason; clusters that did not answer are named."""
    api.answers["advice.Advice"] = [ADVICE]

    result = run("host advice --mark red --mark orange")

    assert [
        ["RED", "service", JOB, "2026-01-02T03:04:05Z", "p99", "900", "ms,", "red", "from", "500", "ms"],
        ["ORANGE", "host", "h2", "2026-01-02T03:04:05Z", "cpu", "85", "%,", "orange", "from", "80", "%"],
        ["GREEN", "host", "h1", "2026-01-02T03:04:05Z", "cpu", "5", "%"],
    ] == [line.split() for line in result.stdout.splitlines()[1:]]
    assert (0, True) == (result.exit_code, "c" in result.stderr)
    (request,) = api.requests("advice.Advice")
    assert pb.AdviceRequest(marks=[pb.MARK_RED, pb.MARK_ORANGE]) == request


def test_marks_for_programs(run: Run, api: FakeApi) -> None:
    """JSON has the complete answer, and ``-o name`` the names, the worst first."""
    api.answers["advice.Advice"] = [ADVICE]

    assert "MARK_RED" == json.loads(run("--json host advice").stdout)["services"][0]["mark"]
    assert f"{JOB}\nh2\nh1\n" == run("-o name host advice").stdout


def test_no_marks_are_explained(run: Run, api: FakeApi) -> None:
    """An empty list comes with its possible causes."""
    api.answers["advice.Advice"] = [pb.AdviceResponse()]

    assert run("host advice").stdout.startswith("No marks: no host is measured, or none has this mark")
