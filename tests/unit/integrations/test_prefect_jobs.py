"""The worker of Prefect makes jobs of flow runs and follows them to their ends; doubles stand for Prefect."""

from __future__ import annotations

import asyncio
import logging
import sys
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import pydantic
import pytest

from tests.unit.integrations.fake_jobs import POOL, FakeClient


class BaseJobConfiguration(pydantic.BaseModel):  # type: ignore[misc]
    name: str = "sum"
    command: str = "prefect flow-run execute"
    env: dict[str, str | None] = {}
    labels: dict[str, str | None] = {}


class BaseVariables(pydantic.BaseModel):  # type: ignore[misc]
    pass


@dataclass
class BaseWorkerResult:
    identifier: str
    status_code: int


@dataclass
class State:
    name: str
    message: str = ""

    def is_cancelling(self) -> bool:
        return self.name == "Cancelling"

    def is_cancelled(self) -> bool:
        return self.name == "Cancelled"

    def is_scheduled(self) -> bool:
        return self.name == "Scheduled"


class NotFound(Exception):
    pass


class HTTPError(Exception):
    pass


@dataclass
class FlowRun:
    state: State
    infrastructure_pid: str = ""
    id: str = "run"
    name: str = "sum"


class Prefect:
    """The API of Prefect with one flow run, None after it was deleted; it raises ``errors`` first."""

    def __init__(self) -> None:
        self.flow_run: FlowRun | None = FlowRun(State("Pending"))
        self.errors: list[Exception] = []

    async def read_flow_run(self, _: str) -> FlowRun:
        if self.errors:
            raise self.errors.pop()
        if self.flow_run is None:
            raise NotFound
        return self.flow_run

    async def set_flow_run_state(self, _: str, state: State, force: bool) -> None:
        assert self.flow_run is not None
        assert force
        self.flow_run.state = state


class BaseWorker:
    def __init__(self) -> None:
        self.client = Prefect()

    def __class_getitem__(cls, _: Any) -> type:
        return cls

    def get_flow_run_logger(self, _: FlowRun) -> logging.Logger:
        return logging.getLogger("prefect")


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    base = (BaseJobConfiguration, BaseVariables, BaseWorker, BaseWorkerResult)
    doubles: dict[str, dict[str, Any]] = {
        "httpx": {"HTTPError": HTTPError},
        "prefect": {},
        "prefect.exceptions": {"InfrastructureNotFound": KeyError, "ObjectNotFound": NotFound},
        "prefect.states": {"Cancelled": lambda message: State("Cancelled", message)},
        "prefect.workers": {},
        "prefect.workers.base": {one.__name__: one for one in base},
    }
    for name, values in doubles.items():
        double = ModuleType(name)
        vars(double).update(values)
        monkeypatch.setitem(sys.modules, name, double)
    monkeypatch.delitem(sys.modules, "peloton.integrations.prefect", raising=False)
    module = import_module("peloton.integrations.prefect")
    for name in ("POLL_S", "SETTLE_S", "CANCELLED_POLL_S"):
        monkeypatch.setattr(module, name, 0.0)
    return module


class Server(FakeClient):
    """A double of Peloton that is opened by ``with``."""

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def run(module: ModuleType, monkeypatch: pytest.MonkeyPatch, steps: list[Any]) -> tuple[int, Prefect, Server]:
    """Run one flow run; each look at its job takes the next step, which changes the worlds of Prefect and Peloton."""
    server, worker = Server(), module.PelotonWorker()
    monkeypatch.setattr(module, "Client", lambda address: server)

    def look(call: str) -> None:
        if call == "List" and steps:
            steps.pop(0)(worker.client, server)

    server.before = look
    configuration = module.PelotonJobConfiguration(pool=POOL)
    flow_run = worker.client.flow_run
    status = SimpleNamespace(started=lambda job_id: setattr(flow_run, "infrastructure_pid", job_id))
    work = worker.run(flow_run, configuration, status)
    result = asyncio.run(asyncio.wait_for(work, 60))
    assert [result.identifier] == list(server.jobs_seen)
    return result.status_code, worker.client, server


def move(state: str) -> Any:
    return lambda prefect, server: server.move(*server.jobs_seen, state, 0)


def call_it(state: str) -> Any:
    def change(prefect: Prefect, server: Server) -> None:
        assert prefect.flow_run is not None
        prefect.flow_run.state = State(state)

    return change


def delete(prefect: Prefect, server: Server) -> None:
    prefect.flow_run = None


def refuse(prefect: Prefect, server: Server) -> None:
    prefect.errors.append(HTTPError())


def test_the_job_of_a_flow_run(module: ModuleType) -> None:
    """The pod runs Prefect by the interpreter of the worker or of the image, and SIGTERM schedules it again."""
    spec = module.PelotonJobConfiguration(cpu=2, env={"A": "1", "B": None}).spec()
    assert spec.command == f"exec {sys.executable} -m prefect flow-run execute"
    assert spec.environment == {"PREFECT_FLOW_RUN_EXECUTE_SIGTERM_BEHAVIOR": "reschedule", "A": "1"}
    assert (spec.cpu, spec.failures_max, spec.ends_when_preempted) == (2, 0, True)
    spec = module.PelotonJobConfiguration(image="flows:1", failures_max=2).spec()
    assert (spec.command, spec.ends_when_preempted) == ("exec prefect flow-run execute", False)


@pytest.mark.parametrize(
    ("steps", "status"),
    [
        ([move("RUNNING"), move("SUCCEEDED")], 0),
        ([move("RUNNING"), move("FAILED")], 1),
        ([move("RUNNING"), call_it("Scheduled"), move("FAILED")], 0),
        ([move("RUNNING"), call_it("Cancelled"), move("FAILED")], 0),
    ],
)
def test_the_end_of_a_job(module: ModuleType, monkeypatch: pytest.MonkeyPatch, steps: list[Any], status: int) -> None:
    """A failed job is a crash, unless its flow run has ended or is scheduled again."""
    assert run(module, monkeypatch, steps)[0] == status


@pytest.mark.parametrize("steps", [[call_it("Cancelling")], [call_it("Cancelled")], [refuse, call_it("Cancelling")]])
def test_a_cancelled_flow_run_that_waits(module: ModuleType, monkeypatch: pytest.MonkeyPatch, steps: list[Any]) -> None:
    """The job is stopped, also if Prefect did not answer once, and it is no crash."""
    status, prefect, server = run(module, monkeypatch, steps)
    assert status == 0
    assert prefect.flow_run is not None
    assert prefect.flow_run.state.name == "Cancelled"
    assert server.states(*server.jobs_seen) == ["KILLED"]


def test_a_deleted_flow_run_that_waits(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job is stopped."""
    status, _, server = run(module, monkeypatch, [delete])
    assert status == 0
    assert server.states(*server.jobs_seen) == ["KILLED"]


def test_a_cancelled_flow_run_that_runs(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancelling is left to the process of Prefect in the pod."""
    steps = [move("RUNNING"), call_it("Cancelling"), lambda *_: None, move("SUCCEEDED")]
    _, prefect, server = run(module, monkeypatch, steps)
    assert prefect.flow_run is not None
    assert prefect.flow_run.state.name == "Cancelling"
    assert "Stop" not in server.calls
