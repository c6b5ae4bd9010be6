"""``peloton task``: requests, printed texts and exit codes."""

import json
from collections.abc import Callable

import grpc
import pytest
from google.protobuf.message import Message

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.errors import errors_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha.pod.svc import pod_svc_pb2
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeAgent, FakeApi

JOB = "91b1b8e5-2ba8-11e7-bc23-0242ac11000d"
ID = peloton_pb2.JobID(value=JOB)
NOT_FOUND = errors_pb2.JobNotFound(id=ID, message=f"job {JOB} not found, no row")
OUT_OF_RANGE = task_pb2.InstanceIdOutOfRange(jobId=ID, instanceCount=3)


def task_info(instance: int = 0, state: str = "SUCCEEDED", run: int = 1) -> task_pb2.TaskInfo:
    info = task_pb2.TaskInfo(instanceId=instance, jobId=ID)
    info.config.name = "hello"
    info.runtime.state = task_pb2.TaskState.Value(state)
    info.runtime.mesosTaskId.value = f"{JOB}-{instance}-{run}"
    info.runtime.healthy = task_pb2.DISABLED
    info.runtime.startTime = "2026-11-20T10:00:00.123456789Z"
    info.runtime.completionTime = "2026-11-20T11:02:05.5Z"
    info.runtime.host = "host-1"
    return info


TABLE = """\
Instance  Name   State      Healthy    Start Time            Run Time  Host    Message  Reason  Termination Status
0         hello  SUCCEEDED  unchecked  2026-11-20T10:00:00Z  01:02:05  host-1
2         hello  FAILED     unchecked  2026-11-20T10:00:00Z  01:02:05  host-1  boom             FAILED (exit code 3)
"""


def test_list_prints_a_table_by_instance(run: Run, api: FakeApi) -> None:
    """Tasks are sorted by instance; the run time is the one between start and end."""
    failed = task_info(2, "FAILED")
    failed.runtime.message = "boom"
    failed.runtime.terminationStatus.reason = task_pb2.TerminationStatus.TERMINATION_STATUS_REASON_FAILED
    failed.runtime.terminationStatus.exit_code = 3
    response = task_pb2.ListResponse()
    response.result.value[2].CopyFrom(failed)
    response.result.value[0].CopyFrom(task_info())
    api.answers["tasks.List"] = [response]
    assert TABLE == run(f"task list {JOB} -r :3").stdout
    request = api.requests("tasks.List")[0]
    assert (JOB, 0, 3) == (request.jobId.value, getattr(request.range, "from"), request.range.to)


def test_get_prints_one_row_or_everything(run: Run, api: FakeApi) -> None:
    """The table has one row; --json has the earlier runs too."""
    api.answers["tasks.Get"] = [task_pb2.GetResponse(result=task_info(), results=[task_info(run=1)])]
    assert TABLE.splitlines()[1] == run(f"task get {JOB} 0").stdout.splitlines()[1]
    assert 1 == len(json.loads(run(f"-j task get {JOB} 0").stdout)["results"])


def test_query_sends_its_flags(run: Run, api: FakeApi) -> None:
    """Every flag of the query reaches the API; instance_id is converted to the API's instanceId."""
    api.answers["tasks.Query"] = [task_pb2.QueryResponse()]
    line = "-s failed,LOST --names a --hosts h1,h2 -n 5 -o 2 -p instance_id -a DESC"
    assert "No tasks found\n" == run(f"task query {JOB} {line}").stdout
    spec = api.requests("tasks.Query")[0].spec
    page = spec.pagination
    assert ([10, 11], ["a"], ["h1", "h2"], 5, 2, [("instanceId", 2)]) == (
        list(spec.taskStates), list(spec.names), list(spec.hosts), page.limit, page.offset,
        [(order.property.value, order.order) for order in page.orderBy],
    )  # fmt: skip


