"""`why`, `plan` and `respool tree`: requests, printed texts and exit codes."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from cli.respool.tree import bar_lines, bar_of, bars, screen, watch_bars
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.explain import explain_pb2 as pb
from peloton.api.v0.respool import respool_pb2
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi

FOUND = respool_pb2.LookupResponse(id=peloton_pb2.ResourcePoolID(value="p"))


@pytest.mark.parametrize("what", ["job", "respool"])
def test_why_prints_the_text(run: Run, api: FakeApi, what: str) -> None:
    """The command prints the answer's text unchanged; --json prints the complete answer."""
    api.answers["explain.JobWhy"] = [pb.JobWhyResponse(text="because\n  of that")]
    api.answers["explain.PoolWhy"] = [pb.PoolWhyResponse(text="because\n  of that")]
    name = {"job": "j1", "respool": "/eng"}[what]

    assert run(f"{what} why {name}").stdout == "because\n  of that\n"
    assert json.loads(run(f"--json {what} why {name}").stdout)["text"] == "because\n  of that"
    asked = api.requests("explain.JobWhy") or api.requests("explain.PoolWhy")
    assert (asked[0].jobId.value if what == "job" else asked[0].path.value) == name


def test_an_unknown_job(run: Run, api: FakeApi) -> None:
    """A refusal is one line on standard error and exit code 1."""
    api.answers["explain.JobWhy"] = [(grpc.StatusCode.NOT_FOUND, "job j1 not found")]

    result = run("job why j1")

    assert (result.exit_code, result.stdout, result.stderr) == (1, "", "job j1 not found (NOT_FOUND)\n")


def test_plan_of_a_job(run: Run, api: FakeApi, tmp_path: Path) -> None:
    """The request has the file's content and the id of the pool, and nothing is created."""
    path = tmp_path / "job.yaml"
    path.write_text("name: test\ninstancecount: 3\n")
    api.answers["respools.LookupResourcePoolID"] = [FOUND]
    api.answers["explain.JobPlan"] = [pb.JobPlanResponse(text="all of them")]

    result = run("job", "plan", "/eng", path)

    (request,) = api.requests("explain.JobPlan")
    assert (result.stdout, request.config.respoolID.value, request.config.instanceCount) == ("all of them\n", "p", 3)
    assert api.requests("jobs.Create") == []


def test_plan_of_a_service(run: Run, api: FakeApi, tmp_path: Path) -> None:
    """The request has the spec that a creation would send."""
    path = tmp_path / "service.yaml"
    path.write_text("name: web\ninstancecount: 3\n")
    api.answers["respools.LookupResourcePoolID"] = [FOUND]
    api.answers["explain.JobPlan"] = [pb.JobPlanResponse(text="all of them")]

    result = run("job", "stateless", "plan", "/eng", path)

    (request,) = api.requests("explain.JobPlan")
    assert ("all of them\n", "p", 3) == (result.stdout, request.spec.respool_id.value, request.spec.instance_count)
    assert not request.HasField("config")
    assert [] == api.requests("services.CreateJob")


def test_plan_of_a_pool(run: Run, api: FakeApi, tmp_path: Path) -> None:
    """The pool is below the root, or below --parent; a file that names a parent is refused."""
    path = tmp_path / "pool.yaml"
    path.write_text("name: maps\n")
    api.answers["respools.LookupResourcePoolID"] = [FOUND]
    api.answers["explain.PoolPlan"] = [pb.PoolPlanResponse(text="nothing much")]

    outputs = [run("respool", "plan", path).stdout, run("respool", "plan", path, "--parent", "/eng").stdout]
    path.write_text("name: maps\nparent: {value: p}\n")
    refused = run("respool", "plan", path)

    assert outputs == ["nothing much\n"] * 2
    assert [one.path.value for one in api.requests("respools.LookupResourcePoolID")] == ["/", "/eng"]
    assert {one.config.parent.value for one in api.requests("explain.PoolPlan")} == {"p"}
    assert (refused.exit_code, refused.stderr) == (1, "parent should not be supplied in the config\n")


def tree() -> pb.PoolTreeResponse:
    answer = pb.PoolTreeResponse()
    root = answer.pools.add(path="/")
    root.amounts.add(kind="cpu", reservation=12, limit=12, share=1, entitlement=12, allocation=3, demand=3)
    eng = answer.pools.add(path="/eng", depth=1, queuedInstances=3)
    eng.amounts.add(kind="cpu", limit=float("inf"), share=2, entitlement=9, allocation=3, demand=3)
    eng.amounts.add(kind="gpu", share=1)
    return answer


