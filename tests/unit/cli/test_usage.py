"""``peloton usage``: requests, tables and CSV."""

from __future__ import annotations

import json

from peloton.api.v0.history import history_pb2 as pb
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi

METHOD = "history.GetUsage"
CORES = pb.KindHours(kind="cpu", used=1234.5, borrowed=34.5)
ANSWER = pb.GetUsageResponse(
    pools=[pb.Usage(path="/eng", hours=[CORES, pb.KindHours(kind="gpu", lent=1 / 3)])],
    owners=[
        pb.Usage(path="/eng", owner="alice", day="2026-01-31", hours=[CORES]),
        pb.Usage(path="/eng", owner="*", day="2026-01-31", hours=[CORES]),
        pb.Usage(path="/eng", day="2026-01-31", hours=[CORES]),
    ],
)


def test_hours_of_pools(run: Run, api: FakeApi) -> None:
    """Guaranteed hours are used ones within the reservation."""
    api.answers[METHOD] = [ANSWER]

    result = run("usage /eng --since 2026-01-01T00:00:00Z --until 2026-02-01T00:00:00Z")

    assert [
        ["/eng", "all", "core-hours", "1234.5", "1200", "34.5", "0"],
        ["/eng", "all", "GPU-hours", "0", "0", "0", "0.33"],
    ] == [line.split() for line in result.stdout.splitlines()[1:]]
    (request,) = api.requests(METHOD)
    assert (["/eng"], "2026-01-01T00:00:00+00:00", "2026-02-01T00:00:00+00:00") == (
        request.paths, request.start, request.end,
    )  # fmt: skip
    assert not request.daily


def test_hours_of_owners_as_csv(run: Run, api: FakeApi) -> None:
    """CSV has all digits and named rows for jobs without an owner and for owners beyond the limit."""
    api.answers[METHOD] = [ANSWER]

    result = run("usage --owner alice --daily --csv")

    assert [
        "pool,owner,day,kind,used,guaranteed,borrowed,lent",
        "/eng,alice,2026-01-31,core-hours,1234.5,1200.0,34.5,0.0",
        "/eng,(others),2026-01-31,core-hours,1234.5,1200.0,34.5,0.0",
        "/eng,(no owner),2026-01-31,core-hours,1234.5,1200.0,34.5,0.0",
    ] == result.stdout.splitlines()
    (request,) = api.requests(METHOD)
    assert (["/"], ["alice"], True) == (request.paths, request.owners, request.daily)


def test_a_hostile_owner_is_no_formula(run: Run, api: FakeApi) -> None:
    """Spreadsheets calculate cells that begin with such a character; escape sequences are shown."""
    owners = ["=cmd()", "+1", "-1", "@SUM(A1)", "a\x1b[31m,\u202e"]
    hours = ANSWER.owners[0].hours
    api.answers[METHOD] = [pb.GetUsageResponse(owners=[pb.Usage(path="/p", owner=one, hours=hours) for one in owners])]

    lines = run("usage --by owner --csv").stdout.splitlines()[1:]

    expected = ["'=cmd()", "'+1", "'-1", "'@SUM(A1)", r'"a\x1b[31m,\u202e"']
    assert expected == [line.removeprefix("/p,").partition(",all,")[0] for line in lines]


def test_usage_for_programs(run: Run, api: FakeApi) -> None:
    """JSON is the answer, names are owners or pools, and a time without records is said in a sentence."""
    api.answers[METHOD] = [ANSWER, ANSWER, pb.GetUsageResponse()]
    assert "alice" == json.loads(run("--json usage").stdout)["owners"][0]["owner"]
    assert "alice\n*\n/eng\n" == run("-o name usage --by owner").stdout
    assert run("usage /eng").stdout.startswith("No usage of /eng was recorded in that time")
