"""Watching a job: its output, outages and end."""

import io
import itertools
import json

import grpc
import pytest
from rich.console import Console

from cli.errors import Failed
from cli.job.watch import watch_job
from cli.times import clock_text, seconds_between
from cli.watching import WatchPace
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.respool import respool_pb2
from peloton.client import NO_RETRIES, Client
from peloton.model.job import JobState
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi

JOB = "91b1b8e5-2ba8-11e7-bc23-0242ac11000d"
AWAY = (grpc.StatusCode.UNAVAILABLE, "hostmgr is not there")
GONE = (grpc.StatusCode.NOT_FOUND, "Job not found in cache")


def cache_answer(state: str, **counts: int) -> job_pb2.GetCacheResponse:
    response = job_pb2.GetCacheResponse()
    response.config.instanceCount = 3
    response.runtime.state = job_pb2.JobState.Value(state)
    response.runtime.taskStats.update(counts)
    return response


def full(state: str, **counts: int) -> job_pb2.GetResponse:
    short = cache_answer(state, **counts)
    response = job_pb2.GetResponse()
    response.jobInfo.config.CopyFrom(short.config)
    response.jobInfo.runtime.CopyFrom(short.runtime)
    response.jobInfo.id.value = JOB
    response.jobInfo.config.name = "hello"
    response.jobInfo.runtime.creationTime = "2026-11-20T10:00:00.5Z"
    response.jobInfo.runtime.completionTime = "2026-11-20T10:00:04.25Z"
    return response


