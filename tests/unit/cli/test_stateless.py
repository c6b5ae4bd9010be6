"""``peloton job stateless create``, ``replace``, ``replace-diff`` and ``rollback``: requests, texts, exit codes."""

import base64
import json
from pathlib import Path

import grpc
import pytest

from peloton.api.v1alpha import peloton_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.errors import Reason
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi, because
from tests.unit.cli.service_answers import (
    JOB,
    SPEC,
    job_answer,
    pool_answer,
    replace_answer,
    spec,
    version,
    workflow_status,
)

STALE = because(Reason.VERSION_CONFLICT, grpc.StatusCode.ABORTED, "unexpected entity version")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "web.yaml"
    path.write_text(SPEC)
    return path


def create_answer() -> svc.CreateJobResponse:
    return svc.CreateJobResponse(job_id=peloton_pb2.JobID(value=JOB), version=version("1-1-1"))


# Create.


def test_create_sends_all_that_was_given(run: Run, api: FakeApi, file: Path) -> None:
    """The service is created in the pool of the path, with batch size, limits, id, secret and note."""
    api.answers["respools.LookupResourcePoolID"] = [pool_answer()]
    api.answers["services.CreateJob"] = [create_answer()]
    line = f"-i {JOB} --secret-path /etc/key --secret-data s3 --start-paused --opaque-data note"
    limits = "--maxInstanceRetries 4 --maxTolerableInstanceFailures 2"
    result = run("job", "stateless", "create", "/dev", file, 5, *line.split(), *limits.split())
    assert (0, f"Job {JOB} created. Entity Version: 1-1-1\n") == (result.exit_code, result.stdout)
    request = api.requests("services.CreateJob")[0]
    how = request.create_spec
    assert (JOB, "web", "pool-1", "note", base64.b64encode(b"s3")) == (
        request.job_id.value, request.spec.name, request.spec.respool_id.value, request.opaque_data.data,
        request.secrets[0].value.data,
    )  # fmt: skip
    assert (5, 4, 2, True) == (
        how.batch_size, how.max_instance_retries, how.max_tolerable_instance_failures, how.start_paused,
    )  # fmt: skip


def test_create_in_the_pool_of_the_spec(run: Run, api: FakeApi, file: Path) -> None:
    """The pool defaults to the spec's own, and the batch size to all instances."""
    api.answers["services.CreateJob"] = [create_answer()]
    assert run("job", "stateless", "create", file).exit_code == 0
    request = api.requests("services.CreateJob")[0]
    assert ("pool-0", 0, False) == (
        request.spec.respool_id.value, request.create_spec.batch_size, request.HasField("opaque_data"),
    )  # fmt: skip


def test_create_without_any_pool(run: Run, api: FakeApi, tmp_path: Path) -> None:
    """A spec without a pool is refused before any request."""
    path = tmp_path / "web.yaml"
    path.write_text("name: web\n")
    result = run("job", "stateless", "create", path, 1)
    line = f"{path} names no resource pool: write respoolid there, or the pool's path before the file\n"
    assert (1, line, []) == (result.exit_code, result.stderr, api.calls)


REFUSED = {
    "exists": (grpc.StatusCode.ALREADY_EXISTS, "row", f"Job {JOB} already exists: row"),
    "invalid": (grpc.StatusCode.INVALID_ARGUMENT, "no command", "Invalid job spec: no command"),
    "other": (grpc.StatusCode.INTERNAL, "see the log", "see the log (INTERNAL)"),
}  # fmt: skip


@pytest.mark.parametrize(("code", "details", "expected"), REFUSED.values(), ids=REFUSED.keys())
def test_create_refused(run: Run, api: FakeApi, file: Path, code: grpc.StatusCode, details: str, expected: str) -> None:
    """Each refusal is one line on standard error and exit code 1."""
    api.answers["services.CreateJob"] = [(code, details)]
    result = run("job", "stateless", "create", file, 1, "-i", JOB)
    assert (1, "", f"{expected}\n") == (result.exit_code, result.stdout, result.stderr)


def test_create_with_a_broken_file(run: Run, tmp_path: Path) -> None:
    """The error has the file's name, line and column."""
    path = tmp_path / "web.yaml"
    path.write_text("name: web\ninstances: 3\n")
    result = run("job", "stateless", "create", path)
    assert (1, f"{path}:2:1: unknown key 'instances'") == (result.exit_code, result.stderr[: len(f"{path}") + 29])


