"""``peloton update`` and ``peloton admin``: requests, printed texts and exit codes."""

import json
from pathlib import Path

import grpc
import pytest

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.update import update_pb2
from peloton.api.v0.update.svc import update_svc_pb2 as svc
from peloton.api.v1alpha.admin.svc import admin_svc_pb2 as admin_svc
from peloton.errors import Reason
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi, because
from tests.unit.cli.service_answers import JOB, pool_answer

UPDATE = "0d21ab15-e3b1-4b3b-8f1a-7b3f5a3c9a11"
STALE = because(Reason.VERSION_CONFLICT, grpc.StatusCode.INVALID_ARGUMENT, "invalid job configuration version")
UNKNOWN = (grpc.StatusCode.NOT_FOUND, "update not found")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "web.yaml"
    path.write_text("name: web\ntype: SERVICE\ninstancecount: 3\n")
    return path


def current(version: int) -> job_pb2.GetResponse:
    response = job_pb2.GetResponse()
    response.jobInfo.config.respoolID.value = "pool-0"
    response.jobInfo.runtime.configurationVersion = version
    return response


def info(state: str = "ROLLING_FORWARD", update_id: str = UPDATE) -> update_pb2.UpdateInfo:
    status = update_pb2.UpdateStatus(
        state=update_pb2.State.Value(state), numTasksDone=2, numTasksFailed=1, numTasksRemaining=4
    )
    return update_pb2.UpdateInfo(updateId=peloton_pb2.UpdateID(value=update_id), status=status)


def create_answer() -> svc.CreateUpdateResponse:
    return svc.CreateUpdateResponse(updateID=peloton_pb2.UpdateID(value=UPDATE))


def test_create_sends_its_flags(run: Run, api: FakeApi, file: Path) -> None:
    """The request has the configuration with the current version, the given pool, and every flag."""
    api.answers["respools.LookupResourcePoolID"] = [pool_answer()]
    api.answers["updates.ListUpdates"] = [svc.ListUpdatesResponse(updateInfo=[info("SUCCEEDED")])]
    api.answers["jobs.Get"] = [current(7)]
    api.answers["updates.CreateUpdate"] = [create_answer()]
    flags = "-c 7 --maxattempts 4 --maxfailureInstances 2 --rollbackOnFailure --start-paused --in-place"
    result = run("update", "create", JOB, file, 5, "/dev", *flags.split(), "--opaque-data", "note")
    assert (0, f"Job update {UPDATE} created\n") == (result.exit_code, result.stdout)
    request = api.requests("updates.CreateUpdate")[0]
    assert (JOB, "web", 7, "pool-1", "note") == (
        request.jobId.value, request.jobConfig.name, request.jobConfig.changeLog.version,
        request.jobConfig.respoolID.value, request.opaque_data.data,
    )  # fmt: skip
    assert (
        "batchSize: 5\nstartPaused: true\nrollbackOnFailure: true\nmaxInstanceAttempts: 4\nmaxFailureInstances: 2\n"
        "inPlace: true\n"
    ) == str(request.updateConfig)


def test_create_reads_the_version_again_when_another_user_was_faster(run: Run, api: FakeApi, file: Path) -> None:
    """The version without -c is the current one, even if another client changes the job; the job stays in its pool."""
    api.answers["updates.ListUpdates"] = [svc.ListUpdatesResponse()]
    api.answers["jobs.Get"] = [current(7), current(8)]
    api.answers["updates.CreateUpdate"] = [STALE, create_answer()]
    result = run("update", "create", JOB, file, 5, "--json")
    assert {"updateID": {"value": UPDATE}} == json.loads(result.stdout)
    assert [(7, "pool-0"), (8, "pool-0")] == [
        (request.jobConfig.changeLog.version, request.jobConfig.respoolID.value)
        for request in api.requests("updates.CreateUpdate")
    ]


