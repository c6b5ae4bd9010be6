"""``peloton job``: requests, printed texts and exit codes."""

import base64
import json
from pathlib import Path

import grpc
import pytest
import yaml

from peloton.api.limits import OWN_CODE
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.errors import errors_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.respool import respool_pb2
from peloton.api.v0.task import task_pb2
from peloton.errors import Reason
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import Answer, FakeApi, because

JOB = "91b1b8e5-2ba8-11e7-bc23-0242ac11000d"
OTHER = "0d21ab15-e3b1-4b3b-8f1a-7b3f5a3c9a11"
ID = peloton_pb2.JobID(value=JOB)
CONFIG = "name: hello\ninstancecount: 2\ndefaultconfig:\n  resource: {cpulimit: 0.1}\n"
EMPTY_TEXTS = {"job list": "No jobs found.\n", "job query": "No jobs found.\n", "job active-list": ""}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(CONFIG)
    return path


def pool_answer() -> respool_pb2.LookupResponse:
    return respool_pb2.LookupResponse(id=peloton_pb2.ResourcePoolID(value="pool-1"))


def job_answer(state: str = "RUNNING", **changes: object) -> job_pb2.GetResponse:
    response = job_pb2.GetResponse()
    response.jobInfo.id.value = JOB
    response.jobInfo.config.owningTeam = "maps"
    response.jobInfo.config.instanceCount = 3
    response.jobInfo.config.labels.add(key="stage", value="test")
    response.jobInfo.runtime.state = job_pb2.JobState.Value(state)
    response.jobInfo.runtime.configurationVersion = 7
    for name, count in changes.items():
        response.jobInfo.runtime.taskStats[name] = int(str(count))
    return response


def test_create_sends_the_file_and_the_pool(run: Run, api: FakeApi, config: Path) -> None:
    """The job is created in the pool of the path, with the given id and the secret as base64."""
    api.answers["respools.LookupResourcePoolID"] = [pool_answer()]
    api.answers["jobs.Create"] = [job_pb2.CreateResponse(jobId=ID)]
    secret = ("--secret-path", "/etc/key", "--secret-data", "s3")
    result = run("job", "create", "/dev", config, "--jobID", JOB, *secret)
    assert (0, f"Job {JOB} created\n") == (result.exit_code, result.stdout)
    request = api.requests("jobs.Create")[0]
    sent_secret = (request.secrets[0].path, base64.b64decode(request.secrets[0].value.data))
    assert (JOB, "hello", "pool-1", ("/etc/key", b"s3")) == (
        request.id.value, request.config.name, request.config.respoolID.value, sent_secret,
    )  # fmt: skip


CREATE_REFUSALS = {
    "exists": ("alreadyExists", job_pb2.JobAlreadyExists(id=ID, message="taken"), f"Job {JOB} already exists: taken"),
    "config": ("invalidConfig", job_pb2.InvalidJobConfig(message="no command"), "Invalid job config: no command"),
    "id": ("invalidJobId", job_pb2.InvalidJobId(id=ID, message="bad"), f"Invalid job ID: {JOB}, message: bad"),
}


@pytest.mark.parametrize(("field", "error", "text"), CREATE_REFUSALS.values(), ids=CREATE_REFUSALS.keys())
def test_create_refused(run: Run, api: FakeApi, config: Path, field: str, error: object, text: str) -> None:
    """Each error inside the response is one line on standard error and exit code 1; --json prints the response too."""
    api.answers["respools.LookupResourcePoolID"] = [pool_answer()]
    response = job_pb2.CreateResponse()
    getattr(response.error, field).CopyFrom(error)
    api.answers["jobs.Create"] = [response]
    plain, as_json = run("job", "create", "/dev", config), run("--json", "job", "create", "/dev", config)
    assert (1, "", f"{text}\n") == (plain.exit_code, plain.stdout, plain.stderr)
    assert (1, [field]) == (as_json.exit_code, list(json.loads(as_json.stdout)["error"]))


