"""The live view of a rollout: its output, its waiting and its end."""

import io
import json
from collections.abc import Callable

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from cli.errors import Failed
from cli.stateless.rollout import Rollout, UpdateFollower, bar_parts, of_goal, of_update
from cli.stateless.rollout_watch import watch_rollout
from cli.watching import WatchPace
from peloton.api.v0.explain import explain_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.client import NO_RETRIES, Client
from peloton.model.job import JobState
from peloton.model.update import UPDATE_TERMINAL, UpdateState
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi
from tests.unit.cli.service_answers import JOB, job_answer, pool_answer, replace_answer, version, workflow_status

NOT_OFFERED = (grpc.StatusCode.UNIMPLEMENTED, "no such service")
AWAY = (grpc.StatusCode.UNAVAILABLE, "resmgr is not there")

# Output.

Counts = st.integers(0, 200)


@given(done=Counts, failed=Counts, current=Counts, rest=Counts, width=st.integers(4, 80))
def test_a_bar_has_its_width_and_reports_no_lies(done: int, failed: int, current: int, rest: int, width: int) -> None:
    """The parts add up to the width; zero counts have no part, failures are visible, and only a complete rollout is
    full."""
    total = done + failed + current + rest
    parts = bar_parts(Rollout("UPDATE", "ROLLING_FORWARD", total, done, failed, current), width)
    assert width == sum(parts)
    assert all(part >= 0 for part in parts)
    assert all(not part for part, count in zip(parts[:3], (done, failed, current), strict=True) if not count)
    assert not failed or parts[1]
    assert parts[0] < width or not failed + current + rest


@given(
    state=st.sampled_from(list(UpdateState)),
    done=Counts,
    failed=Counts,
    rest=Counts,
    current=st.sets(st.integers(0, 500), max_size=20),
)
def test_counts_of_an_update_are_those_of_the_wire(
    state: UpdateState, done: int, failed: int, rest: int, current: set[int]
) -> None:
    """The total is the sum of done, failed and remaining; only an end has an exit code, and only success has 0."""
    status = workflow_status(str(state), done=done, failed=failed, total=done + failed + rest)
    status.instances_current.extend(sorted(current))
    seen = of_update(job_answer(update=status).job_info)
    assert (done + failed + rest, done, failed, len(current)) == (
        seen.total_count, seen.done_count, seen.failed_count, seen.current_count,
    )  # fmt: skip
    assert (state in UPDATE_TERMINAL, state is UpdateState.SUCCEEDED) == (
        seen.exit_code is not None, seen.exit_code == 0,
    )  # fmt: skip


def test_a_line_reports_all() -> None:
    """The line has act, state, counts, pods by version and state, and the condition that it waits for."""
    wait = "instance 2 to run and be healthy and for instance 3 to end"
    status = workflow_status("ROLLING_FORWARD", done=1, failed=1, current=(2, 3), total=5, waiting_for=wait)
    pods = {"10-0-0": {"RUNNING": 1, "STARTING": 2, "KILLED": 0}, "9-0-0": {"RUNNING": 3}}
    expected = (
        "UPDATE ROLLING_FORWARD 1/5 done, 1 failed, 2 in flight; version 9-0-0: 3 RUNNING; "
        f"version 10-0-0: 2 STARTING, 1 RUNNING; waits for {wait}"
    )
    assert expected == of_update(job_answer(update=status, pods=pods).job_info).line


def test_a_rollout_that_has_stalled_says_so() -> None:
    """The line has the cause, and the number of failed runs even if no instance has failed."""
    status = workflow_status("ROLLING_FORWARD", current=(0,), total=3)
    status.num_runs_failed, status.stalled_time = 8, "2026-11-26T19:00:00Z"
    status.stall_cause = "instance 0 fails again and again, last on h1: exit 1\nno such table"
    seen = of_update(job_answer(update=status).job_info)

    why = "instance 0 fails again and again, last on h1: exit 1 no such table"
    assert seen.line.startswith("UPDATE ROLLING_FORWARD 0/3 done, 8 runs failed, 1 in flight")
    assert seen.line.endswith(f"stalled: {why}")
    assert (8, status.stall_cause) == (seen.as_dict["failedRuns"], seen.as_dict["stalled"])
    status.num_runs_failed, status.stalled_time = 0, ""
    assert "0/3 done, 1 in flight" == of_update(job_answer(update=status).job_info).counts_text


