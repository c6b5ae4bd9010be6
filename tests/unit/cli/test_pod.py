"""``peloton pod``: requests, printed texts and exit codes."""

import json

import grpc
import pytest

from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as job_svc
from peloton.api.v1alpha.pod import pod_pb2
from peloton.api.v1alpha.pod.svc import pod_svc_pb2 as svc
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeAgent, FakeApi
from tests.unit.cli.service_answers import JOB, version

NAME = f"{JOB}-0"
MALFORMED = (grpc.StatusCode.INVALID_ARGUMENT, "invalid pod name")

ACTS = {
    "start": ("StartPod", svc.StartPodResponse(), f"Pod {NAME} started"),
    "stop": ("StopPod", svc.StopPodResponse(), f"Pod {NAME} stopped"),
    "restart": ("RestartPod", svc.RestartPodResponse(), f"Pod {NAME} restarted"),
    "refresh": ("RefreshPod", svc.RefreshPodResponse(), f"Pod {NAME} refreshed"),
}


@pytest.mark.parametrize("verb", ACTS)
def test_acts_on_one_pod(run: Run, api: FakeApi, verb: str) -> None:
    """The request has the pod's name, and the output says what was done; a refusal is the API's text."""
    method, answer, text = ACTS[verb]
    api.answers[f"pods.{method}"] = [answer, answer, MALFORMED]
    assert f"{text}\n" == run(f"pod {verb} {NAME}").stdout
    assert "{}\n" == run(f"pod {verb} {NAME} --json").stdout
    result = run(f"pod {verb} x 0")
    assert (1, "", "invalid pod name (INVALID_ARGUMENT)\n") == (result.exit_code, result.stdout, result.stderr)
    assert [NAME, NAME, "x-0"] == [request.pod_name.value for request in api.requests(f"pods.{method}")]


def test_a_restart_within_the_sla(run: Run, api: FakeApi) -> None:
    """The SLA is checked on request only; its refusal is the API's text."""
    api.answers["pods.RestartPod"] = [
        svc.RestartPodResponse(),
        (grpc.StatusCode.ABORTED, "pod restart would violate SLA"),
    ]
    run(f"pod restart {NAME}")
    result = run(f"pod restart {NAME} --check-sla")
    assert (1, "pod restart would violate SLA (ABORTED)\n") == (result.exit_code, result.stderr)
    assert [False, True] == [request.check_sla for request in api.requests("pods.RestartPod")]


def info(instance: int = 0, state: str = "RUNNING", name: str = "") -> pod_pb2.PodInfo:
    found = pod_pb2.PodInfo()
    if name:
        found.spec.pod_name.value = name
    found.status.state = pod_pb2.PodState.Value(f"POD_STATE_{state}")
    found.status.pod_id.value = f"{JOB}-{instance}-1"
    return found


def test_get(run: Run, api: FakeApi) -> None:
    """A pod and its earlier runs as YAML or JSON."""
    api.answers["pods.GetPod"] = [svc.GetPodResponse(current=info(), previous=[info(state="FAILED")])]
    assert "state: POD_STATE_RUNNING\n" in run(f"pod get {NAME}").stdout
    assert 1 == len(json.loads(run(f"pod get {NAME} --statusonly --limit 2 -j").stdout)["previous"])
    first, second = api.requests("pods.GetPod")
    assert (NAME, False, 0, True, 2) == (
        first.pod_name.value, first.status_only, first.limit, second.status_only, second.limit,
    )  # fmt: skip


def test_an_unknown_pod(run: Run, api: FakeApi) -> None:
    """The error is the API's text."""
    text = f"failed to get task runtime: task:{NAME} not found"
    api.answers["pods.GetPod"] = [(grpc.StatusCode.NOT_FOUND, text)]
    result = run(f"pod get {NAME}")
    assert (1, f"{text} (NOT_FOUND)\n") == (result.exit_code, result.stderr)


def test_cache(run: Run, api: FakeApi) -> None:
    """The short form is printed as YAML or JSON."""
    api.answers["pods.GetPodCache"] = [svc.GetPodCacheResponse(status=info().status)]
    assert "state: POD_STATE_RUNNING\n" in run(f"pod cache {NAME}").stdout
    assert "POD_STATE_RUNNING" == json.loads(run(f"pod cache {NAME} -j").stdout)["status"]["state"]


def test_events_are_those_of_the_task(run: Run, api: FakeApi) -> None:
    """The same table as ``task events``, with the same request."""
    event = task_pb2.PodEvent(actualState="RUNNING", goalState="RUNNING", configVersion=1, desiredConfigVersion=1)
    api.answers["tasks.GetPodEvents"] = [task_pb2.GetPodEventsResponse(result=[event])]
    assert run(f"pod events {JOB} 0 -r {NAME}-1 -l 2").stdout == run(f"task events {JOB} 0 -r {NAME}-1 -l 2").stdout
    first, second = api.requests("tasks.GetPodEvents")
    assert (second, f"{NAME}-1", 2) == (first, first.runId, first.limit)


EVENTS = f"""\
Pod Id Desired Pod Id Actual State Desired State Job Version Desired Job Version Healthy Host Message Reason Update Time
{NAME}-1 {NAME}-2 FAILED RUNNING 1-0-0 2-0-0 UNHEALTHY host-1 boom REASON 2026-11-20T10:00:00Z
"""


