"""``peloton admin doctor``: results, exit codes, and an api that does not answer."""

from __future__ import annotations

import json
import time

import grpc

from peloton.api.v0.overview import overview_pb2 as pb
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi


def answer(result: pb.CheckResult.ValueType, skew_s: float = 0.0) -> pb.GetDiagnosisResponse:
    check = pb.DiagnosticCheck(name="schema", result=result, text="at 0030", advice="" if result == 1 else "upgrade")
    return pb.GetDiagnosisResponse(checks=[check], time=time.time() + skew_s)


def test_a_sound_control_plane_exits_with_0(run: Run, api: FakeApi) -> None:
    """Warnings do not fail the command."""
    api.answers["overview.GetDiagnosis"] = [answer(pb.CHECK_RESULT_WARN)]

    lines = run("admin doctor").stdout.splitlines()

    assert ["Result", "Check", "Found", "What", "to", "do"] == lines[0].split()
    assert "2 ok, 1 warn, 0 fail" == lines[-1]


def test_a_failed_check_exits_with_1(run: Run, api: FakeApi) -> None:
    """The error names the checks that failed."""
    api.answers["overview.GetDiagnosis"] = [answer(pb.CHECK_RESULT_FAIL)]

    result = run("admin doctor")

    assert (1, True) == (result.exit_code, "1 checks fail: schema" in result.stderr)


def test_a_clock_that_differs_is_a_warning(run: Run, api: FakeApi) -> None:
    """The clocks of this machine and of the api are compared."""
    api.answers["overview.GetDiagnosis"] = [answer(pb.CHECK_RESULT_OK, skew_s=300.0)]

    rows = json.loads(run("--json admin doctor").stdout)

    (clock,) = [one for one in rows if one["name"] == "clock of the api"]
    assert "warn" == clock["result"]
    assert "ahead of this machine" in clock["text"]


def test_an_api_that_does_not_answer_is_a_failed_check(run: Run, api: FakeApi) -> None:
    """The command says so without an api, and ends."""
    api.answers["overview.GetDiagnosis"] = [(grpc.StatusCode.PERMISSION_DENIED, "no reader")]

    result = run("--json admin doctor")

    assert 1 == result.exit_code
    assert [("api", "fail")] == [(one["name"], one["result"]) for one in json.loads(result.stdout)]
