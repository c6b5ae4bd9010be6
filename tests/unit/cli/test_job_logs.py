"""The output of all instances of a job, merged."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from click.testing import Result

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from tests.unit.cli.fake_api import FakeAgent, FakeApi

Run = Callable[..., Result]
JOB = "11111111-2222-3333-4444-555555555555"


def task_id(instance: int, run: int) -> str:
    return f"{JOB}-{instance}-{run}"


def tasks(*rows: tuple[int, str, int], host: str = "host-1") -> task_pb2.ListResponse:
    """Return rows of instance, state and run; a task without a run has no host."""
    response = task_pb2.ListResponse()
    for instance, state, run in rows:
        runtime = response.result.value[instance].runtime
        runtime.state = task_pb2.TaskState.Value(state)
        runtime.mesosTaskId.value = task_id(instance, run)
        runtime.host = host if run else ""
    return response


def job_in(state: str, instance_count: int = 0) -> job_pb2.GetResponse:
    response = job_pb2.GetResponse()
    response.jobInfo.config.instanceCount = instance_count
    response.jobInfo.runtime.state = job_pb2.JobState.Value(state)
    return response


def folder(instance: int, run: int) -> str:
    return f"/sandbox/{task_id(instance, run)}"


@pytest.fixture
def sandboxes(api: FakeApi, agent: FakeAgent) -> FakeAgent:
    """The API answers that the files of each run are on the agent."""

    def browse(request: task_pb2.BrowseSandboxRequest) -> task_pb2.BrowseSandboxResponse:
        paths = [path for path in agent.files if path.startswith(f"/sandbox/{request.taskId}/")]
        return task_pb2.BrowseSandboxResponse(hostname=agent.host, port=agent.port, paths=paths)

    api.answers["tasks.BrowseSandbox"] = [browse]
    return agent


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.job.logs.FOLLOW_INTERVAL_S", 0.0)


def test_both_streams_of_each_instance_are_printed(run: Run, api: FakeApi, sandboxes: FakeAgent) -> None:
    """The output is in the order of instances, each line with its instance and its stream, and ends the last line."""
    sandboxes.files = {
        f"{folder(0, 1)}/stdout": b"one\ntwo",
        f"{folder(0, 1)}/stderr": b"oops\n",
        f"{folder(7, 2)}/stdout": b"seven \xff\n",
    }
    api.answers["tasks.List"] = [tasks((7, "RUNNING", 2), (0, "SUCCEEDED", 1), (9, "PENDING", 0))]
    result = run(f"job logs {JOB}")
    assert b" 0 out | one\n 0 out | two\n 0 err | oops\n 7 out | seven \xff\n" == result.stdout_bytes
    assert (0, "1 instance has not started\n") == (result.exit_code, result.stderr)


def test_one_stream_without_marks(run: Run, api: FakeApi, sandboxes: FakeAgent) -> None:
    """--stream and --no-prefix print the bytes of one stream for another program."""
    sandboxes.files = {f"{folder(0, 1)}/stdout": b"out\n", f"{folder(0, 1)}/stderr": b"oops\n"}
    api.answers["tasks.List"] = [tasks((0, "FAILED", 1))]
    assert "oops\n" == run(f"job logs {JOB} --stream stderr --no-prefix").stdout
    assert " 0 | oops\n" == run(f"job logs {JOB} --stream stderr").stdout


@pytest.mark.parametrize(
    ("tail", "content", "expected"),
    [
        (2, b"a\nb\nc\nd\n", "c\nd\n"),
        (2, b"a\nb\nc\nd", "c\nd\n"),
        (9, b"a\nb\n", "a\nb\n"),
        (0, b"a\nb\n", ""),
        (1, b"", ""),
        (3, b"first\n" + b"x" * 100_000 + b"\ny\n" + b"z\n", "x" * 100_000 + "\ny\nz\n"),
        (30_000, b"line\n" * 40_000, "line\n" * 30_000),
    ],
)
def test_tail_prints_the_last_lines(
    run: Run, api: FakeApi, sandboxes: FakeAgent, tail: int, content: bytes, expected: str
) -> None:
    """--tail counts lines of each file, of any length."""
    sandboxes.files = {f"{folder(0, 1)}/stdout": content}
    api.answers["tasks.List"] = [tasks((0, "RUNNING", 1))]
    assert expected == run(f"job logs {JOB} --no-prefix --tail {tail}").stdout


def test_since_chooses_files_that_were_written_since(run: Run, api: FakeApi, sandboxes: FakeAgent) -> None:
    """--since takes a duration or a time."""
    old, new = f"{folder(0, 1)}/stdout", f"{folder(1, 1)}/stdout"
    sandboxes.files = {old: b"old\n", new: b"new\n"}
    sandboxes.written_at = {old: time.time() - 3600, new: time.time()}
    api.answers["tasks.List"] = [tasks((0, "RUNNING", 1), (1, "RUNNING", 1))]
    assert "new\n" == run(f"job logs {JOB} --no-prefix --since 10m").stdout
    assert "old\nnew\n" == run(f"job logs {JOB} --no-prefix --since 2020-01-01T00:00:00Z").stdout
    refused = run(f"job logs {JOB} --since yesterday")
    assert (2, True) == (refused.exit_code, "expected a duration such as 10m or a time such as" in refused.stderr)


def test_at_most_a_hundred_instances_are_read(run: Run, api: FakeApi, sandboxes: FakeAgent) -> None:
    """The command prints at most 100 instances, and the option for the next ones."""
    api.answers["tasks.List"] = [tasks(*((instance, "PENDING", 0) for instance in range(5, 106)))]
    result = run(f"job logs {JOB} -r 5:")
    (request,) = api.requests("tasks.List")
    assert (5, 106) == (getattr(request.range, "from"), request.range.to)
    expected = "Only instances 5 to 104 are printed; --range 105:205 has the next\n100 instances have not started\n"
    assert (0, expected) == (result.exit_code, result.stderr)


def test_an_agent_that_is_gone_fails_the_command_after_the_others_are_read(
    run: Run, api: FakeApi, sandboxes: FakeAgent
) -> None:
    """The command prints the files of the reachable agents."""

    def browse(request: task_pb2.BrowseSandboxRequest) -> task_pb2.BrowseSandboxResponse:
        response = task_pb2.BrowseSandboxResponse(hostname=sandboxes.host, port=sandboxes.port)
        if request.instanceId:
            response.paths.extend(sandboxes.files)
        else:
            response.error.failure.message = "host-1 is away"
        return response

    sandboxes.files = {f"{folder(1, 1)}/stdout": b"here\n"}
    api.answers["tasks.BrowseSandbox"] = [browse]
    api.answers["tasks.List"] = [tasks((0, "RUNNING", 1), (1, "RUNNING", 1))]
    result = run(f"job logs {JOB} --no-prefix")
    expected = (
        f"instance 0: Unable to list the sandbox of task {task_id(0, 1)}: host-1 is away\n"
        "the output of 1 of the instances could not be read\n"
    )
    assert (1, "here\n", expected) == (result.exit_code, result.stdout, result.stderr)


def test_follow_waits_for_the_files_of_a_run_that_has_just_come_to_its_host(
    run: Run, api: FakeApi, sandboxes: FakeAgent
) -> None:
    """A sandbox that cannot be listed yet causes neither an error nor a lost line."""
    missing = task_pb2.BrowseSandboxResponse()
    missing.error.failure.message = "HTTP 404"
    found = task_pb2.BrowseSandboxResponse(
        hostname=sandboxes.host, port=sandboxes.port, paths=[f"{folder(0, 1)}/stdout"]
    )
    sandboxes.files = {f"{folder(0, 1)}/stdout": b"here\n"}
    api.answers["tasks.BrowseSandbox"] = [missing, found]
    api.answers["tasks.List"] = [*[tasks((0, "RUNNING", 1))] * 3, tasks((0, "SUCCEEDED", 1))]
    api.answers["jobs.Get"] = [job_in("SUCCEEDED")]

    result = run(f"job logs {JOB} -f --no-prefix")

    assert (0, "here\n", "") == (result.exit_code, result.stdout, result.stderr)


def test_follow_prints_later_lines_and_later_runs_until_the_job_has_ended(
    run: Run, api: FakeApi, sandboxes: FakeAgent
) -> None:
    """The rest of a failed run is printed before the first line of its successor, which is printed completely."""
    first, second = f"{folder(0, 1)}/stdout", f"{folder(0, 2)}/stdout"
    sandboxes.files = {first: b"skipped\nbegin\nha"}
    rounds = iter(range(100))

    def list_files(request: task_pb2.ListRequest) -> task_pb2.ListResponse:
        match next(rounds):
            case 0 | 1:
                return tasks((0, "RUNNING", 1))
            case 2:
                sandboxes.files[first] += b"lf line\nthe end"
                return tasks((0, "FAILED", 1))
            case 3:
                sandboxes.files[second] = b"again\nand again\n"
                return tasks((0, "RUNNING", 2))
            case _:
                return tasks((0, "SUCCEEDED", 2))

    api.answers["tasks.List"] = [list_files]
    api.answers["jobs.Get"] = [job_in("RUNNING"), job_in("SUCCEEDED")]
    result = run(f"job logs {JOB} -f --tail 2")
    lines = ["begin", "half line", "the end", "again", "and again"]
    assert (0, "".join(f" 0 out | {line}\n" for line in lines)) == (result.exit_code, result.stdout)


def no_tasks() -> task_pb2.ListResponse:
    response = task_pb2.ListResponse()
    response.notFound.id.CopyFrom(peloton_pb2.JobID(value=JOB))
    response.notFound.message = "no such job"
    return response


def test_follow_waits_for_the_pods_of_a_job_that_was_created_just_now(
    run: Run, api: FakeApi, sandboxes: FakeAgent
) -> None:
    """The workflow adds the pods after the job was acknowledged."""
    sandboxes.files = {f"{folder(0, 1)}/stdout": b"here\n"}
    api.answers["tasks.List"] = [no_tasks(), tasks((0, "SUCCEEDED", 1))]
    api.answers["jobs.Get"] = [job_in("INITIALIZED", 1), job_in("INITIALIZED", 1), job_in("SUCCEEDED", 1)]

    result = run(f"job logs {JOB} -f")

    assert (0, " 0 out | here\n", "") == (result.exit_code, result.stdout, result.stderr)


def test_logs_of_a_job_without_pods_yet(run: Run, api: FakeApi) -> None:
    """The command only says that the instances are being created; an unknown instance is refused."""
    api.answers["tasks.List"] = [no_tasks()]
    api.answers["jobs.Get"] = [job_in("INITIALIZED", 2)]

    made, missing = run(f"job logs {JOB}"), run(f"job logs {JOB} -r 2:3")

    assert (0, "the instances are being created\n") == (made.exit_code, made.stderr)
    assert (1, f"Job {JOB} was not found: no such job\n") == (missing.exit_code, missing.stderr)


def test_logs_of_an_unknown_job(run: Run, api: FakeApi) -> None:
    """The error names the job."""
    api.answers["tasks.List"] = [no_tasks()]
    api.answers["jobs.Get"] = [job_pb2.GetResponse()]
    result = run(f"job logs {JOB}")
    assert (1, f"Job {JOB} was not found: no such job\n") == (result.exit_code, result.stderr)