def test_create_in_an_unknown_pool(run: Run, api: FakeApi, config: Path) -> None:
    """An unknown path creates nothing."""
    error = respool_pb2.ResourcePoolPathNotFound(message="resource pool not found")
    answer = respool_pb2.LookupResponse(error=respool_pb2.LookupResponse.Error(notFound=error))
    api.answers["respools.LookupResourcePoolID"] = [answer]
    result = run("job", "create", "/nope", config)
    expected = "unable to find resource pool /nope: resource pool not found\n"
    assert (1, expected, []) == (result.exit_code, result.stderr, api.requests("jobs.Create"))


def test_create_with_malformed_yaml(run: Run, api: FakeApi, tmp_path: Path) -> None:
    """A mistake in the file is reported with file, line and column before any request."""
    path = tmp_path / "bad.yaml"
    path.write_text("name: hello\ninstancecont: 2\n")
    result = run("job", "create", "/dev", path)
    assert (1, True, []) == (result.exit_code, result.stderr.startswith(f"{path}:2:1: "), api.calls)
    assert "did you mean 'instancecount'" in result.stderr


USAGE = {
    "no file": ("job create /dev /nowhere.yaml", "File '/nowhere.yaml' does not exist."),
    "relative pool": ("job create dev /dev/null", "path should begin with /, got 'dev'"),
    "no job": ("job get", "Missing argument 'JOB'."),
    "nothing to stop": ("job stop", "Either jobID or owner needs to be provided."),
    "state": ("job query -s SLEEPING", "invalid state 'SLEEPING'"),
    "label": ("job query -l x", "Invalid label 'x', expected KEY=VALUE"),
    "batch size": (f"job rolling-restart {JOB} many", "expected a whole number, 0 or more, got 'many'"),
    "large offset": ("job query -o 4294967296", "4294967296 goes beyond 4294967295"),
}


@pytest.mark.parametrize(("line", "text"), USAGE.values(), ids=USAGE.keys())
def test_wrong_usage(run: Run, api: FakeApi, line: str, text: str) -> None:
    """Wrong usage exits with 2, names the mistake and sends no request."""
    result = run(line)
    assert (2, True, []) == (result.exit_code, text in result.stderr, api.calls)


def test_half_a_secret_is_wrong_usage(run: Run, config: Path) -> None:
    """A secret needs its path and its content."""
    result = run("job", "create", "/dev", config, "--secret-path", "/etc/key")
    assert (2, True) == (result.exit_code, "--secret-path and --secret-data belong together" in result.stderr)


def test_get_prints_yaml_or_json(run: Run, api: FakeApi) -> None:
    """YAML is the default and JSON the form for programs, both with the names of the API."""
    api.answers["jobs.Get"] = [job_answer()]
    assert "  runtime:\n    state: RUNNING\n    configurationVersion: 7\n" in run(f"job get {JOB}").stdout
    assert "maps" == json.loads(run(f"--json job get {JOB}").stdout)["jobInfo"]["config"]["owningTeam"]


def test_status_prints_the_runtime_only(run: Run, api: FakeApi) -> None:
    """The status is the runtime without the configuration; states without tasks are left out."""
    api.answers["jobs.Get"] = [job_answer(PENDING=0, RUNNING=2, SUCCEEDED=1)]
    expected = "state: RUNNING\ntaskStats:\n  RUNNING: 2\n  SUCCEEDED: 1\nconfigurationVersion: 7\n"
    assert expected == run(f"job status {JOB}").stdout


def test_status_has_times_for_people(run: Run, api: FakeApi) -> None:
    """The default output formats the revision's times; -o yaml has the values of the wire."""
    answer = job_answer()
    revision = answer.jobInfo.runtime.revision
    revision.version, revision.createdAt, revision.updatedAt = 2, 1_795_687_200_000_000_000, 1_795_687_201_500_000_000
    api.answers["jobs.Get"] = [answer]

    people, programs = (yaml.safe_load(run(f"job status {JOB} {flags}").stdout) for flags in ("", "-o yaml"))

    times = {"createdAt": "2026-11-26T10:00:00Z", "updatedAt": "2026-11-26T10:00:01.5Z"}
    assert {"version": 2, **times} == people["revision"]
    assert 1_795_687_200_000_000_000 == programs["revision"]["createdAt"]


