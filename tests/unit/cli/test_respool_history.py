"""``peloton respool history``: requests, printed texts and exit codes."""

from __future__ import annotations

import json
import math

from peloton.api.v0.history import history_pb2 as pb
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi

METHOD = "history.GetPoolHistory"
POOL = pb.PoolHistory(
    path="/eng/maps",
    covered_s=[60, 0, 60, 60],
    columns=[
        pb.Column(quantity=pb.QUANTITY_ALLOCATION, kind="cpu", values=[10, 0, 20, 40], maxima=[10, 0, 30, 80]),
        pb.Column(quantity=pb.QUANTITY_LIMIT, kind="cpu", values=[math.inf, 0, math.inf, math.inf]),
        pb.Column(quantity=pb.QUANTITY_ADMITTED, values=[0, 0, 7, 0]),
    ],
    preemptions=[
        pb.Preemption(index=2, for_pool="/eng/search", instances=15),
        pb.Preemption(index=3, for_pool="/eng/maps", instances=2),
        pb.Preemption(index=3, instances=1),
    ],
)
ANSWER = pb.GetPoolHistoryResponse(start="2026-01-31T08:00:00Z", step_s=60, count=4, pools=[POOL])


def test_a_line_for_each_quantity(run: Run, api: FakeApi) -> None:
    """Each quantity has its numbers, a bar for each interval and a dot for a gap; preemptions follow, each with the
    pool that it served."""
    api.answers[METHOD] = [ANSWER]

    result = run("respool history /eng/maps --since 2026-01-31T08:00:00Z --until 2026-01-31T08:04:00Z --kind cpu")

    assert 0 == result.exit_code
    lines = result.stdout.splitlines()
    assert [
        ["cpu(cores)", "allocation", "10", "40", "23.33", "80", "▃·▅█"],
        ["cpu(cores)", "limit", "unlimited", "unlimited", "unlimited"],
        ["instances", "admitted", "0", "0", "2.33", "7", "▁·█▁"],
    ] == [line.split() for line in lines[1:4]]
    assert [
        "4 intervals of 1 min from 2026-01-31 08:00 UTC on",
        "2026-01-31 08:02 UTC  15 instances preempted for /eng/search",
        "2026-01-31 08:03 UTC  2 instances preempted for gangs of a higher priority in the same pool",
        "2026-01-31 08:03 UTC  1 instances preempted for several pools",
    ] == lines[4:]
    (request,) = api.requests(METHOD)
    assert ["/eng/maps"] == request.paths
    assert ("2026-01-31T08:00:00+00:00", "2026-01-31T08:04:00+00:00") == (request.start, request.end)
    assert (["cpu"], 0) == (request.kinds, request.step_s)


def test_a_step_is_passed_on(run: Run, api: FakeApi) -> None:
    """The step is sent in seconds; without a pool the request is for the root."""
    api.answers[METHOD] = [ANSWER]

    run("respool history --step 1h")

    (request,) = api.requests(METHOD)
    assert (["/"], 3_600, "") == (request.paths, request.step_s, request.end)


def test_many_intervals_share_bars(run: Run, api: FakeApi) -> None:
    """Each bar is the maximum of its intervals, so that peaks stay visible."""
    values = [1.0] * 480
    values[100] = 8.0
    pool = pb.PoolHistory(
        path="/",
        covered_s=[60] * 480,
        columns=[pb.Column(quantity=pb.QUANTITY_DEMAND, kind="gpu", values=values)],
    )
    api.answers[METHOD] = [pb.GetPoolHistoryResponse(start="2026-01-31T08:00:00Z", step_s=60, count=480, pools=[pool])]

    line = run("respool history /").stdout.splitlines()[1].split()[-1]

    assert (48, 10, 1) == (len(line), line.index("█"), line.count("█"))


def test_nothing_recorded_is_said(run: Run, api: FakeApi) -> None:
    """The command says that nothing was recorded, since an empty table would show an idle pool."""
    empty = pb.PoolHistory(path="/eng/maps", covered_s=[0, 0])
    api.answers[METHOD] = [pb.GetPoolHistoryResponse(start="2026-01-31T08:00:00Z", step_s=60, count=2, pools=[empty])]

    assert run("respool history /eng/maps").stdout.startswith("Nothing of /eng/maps was recorded in that time")


def test_history_for_programs(run: Run, api: FakeApi) -> None:
    """JSON has the complete answer, and ``-o name`` the name."""
    api.answers[METHOD] = [ANSWER]

    assert 60 == json.loads(run("--json respool history /eng/maps").stdout)["stepS"]
    assert "/eng/maps\n" == run("-o name respool history /eng/maps").stdout