WORDS = {
    "create": ("create a b c 1", "expected [RESPOOL] SPEC [BATCH-SIZE], got 'a b c 1'"),
    "create, pool only": ("create pyproject.toml pyproject.toml", "path should begin with /, got 'pyproject.toml'"),
    "create, no such file": ("create /dev missing.yaml", "File 'missing.yaml' does not exist."),
    "create, secret": ("create pyproject.toml --secret-path x", "--secret-path and --secret-data belong together"),
    "replace": ("replace J pyproject.toml 1 /a /b", "expected [RESPOOL] [ENTITY-VERSION], got '/a /b'"),
    "replace, batch": ("replace J pyproject.toml x", "expected a whole number, 0 or more, got 'x'"),
    "replace, large": ("replace J pyproject.toml 4294967296", "4294967296 goes beyond 4294967295"),
    "replace-diff": ("replace-diff J pyproject.toml 1-1-1 2-1-1", "got '1-1-1 2-1-1'"),
    "rollback": ("rollback J 1 2", "expected [BATCH-SIZE] [ENTITY-VERSION], got '1 2'"),
}


@pytest.mark.parametrize(("line", "expected"), WORDS.values(), ids=WORDS.keys())
def test_wrong_usage(run: Run, api: FakeApi, line: str, expected: str) -> None:
    """Ambiguous arguments are wrong usage, and send no request."""
    result = run(f"job stateless {line}")
    assert (2, True, []) == (result.exit_code, expected in result.stderr, api.calls), result.stderr


# Replace.


def test_replace_reads_the_version_first(run: Run, api: FakeApi, file: Path) -> None:
    """The version defaults to the current one, and the pool to the spec's own."""
    api.answers["services.GetJob"] = [job_answer("2-1-2")]
    api.answers["services.ReplaceJob"] = [replace_answer()]
    result = run("job", "stateless", "replace", JOB, file, 10)
    assert (0, "New EntityVersion: 3-1-3\n") == (result.exit_code, result.stdout)
    request = api.requests("services.ReplaceJob")[0]
    assert (JOB, "2-1-2", 10, "pool-0") == (
        request.job_id.value, request.version.value, request.update_spec.batch_size, request.spec.respool_id.value,
    )  # fmt: skip


def test_replace_sends_its_flags(run: Run, api: FakeApi, file: Path) -> None:
    """The command reads nothing if pool and version are given, and every flag reaches the API."""
    api.answers["respools.LookupResourcePoolID"] = [pool_answer()]
    api.answers["services.ReplaceJob"] = [replace_answer()]
    flags = "--maxInstanceRetries 4 --maxTolerableInstanceFailures 2 --rollbackOnFailure --start-paused --in-place"
    line = f"{flags} --start-pods --opaque-data note --override"
    result = run("job", "stateless", "replace", JOB, file, 10, "/dev", "7-1-9", *line.split(), "--json")
    assert {"version": {"value": "3-1-3"}} == json.loads(result.stdout)
    request = api.requests("services.ReplaceJob")[0]
    assert ("7-1-9", "pool-1", "note", []) == (
        request.version.value, request.spec.respool_id.value, request.opaque_data.data, api.requests("services.GetJob"),
    )  # fmt: skip
    assert (
        "batch_size: 10\nrollback_on_failure: true\nmax_instance_retries: 4\nmax_tolerable_instance_failures: 2\n"
        "start_paused: true\nin_place: true\nstart_pods: true\n"
    ) == str(request.update_spec)


def test_replace_keeps_the_pool_of_the_job(run: Run, api: FakeApi, file: Path) -> None:
    """A file without a pool leaves the job in its pool."""
    file.write_text("name: web\n")
    api.answers["services.GetJob"] = [job_answer()]
    api.answers["services.ReplaceJob"] = [replace_answer()]
    run("job", "stateless", "replace", JOB, file, 1, "2-1-2")
    assert "pool-0" == api.requests("services.ReplaceJob")[0].spec.respool_id.value


def test_replace_is_not_repeated(run: Run, api: FakeApi, file: Path) -> None:
    """A change by another client in between is not overwritten: the error is the API's text."""
    api.answers["services.GetJob"] = [job_answer()]
    api.answers["services.ReplaceJob"] = [STALE, replace_answer()]
    result = run("job", "stateless", "replace", JOB, file, 1)
    assert (1, "unexpected entity version (ABORTED)\n", 1) == (
        result.exit_code, result.stderr, len(api.requests("services.ReplaceJob")),
    )  # fmt: skip


def difference() -> svc.GetReplaceJobDiffResponse:
    answer = svc.GetReplaceJobDiffResponse()
    answer.instances_added.add(**{"from": 3}, to=4)
    answer.instances_updated.add(to=0)
    answer.instances_updated.add(**{"from": 2}, to=2)
    return answer