def test_pods_without_versions() -> None:
    """The view supports an API that does not count by version."""
    answer = job_answer(update=workflow_status("PAUSED", waiting_for="an operator to resume it"))
    answer.job_info.status.pod_stats.update({"POD_STATE_RUNNING": 3, "POD_STATE_LOST": 0})
    seen = of_update(answer.job_info)
    assert (["pods: 3 RUNNING"], f"an operator to resume it: peloton job stateless resume {JOB}") == (
        seen.pod_lines, seen.waiting_for,
    )  # fmt: skip


GOALS = {
    "starting": (JobState.RUNNING, "PENDING", "RUNNING", {"RUNNING": 1, "PENDING": 2}, (1, 2, None)),
    "started": (JobState.RUNNING, "RUNNING", "RUNNING", {"RUNNING": 3}, (3, 0, 0)),
    "start was taken back": (JobState.RUNNING, "KILLING", "KILLED", {"RUNNING": 1}, (1, 2, 1)),
    "stopping": (JobState.KILLED, "KILLING", "KILLED", {"KILLED": 1, "KILLING": 2}, (1, 2, None)),
    "stopped": (JobState.KILLED, "KILLED", "KILLED", {"KILLED": 2, "FAILED": 1}, (3, 0, 0)),
    "stop was taken back": (JobState.KILLED, "PENDING", "RUNNING", {"KILLED": 1, "PENDING": 2}, (1, 2, 1)),
}


@pytest.mark.parametrize(("goal", "state", "wanted", "pods", "expected"), GOALS.values(), ids=GOALS.keys())
def test_starts_and_stops(
    goal: JobState, state: str, wanted: str, pods: dict[str, int], expected: tuple[int, int, int | None]
) -> None:
    """A start is done when all instances run, a stop when the job has ended, and neither once the goal has changed."""
    seen = of_goal(job_answer(state=state, goal=wanted, pods={"1-0-0": pods}).job_info, goal)
    assert expected == (seen.done_count, seen.current_count, seen.exit_code)


# Following one update.


def test_a_newer_update_ends_the_watching() -> None:
    """A newer update in place of the watched one means that the watched one was aborted."""
    follow = UpdateFollower("2-1-2")
    going = follow(job_answer(update=workflow_status("ROLLING_FORWARD", now="2-1-2")))
    newer = follow(job_answer(update=workflow_status("ROLLING_FORWARD", now="3-1-3", created="2026-11-20T11:00:00Z")))
    assert (None, 1, "ABORTED: a newer update took its place") == (going.exit_code, newer.exit_code, newer.state)


def test_a_newer_update_before_the_first_read() -> None:
    """The version of the answer identifies the update."""
    seen = UpdateFollower("2-1-2")(job_answer(update=workflow_status("SUCCEEDED", now="3-1-3")))
    assert 1 == seen.exit_code


@pytest.mark.parametrize("version", ["2-1-2", ""])
def test_going_back_is_the_same_update(version: str) -> None:
    """An update in rollback has a newer version, and is still the watched one."""
    follow = UpdateFollower(version)
    back = follow(job_answer(update=workflow_status("ROLLING_BACKWARD", now="3-1-2")))
    over = follow(job_answer(update=workflow_status("ROLLED_BACK", now="3-1-2")))
    assert [(None, "ROLLING_BACKWARD"), (1, "ROLLED_BACK")] == [(one.exit_code, one.state) for one in (back, over)]


def test_a_job_without_an_update() -> None:
    """The watch of a job without an update is an error."""
    with pytest.raises(Failed, match=f"job {JOB} has no update"):
        UpdateFollower()(job_answer())


# Watching.


