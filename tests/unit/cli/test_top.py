"""`peloton top` driven by keys, against a fake API."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from cli.settings import Settings
from cli.top import app as top_app
from cli.top.app import TopApp
from cli.top.reading import Reader
from peloton.api.v0.explain import explain_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.table import table_pb2
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi
from tests.unit.cli.top_answers import BATCH, BROKEN, SERVICE, give_cluster, jobs, tree
from tests.unit.cli.top_screen import TIMEOUT_S, Screen, table

pytestmark = pytest.mark.slow

GONE = (grpc.StatusCode.UNAVAILABLE, "the resource manager is gone")


@asynccontextmanager
async def top(api: FakeApi, period_s: float = 0.05, size: tuple[int, int] = (80, 24)) -> AsyncIterator[Screen]:
    app = TopApp(Reader(Settings(address=api.address, timeout=TIMEOUT_S)), period_s)
    async with app.run_test(size=size) as pilot:
        yield Screen(pilot, app)


@pytest.fixture
def cluster(api: FakeApi) -> FakeApi:
    give_cluster(api)
    return api


async def test_the_overview_says_what_is_wrong(cluster: FakeApi) -> None:
    """The first screen has capacity, leaders, and the problems, the worst first; enter opens the problem's subject."""
    async with top(cluster) as screen:
        lines = await screen.shows("Wrong now: 4", "resmgr led at 10.0.0.1:5394", "cpu (cores)")
        weights = [line.split()[:2] for line in lines if line.split()[:1] in (["!!"], ["!"], ["note"])]
        await screen.press("j", "enter")
        await screen.shows("> host-1", "host-1 is UP", "RED: cpu 97 %")

    assert lines[0].startswith("[1 Overview] 2 Pools")
    assert [["!!", "CRITICAL"], *[["!", "WARNING"]] * 3, ["note", "Pool"]] == weights


async def test_from_a_pool_to_its_jobs(cluster: FakeApi) -> None:
    """The tree of pools is by kind; a pool opens its jobs and the reason of its queue; esc returns to its row."""
    async with top(cluster) as screen:
        await screen.press("2")
        lines = await screen.shows("cpu (cores)", "ads")
        await screen.press("r")
        await screen.shows("memory", "24Gi")
        await screen.press("j", "enter")
        opened = await screen.shows("> /eng", "/eng: 3 gangs wait", "cpu 1 wanted, 0 left of 6", "tiles")
        await screen.press("escape")
        await screen.until(lambda lines: "> /eng" not in lines[0])
        row = screen.app.page.table.key

    assert ["/", "eng", "ads"] == table(lines, "Pool")
    assert ["tiles", "broken"] == table(opened, "Job")
    assert "/eng" == row
    assert "/eng" in {request.filter.pool for request in cluster.requests("job_table.ListJobs")}


async def test_a_long_why_is_scrolled(cluster: FakeApi) -> None:
    """The lines above a table have a maximum height; `d` and `u` scroll them."""
    text = "\n".join(f"line {number}." for number in range(40))
    cluster.answers["explain.PoolWhy"] = [explain_pb2.PoolWhyResponse(text=text)]
    async with top(cluster) as screen:
        await screen.press("2")
        await screen.shows("ads")
        await screen.press("j", "enter")
        lines = await screen.shows("line 0.", "tiles")
        await screen.press("d")
        await screen.until(lambda lines: "line 0." not in "\n".join(lines))
        await screen.press("u")
        await screen.shows("line 0.")

    assert 13 == sum("line " in line for line in lines)


async def test_jobs_are_searched_for_by_the_api(cluster: FakeApi) -> None:
    """`/` filters by state and name in the API, `s` changes the order; an invalid filter is refused and changes
    nothing."""
    async with top(cluster) as screen:
        await screen.press("3")
        everything = await screen.shows("tiles", "search", "broken", "R6 P3 S1")
        await screen.type("state:failed bro")
        failed = await screen.until(lambda lines: "state:failed" in lines[1] and "tiles" not in "".join(lines))
        await screen.press("s")
        await screen.shows("by oldest")
        await screen.type(" team:x")
        await screen.shows("! unknown condition 'team:'")
        await screen.press("escape")
        await screen.shows("filter: state:failed bro")
        await screen.press("escape")
        await screen.until(lambda lines: "tiles" in "".join(lines))

    asked = cluster.requests("job_table.ListJobs")
    oldest = next(request for request in asked if request.oldestFirst)
    assert ["tiles", "search", "broken"] == table(everything, "Job")
    assert ["broken"] == table(failed, "Job")
    assert ("bro", [job_pb2.JobState.Value("FAILED")]) == (oldest.filter.namePart, list(oldest.filter.states))
    assert {200} == {request.pageSize for request in asked if request.filter.namePart}