def test_events_of_one_run(run: Run, api: FakeApi) -> None:
    """The events of one run are a table with the terms of v1alpha."""
    event = pod_pb2.PodEvent(
        actual_state="POD_STATE_FAILED", desired_state="POD_STATE_RUNNING", healthy="HEALTH_STATE_UNHEALTHY",
        hostname="host-1", message="boom", reason="REASON", timestamp="2026-11-20T10:00:00.25Z",
        version=version("1-0-0"), desired_version=version("2-0-0"),
    )  # fmt: skip
    event.pod_id.value, event.desired_pod_id.value = f"{NAME}-1", f"{NAME}-2"
    full = svc.GetPodEventsResponse(events=[event])
    api.answers["pods.GetPodEvents"] = [full, full, svc.GetPodEventsResponse()]
    text = run(f"pod events-v1alpha {NAME} -p {NAME}-1").stdout
    assert EVENTS.split() == text.split()
    assert 1 == len(json.loads(run(f"pod events-v1alpha {NAME} -j").stdout)["events"])
    assert "No events found\n" == run(f"pod events-v1alpha {NAME}").stdout
    requests = api.requests("pods.GetPodEvents")
    assert [f"{NAME}-1", "", ""] == [request.pod_id.value for request in requests]


def test_delete_events(run: Run, api: FakeApi) -> None:
    """The events of one run are deleted; the API names a malformed id."""
    api.answers["pods.DeletePodEvents"] = [svc.DeletePodEventsResponse(), MALFORMED]
    assert f"Events of pod {NAME}-1 deleted\n" == run(f"pod delete-events {NAME} {NAME}-1").stdout
    assert 1 == run(f"pod delete-events {NAME} x").exit_code
    request = api.requests("pods.DeletePodEvents")[0]
    assert (NAME, f"{NAME}-1") == (request.pod_name.value, request.pod_id.value)


def test_query_sends_its_flags(run: Run, api: FakeApi) -> None:
    """Every flag of the query reaches the API, and states are valid with or without their prefix."""
    api.answers["services.QueryPods"] = [job_svc.QueryPodsResponse()]
    line = "-s POD_STATE_RUNNING,failed --names a,b --hosts h1 -n 5 -o 2 -p instance_id -a DESC"
    assert "No pods found\n" == run(f"pod query {JOB} {line}").stdout
    request = api.requests("services.QueryPods")[0]
    spec, page = request.spec, request.spec.pagination
    assert (["RUNNING", "FAILED"], ["a", "b"], ["h1"], 5, 2, [("instanceId", 2)], page) == (
        [pod_pb2.PodState.Name(state)[10:] for state in spec.pod_states], [name.value for name in spec.names],
        list(spec.hosts), page.limit, page.offset, [(order.property.value, order.order) for order in page.order_by],
        request.pagination,
    )  # fmt: skip


def test_query_prints_a_table(run: Run, api: FakeApi) -> None:
    """A pod without a name of its own has its instance's name."""
    api.answers["services.QueryPods"] = [job_svc.QueryPodsResponse(pods=[info(0, name="web"), info(1)])]
    rows = [line.split() for line in run(f"pod query {JOB}").stdout.splitlines()]
    assert [[f"{JOB}-0-1", "web", "RUNNING"], [f"{JOB}-1-1", f"{JOB}-1", "RUNNING"]] == rows[1:]
    assert 2 == len(json.loads(run(f"pod query {JOB} -j").stdout)["pods"])


def test_query_refused(run: Run, api: FakeApi) -> None:
    """An unknown state is wrong usage, an unknown job is named by the API."""
    api.answers["services.QueryPods"] = [(grpc.StatusCode.NOT_FOUND, "failed to find job runtime: not found")]
    wrong, unknown = run(f"pod query {JOB} -s SLEEPY"), run(f"pod query {JOB}")
    assert (2, True) == (wrong.exit_code, "invalid state 'SLEEPY'" in wrong.stderr)
    assert (1, "failed to find job runtime: not found (NOT_FOUND)\n") == (unknown.exit_code, unknown.stderr)


@pytest.mark.parametrize(("flags", "run_id"), [("", ""), (f"-p {NAME}-1", f"{NAME}-1")])
def test_logs(run: Run, api: FakeApi, agent: FakeAgent, flags: str, run_id: str) -> None:
    """The command prints a file of the sandbox of the pod's current run, or of an earlier one."""
    agent.files["/sandbox/stderr"] = b"oh\n"
    listing = task_pb2.BrowseSandboxResponse(hostname=agent.host, port=agent.port, paths=["/sandbox/stderr"])
    api.answers["tasks.BrowseSandbox"] = [listing]
    assert "oh\n" == run(f"pod logs {NAME} -f stderr {flags}").stdout
    request = api.requests("tasks.BrowseSandbox")[0]
    assert (JOB, 0, run_id) == (request.jobId.value, request.instanceId, request.taskId)


def test_logs_of_no_pod(run: Run, api: FakeApi) -> None:
    """An invalid name of a pod is refused before any request."""
    result = run("pod logs web")
    assert (2, True, []) == (result.exit_code, "expected JOB INSTANCE, got 'web'" in result.stderr, api.calls)