DIFFERENCE = """\
Instances added:      3-4 (2)
Instances removed:    none
Instances updated:    0, 2 (2)
Instances unchanged:  none
--- job 91b1b8e5-2ba8-11e7-bc23-0242ac11000d at 2-1-2
+++ {file}
@@ -1,6 +1,6 @@
 name: web
 owning_team: maps
-instance_count: 3
+instance_count: 5
 default_spec:
   containers:
   - name: web
"""


def test_replace_diff_shows_instances_and_lines(run: Run, api: FakeApi, file: Path) -> None:
    """The difference has neither the revision nor the second form of a command."""
    file.write_text(SPEC.replace("instancecount: 3", "instancecount: 5"))
    api.answers["services.GetJob"] = [job_answer()]
    api.answers["services.GetReplaceJobDiff"] = [difference()]
    result = run("job", "stateless", "replace-diff", JOB, file)
    assert DIFFERENCE.format(file=file) == result.stdout
    request = api.requests("services.GetReplaceJobDiff")[0]
    assert ("2-1-2", 5) == (request.version.value, request.spec.instance_count)


def test_replace_diff_as_json(run: Run, api: FakeApi, file: Path) -> None:
    """--json prints the API's answer only, for the given version."""
    api.answers["services.GetReplaceJobDiff"] = [difference()]
    result = run("job", "stateless", "replace-diff", JOB, file, "1-1-1", "--json")
    assert {"from": 3, "to": 4} == json.loads(result.stdout)["instancesAdded"][0]
    assert "1-1-1" == api.requests("services.GetReplaceJobDiff")[0].version.value


def test_replace_diff_refused(run: Run, api: FakeApi, file: Path) -> None:
    """The error is the API's text."""
    api.answers["services.GetReplaceJobDiff"] = [(grpc.StatusCode.INVALID_ARGUMENT, "job type is immutable")]
    result = run("job", "stateless", "replace-diff", JOB, file, "1-1-1")
    assert (1, "job type is immutable (INVALID_ARGUMENT)\n") == (result.exit_code, result.stderr)


QUESTIONS = {
    "diff, yes": ("--diff", "y\n", 0, True),
    "diff, no": ("--diff", "n\n", 1, True),
    "diff, not asked": ("--diff --yes", "", 0, False),
    "update under way, no": ("", "n\n", 1, True),
    "update under way, overridden": ("--override", "", 0, False),
}


@pytest.mark.parametrize(("flags", "typed", "exit_code", "asked"), QUESTIONS.values(), ids=QUESTIONS.keys())
def test_replace_asks_on_a_terminal(
    run: Run, api: FakeApi, file: Path, monkeypatch: pytest.MonkeyPatch, flags: str, typed: str, exit_code: int,
    asked: bool,
) -> None:  # fmt: skip
    """The command asks on a terminal after a difference, or before an update is replaced, unless --yes is given."""
    monkeypatch.setattr("cli.stateless.replace.is_terminal", lambda: True)
    api.answers["services.GetJob"] = [job_answer(update=workflow_status("ROLLING_FORWARD", done=1))]
    api.answers["services.GetReplaceJobDiff"] = [difference()]
    api.answers["services.ReplaceJob"] = [replace_answer()]
    result = run("job", "stateless", "replace", JOB, file, 1, *flags.split(), text=typed)
    assert (exit_code, asked, "--diff" in flags, exit_code == 0) == (
        result.exit_code, f"Replace the spec of job {JOB}?" in result.stderr, "Instances added" in result.stdout,
        bool(api.requests("services.ReplaceJob")),
    )  # fmt: skip
    if not flags:
        assert "An update is under way (ROLLING_FORWARD, 1/3 done); this one would" in result.stderr


@pytest.mark.parametrize("flags", ["", "--diff --json"])
def test_replace_does_not_ask_a_program(run: Run, api: FakeApi, file: Path, flags: str) -> None:
    """The command asks no question if there is no terminal; with --json standard output has only JSON."""
    api.answers["services.GetJob"] = [job_answer(update=workflow_status("ROLLING_FORWARD", done=1))]
    api.answers["services.GetReplaceJobDiff"] = [difference()]
    api.answers["services.ReplaceJob"] = [replace_answer()]
    result = run("job", "stateless", "replace", JOB, file, 1, *flags.split())
    assert (0, bool(flags)) == (result.exit_code, "Instances added" in result.stderr)
    assert json.loads(result.stdout) if flags else "New EntityVersion" in result.stdout


# Roll back.


def workflows(*statuses: stateless_pb2.WorkflowStatus) -> svc.ListJobWorkflowsResponse:
    response = svc.ListJobWorkflowsResponse()
    for status in statuses:
        response.workflow_infos.add().status.CopyFrom(status)
    return response