class Waits:
    """A clock that moves only by sleeping, and records the sleeps."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.sleeps: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now_s += seconds

    @property
    def pace(self) -> WatchPace:
        return WatchPace(sleep=self.sleep, clock=lambda: self.now_s)


def watch(api: FakeApi, waits: Waits, terminal: bool = False) -> tuple[JobState, str]:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=160, color_system=None)
    with Client(api.address, retry=NO_RETRIES) as client:
        state = watch_job(client, JOB, console, waits.pace)
    assert isinstance(console.file, io.StringIO)
    return state, console.file.getvalue()


LINES = f"""\
INITIALIZED 0/3
PENDING 0/3  PENDING 3
RUNNING 1/3  PENDING 1  RUNNING 1  SUCCEEDED 1
SUCCEEDED 3/3  SUCCEEDED 3
Job {JOB} (hello) SUCCEEDED: 3 SUCCEEDED, after 3.8 s
"""


def test_lines_on_change(api: FakeApi) -> None:
    """The watch prints a line at each change, then the summary, if there is no terminal; it polls twice a second."""
    running = cache_answer("RUNNING", SUCCEEDED=1, RUNNING=1, PENDING=1, FAILED=0)
    api.answers["jobs.GetCache"] = [
        cache_answer("INITIALIZED"), cache_answer("PENDING", PENDING=3), cache_answer("PENDING", PENDING=3),
        running, running,
        cache_answer("SUCCEEDED", SUCCEEDED=3),
    ]  # fmt: skip
    api.answers["jobs.Get"] = [full("SUCCEEDED", SUCCEEDED=3)]
    waits = Waits()
    assert (JobState.SUCCEEDED, LINES) == watch(api, waits)
    assert [0.5] * 5 == waits.sleeps


def test_progress_is_lines_of_json(run: Run, api: FakeApi) -> None:
    """--json prints an object at each change, and the summary on standard error."""
    api.answers["jobs.GetCache"] = [
        cache_answer("RUNNING", RUNNING=1),
        cache_answer("RUNNING", RUNNING=1),
        cache_answer("SUCCEEDED"),
    ]
    api.answers["jobs.Get"] = [full("SUCCEEDED", SUCCEEDED=3)]
    result = run(f"job watch {JOB} --json")

    assert [json.loads(line) for line in result.stdout.splitlines()] == [
        {"state": "RUNNING", "total": 3, "ended": 0, "tasks": {"RUNNING": 1}},
        {"state": "SUCCEEDED", "total": 3, "ended": 0, "tasks": {}},
    ]
    assert result.stderr.startswith(f"Job {JOB} (hello) SUCCEEDED")


def test_a_bar_on_a_terminal(api: FakeApi) -> None:
    """The bar ends full, with state and counts."""
    api.answers["jobs.GetCache"] = [cache_answer("RUNNING", RUNNING=3), cache_answer("SUCCEEDED", SUCCEEDED=3)]
    api.answers["jobs.Get"] = [full("SUCCEEDED", SUCCEEDED=3)]
    state, text = watch(api, Waits(), terminal=True)
    assert (JobState.SUCCEEDED, True, True) == (state, "3/3" in text, "SUCCEEDED 3" in text)


def test_failed_tasks_are_pointed_to(api: FakeApi) -> None:
    """The summary of a failed job names the command that lists its failed tasks."""
    api.answers["jobs.GetCache"] = [cache_answer("FAILED", FAILED=1, SUCCEEDED=2)]
    api.answers["jobs.Get"] = [full("FAILED", FAILED=1, SUCCEEDED=2)]
    state, text = watch(api, Waits())
    assert (JobState.FAILED, f"See: peloton task query {JOB} -s FAILED") == (state, text.splitlines()[-1])


def test_an_outage_is_sat_out(api: FakeApi) -> None:
    """The watch reports an outage once, polls with growing delays, and reports its end."""
    api.answers["jobs.GetCache"] = [
        cache_answer("RUNNING", RUNNING=3),
        *[AWAY] * 6,
        cache_answer("SUCCEEDED", SUCCEEDED=3),
    ]
    api.answers["jobs.Get"] = [full("SUCCEEDED", SUCCEEDED=3)]
    waits = Waits()
    state, text = watch(api, waits)
    assert [
        "RUNNING 0/3  RUNNING 3",
        f"{api.address} does not answer; the job continues, retrying ...",
        f"{api.address} answers again",
        "SUCCEEDED 3/3  SUCCEEDED 3",
    ] == text.splitlines()[:4]
    assert (JobState.SUCCEEDED, [0.5, 0.5, 1, 2, 4, 5, 5]) == (state, waits.sleeps)


def test_an_outage_before_the_summary(api: FakeApi) -> None:
    """The summary is waited for through an outage as well."""
    api.answers["jobs.GetCache"] = [cache_answer("SUCCEEDED", SUCCEEDED=3)]
    api.answers["jobs.Get"] = [AWAY, full("SUCCEEDED", SUCCEEDED=3)]
    assert JobState.SUCCEEDED is watch(api, Waits())[0]


def test_an_endless_outage_ends_the_watching(api: FakeApi) -> None:
    """The watch ends after two minutes without an answer."""
    api.answers["jobs.GetCache"] = [AWAY]
    waits = Waits()
    with pytest.raises(Failed, match=r"has not answered for 12\d s \(UNAVAILABLE\): gave up watching"):
        watch(api, waits)
    assert 120 < waits.now_s < 130


def test_a_job_that_is_not_cached(api: FakeApi) -> None:
    """The watch reads the long form if the short form is not cached."""
    api.answers["jobs.GetCache"] = [GONE]
    api.answers["jobs.Get"] = [full("RUNNING", RUNNING=3), full("KILLED", KILLED=3)]
    state, text = watch(api, Waits())
    assert (JobState.KILLED, "RUNNING 0/3  RUNNING 3") == (state, text.splitlines()[0])


def test_an_unknown_job(run: Run, api: FakeApi) -> None:
    """The error says that the job was not found."""
    response = job_pb2.GetResponse()
    response.error.getRuntimeFail.message = "no row"
    api.answers["jobs.GetCache"] = [GONE]
    api.answers["jobs.Get"] = [response]
    result = run(f"job watch {JOB}")
    assert (1, f"Unable to get job {JOB}: no row\n") == (result.exit_code, result.stderr)


def test_a_refused_question(run: Run, api: FakeApi) -> None:
    """An error that is not an outage ends the watch at once."""
    api.answers["jobs.GetCache"] = [(grpc.StatusCode.PERMISSION_DENIED, "not yours")]
    result = run(f"job watch {JOB}")
    assert (1, f"cannot watch job {JOB}: not yours (PERMISSION_DENIED)\n") == (result.exit_code, result.stderr)


@pytest.mark.parametrize(("state", "exit_code"), [("SUCCEEDED", 0), ("FAILED", 1), ("KILLED", 1), ("DELETED", 1)])
@pytest.mark.parametrize("flag", ["", "--json"])
def test_create_and_watch(run: Run, api: FakeApi, flag: str, state: str, exit_code: int) -> None:
    """The exit code is 0 only if the job succeeded; with --json progress goes to standard error."""
    api.answers["respools.LookupResourcePoolID"] = [
        respool_pb2.LookupResponse(id=peloton_pb2.ResourcePoolID(value="p"))
    ]
    api.answers["jobs.Create"] = [job_pb2.CreateResponse(jobId=peloton_pb2.JobID(value=JOB))]
    api.answers["jobs.GetCache"] = [cache_answer(state, SUCCEEDED=3)]
    api.answers["jobs.Get"] = [full(state, SUCCEEDED=3)]
    result = run(f"job create /tutorial examples/tutorial/hello.yaml --watch {flag}")
    progress = result.stderr if flag else result.stdout
    assert (exit_code, True) == (result.exit_code, f"Job {JOB} (hello) {state}" in progress)


def test_interrupting_leaves_the_job_alone(run: Run, api: FakeApi) -> None:
    """Ctrl-C says that the job continues, and exits with the code of an interruption."""

    def interrupt(*_: object, **__: object) -> JobState:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cli.job.group.watch_job", interrupt)
        result = run(f"job watch {JOB}")
    assert (130, f"Stopped watching; job {JOB} continues.\n", []) == (result.exit_code, result.stderr, api.calls)


def test_times_of_the_wire() -> None:
    """Nanoseconds and missing times are valid."""
    moments = ("2026-11-20T10:00:00.123456789Z", "2026-11-20T10:00:01Z", "", "yesterday")
    found = [seconds_between(first, second) for first, second in itertools.pairwise(moments)]
    assert [0.876544, None, None] == found
    assert ["00:00:00", "01:01:01", "100:00:00"] == [clock_text(seconds) for seconds in (-5, 3661.9, 360_000)]