UNKNOWN_JOB = {
    "get": ("get", "Unable to get job {job}: gone"),
    "status": ("status", "Unable to get job status {job}: gone"),
    "stop": ("stop", "Unable to get job {job}: gone"),
    "rolling-stop": ("rolling-stop 1", "Unable to get job {job}: gone"),
}


@pytest.mark.parametrize(("line", "text"), UNKNOWN_JOB.values(), ids=UNKNOWN_JOB.keys())
@pytest.mark.parametrize("field", ["notFound", "getRuntimeFail"])
def test_an_unknown_job(run: Run, api: FakeApi, line: str, text: str, field: str) -> None:
    """Each of the two errors for an unknown job is reported with exit code 1."""
    response = job_pb2.GetResponse()
    getattr(response.error, field).CopyFrom(
        errors_pb2.JobNotFound(message="gone") if field == "notFound" else errors_pb2.JobGetRuntimeFail(message="gone")
    )
    api.answers["jobs.Get"] = [response]
    verb, _, rest = line.partition(" ")
    result = run(f"job {verb} {JOB} {rest}")
    assert (1, text.format(job=JOB) + "\n") == (result.exit_code, result.stderr)


def summary(job_id: str, state: str, created: str) -> job_pb2.JobSummary:
    found = job_pb2.JobSummary(id=peloton_pb2.JobID(value=job_id), name="hello", owningTeam="maps", instanceCount=3)
    found.runtime.state = job_pb2.JobState.Value(state)
    found.runtime.creationTime = created
    found.runtime.taskStats["RUNNING"] = 2
    found.labels.add(key="stage", value="test")
    return found


TABLE = f"""\
{"ID":36}  Name   Owner  State    Creation Time         Completion Time  Total  Running  Succeeded  Failed  Killed
{JOB}  hello  maps   RUNNING  2026-11-20T10:00:00Z  --               3      2        0          0       0
"""


def test_query_prints_a_table(run: Run, api: FakeApi) -> None:
    """The columns are the original's; fractions of seconds are left out."""
    results = [summary(JOB, "RUNNING", "2026-11-20T10:00:00.123456789Z")]
    api.answers["jobs.Query"] = [job_pb2.QueryResponse(results=results)]
    assert TABLE == run("job query").stdout


def test_query_sends_its_flags(run: Run, api: FakeApi) -> None:
    """Every flag of the query reaches the API."""
    api.answers["respools.LookupResourcePoolID"] = [pool_answer()]
    api.answers["jobs.Query"] = [job_pb2.QueryResponse()]
    line = "-l k=v -r /dev -k a,b -s RUNNING,FAILED --owner maps --name hel -d 2 -n 5 -q 50 -o 3 -p name -a asc"
    assert "No jobs found.\n" == run(f"job query {line}").stdout
    request = api.requests("jobs.Query")[0]
    spec, page = request.spec, request.spec.pagination
    time_range = spec.creationTimeRange
    assert ("pool-1", True, [("k", "v")], ["a", "b"], [3, 5], "maps", "hel", 172_800) == (
        request.respoolID.value, request.summaryOnly, [(label.key, label.value) for label in spec.labels],
        list(spec.keywords), list(spec.jobStates), spec.owner, spec.name,
        time_range.max.seconds - time_range.min.seconds,
    )  # fmt: skip
    assert (3, 5, 50, [("name", 1)]) == (
        page.offset, page.limit, page.maxLimit, [(order.property.value, order.order) for order in page.orderBy],
    )  # fmt: skip


def test_a_refused_query(run: Run, api: FakeApi) -> None:
    """The query's error is its message."""
    response = job_pb2.QueryResponse()
    response.error.err.message = "Incorrect timerange"
    api.answers["jobs.Query"] = [response]
    result = run("job query")
    assert (1, "Incorrect timerange\n") == (result.exit_code, result.stderr)


def test_list_reads_all_pages(run: Run, api: FakeApi) -> None:
    """A job that moves to the next page during the reading is listed once."""

    def page(*jobs: str) -> job_pb2.QueryResponse:
        response = job_pb2.QueryResponse(results=[summary(job, "KILLED", "2026-11-20T10:00:00Z") for job in jobs])
        response.pagination.total = 3
        return response

    api.answers["jobs.Query"] = [page(JOB, OTHER), page(OTHER)]
    assert [JOB, OTHER] == [line.split()[0] for line in run("job list").stdout.splitlines()[1:]]
    assert [0, 2] == [request.spec.pagination.offset for request in api.requests("jobs.Query")]