TREE = """\
Pool  Kind        Reservation  Limit      Share  Entitlement  Allocation  Demand
/     cpu(cores)  12           12         1      12           3           3
/eng  cpu(cores)  0            unlimited  2      9            3           3
"""


def test_tree_is_a_table(run: Run, api: FakeApi) -> None:
    """The tree is one line for each pool and kind if there is no terminal; kinds without amounts are left out."""
    api.answers["explain.PoolTree"] = [tree()]

    assert run("respool tree").stdout == TREE
    assert len(json.loads(run("--json respool tree").stdout)["pools"]) == 2


TREE_OF_HOSTS = """\
Pool                     Kind        Reservation  Limit      Share  Entitlement  Allocation  Demand
/                        cpu(cores)  12           12         1      12           3           3
/ in host pool batch     cpu(cores)               4                 4            3           3
/ in host pool services  cpu(cores)               8                 8            0           0
/eng                     cpu(cores)  0            unlimited  2      9            3           3
/eng in host pool batch  cpu(cores)               4                 4            3           3
"""


def make_divided_tree() -> pb.PoolTreeResponse:
    """Return the tree while host pools serve some workloads only."""
    answer = tree()
    for pool in answer.pools:
        batch = pool.onHosts.add(hostPools="host pool batch", workloads=["batch"])
        batch.amounts.add(kind="cpu", limit=4, entitlement=4, allocation=3, demand=3)
    services = answer.pools[0].onHosts.add(hostPools="host pool services", workloads=["stateless"])
    services.amounts.add(kind="cpu", limit=8, entitlement=8)
    return answer


def test_tree_shows_hosts_that_serve_some_workloads(run: Run, api: FakeApi) -> None:
    """Each part of the hosts has a line below its pool's."""
    api.answers["explain.PoolTree"] = [make_divided_tree()]

    assert run("respool tree").stdout == TREE_OF_HOSTS


def test_bars_show_hosts_that_serve_some_workloads() -> None:
    """The bars of host pools stand below their pool's."""
    lines = [line for pool in make_divided_tree().pools for line in bar_lines(pool)]

    names = ["/", "  in host pool batch", "  in host pool services", "  eng", "    in host pool batch"]
    assert [line.cells["pool"] for line in lines] == names


def test_tree_is_watched(run: Run, api: FakeApi) -> None:
    """--watch polls the tree, and --json prints each answer on one line. An outage of the API is waited for, except
    at the first answer."""
    gone = (grpc.StatusCode.UNAVAILABLE, "gone")
    api.answers["explain.PoolTree"] = [tree(), tree(), gone, gone, tree(), (grpc.StatusCode.INTERNAL, "broken"), gone]

    result = run("--json respool tree --watch --every 1ms")
    refused = run("--json respool tree --watch --every 1ms")

    assert [len(json.loads(line)["pools"]) for line in result.stdout.splitlines()] == [2, 2, 2]
    assert (result.exit_code, result.stderr.splitlines()) == (
        1,
        [
            f"{api.address} does not answer; the cluster continues, retrying ...",
            f"{api.address} answers again",
            "cannot watch cluster with its pools: broken (INTERNAL)",
        ],
    )
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert len(api.requests("explain.PoolTree")) == 7


def test_a_pool_without_amounts_is_in_the_table(run: Run, api: FakeApi) -> None:
    """A pool whose amounts are all 0 still has a line."""
    answer = tree()
    answer.pools.add(path="/new", depth=1).amounts.add(kind="cpu", share=1)
    api.answers["explain.PoolTree"] = [answer]

    assert run("respool tree").stdout == TREE + "/new\n"


def print_lines(renderable: RenderableType, width: int) -> list[str]:
    out = StringIO()
    Console(file=out, width=width).print(renderable)
    return out.getvalue().splitlines()


def test_bars() -> None:
    """The length of a bar is the limit or the cluster's capacity; it shows allocation, demand, and a mark at the
    entitlement."""
    eng = next(line for line in print_lines(bars(tree(), 140), 140) if "eng" in line)

    assert eng.split() == ["eng", "3", "cpu(cores)", "██████▓▓▓▓▓▓·····│······", "3", "9", "3", "0", "unlimited", "2"]
    assert bar_of(pb.PoolAmounts(kind="gpu"), 0).count("·") == 24


MARKS = [(6, "·┆·│····"), (3, "·│······"), (2, "│┆······"), (0, "·┆······")]