class Waits:
    """A clock that moves only by sleeping."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    @property
    def pace(self) -> WatchPace:
        return WatchPace(sleep=self.sleep, clock=lambda: self.now_s)


def watch(api: FakeApi, terminal: bool = False) -> tuple[Rollout, str]:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=140, color_system=None)
    with Client(api.address, retry=NO_RETRIES) as client:
        seen = watch_rollout(client, JOB, UpdateFollower(), console, pace=Waits().pace)
    assert isinstance(console.file, io.StringIO)
    return seen, console.file.getvalue()


def rolling(done: int, current: tuple[int, ...] = (), state: str = "ROLLING_FORWARD") -> svc.GetJobResponse:
    wait = f"instance {current[0]} to run and be healthy" if current else ""
    status = workflow_status(state, done=done, current=current, waiting_for=wait)
    pods = {"1-0-0": {"RUNNING": 3 - done}, "2-0-0": {"RUNNING": done}}
    return job_answer(update=status, pods=pods)


LINES = f"""\
UPDATE INITIALIZED 0/3 done; version 1-0-0: 3 RUNNING
UPDATE ROLLING_FORWARD 0/3 done, 1 in flight; version 1-0-0: 3 RUNNING; waits for instance 0 to run and be healthy
UPDATE ROLLING_FORWARD 2/3 done, 1 in flight; version 1-0-0: 1 RUNNING; version 2-0-0: 2 RUNNING; \
waits for instance 2 to run and be healthy
UPDATE SUCCEEDED 3/3 done; version 2-0-0: 3 RUNNING
Job {JOB} UPDATE SUCCEEDED: 3/3 done, after 2.0 s
"""


def test_lines_on_change(api: FakeApi) -> None:
    """The watch prints a line at each change, then the summary, if there is no terminal."""
    api.answers["explain.JobWhy"] = [NOT_OFFERED]
    api.answers["services.GetJob"] = [
        rolling(0, state="INITIALIZED"), rolling(0, (0,)), rolling(0, (0,)), rolling(2, (2,)),
        rolling(3, state="SUCCEEDED"),
    ]  # fmt: skip
    seen, text = watch(api)
    assert (0, LINES) == (seen.exit_code, text)
    assert 1 == len(api.requests("explain.JobWhy"))


def test_a_bar_on_a_terminal(api: FakeApi) -> None:
    """A terminal shows a bar, with the pods and the awaited condition below it, and all of the text."""
    api.answers["explain.JobWhy"] = [NOT_OFFERED]
    api.answers["services.GetJob"] = [rolling(1, (1,)), rolling(3, state="SUCCEEDED")]
    seen, text = watch(api, terminal=True)
    assert 0 == seen.exit_code
    counts = "  00:00:00\n  1/3 done, 1 in flight\n  version 1-0-0: 2 RUNNING"
    wait = "\n  waits for instance 1 to run and be healthy"
    for part in ("UPDATE ROLLING_FORWARD  ━━━", "───", counts, wait, "UPDATE SUCCEEDED  " + "━" * 40):
        assert part in text


def test_why_instances_wait_is_asked_now_and_then(api: FakeApi) -> None:
    """The view requests the reason every two seconds while instances are in flight, and prints it after the awaited
    condition."""
    why = explain_pb2.JobWhyResponse()
    why.waiting.add().reason.text = "pool /dev is\nat its limit"
    api.answers["explain.JobWhy"] = [why, AWAY, why]
    api.answers["services.GetJob"] = [*[rolling(0, (0,))] * 9, rolling(3, state="SUCCEEDED")]
    _, text = watch(api)
    waits = [line.partition("; waits for ")[2] for line in text.splitlines()[:-2]]
    plain = "instance 0 to run and be healthy"
    reported = f"{plain} (pool /dev is at its limit)"
    assert [reported, plain, reported] == waits
    assert 3 == len(api.requests("explain.JobWhy"))


def test_an_outage_is_sat_out(api: FakeApi) -> None:
    """The watch reports the start and the end of an outage."""
    api.answers["explain.JobWhy"] = [NOT_OFFERED]
    api.answers["services.GetJob"] = [rolling(0), AWAY, AWAY, rolling(3, state="SUCCEEDED")]
    seen, text = watch(api)
    assert (0, 1, 1) == (seen.exit_code, text.count("does not answer"), text.count("answers again"))


def test_an_endless_outage_names_the_command(api: FakeApi) -> None:
    """The watch ends after two minutes and names the command that resumes it."""
    api.answers["services.GetJob"] = [AWAY]
    with pytest.raises(Failed, match=f"see `peloton job stateless watch {JOB}` later"):
        watch(api)


GOAL_ENDED = {"SUCCEEDED": 0, "FAILED": 1, "ABORTED": 1, "ROLLED_BACK": 1}


@pytest.mark.parametrize(("state", "exit_code"), GOAL_ENDED.items())
def test_exit_codes(run: Run, api: FakeApi, state: str, exit_code: int) -> None:
    """The exit code is 0 only for a successful update; after a failure the output names the command that lists pods."""
    api.answers["services.GetJob"] = [job_answer(update=workflow_status(state, done=2, failed=1))]
    result = run(f"job stateless watch {JOB}")
    assert (exit_code, f"See: peloton job stateless list-pods {JOB}") == (
        result.exit_code, result.stdout.splitlines()[-1],
    )  # fmt: skip


WATCHED = {
    "create": ("create examples/services/web.yaml 1", "CreateJob", svc.CreateJobResponse),
    "replace": (f"replace {JOB} examples/services/web.yaml 1", "ReplaceJob", svc.ReplaceJobResponse),
    "rollback": (f"rollback {JOB} 1 1-1-1", "ReplaceJob", svc.ReplaceJobResponse),
    "restart": (f"restart {JOB}", "RestartJob", svc.RestartJobResponse),
    "start": (f"start {JOB}", "StartJob", svc.StartJobResponse),
}


@pytest.mark.parametrize(("line", "method", "kind"), WATCHED.values(), ids=WATCHED.keys())
def test_what_was_begun_may_be_watched(
    run: Run, api: FakeApi, line: str, method: str, kind: Callable[..., svc.ReplaceJobResponse]
) -> None:
    """--watch waits for the end; --json prints an object on each line."""
    answer = kind(version=version("2-1-2"))
    if isinstance(answer, svc.CreateJobResponse):
        answer.job_id.value = JOB
        line = line.replace("create", "create /dev")
        api.answers["respools.LookupResourcePoolID"] = [pool_answer()]
    api.answers[f"services.{method}"] = [answer]
    done = job_answer("2-1-2", update=workflow_status(done=3), pods={"2-0-0": {"RUNNING": 3}})
    api.answers["services.GetJob"] = [done]
    result = run(f"job stateless {line} --watch --json")
    lines = [json.loads(each) for each in result.stdout.splitlines()]
    assert (0, "2-1-2", 3, {"2-0-0": {"RUNNING": 3}}) == (
        result.exit_code, lines[0]["version"]["value"], lines[-1]["done"], lines[-1]["pods"],
    )  # fmt: skip
    assert f"Job {JOB} " in run(f"job stateless {line} --watch").stdout


def test_a_stop_may_be_watched(run: Run, api: FakeApi) -> None:
    """The watch ends when the job has ended."""
    api.answers["services.StopJob"] = [svc.StopJobResponse(version=version("2-2-2"))]
    api.answers["services.GetJob"] = [job_answer(state="KILLED", goal="KILLED", pods={"2-0-0": {"KILLED": 3}})]
    result = run(f"job stateless stop {JOB} --watch")
    assert (0, "STOP KILLED 3/3 done; version 2-0-0: 3 KILLED") == (result.exit_code, result.stdout.splitlines()[1])


def test_interrupting_leaves_the_update_alone(run: Run, api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C says that the update continues, and exits with the code of an interruption."""

    def interrupt(*_: object, **__: object) -> Rollout:
        raise KeyboardInterrupt

    monkeypatch.setattr("cli.stateless.rollout_watch.read_job", interrupt)
    api.answers["services.ReplaceJob"] = [replace_answer()]
    api.answers["services.GetJob"] = [job_answer()]
    result = run(f"job stateless rollback {JOB} 1 1-1-1 --watch")
    assert (130, "Stopped watching; the update continues.\n") == (result.exit_code, result.stderr)


def test_every_job_state_of_the_wire_is_known() -> None:
    """The view of a start or a stop supports every state of a job."""
    answer = job_answer()
    for number in stateless_pb2.JobState.values():
        answer.job_info.status.state = number
        assert of_goal(answer.job_info, JobState.RUNNING).act == "START"
