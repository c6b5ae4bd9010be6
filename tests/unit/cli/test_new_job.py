"""The id of a job that is created without one."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.explain import explain_pb2 as explain
from peloton.api.v0.job import job_pb2
from peloton.api.v1alpha import peloton_pb2 as v1_peloton_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.errors import Reason
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi, because
from tests.unit.cli.test_job import pool_answer

STORED = "job x is stored, but its workflow could not be started yet (TimeoutError)"
LOCKED_DOWN = "All write APIs are locked down"
OPEN_ENDS = {
    "late": (grpc.StatusCode.DEADLINE_EXCEEDED, "late", True),
    "cut off": (grpc.StatusCode.UNAVAILABLE, "Socket closed", True),
    "never sent": (grpc.StatusCode.UNAVAILABLE, "failed to connect to all addresses", False),
    "locked down": (grpc.StatusCode.UNAVAILABLE, LOCKED_DOWN, False),
    "refused": (grpc.StatusCode.INTERNAL, "no", False),
}


@pytest.mark.parametrize(("code", "details", "is_open"), OPEN_ENDS.values(), ids=OPEN_ENDS.keys())
@pytest.mark.parametrize("group", ["job", "job stateless"])
def test_a_create_without_an_answer_reports_the_id(
    group: str, code: grpc.StatusCode, details: str, is_open: bool, run: Run, api: FakeApi, tmp_path: Path
) -> None:
    """The client generates the id, so that the user can look for the job or repeat the call without a second job."""
    file = tmp_path / "job.yaml"
    file.write_text("name: hello\n")
    method = "jobs.Create" if group == "job" else "services.CreateJob"
    api.answers["respools.LookupResourcePoolID"] = [pool_answer()]
    is_locked = details == LOCKED_DOWN
    api.answers[method] = [because(Reason.LOCKED_DOWN, code, details) if is_locked else (code, details)]

    first, second = (run(*group.split(), "create", "/dev", file) for _ in range(2))

    ids = [getattr(request, "id" if group == "job" else "job_id").value for request in api.requests(method)]
    assert len(set(ids)) == 2
    for job_id, result in zip(ids, (first, second), strict=True):
        reported = (
            f"Whether job {job_id} was created is not known: see `peloton {group} get {job_id}`, "
            f"or create it again with --jobID {job_id}\n"
        )
        assert (1, is_open) == (result.exit_code, result.stderr.startswith(reported))


@pytest.mark.parametrize("group", ["job", "job stateless"])
def test_a_stored_job_is_not_called_uncertain(group: str, run: Run, api: FakeApi, tmp_path: Path) -> None:
    """The API stores a job during an outage of Temporal and says so, so the error suggests no second creation."""
    file = tmp_path / "job.yaml"
    file.write_text("name: hello\n")
    api.answers["respools.LookupResourcePoolID"] = [pool_answer()]
    method = "jobs.Create" if group == "job" else "services.CreateJob"
    api.answers[method] = [because(Reason.JOB_NOT_STARTED, grpc.StatusCode.UNAVAILABLE, STORED)]
    result = run(*group.split(), "create", "/dev", file, "--jobID", "x")

    assert (1, f"{STORED}: see `peloton {group} get x`\n") == (result.exit_code, result.stderr)


@pytest.mark.parametrize("group", ["job", "job stateless"])
@pytest.mark.parametrize("has_answer", [True, False])
def test_a_new_job_that_fits_no_host_is_warned_of(
    group: str, has_answer: bool, run: Run, api: FakeApi, tmp_path: Path
) -> None:
    """The warning is on standard error and has only the reason why no host fits; a failed check prints no warning, and
    the job is created in any case."""
    file = tmp_path / "job.yaml"
    file.write_text("name: hello\n")
    api.answers["respools.LookupResourcePoolID"] = [pool_answer()]
    api.answers["jobs.Create"] = [job_pb2.CreateResponse(jobId=peloton_pb2.JobID(value="j1"))]
    api.answers["services.CreateJob"] = [svc.CreateJobResponse(job_id=v1_peloton_pb2.JobID(value="j1"))]
    why = explain.JobWhyResponse()
    why.reasons.add(rule=explain.RULE_FITS_NO_HOST, text="instance 0 fits no host: no host has cpu 7")
    why.reasons.add(rule=explain.RULE_NEXT_CYCLE, text="1 instance about to be queued")
    api.answers["explain.JobWhy"] = [why if has_answer else (grpc.StatusCode.UNAVAILABLE, "no resmgr leads at present")]

    result = run(*group.split(), "create", "/dev", file)

    reported = "Warning: instance 0 fits no host: no host has cpu 7\n" if has_answer else ""
    assert (0, reported) == (result.exit_code, result.stderr)
    assert "Job j1 created" in result.stdout
    assert ["j1"] == [request.jobId.value for request in api.requests("explain.JobWhy")]