async def test_jobs_come_in_pages(cluster: FakeApi) -> None:
    """`n` requests the next page if there is one, and `p` the previous one."""

    def many(request: table_pb2.ListJobsRequest) -> table_pb2.ListJobsResponse:
        first = int(request.pageToken or 0)
        answer = table_pb2.ListJobsResponse(nextPageToken="" if first else "200")
        for number in range(first, min(first + request.pageSize, 201)):
            answer.jobs.add(name=f"job-{number}").id.value = str(number)
        return answer

    cluster.answers["job_table.ListJobs"] = [many]
    async with top(cluster) as screen:
        await screen.press("3")
        await screen.shows("page 1, more: n")
        await screen.press("n")
        await screen.shows("page 2 |", "job-200")
        await screen.press("n", "c", "n", "p")
        await screen.shows("page 1, more: n", "job-0")

    pages = [request.pageToken for request in cluster.requests("job_table.ListJobs")]
    assert {"", "200"} == set(pages)
    assert screen.app.clipboard.endswith("job table -n 200 --token 200")


async def test_from_a_job_to_the_events_of_an_instance(cluster: FakeApi) -> None:
    """A job shows why it waits and its instances, optionally of one state; an instance shows its events."""
    async with top(cluster) as screen:
        await screen.press("3")
        await screen.shows("tiles")
        await screen.press("enter")
        lines = await screen.shows("> job 11b1b8e5", "3 instances wait: cpu 1 wanted", "R6 P3 S1 of 10", "PENDING")
        await screen.type("failed")
        await screen.until(lambda lines: table(lines, "Instance") == ["1"])
        await screen.press("enter")
        events = await screen.shows("> instance 1", "exit code 3", "queued")

    assert ["0", "1", "2"] == table(lines, "Instance")
    assert 3 == len(table(events, "Time"))
    assert {(BATCH, 1)} == {(one.jobId.value, one.instanceId) for one in cluster.requests("tasks.GetPodEvents")}


async def test_a_job_without_a_resource_manager(cluster: FakeApi) -> None:
    """The error of one role stands in the place of its data; the rest is shown."""
    cluster.answers["explain.JobWhy"] = [GONE]
    cluster.answers["respools.Query"] = [GONE]
    async with top(cluster) as screen:
        await screen.press("3")
        await screen.shows("tiles", "/eng")
        await screen.press("enter")
        await screen.shows("the resource manager is gone", "| id of /eng |", "exit code 3")


async def test_from_a_host_to_its_pods(cluster: FakeApi) -> None:
    """Hosts with problems come first, and labels filter; a host shows whether it takes pods, and its pods."""
    async with top(cluster) as screen:
        await screen.press("4")
        lines = await screen.shows("host-2", "RED", "DOWN")
        await screen.type("rack=r2")
        await screen.until(lambda lines: table(lines, "Host") == ["host-2"])
        await screen.press("enter")
        await screen.shows("> host-2", "host-2 is UP, in host pool default: it takes pods", "11b1b8e5-0")
        await screen.shows("2026-01-02T03:04:05Z  Came back after 3 min")
        await screen.type("search")
        await screen.until(lambda lines: table(lines, "Pod") == ["21b1b8e5-1"])
        await screen.press("enter")
        await screen.shows("> instance 1", "queued")

    assert ["host-3", "host-1", "host-2"] == table(lines, "Host")
    assert {"host-2"} == {request.hostname for request in cluster.requests("overview.GetHostPods")}
    assert {SERVICE} == {request.jobId.value for request in cluster.requests("tasks.GetPodEvents")}


async def test_from_a_schedule_to_its_last_job(cluster: FakeApi) -> None:
    """A paused schedule has a reason and no next run; the filter accepts the state; enter opens the job of the last
    run."""
    async with top(cluster, size=(140, 24)) as screen:
        await screen.press("5")
        lines = await screen.shows("0 6 * * 1-5 (Europe/Berlin)", "every 6h", "the source moves")
        await screen.type("active")
        await screen.until(lambda lines: table(lines, "Schedule") == ["night"])
        await screen.press("enter")
        await screen.shows("> job 11b1b8e5", "tiles")

    assert ["night", "sweep"] == table(lines, "Schedule")
    (night,) = [line for line in lines if line.split()[:1] == ["night"]]
    (sweep,) = [line for line in lines if line.split()[:1] == ["sweep"]]
    assert ("FAILED" in night, " in " in night, " in " in sweep) == (True, True, False)


async def test_an_api_that_goes_and_comes_back(cluster: FakeApi) -> None:
    """The last line shows the failure, and the screen keeps the last data until the next answer."""
    cluster.answers["explain.PoolTree"] = [tree()]
    async with top(cluster) as screen:
        await screen.press("2")
        await screen.shows("ads")
        cluster.answers["explain.PoolTree"] = [GONE]
        lines = await screen.shows("the resource manager is gone")
        cluster.answers["explain.PoolTree"] = [tree()]
        await screen.until(lambda lines: "resource manager is gone" not in "\n".join(lines))

    assert "ads" in "\n".join(lines)
    assert any(line.startswith("! as of ") for line in lines)