FIRST = workflow_status(now="1-1-9", before="0-1-9")
SECOND = workflow_status(now="2-1-9", before="1-1-9")
BEFORE = {
    "an update": ((SECOND, FIRST), "1-1-9"),
    "a failed update": ((workflow_status("FAILED", now="3-1-9", before="2-1-9"), SECOND, FIRST), "2-1-9"),
    "a restart": ((workflow_status(kind="RESTART", now="3-1-9", before="2-1-9"), SECOND, FIRST), "1-1-9"),
    "rolled back by itself": (
        (workflow_status("ROLLED_BACK", now="4-1-9", before="3-1-9"), SECOND, FIRST), "1-1-9",
    ),
    "a service of v0": ((SECOND,), "1-1-9"),
}  # fmt: skip


@pytest.mark.parametrize(("known", "expected"), BEFORE.values(), ids=BEFORE.keys())
def test_rollback_finds_the_version_before(
    run: Run, api: FakeApi, known: tuple[stateless_pb2.WorkflowStatus, ...], expected: str
) -> None:
    """The job returns to the newest version that a change of the spec left in force."""
    old = svc.GetJobResponse()
    old.job_info.spec.CopyFrom(spec(command="old"))
    api.answers["services.GetJob"] = [job_answer("4-1-9", update=FIRST, batch_size=7), old]
    api.answers["services.ListJobWorkflows"] = [workflows(*known)]
    api.answers["services.ReplaceJob"] = [replace_answer("5-1-9")]
    result = run(f"job stateless rollback {JOB}")
    assert (0, "New EntityVersion: 5-1-9\n") == (result.exit_code, result.stdout)
    request = api.requests("services.ReplaceJob")[0]
    asked = api.requests("services.GetJob")[1].version.value
    assert (expected, "4-1-9", "old", 7) == (
        asked, request.version.value, request.spec.default_spec.containers[0].entrypoint.value,
        request.update_spec.batch_size,
    )  # fmt: skip


NO_WAY_BACK = {
    "only created": (FIRST, (FIRST,), "has no older version to roll back to"),
    "only restarted": (FIRST, (workflow_status(kind="RESTART"), FIRST), "has no older version to roll back to"),
    "no update ever": (None, (), "has no older version to roll back to"),
    "going back": (workflow_status("ROLLING_BACKWARD"), (SECOND,), "is being rolled back already"),
    "paused going back": (
        workflow_status("PAUSED", previous="ROLLING_BACKWARD"), (SECOND,), "is being rolled back already",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("latest", "known", "expected"), NO_WAY_BACK.values(), ids=NO_WAY_BACK.keys())
def test_rollback_without_an_older_version(
    run: Run,
    api: FakeApi,
    latest: stateless_pb2.WorkflowStatus | None,
    known: tuple[stateless_pb2.WorkflowStatus, ...],
    expected: str,
) -> None:
    """The command says that there is no older version, and changes nothing."""
    api.answers["services.GetJob"] = [job_answer(update=latest)]
    api.answers["services.ListJobWorkflows"] = [workflows(*known)]
    result = run(f"job stateless rollback {JOB}")
    assert (1, f"job {JOB} {expected}\n", []) == (
        result.exit_code, result.stderr, api.requests("services.ReplaceJob"),
    )  # fmt: skip


def test_rollback_to_a_given_version(run: Run, api: FakeApi) -> None:
    """Version and batch size are valid in either order, and --diff shows the difference."""
    old = svc.GetJobResponse()
    old.job_info.spec.CopyFrom(spec(command="old"))
    api.answers["services.GetJob"] = [old, job_answer("4-1-9")]
    api.answers["services.GetReplaceJobDiff"] = [difference()]
    api.answers["services.ReplaceJob"] = [replace_answer("5-1-9")]
    result = run(f"job stateless rollback {JOB} 1-1-1 20 --in-place --diff")
    assert (0, True) == (result.exit_code, "-      value: serve\n+      value: old\n" in result.stdout)
    request = api.requests("services.ReplaceJob")[0]
    assert ("1-1-1", "4-1-9", 20, True) == (
        api.requests("services.GetJob")[0].version.value, request.version.value, request.update_spec.batch_size,
        request.update_spec.in_place,
    )  # fmt: skip


def test_rollback_to_a_version_that_is_gone(run: Run, api: FakeApi) -> None:
    """The error is the API's text."""
    text = f"fail to get job spec: job:{JOB} has no configuration 1"
    api.answers["services.GetJob"] = [(grpc.StatusCode.NOT_FOUND, text)]
    result = run(f"job stateless rollback {JOB} 1-1-1")
    assert (1, f"{text} (NOT_FOUND)\n") == (result.exit_code, result.stderr)