def test_events_print_a_table(run: Run, api: FakeApi) -> None:
    """Each change of state is a row with the number of its run; -o wide adds its id and the desired values."""
    event = task_pb2.PodEvent(actualState="RUNNING", goalState="SUCCEEDED", configVersion=1, desiredConfigVersion=1)
    event.taskId.value = event.desriedTaskId.value = f"{JOB}-0-1"
    event.timestamp = "2026-11-20T10:00:00Z"
    api.answers["tasks.GetPodEvents"] = [task_pb2.GetPodEventsResponse(result=[event])]
    header, row = run(f"task events {JOB} 0 -l 3").stdout.splitlines()
    assert [
        "Run",
        "State",
        "Goal",
        "Version",
        "Healthy",
        "Host",
        "Message",
        "Reason",
        "Update",
        "Time",
    ] == header.split()
    assert ["1", "RUNNING", "SUCCEEDED", "1", "2026-11-20T10:00:00Z"] == row.split()
    assert max(len(header), len(row)) <= 90
    event.message = "Add hostname and ports"
    api.answers["tasks.GetPodEvents"] = [task_pb2.GetPodEventsResponse(result=[event])]
    assert "launched on its host" in run(f"task events {JOB} 0").stdout
    header, row = run(f"task events {JOB} 0 -l 3 -o wide").stdout.splitlines()
    assert ("Task Id ", "Update Time", [f"{JOB}-0-1", f"{JOB}-0-1", "RUNNING", "SUCCEEDED"]) == (
        header[:8], header[-11:], row.split()[:4],
    )  # fmt: skip
    assert "Mesos" not in header
    assert 3 == api.requests("tasks.GetPodEvents")[0].limit


def test_no_events(run: Run, api: FakeApi) -> None:
    """An unknown task has no events, which is not an error."""
    api.answers["tasks.GetPodEvents"] = [task_pb2.GetPodEventsResponse()]
    assert "No events found\n" == run(f"task events {JOB} 0").stdout