def test_create_with_another_version(run: Run, api: FakeApi, file: Path) -> None:
    """The command refuses a version that is not the current one."""
    api.answers["updates.ListUpdates"] = [svc.ListUpdatesResponse()]
    api.answers["jobs.Get"] = [current(7)]
    result = run("update", "create", JOB, file, 5, "-c", 6)
    line = "invalid input configuration version current 7 provided 6\n"
    assert (1, line, []) == (result.exit_code, result.stderr, api.requests("updates.CreateUpdate"))


@pytest.mark.parametrize("flag", ["", "--override"])
def test_create_alongside_another_update(run: Run, api: FakeApi, file: Path, flag: str) -> None:
    """An update that is under way is replaced only with the flag."""
    api.answers["updates.ListUpdates"] = [svc.ListUpdatesResponse(updateInfo=[info("PAUSED"), info("ABORTED")])]
    api.answers["jobs.Get"] = [current(7)]
    api.answers["updates.CreateUpdate"] = [create_answer()]
    result = run("update", "create", JOB, file, 5, *flag.split())
    refused = "cannot create a new update as another update is already running: "
    line = "going to override existing update: " if flag else refused
    assert (0 if flag else 1, True) == (result.exit_code, result.stderr.startswith(line + UPDATE))


@pytest.mark.parametrize("given", [[], ["-c", 7]])
def test_create_refused(run: Run, api: FakeApi, file: Path, given: list[object]) -> None:
    """The error is the API's text; a given version is tried once."""
    api.answers["updates.ListUpdates"] = [svc.ListUpdatesResponse()]
    api.answers["jobs.Get"] = [current(7)]
    api.answers["updates.CreateUpdate"] = [STALE]
    result = run("update", "create", JOB, file, 5, *given)
    assert (1, f"{STALE[1]} (INVALID_ARGUMENT)\n", 1 if given else 5) == (
        result.exit_code, result.stderr, len(api.requests("updates.CreateUpdate")),
    )  # fmt: skip


TABLE = f"""\
Update-ID                             State            NumberTasksCompleted  NumberTasksFailed  NumberTasksRemaining
{UPDATE}  ROLLING_FORWARD  2                     1                  4
"""


def test_get_list_and_cache_print_one_table(run: Run, api: FakeApi) -> None:
    """Get, list and cache print progress in the same columns."""
    api.answers["updates.GetUpdate"] = [svc.GetUpdateResponse(updateInfo=info())]
    api.answers["updates.ListUpdates"] = [svc.ListUpdatesResponse(updateInfo=[info()]), svc.ListUpdatesResponse()]
    api.answers["updates.GetUpdateCache"] = [
        svc.GetUpdateCacheResponse(
            state=update_pb2.ROLLING_FORWARD, instancesTotal=range(7), instancesDone=[0, 1], instancesFailed=[2]
        )
    ]
    assert TABLE == run(f"update get {UPDATE}").stdout
    assert TABLE == run(f"update list {JOB}").stdout
    assert TABLE == run(f"update cache {UPDATE}").stdout
    assert [0, 1] == json.loads(run(f"update cache {UPDATE} -j").stdout)["instancesDone"]
    assert "No updates found\n" == run(f"update list {JOB}").stdout


def test_updates_that_aurora_started_have_its_ids(run: Run, api: FakeApi) -> None:
    """A column has the ids by which clients of the Aurora bridge know updates, if any has one."""
    theirs, own = info(), info("ABORTED")
    theirs.opaque_data.data = '{"update_id":"u-1"}'
    api.answers["updates.ListUpdates"] = [svc.ListUpdatesResponse(updateInfo=[theirs, own])]
    header, first, second = run(f"update list {JOB}").stdout.splitlines()
    assert (True, True, False) == (header.endswith("Aurora-ID"), first.endswith(" u-1"), "u-1" in second)


@pytest.mark.parametrize("verb", ["get", "cache"])
def test_an_unknown_update(run: Run, api: FakeApi, verb: str) -> None:
    """The error is the API's text."""
    api.answers["updates.GetUpdate"] = api.answers["updates.GetUpdateCache"] = [UNKNOWN]
    result = run(f"update {verb} {UPDATE}")
    assert (1, "update not found (NOT_FOUND)\n") == (result.exit_code, result.stderr)


