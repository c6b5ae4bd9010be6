"""``peloton job stateless pulse``, and the options for keys and pulses."""

from __future__ import annotations

import json
from pathlib import Path

import grpc
import pytest

from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi
from tests.unit.cli.service_answers import JOB, SPEC, job_answer, pool_answer, replace_answer, version, workflow_status

PULSE = f"job stateless pulse {JOB}"
OTHER = (grpc.StatusCode.ABORTED, f"the update of job {JOB} is not 'a' but 'b', to version 3")


def answer(state: str = "ROLLING_FORWARD", done: int = 1, failed: int = 0) -> svc.PulseJobWorkflowResponse:
    return svc.PulseJobWorkflowResponse(status=workflow_status(state, done=done, failed=failed))


def test_one_pulse(run: Run, api: FakeApi) -> None:
    """The pulse names its update, needs no read, and prints the progress."""
    api.answers["services.PulseJobWorkflow"] = [answer()]
    result = run(f"{PULSE} --update-key deploy-1")
    assert (0, "Update ROLLING_FORWARD: 1/3 done\n", 1) == (result.exit_code, result.stdout, len(api.calls))
    request = api.requests("services.PulseJobWorkflow")[0]
    assert (JOB, "deploy-1") == (request.job_id.value, request.update_key)
    assert "WORKFLOW_STATE_ROLLING_FORWARD" == json.loads(run(f"{PULSE} --json").stdout)["status"]["state"]


@pytest.mark.parametrize(("end", "exit_code"), [("SUCCEEDED", 0), ("ROLLED_BACK", 1)])
def test_pulses_until_the_end(run: Run, api: FakeApi, end: str, exit_code: int) -> None:
    """The command prints a line at each change; it retries while the API is unavailable."""
    away = (grpc.StatusCode.UNAVAILABLE, "away")
    api.answers["services.PulseJobWorkflow"] = [answer(), away, answer(), answer(failed=1), answer(end, 2, 1)]
    result = run(f"{PULSE} --every 1ms")
    assert exit_code == result.exit_code
    assert [
        "Update ROLLING_FORWARD: 1/3 done",
        "Update ROLLING_FORWARD: 1/3 done, 1 failed",
        f"Update {end}: 2/3 done, 1 failed",
    ] == result.stdout.splitlines()
    assert f"{api.address} answers again" in result.stderr
    assert 5 == len(api.requests("services.PulseJobWorkflow"))


@pytest.mark.parametrize("every", ["", "--every 1ms"])
def test_a_refused_pulse(run: Run, api: FakeApi, every: str) -> None:
    """A pulse for an older update does not reach a newer one."""
    api.answers["services.PulseJobWorkflow"] = [OTHER]
    result = run(f"{PULSE} --update-key a {every}")
    assert 1 == result.exit_code
    assert OTHER[1] in result.stderr
    assert 1 == len(api.calls)


def test_options_reach_the_request(run: Run, api: FakeApi, tmp_path: Path) -> None:
    """Each command that creates an update sends the key and the pulse interval in seconds."""
    file = tmp_path / "web.yaml"
    file.write_text(SPEC)
    api.answers["respools.LookupResourcePoolID"] = [pool_answer()]
    api.answers["services.GetJob"] = [job_answer()]
    api.answers["services.CreateJob"] = [svc.CreateJobResponse()]
    api.answers["services.ReplaceJob"] = [replace_answer()]
    api.answers["services.RestartJob"] = [svc.RestartJobResponse()]
    key, pulses = "--update-key deploy-1", "--pulse-seconds 9"
    run(f"job stateless create /maps {file} --jobID {JOB} {key} {pulses}")
    run(f"job stateless replace {JOB} {file} 1 {key} {pulses}")
    run(f"job stateless rollback {JOB} 1 1-1-1 {key} {pulses}")
    run(f"job stateless restart {JOB} {key}")

    created = api.requests("services.CreateJob")[0]
    assert ("deploy-1", 9) == (created.update_key, created.create_spec.pulse_seconds)
    replacements = api.requests("services.ReplaceJob")
    assert [("deploy-1", 9)] * 2 == [(one.update_key, one.update_spec.pulse_seconds) for one in replacements]
    assert "deploy-1" == api.requests("services.RestartJob")[0].update_key


def test_a_watch_reports_that_it_waits_for_a_pulse(run: Run, api: FakeApi) -> None:
    """The line has the command that sends a pulse."""
    waits = job_answer(update=workflow_status("ROLLING_FORWARD", done=1))
    status: stateless_pb2.WorkflowStatus = waits.job_info.status.workflow_status
    status.awaiting_pulse, status.waiting_for = True, "a pulse: none has come for 9 s"
    status.version.CopyFrom(version("2-1-2"))
    api.answers["services.GetJob"] = [waits, job_answer(update=workflow_status(done=3))]
    lines = run(f"job stateless watch {JOB}").stdout.splitlines()
    how = f"peloton job stateless pulse {JOB}"
    assert f"UPDATE ROLLING_FORWARD 1/3 done; waits for a pulse: none has come for 9 s: {how}" == lines[0]