RANGE_TEXT = f"job {JOB} has no such instance: it has 3 instances, 0 to 2"
GONE_TEXT = f"Job {JOB} was not found: job {JOB} not found, no row"
REFUSALS = {
    "get, job": (f"get {JOB} 9", "Get", task_pb2.GetResponse(notFound=NOT_FOUND), GONE_TEXT),
    "get, range": (f"get {JOB} 9", "Get", task_pb2.GetResponse(outOfRange=OUT_OF_RANGE), RANGE_TEXT),
    "list": (f"list {JOB}", "List", task_pb2.ListResponse(notFound=NOT_FOUND), GONE_TEXT),
    "query": (
        f"query {JOB}", "Query",
        task_pb2.QueryResponse(error=task_pb2.QueryResponse.Error(notFound=NOT_FOUND)), GONE_TEXT,
    ),
    "events": (
        f"events {JOB} 0", "GetPodEvents",
        task_pb2.GetPodEventsResponse(error=task_pb2.GetPodEventsResponse.Error(message="no table")), "no table",
    ),
    "start, job": (
        f"start {JOB}", "Start",
        task_pb2.StartResponse(error=task_pb2.StartResponse.Error(notFound=NOT_FOUND)), GONE_TEXT,
    ),
    "start, range": (
        f"start {JOB}", "Start",
        task_pb2.StartResponse(error=task_pb2.StartResponse.Error(outOfRange=OUT_OF_RANGE)), RANGE_TEXT,
    ),
    "start, failure": (
        f"start {JOB}", "Start",
        task_pb2.StartResponse(error=task_pb2.StartResponse.Error(failure=task_pb2.TaskStartFailure(message="no"))),
        "Tasks could not be started: no",
    ),
    "stop, job": (
        f"stop {JOB}", "Stop",
        task_pb2.StopResponse(error=task_pb2.StopResponse.Error(notFound=NOT_FOUND)), GONE_TEXT,
    ),
    "stop, range": (
        f"stop {JOB}", "Stop",
        task_pb2.StopResponse(error=task_pb2.StopResponse.Error(outOfRange=OUT_OF_RANGE)), RANGE_TEXT,
    ),
    "stop, failure": (
        f"stop {JOB}", "Stop",
        task_pb2.StopResponse(error=task_pb2.StopResponse.Error(updateError=task_pb2.TaskUpdateError(message="no"))),
        "Tasks could not be stopped: no",
    ),
    "restart, job": (f"restart {JOB}", "Restart", task_pb2.RestartResponse(notFound=NOT_FOUND), GONE_TEXT),
    "restart, range": (f"restart {JOB}", "Restart", task_pb2.RestartResponse(outOfRange=OUT_OF_RANGE), RANGE_TEXT),
    "logs, job": (
        f"logs {JOB} 0", "BrowseSandbox",
        task_pb2.BrowseSandboxResponse(error=task_pb2.BrowseSandboxResponse.Error(notFound=NOT_FOUND)), GONE_TEXT,
    ),
    "logs, range": (
        f"logs {JOB} 0", "BrowseSandbox",
        task_pb2.BrowseSandboxResponse(error=task_pb2.BrowseSandboxResponse.Error(outOfRange=OUT_OF_RANGE)), RANGE_TEXT,
    ),
    "logs, not running": (
        f"logs {JOB} 0", "BrowseSandbox",
        task_pb2.BrowseSandboxResponse(
            error=task_pb2.BrowseSandboxResponse.Error(notRunning=task_pb2.TaskNotRunning(message="no host"))
        ), f"Task {JOB}-0 has not been started: no host",
    ),
    "logs, failure": (
        f"logs {JOB} 0", "BrowseSandbox",
        task_pb2.BrowseSandboxResponse(
            error=task_pb2.BrowseSandboxResponse.Error(failure=task_pb2.BrowseSandboxFailure(message="host down"))
        ), f"Unable to list the sandbox of task {JOB}-0: host down",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("line", "method", "answer", "text"), REFUSALS.values(), ids=REFUSALS.keys())
def test_errors_in_responses(run: Run, api: FakeApi, line: str, method: str, answer: Message, text: str) -> None:
    """Each error inside a response is one line on standard error and exit code 1; --json prints the response too."""
    api.answers[f"tasks.{method}"] = [answer]
    plain, as_json = run(f"task {line}"), run(f"--json task {line}")
    assert (1, "", f"{text}\n") == (plain.exit_code, plain.stdout, plain.stderr)
    assert (1, True) == (as_json.exit_code, bool(json.loads(as_json.stdout)))


def test_start_names_instances(run: Run, api: FakeApi) -> None:
    """The output lists started and refused instances; a refused one means exit code 1."""
    api.answers["tasks.Start"] = [
        task_pb2.StartResponse(startedInstanceIds=[0, 1]),
        task_pb2.StartResponse(startedInstanceIds=[0], invalidInstanceIds=[1]),
    ]
    good, bad = run(f"task start {JOB} -r 0:2"), run(f"task start {JOB}")
    text = "Tasks started successfully for instances: [0 1] and failed instances are: []\n"
    assert (0, text, 1) == (good.exit_code, good.stdout, bad.exit_code)
    assert [1, 0] == [len(request.ranges) for request in api.requests("tasks.Start")]


def test_stop_counts_instances(run: Run, api: FakeApi) -> None:
    """The output counts stopped instances and lists refused ones."""
    api.answers["tasks.Stop"] = [task_pb2.StopResponse(stoppedInstanceIds=[0, 1], invalidInstanceIds=[2])]
    result = run(f"task stop {JOB} -r 0:3")
    assert (1, "Successfully signalled 2 tasks for stopping\n") == (result.exit_code, result.stdout)
    assert "Some tasks failed to stop, failed_instance_ids:[2]\n" == result.stderr


def test_stop_names_the_rest_of_a_gang(run: Run, api: FakeApi) -> None:
    """Stopping a member of a gang names the others that end with it."""
    api.answers["tasks.Stop"] = [task_pb2.StopResponse(stoppedInstanceIds=[0, 1, 2, 5])]
    result = run(f"task stop {JOB} -r 1:2 -r 5:6")
    text = "Successfully signalled 4 tasks for stopping\nAmong them the rest of a gang, which ends whole: [0 2]\n"
    assert (0, text) == (result.exit_code, result.stdout)


SIMPLE = {
    "restart": (f"restart {JOB} -r 0:1", "Restart", task_pb2.RestartResponse(),
                f"Tasks of job {JOB} restarted: 0:1\n"),
    "restart all": (f"restart {JOB}", "Restart", task_pb2.RestartResponse(), f"Tasks of job {JOB} restarted: all\n"),
    "restart the last": (f"restart {JOB} -r 7: -r 2:3", "Restart", task_pb2.RestartResponse(),
                         f"Tasks of job {JOB} restarted: 7: 2:3\n"),
    "refresh": (f"refresh {JOB}", "Refresh", task_pb2.RefreshResponse(), f"Tasks of job {JOB} refreshed\n"),
    "cache": (f"cache {JOB} 0", "GetCache", task_pb2.GetCacheResponse(runtime=task_pb2.RuntimeInfo(host="h")),
              "runtime:\n  host: h\n"),
}  # fmt: skip


@pytest.mark.parametrize(("line", "method", "answer", "text"), SIMPLE.values(), ids=SIMPLE.keys())
def test_restart_refresh_cache(run: Run, api: FakeApi, line: str, method: str, answer: Message, text: str) -> None:
    """The commands print their result or the answer."""
    api.answers[f"tasks.{method}"] = [answer]
    result = run(f"task {line}")
    assert (0, text) == (result.exit_code, result.stdout)


def sandbox(agent: FakeAgent, *paths: str) -> task_pb2.BrowseSandboxResponse:
    return task_pb2.BrowseSandboxResponse(hostname=agent.host, port=agent.port, paths=paths)


STDOUT = "/var/run 1/stdout"


def test_logs_download_a_file(run: Run, api: FakeApi, agent: FakeAgent) -> None:
    """The command prints the bytes of the file, including files of earlier runs and other files."""
    agent.files = {STDOUT: b"hello \xff\x00\n", "/var/run 1/stderr": b"oops\n"}
    api.answers["tasks.BrowseSandbox"] = [sandbox(agent, "/var/run 1/xstdout", *agent.files)]
    assert b"hello \xff\x00\n" == run(f"task logs {JOB} 0").stdout_bytes
    assert b"oops\n" == run(f"task logs -f stderr {JOB} 0 {JOB}-0-1").stdout_bytes
    assert ["", f"{JOB}-0-1"] == [request.taskId for request in api.requests("tasks.BrowseSandbox")]


def test_logs_of_a_file_that_is_not_there(run: Run, api: FakeApi, agent: FakeAgent) -> None:
    """The error lists the existing files."""
    api.answers["tasks.BrowseSandbox"] = [sandbox(agent, "/s/stdout", "/s/stderr")]
    result = run(f"task logs {JOB} 0 --filename core")
    expected = "filename:core not found in sandbox files: [/s/stdout /s/stderr]\n"
    assert (1, expected) == (result.exit_code, result.stderr)


def test_logs_refused_by_the_agent(run: Run, api: FakeApi, agent: FakeAgent) -> None:
    """The error is the agent's text."""
    api.answers["tasks.BrowseSandbox"] = [sandbox(agent, "/s/stdout")]
    result = run(f"task logs {JOB} 0")
    url = f"http://{agent.host}:{agent.port}/files/download?path=%2Fs%2Fstdout"
    assert (1, f"{url}: 404 no such file\n") == (result.exit_code, result.stderr)


def test_logs_of_an_agent_that_is_gone(run: Run, api: FakeApi) -> None:
    """The error names the unreachable agent."""
    gone = task_pb2.BrowseSandboxResponse(hostname="127.0.0.1", port="1", paths=["/s/stdout"])
    api.answers["tasks.BrowseSandbox"] = [gone]
    result = run(f"task logs {JOB} 0")
    assert (1, True) == (result.exit_code, result.stderr.startswith("cannot read from the agent at 127.0.0.1:1: "))


@pytest.mark.parametrize("is_lossy", [False, True])
def test_follow_reads_until_the_task_has_ended(run: Run, api: FakeApi, agent: FakeAgent, is_lossy: bool) -> None:
    """The output has all bytes written during the following and just before the end."""
    agent.is_lossy = is_lossy
    agent.files = {STDOUT: "erste Zeile: grün\n".encode()}
    ended = [False]

    def grow(offset: int) -> None:
        if offset and not ended[0]:
            agent.files[STDOUT] += b"\xff" + b"last line " * 10_000 + "grün\n".encode()
            ended[0] = True

    def get(request: task_pb2.GetRequest) -> task_pb2.GetResponse:
        return task_pb2.GetResponse(result=task_info(state="SUCCEEDED" if ended[0] else "RUNNING"))

    agent.on_read = grow
    api.answers["tasks.BrowseSandbox"] = [sandbox(agent, STDOUT)]
    api.answers["tasks.Get"] = [get]
    result = run(f"task logs -f {JOB} 0")
    assert (0, "erste Zeile: grün\n".encode() + b"\xff" + b"last line " * 10_000 + "grün\n".encode()) == (
        result.exit_code,
        result.stdout_bytes,
    )


def test_follow_waits_for_the_task_to_start(
    run: Run, api: FakeApi, agent: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command waits for a task that has not started."""
    monkeypatch.setattr("cli.task.logs.FOLLOW_INTERVAL_S", 0.0)
    agent.files = {STDOUT: b"hi\n"}
    waiting = task_pb2.BrowseSandboxResponse()
    waiting.error.notRunning.message = "no host"
    api.answers["tasks.BrowseSandbox"] = [waiting, sandbox(agent), sandbox(agent, STDOUT)]
    states = ["PENDING", "RUNNING", "SUCCEEDED"]
    api.answers["tasks.Get"] = [task_pb2.GetResponse(result=task_info(state=state)) for state in states]
    result = run(f"task logs {JOB} 0 --follow")
    assert (0, "hi\n", f"Waiting for task {JOB}-0-1 to write stdout ...\n") == (
        result.exit_code, result.stdout, result.stderr,
    )  # fmt: skip


def test_follow_ends_with_its_run(run: Run, api: FakeApi, agent: FakeAgent) -> None:
    """The command ends when the task has a newer run."""
    agent.files = {STDOUT: b"first run\n"}
    api.answers["tasks.BrowseSandbox"] = [sandbox(agent, STDOUT)]
    newer: Callable[[object], task_pb2.GetResponse] = lambda _: task_pb2.GetResponse(  # noqa: E731
        result=task_info(state="RUNNING", run=2)
    )
    api.answers["tasks.Get"] = [newer]
    assert "first run\n" == run(f"task logs {JOB} 0 {JOB}-0-1 -F").stdout


class PodFile:
    """A file of the API: ``written`` grows, and following readers receive pieces of at most ten bytes."""

    def __init__(self, written: bytes) -> None:
        self.written = written

    def read(self, request: pod_svc_pb2.GetPodFileRequest) -> pod_svc_pb2.GetPodFileResponse:
        assert (f"{JOB}-0", "stdout") == (request.pod_name.value, request.path)
        data = self.written[request.offset : request.offset + 10]
        is_end = not request.follow and request.offset + len(data) == len(self.written)
        return pod_svc_pb2.GetPodFileResponse(data=data, is_end=is_end)


def test_logs_that_the_api_reads(run: Run, api: FakeApi) -> None:
    """A pod on Kubernetes has no agent: its log arrives in pieces, and each further container has its own log."""
    file = PodFile(b"a line of thirty two bytes, or so\n")
    api.answers["tasks.BrowseSandbox"] = [task_pb2.BrowseSandboxResponse(paths=["side/stdout", "stdout"])]
    api.answers["pods.GetPodFile"] = [file.read]
    assert file.written == run(f"task logs {JOB} 0").stdout_bytes
    assert [0, 10, 20, 30] == [request.offset for request in api.requests("pods.GetPodFile")]
    result = run(f"task logs {JOB} 0 --filename stderr")
    assert (1, "filename:stderr not found in sandbox files: [side/stdout stdout]\n") == (
        result.exit_code,
        result.stderr,
    )


def test_logs_that_the_api_reads_are_followed(run: Run, api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command follows until the task has ended, and then reads the rest of the file."""
    monkeypatch.setattr("cli.task.logs.FOLLOW_INTERVAL_S", 0.0)
    file = PodFile(b"first line\n")
    states = iter(["RUNNING", "RUNNING", "RUNNING"])

    def read(request: pod_svc_pb2.GetPodFileRequest) -> pod_svc_pb2.GetPodFileResponse:
        if request.follow:
            return pod_svc_pb2.GetPodFileResponse(data=b"first line\n"[request.offset :])
        return file.read(request)

    def get(_: task_pb2.GetRequest) -> task_pb2.GetResponse:
        state = next(states, "SUCCEEDED")
        if state == "SUCCEEDED":
            file.written = b"first line\nand the last one\n"
        return task_pb2.GetResponse(result=task_info(state=state))

    api.answers["tasks.BrowseSandbox"] = [task_pb2.BrowseSandboxResponse(paths=["stdout"])]
    api.answers["tasks.Get"] = [get]
    api.answers["pods.GetPodFile"] = [read]
    assert file.written != b"first line\nand the last one\n"
    assert b"first line\nand the last one\n" == run(f"task logs -f {JOB} 0").stdout_bytes
    assert f"{JOB}-0-1" == api.requests("pods.GetPodFile")[0].pod_id.value


def test_follow_an_unknown_job(run: Run, api: FakeApi) -> None:
    """The error says that the job was not found."""
    api.answers["tasks.Get"] = [(grpc.StatusCode.NOT_FOUND, "no such job")]
    result = run(f"task logs -f {JOB} 0")
    assert (1, "no such job (NOT_FOUND)\n") == (result.exit_code, result.stderr)
