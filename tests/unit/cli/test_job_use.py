"""``peloton job use``: usage of instances against their requests."""

from __future__ import annotations

import pytest

from cli.job import use
from peloton.api.v0.table import table_pb2
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi

JOB = "91b1b8e5-2ba8-11e7-bc23-0242ac11000d"


@pytest.fixture(autouse=True)
def _no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(use, "RATE_S", 0.0)


def answer(*measured: bool) -> table_pb2.GetInstanceUseResponse:
    found = table_pb2.GetInstanceUseResponse()
    for number, is_measured in enumerate(measured):
        one = found.instances.add(instance=number, host=f"h{number}", cpuAsked=1.5, memoryMbAsked=2_048)
        if is_measured:
            one.measured, one.cpuUsed, one.memoryMbUsed = True, 0.3, 512
    return found


def test_the_second_sample_makes_a_rate(run: Run, api: FakeApi) -> None:
    """An instance without a rate after the second sample has no numbers."""
    api.answers["job_table.GetInstanceUse"] = [answer(False, False), answer(True, False)]
    result = run("job", "use", JOB)

    assert ["0", "h0", "0.30", "1.5", "20", "%", "512", "2,048", "25", "%"] == result.stdout.splitlines()[1].split()
    assert ["1", "h1", "-", "1.5", "-", "-", "2,048", "-"] == result.stdout.splitlines()[2].split()
    assert 2 == len(api.requests("job_table.GetInstanceUse"))


def test_what_is_known_is_asked_once(run: Run, api: FakeApi) -> None:
    """The request names the given instances, and is not repeated."""
    api.answers["job_table.GetInstanceUse"] = [answer(True)]
    run("job", "use", JOB, "-r", "3:5")

    (request,) = api.requests("job_table.GetInstanceUse")
    assert (JOB, [3, 4]) == (request.id.value, list(request.instances))


def test_ranges(run: Run, api: FakeApi) -> None:
    """An open range has 100 instances; no range means the instances on hosts."""
    api.answers["job_table.GetInstanceUse"] = [answer(), answer()]
    assert "No instance is on a host.\n" == run("job", "use", JOB, "-r", "50:").stdout
    run("job", "use", JOB)
    first, second = api.requests("job_table.GetInstanceUse")
    assert (list(range(50, 150)), []) == (list(first.instances), list(second.instances))

    result = run("job", "use", JOB, "-r", "0:101")
    assert 2 == result.exit_code
    assert "101 instances, at most 100 can be measured at once" in result.stderr
