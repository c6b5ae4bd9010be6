"""Repeated calls: a client sends a call again only where that is safe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest

from peloton.api.limits import RETRY_AFTER
from peloton.api.service_names import SPELLINGS, service_of
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.schedule import schedule_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.client import AsyncClient, Client, RetryPolicy
from peloton.client.repeats import METHODS, Repeat
from tests.unit.cli.fake_api import FakeApi

JOB = "4bc52ca5-1a2b-4a3f-9fd9-4b1a0b1fbb6e"
AWAY = (grpc.StatusCode.UNAVAILABLE, "the api is being replaced")
NEVER_SENT = (grpc.StatusCode.UNAVAILABLE, "failed to connect to all addresses")
BUSY = (grpc.StatusCode.RESOURCE_EXHAUSTED, "9 jobs wait, the bound is 9", ((RETRY_AFTER, "2500"),))


def test_each_method_has_its_row() -> None:
    """A new method says whether it may be repeated."""
    rows = {f"{service}/{method}" for service, methods in METHODS.items() for method in methods}
    methods = {f"{names[0]}/{method.name}" for names in SPELLINGS for method in service_of(names[0]).methods}

    assert methods == rows


def test_what_depends_on_a_field_has_it() -> None:
    """A request that is repeated by its key, or by the id of the new object, has a field for it."""
    fields = {Repeat.KEYED: "update_key", Repeat.NAMED: "id"}

    for service, methods in METHODS.items():
        for name, repeat in methods.items():
            if repeat in fields:
                assert fields[repeat] in service_of(service).methods_by_name[name].input_type.fields_by_name


class Waits:
    """A clock that moves by sleeping only."""

    def __init__(self, **bounds: Any) -> None:
        self.slept_s: list[float] = []
        self.retry = RetryPolicy(clock=lambda: sum(self.slept_s), chance=lambda: 0.5, **bounds)

    async def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)


Call = Callable[[Any], Any]


async def call_by(kind: type[Any], api: FakeApi, waits: Waits, call: Call) -> Any:
    """Return the answer of a call by a client of this kind, or the code of its error."""
    try:
        if kind is Client:
            with Client(api.address, retry=waits.retry, sleep=waits.slept_s.append) as client:
                return call(client)
        async with AsyncClient(api.address, retry=waits.retry, sleep=waits.sleep) as client:
            return await call(client)
    except grpc.RpcError as error:
        return error.code()


both = pytest.mark.parametrize("kind", [Client, AsyncClient])
CREATED = job_pb2.CreateResponse(jobId=peloton_pb2.JobID(value=JOB))
GONE = svc.StopJobResponse()
CALLS: dict[str, tuple[str, Any, Call, bool]] = {
    "a read": ("jobs.Query", job_pb2.QueryResponse(), lambda c: c.jobs.Query(job_pb2.QueryRequest()), True),
    "a stop of tasks": ("tasks.Stop", task_pb2.StopResponse(), lambda c: c.tasks.Stop(task_pb2.StopRequest()), True),
    "a creation with an id": (
        "jobs.Create",
        CREATED,
        lambda c: c.jobs.Create(job_pb2.CreateRequest(id=peloton_pb2.JobID(value=JOB))),
        True,
    ),
    "a creation without one": ("jobs.Create", CREATED, lambda c: c.jobs.Create(job_pb2.CreateRequest()), False),
    "an update with a key": (
        "services.ReplaceJob",
        svc.ReplaceJobResponse(),
        lambda c: c.services.ReplaceJob(svc.ReplaceJobRequest(update_key="k")),
        True,
    ),
    "an update without one": (
        "services.ReplaceJob",
        svc.ReplaceJobResponse(),
        lambda c: c.services.ReplaceJob(svc.ReplaceJobRequest()),
        False,
    ),
    "a stop by version": ("services.StopJob", GONE, lambda c: c.services.StopJob(svc.StopJobRequest()), False),
    "a triggered run": (
        "schedules.TriggerSchedule",
        schedule_pb2.TriggerScheduleResponse(),
        lambda c: c.schedules.TriggerSchedule(schedule_pb2.TriggerScheduleRequest()),
        False,
    ),
}


@both
@pytest.mark.parametrize("name", CALLS)
async def test_a_lost_answer(api: FakeApi, kind: type[Any], name: str) -> None:
    """Calls that are safe to repeat are repeated after a lost answer; the error of others is raised at once."""
    method, answer, call, is_repeated = CALLS[name]
    waits = Waits()
    api.answers[method] = [AWAY, AWAY, answer]

    assert (answer if is_repeated else grpc.StatusCode.UNAVAILABLE) == await call_by(kind, api, waits, call)
    assert ([0.1875, 0.375] if is_repeated else []) == waits.slept_s


@both
@pytest.mark.parametrize("refusal", [BUSY, NEVER_SENT], ids=["busy", "never sent"])
async def test_what_was_not_done_is_repeated(api: FakeApi, kind: type[Any], refusal: Any) -> None:
    """A call that has done nothing is repeated, whatever it is."""
    method, answer, call, _ = CALLS["a creation without one"]
    waits = Waits()
    api.answers[method] = [refusal, answer]

    assert answer == await call_by(kind, api, waits, call)
    assert [2.5 if refusal is BUSY else 0.1875] == waits.slept_s


@both
async def test_repeats_end(api: FakeApi, kind: type[Any]) -> None:
    """The error is raised when the outage has lasted longer than the bound."""
    method, _, call, _ = CALLS["a read"]
    waits = Waits(away_s=10, wait_s_max=4)
    api.answers[method] = [AWAY]

    assert grpc.StatusCode.UNAVAILABLE == await call_by(kind, api, waits, call)
    assert [0.1875, 0.375, 0.75, 1.5, 3.0, 3.0, 3.0] == waits.slept_s


@both
async def test_another_error_is_raised(api: FakeApi, kind: type[Any]) -> None:
    """A call that took its whole time is not repeated: the caller has bounded it."""
    method, _, call, _ = CALLS["a read"]
    waits = Waits()
    api.answers[method] = [(grpc.StatusCode.DEADLINE_EXCEEDED, "too late")]

    assert grpc.StatusCode.DEADLINE_EXCEEDED == await call_by(kind, api, waits, call)
    assert [] == waits.slept_s