STEPS = {
    "pause": ("PauseUpdate", svc.PauseUpdateResponse(), "paused"),
    "resume": ("ResumeUpdate", svc.ResumeUpdateResponse(), "resumed"),
    "abort": ("AbortUpdate", svc.AbortUpdateResponse(), "aborted"),
}


@pytest.mark.parametrize("verb", STEPS)
def test_pause_resume_and_abort(run: Run, api: FakeApi, verb: str) -> None:
    """Each request has its note, if there is one; the error is the API's text."""
    method, answer, done = STEPS[verb]
    api.answers[f"updates.{method}"] = [answer, answer, UNKNOWN]
    assert f"Update {UPDATE} {done}\n" == run(f"update {verb} {UPDATE} --opaque-data note").stdout
    assert "{}\n" == run(f"update {verb} {UPDATE} --json").stdout
    assert "update not found (NOT_FOUND)\n" == run(f"update {verb} {UPDATE}").stderr
    first, second, _ = api.requests(f"updates.{method}")
    assert (UPDATE, "note", False) == (first.updateId.value, first.opaque_data.data, second.HasField("opaque_data"))


# Admin.

LOCKS = {
    "lock": ("Lockdown", admin_svc.LockdownResponse),
    "unlock": ("RemoveLockdown", admin_svc.RemoveLockdownResponse),
}


LOCKED = """\
Locked           Effect
GoalStateEngine  recorded, without effect
Launch           no pod is launched until it is unlocked: launch op is locked
"""


@pytest.mark.parametrize("verb", LOCKS)
def test_lock_and_unlock(run: Run, api: FakeApi, verb: str) -> None:
    """Each component has a line; one that stays unlocked is a failure."""
    method, kind = LOCKS[verb]
    failure = admin_svc.ComponentFailure(component=admin_svc.Kill, FailureMessage="busy")
    all_done = kind(successes=[admin_svc.GoalStateEngine, admin_svc.Write])
    half_done = kind(successes=[admin_svc.Read], failures=[failure])
    api.answers[f"admin.{method}"] = [all_done, all_done, half_done]
    lines = f"{verb} on GoalStateEngine succeeded\n{verb} on Write succeeded\n"
    assert lines == run(f"admin {verb} goalstateengine Write").stdout
    assert ["GoalStateEngine", "Write"] == json.loads(run(f"admin {verb} Write -j").stdout)["successes"]
    result = run(f"admin {verb} Read Kill")
    assert (1, f"{verb} on Read succeeded\n", f"{verb} on Kill failed due to: busy\n") == (
        result.exit_code, result.stdout, result.stderr,
    )  # fmt: skip
    assert [0, 2] == list(api.requests(f"admin.{method}")[0].components)


def test_what_is_locked(run: Run, api: FakeApi) -> None:
    """The status lists each locked component with its effect, or says that nothing is locked."""
    locked = admin_svc.GetLockdownResponse(components=[admin_svc.GoalStateEngine, admin_svc.Launch])
    api.answers["admin.GetLockdown"] = [locked, locked, admin_svc.GetLockdownResponse()]
    assert LOCKED == run("admin status").stdout
    assert ["GoalStateEngine", "Launch"] == json.loads(run("admin status -j").stdout)["components"]
    assert "Nothing is locked\n" == run("admin status").stdout


def test_lock_refused(run: Run, api: FakeApi) -> None:
    """An unknown component is wrong usage; a refusal is the API's text."""
    api.answers["admin.Lockdown"] = [(grpc.StatusCode.INVALID_ARGUMENT, "fail to lockdown some components")]
    assert 2 == run("admin lock Doors").exit_code
    result = run("admin lock Write")
    assert (1, "fail to lockdown some components (INVALID_ARGUMENT)\n") == (result.exit_code, result.stderr)