async def test_no_server_answers(api: FakeApi) -> None:
    """The last line says that Peloton is unreachable; no other key has an effect."""
    address = api.address
    api.stop()
    app = TopApp(Reader(Settings(address=address)), 0.05)
    async with app.run_test(size=(120, 24)) as pilot:
        screen = Screen(pilot, app)
        for key in "1234":
            await screen.press(key)
            await screen.shows(f"cannot reach Peloton at {address}: is", "asking again")


async def test_a_late_answer_is_said_to_be_late(cluster: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other pages stay available during a late answer, and `q` ends at once."""
    monkeypatch.setattr(top_app, "LATE_S", 0.2)
    may_answer = threading.Event()

    def late(request: Any) -> Any:
        may_answer.wait(TIMEOUT_S)
        return tree()

    try:
        async with top(cluster) as screen:
            await screen.press("4")
            await screen.shows("host-2")
            cluster.answers["explain.PoolTree"] = [late]
            await screen.press("2")
            await screen.shows("no answer from")
            await screen.press("3")
            await screen.shows("tiles")
            await screen.press("2", "q")
        assert not may_answer.is_set()
    finally:
        may_answer.set()


async def test_what_goes_wrong_here_is_no_traceback(cluster: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """An internal error is one line, and the screen continues."""
    monkeypatch.setattr(Reader, "pools", lambda reader: 1 / 0)
    async with top(cluster) as screen:
        await screen.press("2")
        await screen.shows("internal error: ZeroDivisionError")
        await screen.press("4")
        await screen.shows("host-2")


async def test_the_command_that_gives_the_same(cluster: FakeApi) -> None:
    """`c` copies and shows the command with the given address; the next key hides it."""
    async with top(cluster, size=(120, 24)) as screen:
        copied = []
        await screen.shows("Wrong now")
        for key in ("1", "2", "3", "4"):
            await screen.press(key, "c")
            copied.append(screen.app.clipboard)
        await screen.shows(f"copied: peloton -a {cluster.address} host query")
        await screen.press("j")
        await screen.until(lambda lines: "copied" not in "\n".join(lines))
        await screen.press("enter", "c")
        copied.append(screen.app.clipboard)

    given = f"peloton -a {cluster.address} "
    assert [
        f"{given}overview; {given}respool tree",
        f"{given}respool tree",
        f"{given}job table -n 200",
        f"{given}host query",
        f"{given}host why host-1; {given}host events host-1; {given}host drain host-1 --plan",
    ] == copied


async def test_help_and_the_end(cluster: FakeApi) -> None:
    """`?` shows the keys, the same key or esc hides them, tab changes the tab, and `q` ends with 0."""
    async with top(cluster) as screen:
        await screen.press("question_mark")
        await screen.shows("copy the command that gives the same")
        await screen.press("question_mark")
        await screen.until(lambda lines: "copy the command" not in "\n".join(lines))
        await screen.press("tab")
        await screen.shows("[2 Pools]")
        await screen.press("shift+tab", "shift+tab")
        await screen.shows("[5 Schedules]")
        await screen.press("q")
        async with asyncio.timeout(TIMEOUT_S):
            while screen.app.is_running:
                await screen.pilot.pause(0.01)

    assert 0 == screen.app.return_code


async def test_it_is_readable_without_colour(cluster: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each state is a word or a letter with NO_COLOR, and the selected row is reversed."""
    monkeypatch.setenv("NO_COLOR", "1")
    async with top(cluster) as screen:
        await screen.press("3")
        lines = await screen.shows("RUNNING", "FAILED", "R6 P3 S1", "F1 K1")
        svg = screen.app.export_screenshot()
        colours = {style for style in svg.split("fill: ")[1:] if style.startswith("#")}

    assert lines[0].startswith(" 1 Overview  2 Pools [3 Jobs]")
    assert 2 >= len({style[:7] for style in colours})


async def test_a_row_keeps_the_cursor(cluster: FakeApi) -> None:
    """The selected row stays selected while other rows appear and disappear."""
    async with top(cluster) as screen:
        await screen.press("3")
        await screen.shows("broken")
        await screen.press("j", "j")
        cluster.answers["job_table.ListJobs"] = [without_the_first]
        await screen.until(lambda lines: "tiles" not in "\n".join(lines))
        key = screen.app.page.table.key

    assert BROKEN == key


def without_the_first(request: table_pb2.ListJobsRequest) -> table_pb2.ListJobsResponse:
    answer = jobs(request)
    del answer.jobs[0]
    return answer


@pytest.mark.parametrize("line", ["top", "top -o json", "--json top --period 5s"])
def test_without_a_terminal(run: Run, line: str) -> None:
    """The error names the commands for programs."""
    result = run(line)

    assert 1 == result.exit_code
    assert (
        "needs a terminal; for programs there are `peloton overview -o json`, `peloton respool tree -o json`"
        in result.stderr
    )