def test_list_takes_a_name(run: Run, api: FakeApi) -> None:
    """The name is sent in the query."""
    api.answers["jobs.Query"] = [job_pb2.QueryResponse(results=[summary(JOB, "RUNNING", "2026-11-20T10:00:00Z")])]

    assert JOB in run("job ls --name etl").stdout
    assert ["etl"] == [request.spec.name for request in api.requests("jobs.Query")]


POOL_FILE = "name: maps\nresources:\n  - {kind: cpu, reservation: 1, limit: 4, share: 1}\n"
JOB_FILE = "name: etl\ninstanceCount: 2\ndefaultConfig:\n  command: {value: 'true'}\n"
SERVICE_FILE = "name: web\ninstance_count: 2\ndefault_spec:\n  containers: []\n"
OF_A_POOL = (
    "{file} is the file of a resource pool: it has the key resources; create it by `peloton respool create`, or give "
)
OF_A_JOB = "{file} is the file of a job: it has the key defaultconfig; create it by `peloton job create`, or give "
OF_A_SERVICE = (
    "{file} is the file of a service in the words of v1alpha: it has the key defaultspec; create it by "
    "`peloton job stateless create`, or give "
)
OTHER_KINDS = {
    "pool as job": ("job create /dev", POOL_FILE, OF_A_POOL + "the file of a job"),
    "service as job": ("job create /dev", SERVICE_FILE, OF_A_SERVICE + "the file of a job"),
    "job as pool": ("respool create /etl", JOB_FILE, OF_A_JOB + "the file of a resource pool"),
    "service as pool": ("respool create /web", SERVICE_FILE, None),
    "pool as service": (
        "job stateless create /dev", POOL_FILE, OF_A_POOL + "the file of a service in the words of v1alpha",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("command", "content", "text"), OTHER_KINDS.values(), ids=OTHER_KINDS.keys())
@pytest.mark.parametrize("is_input", [False, True])
def test_files_of_other_kinds(
    run: Run, tmp_path: Path, command: str, content: str, text: str | None, is_input: bool
) -> None:
    """The error names the file's kind, and the command for it."""
    file = tmp_path / "file.yaml"
    file.write_text(content)
    name = "standard input" if is_input else str(file)
    expected = (text or OF_A_SERVICE + "the file of a resource pool").format(file=name)

    result = run(*command.split(), "-" if is_input else file, text=content)

    assert (1, f"{expected}\n") == (result.exit_code, result.stderr)


def test_a_file_of_no_kind(run: Run, tmp_path: Path) -> None:
    """The refusal names the first unknown key."""
    file = tmp_path / "file.yaml"
    file.write_text(f"{POOL_FILE}commands: 1\n")

    assert f"{file}:2:1: unknown key 'resources'\n" == run("job", "create", "/dev", file).stderr


@pytest.mark.parametrize(("line", "text"), EMPTY_TEXTS.items())
def test_no_jobs(run: Run, api: FakeApi, line: str, text: str) -> None:
    """An empty cluster is not an error."""
    api.answers["jobs.Query"] = [job_pb2.QueryResponse()]
    api.answers["jobs.GetActiveJobs"] = [job_pb2.GetActiveJobsResponse()]
    result = run(line)
    assert (0, text) == (result.exit_code, result.stdout)


def test_active_list_prints_ids(run: Run, api: FakeApi) -> None:
    """The list is one id a line."""
    api.answers["jobs.GetActiveJobs"] = [job_pb2.GetActiveJobsResponse(ids=[ID, peloton_pb2.JobID(value=OTHER)])]
    assert f"{JOB}\n{OTHER}\n" == run("job active-list").stdout


def test_stop_by_id(run: Run, api: FakeApi) -> None:
    """All tasks are stopped, with a second request if some refused."""
    api.answers["jobs.Get"] = [job_answer()]
    api.answers["tasks.Stop"] = [task_pb2.StopResponse(invalidInstanceIds=[1]), task_pb2.StopResponse()]
    result = run(f"job stop {JOB} --owner maps -l stage=test")
    assert (0, f"Stopping jobs: [{JOB}]\n") == (result.exit_code, result.stdout)
    assert 2 == len(api.requests("tasks.Stop"))


def test_stop_with_progress(run: Run, api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """--progress prints changes and ends with the number of ended tasks."""
    monkeypatch.setattr("cli.job.stop.PROGRESS_INTERVAL_S", 0.01)
    killing = job_answer("KILLING", KILLED=1)
    api.answers["jobs.Get"] = [job_answer(), killing, killing, job_answer("KILLED", KILLED=2, SUCCEEDED=1)]
    api.answers["tasks.Stop"] = [task_pb2.StopResponse()]
    result = run(f"job stop {JOB} --progress")
    assert f"Job {JOB} stopped, total_tasks:3 terminated_tasks:3" == result.stdout.splitlines()[-1]
    assert f"Job {JOB} KILLING, total_tasks:3 terminated_tasks:1\n" == result.stderr


STOP_REFUSALS: dict[str, tuple[str, str, Answer | None, str]] = {
    "other owner": ("RUNNING", "--owner search", None, "No matching job found"),
    "other label": ("RUNNING", "-l stage=production", None, "No matching job found"),
    "ended": ("SUCCEEDED", "", None, "Job is in terminal state: SUCCEEDED"),
    "instances refuse": (
        "RUNNING", "", task_pb2.StopResponse(invalidInstanceIds=[1, 2]),
        f"Error stopping jobs: [{JOB}]: {JOB}: Some tasks failed to stop, failed_instance_ids:[1 2]",
    ),
    "error in the response": (
        "RUNNING", "",
        task_pb2.StopResponse(error=task_pb2.StopResponse.Error(updateError=task_pb2.TaskUpdateError(message="no"))),
        f"Error stopping jobs: [{JOB}]: {JOB}: updateError: no",
    ),
    "status": (
        "RUNNING", "", (grpc.StatusCode.ABORTED, "busy"), f"Error stopping jobs: [{JOB}]: {JOB}: busy (ABORTED)",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("state", "flags", "answer", "text"), STOP_REFUSALS.values(), ids=STOP_REFUSALS.keys())
def test_stop_refused(run: Run, api: FakeApi, state: str, flags: str, answer: Answer | None, text: str) -> None:
    """Each reason for a refusal is one line with exit code 1."""
    api.answers["jobs.Get"] = [job_answer(state)]
    api.answers["tasks.Stop"] = [answer] if answer is not None else []
    result = run(f"job stop {JOB} {flags}")
    assert (1, f"{text}\n") == (result.exit_code, result.stderr)


@pytest.mark.parametrize(("flags", "reply", "stops"), [("", "y\n", 1), ("", "n\n", 0), ("--force", "", 1)])
def test_stop_by_owner(run: Run, api: FakeApi, flags: str, reply: str, stops: int) -> None:
    """The command lists the owner's jobs and asks for confirmation, unless --force; the server matches only the
    values of labels."""
    other = summary(OTHER, "RUNNING", "")
    other.labels[0].key = "level"
    api.answers["jobs.Query"] = [job_pb2.QueryResponse(results=[summary(JOB, "RUNNING", ""), other])]
    api.answers["tasks.Stop"] = [task_pb2.StopResponse()]
    result = run(f"job stop --owner maps -l stage=test {flags}", text=reply)
    assert (0 if stops else 1, True) == (result.exit_code, JOB in result.stdout)
    assert [JOB] * stops == [request.jobId.value for request in api.requests("tasks.Stop")]


def test_update_says_what_was_added(run: Run, api: FakeApi, config: Path) -> None:
    """The API's message is printed below."""
    api.answers["jobs.Update"] = [job_pb2.UpdateResponse(id=ID, message="added 5 instances")]
    assert f"Job {JOB} updated\nMessage:added 5 instances\n" == run("job", "update", JOB, config).stdout


UPDATE_REFUSALS = {
    "unknown": ("jobNotFound", job_pb2.JobNotFound(id=ID, message="gone"), f"Job {JOB} not found: gone"),
    "config": ("invalidConfig", job_pb2.InvalidJobConfig(message="updating Name not supported"),
               "Invalid job config: updating Name not supported"),
    "id": ("invalidJobId", job_pb2.InvalidJobId(message="bad"), f"Invalid job ID: {JOB}, message: bad"),
}  # fmt: skip


@pytest.mark.parametrize(("field", "error", "text"), UPDATE_REFUSALS.values(), ids=UPDATE_REFUSALS.keys())
def test_update_refused(run: Run, api: FakeApi, config: Path, field: str, error: object, text: str) -> None:
    """Each error inside the response of Update is one line and exit code 1."""
    response = job_pb2.UpdateResponse()
    getattr(response.error, field).CopyFrom(error)
    api.answers["jobs.Update"] = [response]
    result = run("job", "update", JOB, config)
    assert (1, f"{text}\n") == (result.exit_code, result.stderr)


SIMPLE = {
    "delete": ("jobs.Delete", job_pb2.DeleteResponse(), f"Job {JOB} deleted\n"),
    "refresh": ("jobs.Refresh", job_pb2.RefreshResponse(), f"Job {JOB} refreshed\n"),
    "cache": ("jobs.GetCache", job_pb2.GetCacheResponse(runtime=job_pb2.RuntimeInfo(startTime="then")),
              "runtime:\n  startTime: then\n"),
}  # fmt: skip


@pytest.mark.parametrize("verb", list(SIMPLE))
def test_delete_refresh_cache(run: Run, api: FakeApi, verb: str) -> None:
    """The commands on one job send its id, and print their result or the answer."""
    method, answer, text = SIMPLE[verb]
    api.answers[method] = [answer]
    result = run(f"job {verb} {JOB}")
    assert (0, text, JOB) == (result.exit_code, result.stdout, api.requests(method)[0].id.value)


def test_delete_refused(run: Run, api: FakeApi) -> None:
    """Delete can refuse inside the response as well as by status."""
    response = job_pb2.DeleteResponse()
    response.error.notFound.message = "gone"
    active = grpc.StatusCode.INTERNAL, "Job is not in a terminal state: RUNNING", ((OWN_CODE, "ABORTED"),)
    api.answers["jobs.Delete"] = [response, active]
    first, second = run(f"job delete {JOB}"), run(f"job delete {JOB}")
    assert (1, f"Job {JOB} not found: gone\n") == (first.exit_code, first.stderr)
    assert (1, "Job is not in a terminal state: RUNNING (ABORTED)\n") == (second.exit_code, second.stderr)


@pytest.mark.parametrize("verb", ["Restart", "Start", "Stop"])
def test_rolling_commands_retry_on_a_stale_version(run: Run, api: FakeApi, verb: str) -> None:
    """The command reads the current version without --resourceVersion, and again if it has changed in between."""
    newer = job_answer()
    newer.jobInfo.runtime.configurationVersion = 8
    api.answers["jobs.Get"] = [job_answer(), newer]
    done = getattr(job_pb2, f"{verb}Response")(resourceVersion=9)
    stale = because(Reason.VERSION_CONFLICT, grpc.StatusCode.INVALID_ARGUMENT, "invalid job configuration version")
    api.answers[f"jobs.{verb}"] = [stale, done]
    result = run(f"job rolling-{verb.lower()} {JOB} 5 -r 0:2 -r 4:")
    assert (0, {"resourceVersion": "9"}) == (result.exit_code, json.loads(result.stdout))
    request = api.requests(f"jobs.{verb}")[1]
    ranges = [(getattr(each, "from"), each.to) for each in request.ranges]
    batch_size = getattr(request, f"{verb.lower()}Config").batchSize
    assert (8, 5, [(0, 2), (4, 2147483647)]) == (request.resourceVersion, batch_size, ranges)


def test_rolling_with_another_version_is_refused(run: Run, api: FakeApi) -> None:
    """A given version must be the current one."""
    api.answers["jobs.Get"] = [job_answer()]
    result = run(f"job rolling-restart {JOB} 1 --resourceVersion 3")
    expected = "invalid input resource version current 7 provided 3\n"
    assert (1, expected, []) == (result.exit_code, result.stderr, api.requests("jobs.Restart"))
