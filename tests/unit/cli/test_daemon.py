"""``peloton job daemon``: requests, printed texts and exit codes."""

import json
from pathlib import Path

import pytest

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.explain import explain_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.v0.update.svc import update_svc_pb2
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi
from tests.unit.cli.service_answers import JOB, pool_answer
from tests.unit.cli.test_update import UPDATE, create_answer, current

ID = peloton_pb2.JobID(value=JOB)
OTHER = "0d21ab15-e3b1-4b3b-8f1a-7b3f5a3c9a11"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "logs.yaml"
    path.write_text("name: logs\ndefaultconfig:\n  resource: {cpulimit: 0.1}\n")
    return path


def why(*matching: int) -> explain_pb2.JobWhyResponse:
    rule = explain_pb2.RULE_HOSTS_DO_NOT_MATCH
    reasons = [explain_pb2.Reason(rule=rule, available=count, text=f"{count} of 9 hosts match") for count in matching]
    return explain_pb2.JobWhyResponse(reasons=reasons)


def test_create_makes_the_job_a_daemon(run: Run, api: FakeApi, file: Path) -> None:
    """The file may omit the type; a daemon that no host matches is created with a warning."""
    api.answers["respools.LookupResourcePoolID"] = [pool_answer()]
    api.answers["jobs.Create"] = [job_pb2.CreateResponse(jobId=ID)]
    api.answers["explain.JobWhy"] = [why(3, 0)]
    result = run("job", "daemon", "create", "/dev", file, "-i", JOB)
    expected = (0, f"Daemon {JOB} created\n", "Warning: 0 of 9 hosts match\n")
    assert expected == (result.exit_code, result.stdout, result.stderr)
    (request,) = api.requests("jobs.Create")
    assert (JOB, job_pb2.DAEMON, 0, "pool-1") == (
        request.id.value, request.config.type, request.config.instanceCount, request.config.respoolID.value
    )  # fmt: skip


def test_a_file_of_a_daemon_is_planned(run: Run, api: FakeApi, file: Path) -> None:
    """The plan requests the type DAEMON, and creates nothing."""
    api.answers["respools.LookupResourcePoolID"] = [pool_answer()]
    api.answers["explain.JobPlan"] = [explain_pb2.JobPlanResponse(text="3 of 4 hosts match")]
    result = run("job", "daemon", "plan", "/dev", file)
    assert (0, "3 of 4 hosts match\n", "") == (result.exit_code, result.stdout, result.stderr)
    (request,) = api.requests("explain.JobPlan")
    assert (job_pb2.DAEMON, "pool-1") == (request.config.type, request.config.respoolID.value)


@pytest.mark.parametrize("command", ["create /dev {file}", "plan /dev {file}", f"update {JOB} {{file}} 1"])
def test_jobs_of_other_types_are_refused(run: Run, api: FakeApi, file: Path, command: str) -> None:
    """The command fails before it sends a request."""
    file.write_text("name: web\ntype: SERVICE\n")
    result = run("job", "daemon", *command.format(file=file).split())
    assert (1, f"{file}: the type is SERVICE, want DAEMON or none\n", []) == (
        result.exit_code, result.stderr, api.calls
    )  # fmt: skip


def test_a_daemon_that_cannot_be_is_refused(run: Run, api: FakeApi, file: Path) -> None:
    """The refusal is one line."""
    api.answers["respools.LookupResourcePoolID"] = [pool_answer()]
    refusal = job_pb2.CreateResponse()
    refusal.error.invalidConfig.message = "instanceCount is 3"
    api.answers["jobs.Create"] = [refusal]
    result = run("job", "daemon", "create", "/dev", file)
    assert (1, "Invalid job config: instanceCount is 3\n") == (result.exit_code, result.stderr)


def summary(job: str, kind: "job_pb2.JobType.ValueType") -> job_pb2.JobSummary:
    return job_pb2.JobSummary(id=peloton_pb2.JobID(value=job), name="logs", type=kind)


def test_list_has_daemons_alone(run: Run, api: FakeApi) -> None:
    """The list has only daemons, optionally of one pool, and reports its limit."""
    third = OTHER.replace("0", "1")
    jobs = [summary(JOB, job_pb2.DAEMON), summary(OTHER, job_pb2.SERVICE), summary(third, job_pb2.DAEMON)]
    answer = job_pb2.QueryResponse(results=jobs)
    answer.pagination.total = 3
    api.answers["jobs.Query"] = [answer]
    api.answers["respools.LookupResourcePoolID"] = [pool_answer()]
    assert f"{JOB}\n{third}\n" == run("job daemon list -o name").stdout
    one = run("job daemon list -r /dev --limit 1 --json")
    assert [JOB] == [job["id"]["value"] for job in json.loads(one.stdout)["results"]]
    assert "1 of 2" in one.stderr
    assert ["", "pool-1"] == [request.respoolID.value for request in api.requests("jobs.Query")]


def test_update_bounds_the_hosts_without_an_instance(run: Run, api: FakeApi, file: Path) -> None:
    """The update keeps the pool and takes the job's current version."""
    api.answers["updates.ListUpdates"] = [update_svc_pb2.ListUpdatesResponse()]
    api.answers["jobs.Get"] = [current(7)]
    api.answers["updates.CreateUpdate"] = [create_answer()]
    result = run("job", "daemon", "update", JOB, file, 5, "--rollbackOnFailure", "--maxfailureInstances", "2")
    assert (0, f"Job update {UPDATE} created\n") == (result.exit_code, result.stdout)
    (request,) = api.requests("updates.CreateUpdate")
    config, update = request.jobConfig, request.updateConfig
    assert (job_pb2.DAEMON, 0, "pool-0", 7) == (
        config.type, config.instanceCount, config.respoolID.value, config.changeLog.version
    )  # fmt: skip
    assert (5, True, 2) == (update.batchSize, update.rollbackOnFailure, update.maxFailureInstances)


def test_stop_is_for_one_daemon(run: Run, api: FakeApi) -> None:
    """The daemon stops on all its hosts; a daemon that has ended is refused."""
    api.answers["jobs.Get"] = [current(7)]
    api.answers["tasks.Stop"] = [task_pb2.StopResponse()]
    assert f"Stopping daemon {JOB}\n" == run(f"job daemon stop {JOB}").stdout
    ended = current(7)
    ended.jobInfo.runtime.state = job_pb2.KILLED
    api.answers["jobs.Get"] = [ended]
    result = run(f"job daemon stop {JOB}")
    assert (1, "Job is in terminal state: KILLED\n") == (result.exit_code, result.stderr)
    assert [JOB] == [request.jobId.value for request in api.requests("tasks.Stop")]


def test_restart_is_rolling(run: Run, api: FakeApi) -> None:
    """The restart takes a given number of hosts at a time."""
    api.answers["jobs.Get"] = [current(7)]
    api.answers["jobs.Restart"] = [job_pb2.RestartResponse()]
    assert 0 == run(f"job daemon restart {JOB} 4").exit_code
    (request,) = api.requests("jobs.Restart")
    assert (JOB, 4, 7) == (request.id.value, request.restartConfig.batchSize, request.resourceVersion)
