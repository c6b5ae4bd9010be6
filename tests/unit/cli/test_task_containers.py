"""``peloton task`` of tasks with several containers."""

from __future__ import annotations

import pytest

from peloton.api.v0.task import task_pb2
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeAgent, FakeApi

JOB = "00000000-0000-4000-8000-000000000001"


def sandbox(agent: FakeAgent, *paths: str) -> task_pb2.BrowseSandboxResponse:
    return task_pb2.BrowseSandboxResponse(hostname=agent.host, port=agent.port, paths=paths)


def test_get_prints_containers(run: Run, api: FakeApi) -> None:
    """Containers follow the row of a task that has several."""
    info = task_pb2.TaskInfo()
    info.runtime.containers.add(name="setup", state="SUCCEEDED", init=True, completionTime="2026-01-01T00:00:00Z")
    info.runtime.containers.add(name="web", state="RUNNING")
    api.answers["tasks.Get"] = [task_pb2.GetResponse(result=info)]

    lines = run(f"task get {JOB} 0").stdout.splitlines()

    assert ["", "setup      init  SUCCEEDED              2026-01-01T00:00:00Z  0"] == [lines[2], lines[4].rstrip()]
    assert lines[5].startswith("web              RUNNING")


@pytest.mark.parametrize(
    ("container", "output"),
    [("web", "web\n"), ("proxy", "proxy\n"), ("setup", "setup\n")],
)
def test_logs_of_a_container(run: Run, api: FakeApi, agent: FakeAgent, container: str, output: str) -> None:
    """The main container's logs are at the top level, the other containers' in folders with their names."""
    agent.files = {"/p/stdout": b"web\n", "/p/proxy/stdout": b"proxy\n", "/p/setup/stdout": b"setup\n"}
    api.answers["tasks.BrowseSandbox"] = [sandbox(agent, *agent.files)]
    api.answers["tasks.Get"] = [of_several_containers()]

    assert output == run(f"task logs {JOB} 0 -c {container}").stdout


def test_logs_of_no_container(run: Run, api: FakeApi) -> None:
    """The error lists the pod's containers."""
    api.answers["tasks.Get"] = [of_several_containers()]

    result = run(f"task logs {JOB} 0 --container main")

    expected = f"pod {JOB}-0 has no container main: want web, proxy, setup\n"
    assert (1, expected) == (result.exit_code, result.stderr)


def of_several_containers() -> task_pb2.GetResponse:
    response = task_pb2.GetResponse()
    config = response.result.config
    config.containerName = "web"
    config.otherContainers.add(name="proxy")
    config.initContainers.add(name="setup")
    return response