@pytest.mark.parametrize(("entitlement", "expected"), MARKS)
def test_a_bar_marks_the_reservation(entitlement: float, expected: str) -> None:
    """The reservation has a mark of its own, except where the entitlement has its mark."""
    amounts = pb.PoolAmounts(reservation=3, entitlement=entitlement)

    assert expected == Text.from_markup(bar_of(amounts, 12, 8)).plain


TITLES = ["Pool", "Queued", "Kind", "Allocation", "Entitlement", "Demand", "Reservation", "Limit", "Share"]
SHORT_TITLES = ["Pool", "Que", "Kind", "Alloc", "Entitl", "Demand", "Reserv", "Limit", "Share"]


@pytest.mark.parametrize(
    ("width", "titles"),
    [
        (120, TITLES),
        (90, SHORT_TITLES),
        (80, SHORT_TITLES),
        (60, [title for title in SHORT_TITLES if title not in ("Que", "Share", "Limit")]),
        (50, [title for title in SHORT_TITLES if title not in ("Que", "Share", "Limit", "Reserv")]),
    ],
)
def test_bars_on_a_narrow_terminal(width: int, titles: list[str]) -> None:
    """Bars and titles become short, then columns are left out: no number is ever cut."""
    answer = tree()
    answer.pools.add(path="/a-rather-long-name", depth=1).amounts.add(
        kind="memory", reservation=123456, limit=234567, share=1, entitlement=123456, allocation=98765.5, demand=3
    )

    header, *lines = print_lines(bars(answer, width), width)

    assert header.split() == titles
    assert max(map(len, [header, *lines])) <= width
    words = {"98765.5", "123456", "3"} | ({"234567"} if "Limit" in titles else set())
    assert words <= set(lines[-1].split())


def test_the_watched_screen_is_not_higher_than_the_terminal() -> None:
    """The last line counts the lines that do not fit."""
    answer = tree()
    for number in range(30):
        answer.pools.add(path=f"/p{number}", depth=1).amounts.add(kind="cpu", limit=1)

    lines = print_lines(screen(answer, "12:00:00", 100, 24), 100)

    assert (24, "12:00:00  11 more lines do not fit on the screen") == (len(lines), lines[-1].rstrip())
    assert "12:00:00" == print_lines(screen(tree(), "12:00:00", 100, 24), 100)[-1].rstrip()


def on_a_terminal(api: FakeApi, *words: str, interrupt_at: bytes = b"", **environment: str) -> tuple[int, bytes]:
    """Run the command on a pseudo-terminal; return its exit code and all its output until the other end is closed,
    since one read may return a part. SIGINT is sent once the output contains ``interrupt_at``."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "cli.main", "-a", api.address, "--timeout", "3m", *words]
    process = subprocess.Popen(
        command, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm", **environment}
    )
    os.close(theirs)
    output, is_awaited = b"", bool(interrupt_at)
    try:
        while chunk := os.read(ours, 65_536):
            output += chunk
            if is_awaited and interrupt_at in output:
                process.send_signal(signal.SIGINT)
                is_awaited = False
    except OSError:  # Linux: the other end is closed
        pass
    finally:
        os.close(ours)
        process.wait()
    assert not is_awaited, output
    return process.returncode, output


def test_ctrl_c_ends_the_watched_screen(api: FakeApi) -> None:
    """The command leaves the alternate screen and exits with 130 and without a traceback."""
    api.answers["explain.PoolTree"] = [tree()]

    code, output = on_a_terminal(api, "respool", "tree", "--watch", interrupt_at=b"Ctrl-C ends")

    assert (130, True) == (code, output.decode().endswith("\x1b[?1049lStopped watching.\r\n")), output


def test_an_interrupt_while_the_screen_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command restores the terminal, which rich does not do in this case."""

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Live, "start", interrupt)
    settings: Any = SimpleNamespace(client=SimpleNamespace(explain=SimpleNamespace(PoolTree=lambda _: tree())))

    with pytest.raises(KeyboardInterrupt):
        watch_bars(settings, 1)

    assert capsys.readouterr().out.endswith("\x1b[?25h\x1b[?1049l")


def test_a_terminal_with_few_characters(api: FakeApi) -> None:
    """Bars use ASCII characters, and each other character in a name becomes a question mark."""
    answer = tree()
    answer.pools.add(path="/größe", depth=1)
    api.answers["explain.PoolTree"] = [answer]

    code, output = on_a_terminal(api, "respool", "tree", COLUMNS="120", NO_COLOR="1", PYTHONIOENCODING="ascii")

    shown = output.decode("ascii")
    assert (0, True, True) == (code, "#" * 5 + "=" in shown, "gr??e" in shown), shown
