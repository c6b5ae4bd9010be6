"""``peloton job stateless start``, ``stop``, ``restart``, ``delete``, pause, resume and abort; and the reading
commands."""

import json
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from peloton.api.v1alpha import peloton_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.api.v1alpha.pod import pod_pb2
from peloton.errors import Reason
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi, Status, because
from tests.unit.cli.service_answers import JOB, job_answer, pool_answer, spec, version, workflow_status

STALE_TEXT = "failed to pause workload: code:aborted message:unexpected entity version"
STALE = because(Reason.VERSION_CONFLICT, grpc.StatusCode.ABORTED, STALE_TEXT)
WRITES = {
    "start": ("StartJob", svc.StartJobResponse, "Job started. New EntityVersion: 1-2-1"),
    "stop": ("StopJob", svc.StopJobResponse, "Job stopped. New EntityVersion: 1-2-1"),
    "restart": ("RestartJob", svc.RestartJobResponse, "Job restarted. New EntityVersion: 1-2-1"),
    "pause": ("PauseJobWorkflow", svc.PauseJobWorkflowResponse, "Workflow paused. New EntityVersion: 1-2-1"),
    "resume": ("ResumeJobWorkflow", svc.ResumeJobWorkflowResponse, "Workflow resumed. New EntityVersion: 1-2-1"),
    "abort": ("AbortJobWorkflow", svc.AbortJobWorkflowResponse, "Workflow aborted. New EntityVersion: 1-2-1"),
    "workflow pause": ("PauseJobWorkflow", svc.PauseJobWorkflowResponse, "Workflow paused. New EntityVersion: 1-2-1"),
    "workflow resume": (
        "ResumeJobWorkflow", svc.ResumeJobWorkflowResponse, "Workflow resumed. New EntityVersion: 1-2-1",
    ),
    "workflow abort": ("AbortJobWorkflow", svc.AbortJobWorkflowResponse, "Workflow aborted. New EntityVersion: 1-2-1"),
}  # fmt: skip


def answer_of(kind: type[Any]) -> Message:
    answer: Message = kind(version=version("1-2-1"))
    return answer


@pytest.mark.parametrize("verb", WRITES)
def test_a_given_version_is_sent(run: Run, api: FakeApi, verb: str) -> None:
    """The command reads nothing if the version is given."""
    method, kind, text = WRITES[verb]
    api.answers[f"services.{method}"] = [answer_of(kind)]
    result = run(f"job stateless {verb} {JOB} 1-1-1")
    assert (0, f"{text}\n") == (result.exit_code, result.stdout)
    request = api.requests(f"services.{method}")[0]
    assert (JOB, "1-1-1", 1) == (request.job_id.value, request.version.value, len(api.calls))


@pytest.mark.parametrize("verb", WRITES)
def test_the_current_version_is_read_again_when_another_user_was_faster(run: Run, api: FakeApi, verb: str) -> None:
    """The version defaults to the current one, even if another client changes the job in between."""
    method, kind, _ = WRITES[verb]
    api.answers["services.GetJob"] = [job_answer("1-1-1"), job_answer("1-1-2")]
    api.answers[f"services.{method}"] = [STALE, answer_of(kind)]
    result = run(f"job stateless {verb} {JOB} --json")
    assert {"version": {"value": "1-2-1"}} == json.loads(result.stdout)
    assert ["1-1-1", "1-1-2"] == [request.version.value for request in api.requests(f"services.{method}")]


@pytest.mark.parametrize("verb", WRITES)
@pytest.mark.parametrize("given", ["", "1-1-1"])
def test_a_refused_write(run: Run, api: FakeApi, verb: str, given: str) -> None:
    """The error is the API's text, followed by the given version if that is not the current one. A given version is
    tried once, the current one five times."""
    method = WRITES[verb][0]
    api.answers["services.GetJob"] = [job_answer("2-1-2")]
    api.answers[f"services.{method}"] = [STALE]
    result = run(f"job stateless {verb} {JOB} {given}")
    hint = ": the service is at 2-1-2" if given else ""
    assert (1, f"{STALE[1]} (ABORTED){hint}\n", 1 if given else 5) == (
        result.exit_code, result.stderr, len(api.requests(f"services.{method}")),
    )  # fmt: skip


@pytest.mark.parametrize("verb", ["pause", "resume", "abort"])
def test_an_update_that_has_ended_is_not_steered(run: Run, api: FakeApi, verb: str) -> None:
    """The API accepts the call and changes nothing, and the command says so."""
    method, kind, text = WRITES[verb]
    api.answers["services.GetJob"] = [job_answer(update=workflow_status(state)) for state in ("ABORTED", "PAUSED")]
    api.answers[f"services.{method}"] = [answer_of(kind)]
    assert (
        "The update had ended before: ABORTED. New EntityVersion: 1-2-1\n" == run(f"job stateless {verb} {JOB}").stdout
    )
    assert f"{text}\n" == run(f"job stateless {verb} {JOB}").stdout


def test_other_refusals_are_not_repeated(run: Run, api: FakeApi) -> None:
    """The command retries after a wrong version only."""
    api.answers["services.GetJob"] = [job_answer()]
    api.answers["services.PauseJobWorkflow"] = [(grpc.StatusCode.NOT_FOUND, "no workflow found")]
    result = run(f"job stateless pause {JOB}")
    assert (1, "no workflow found (NOT_FOUND)\n", 2) == (result.exit_code, result.stderr, len(api.calls))


def test_an_unknown_job(run: Run, api: FakeApi) -> None:
    """The API's error names the job."""
    text = f"failed to get job status: job:{JOB} not found"
    api.answers["services.GetJob"] = [(grpc.StatusCode.NOT_FOUND, text)]
    result = run(f"job stateless stop {JOB}")
    assert (1, f"{text} (NOT_FOUND)\n") == (result.exit_code, result.stderr)


NOTES = {"--opaque-data note": (True, "note"), "--opaque-data=": (True, ""), "": (False, "")}


@pytest.mark.parametrize(("flag", "expected"), NOTES.items())
def test_a_note_is_kept_or_cleared(run: Run, api: FakeApi, flag: str, expected: tuple[bool, str]) -> None:
    """An empty note clears the present one; without a note it stays."""
    api.answers["services.AbortJobWorkflow"] = [svc.AbortJobWorkflowResponse()]
    run(f"job stateless abort {JOB} 1-1-1 {flag}")
    request = api.requests("services.AbortJobWorkflow")[0]
    assert expected == (request.HasField("opaque_data"), request.opaque_data.data)


def test_restart_sends_its_flags(run: Run, api: FakeApi) -> None:
    """The end of a range is exclusive, as in all commands."""
    api.answers["services.RestartJob"] = [svc.RestartJobResponse()]
    run(f"job stateless restart {JOB} 1-1-1 -r 0:5 -r 20: --batch-size 2 --in-place --opaque-data note")
    request = api.requests("services.RestartJob")[0]
    asked = request.restart_spec
    assert ([(0, 5), (20, 2**31 - 1)], 2, True, "note") == (
        [(getattr(each, "from"), each.to) for each in asked.ranges], asked.batch_size, asked.in_place,
        request.opaque_data.data,
    )  # fmt: skip


@pytest.mark.parametrize("flag", ["", "--force"])
def test_delete(run: Run, api: FakeApi, flag: str) -> None:
    """The job is deleted at its current version."""
    api.answers["services.GetJob"] = [job_answer("3-2-1")]
    api.answers["services.DeleteJob"] = [svc.DeleteJobResponse()]
    assert "Job deleted\n" == run(f"job stateless delete {JOB} {flag}").stdout
    request = api.requests("services.DeleteJob")[0]
    assert ("3-2-1", bool(flag)) == (request.version.value, request.force)


def test_delete_refused(run: Run, api: FakeApi) -> None:
    """A running job is not deleted; the error is the API's text."""
    api.answers["services.DeleteJob"] = [(grpc.StatusCode.ABORTED, "job is not stopped")]
    result = run(f"job stateless delete {JOB} 1-1-1")
    assert (1, "job is not stopped (ABORTED)\n") == (result.exit_code, result.stderr)


# Reading.


def test_get(run: Run, api: FakeApi) -> None:
    """The output is the job as YAML or JSON, complete, short, or its spec at a version."""
    api.answers["services.GetJob"] = [job_answer("3-2-1")]
    assert "value: 3-2-1\n" in run(f"job stateless get {JOB}").stdout
    assert "web" == json.loads(run(f"job stateless get {JOB} --summaryonly -j").stdout)["jobInfo"]["spec"]["name"]
    run(f"job stateless get {JOB} --jobversion 1-1-1")
    assert [("", False), ("", True), ("1-1-1", False)] == [
        (request.version.value, request.summary_only) for request in api.requests("services.GetJob")
    ]


def test_a_malformed_version(run: Run, api: FakeApi) -> None:
    """The error is the API's text."""
    api.answers["services.GetJob"] = [(grpc.StatusCode.INVALID_ARGUMENT, "entityVersion has wrong format")]
    result = run(f"job stateless get {JOB} --jobversion 1")
    assert (1, "entityVersion has wrong format (INVALID_ARGUMENT)\n") == (result.exit_code, result.stderr)


def test_cache_and_refresh(run: Run, api: FakeApi) -> None:
    """The cache prints the short form; the refresh confirms that it was done."""
    api.answers["services.GetJobCache"] = [svc.GetJobCacheResponse(spec=spec())]
    api.answers["services.RefreshJob"] = [svc.RefreshJobResponse(), (grpc.StatusCode.NOT_FOUND, "job not found")]
    assert "instance_count: 3\n" in run(f"job stateless cache {JOB}").stdout
    assert 3 == json.loads(run(f"-j job stateless cache {JOB}").stdout)["spec"]["instanceCount"]
    assert f"Job {JOB} refreshed\n" == run(f"job stateless refresh {JOB}").stdout
    assert "job not found (NOT_FOUND)\n" == run(f"job stateless refresh {JOB}").stderr


def summary(name: str = "web", created: str = "2026-11-20T10:00:00.5Z") -> stateless_pb2.JobSummary:
    job = stateless_pb2.JobSummary(name=name, owner="ann", owning_team="maps", instance_count=3)
    job.job_id.value = JOB
    job.status.state = stateless_pb2.JOB_STATE_RUNNING
    job.status.creation_time = created
    job.status.pod_stats.update({"POD_STATE_RUNNING": 2, "POD_STATE_FAILED": 1})
    return job


TABLE = """\
ID                                    Name  Owner  State    Creation Time         Total  Running  Succeeded  Failed  \
Killed  Workflow Status  Completed  Failed  Current
91b1b8e5-2ba8-11e7-bc23-0242ac11000d  new   maps   RUNNING  2026-11-20T11:00:00Z  3      2        0          1       \
0       ROLLING_FORWARD  1          0       2
91b1b8e5-2ba8-11e7-bc23-0242ac11000d  old   maps   RUNNING  2026-11-20T10:00:00Z  3      2        0          1       \
0       --               0          0       0
"""


def test_list_prints_a_table_newest_first(run: Run, api: FakeApi) -> None:
    """Each job of the stream is a row with its pods and the latest update."""
    new = summary("new", "2026-11-20T11:00:00Z")
    new.status.workflow_status.CopyFrom(workflow_status("ROLLING_FORWARD", done=1, current=(1, 2)))
    stream = [svc.ListJobsResponse(jobs=[summary("old")]), svc.ListJobsResponse(jobs=[new])]
    api.answers["services.ListJobs"] = [stream]
    assert TABLE == run("job stateless list").stdout
    assert api.requests("services.ListJobs")[0].services_only
    assert ["new", "old"] == [job["name"] for job in json.loads(run("job stateless list -j").stdout)["jobs"]]


def test_a_list_that_breaks_off(run: Run, api: FakeApi) -> None:
    """An incomplete list is an error, not a table."""
    stream: list[Message | Status] = [
        svc.ListJobsResponse(jobs=[summary()]),
        (grpc.StatusCode.INTERNAL, "storage is away"),
    ]
    api.answers["services.ListJobs"] = [stream]
    result = run("job stateless list")
    assert (1, "", "storage is away (INTERNAL)\n") == (result.exit_code, result.stdout, result.stderr)


def test_query_sends_its_flags(run: Run, api: FakeApi) -> None:
    """Every flag of the query reaches the API."""
    api.answers["respools.LookupResourcePoolID"] = [pool_answer()]
    api.answers["services.QueryJobs"] = [svc.QueryJobsResponse()]
    line = (
        "-l k=v -r /dev -k a,b -s running,JOB_STATE_KILLED --owner maps --name we -d 2 -n 5 -q 50 -o 2 -p name -a ASC"
    )
    assert "No results found\n" == run(f"job stateless query {line}").stdout
    wanted = api.requests("services.QueryJobs")[0].spec
    page, times = wanted.pagination, wanted.creation_time_range
    assert ([("k", "v")], "/dev", ["a", "b"], ["RUNNING", "KILLED"], "maps", "we") == (
        [(label.key, label.value) for label in wanted.labels], wanted.respool.value, list(wanted.keywords),
        [stateless_pb2.JobState.Name(state)[10:] for state in wanted.job_states], wanted.owner, wanted.name,
    )  # fmt: skip
    assert (5, 50, 2, [("name", 1)], 2 * 86_400) == (
        page.limit, page.max_limit, page.offset, [(order.property.value, order.order) for order in page.order_by],
        times.max.seconds - times.min.seconds,
    )  # fmt: skip


def test_query_prints_rows_or_json(run: Run, api: FakeApi) -> None:
    """The output is the list's table; an unknown state is wrong usage."""
    api.answers["services.QueryJobs"] = [svc.QueryJobsResponse(records=[summary("old")])]
    lines = TABLE.splitlines()
    row = run("job stateless query").stdout.splitlines()[1]
    assert lines[2].split() == row.split()
    assert "old" == json.loads(run("job stateless query -j").stdout)["records"][0]["name"]
    assert 2 == run("job stateless query -s SLEEPY").exit_code


def pod_summary(instance: int, containers: int = 1) -> pod_pb2.PodSummary:
    pod = pod_pb2.PodSummary()
    pod.pod_name.value = f"{JOB}-{instance}"
    pod.status.pod_id.value = f"{JOB}-{instance}-1"
    pod.status.state = pod_pb2.POD_STATE_FAILED
    pod.status.host = "host-1"
    for index in range(containers):
        container = pod.status.containers_status.add(name=f"c{index}", state=pod_pb2.CONTAINER_STATE_FAILED)
        container.healthy.state = pod_pb2.HEALTH_STATE_UNHEALTHY
        container.start_time, container.completion_time = "2026-11-20T10:00:00.1Z", "2026-11-20T11:02:05.5Z"
        container.terminationStatus.reason = pod_pb2.TerminationStatus.TERMINATION_STATUS_REASON_FAILED
        container.terminationStatus.exit_code = 3
    return pod


PODS = """\
Pod ID                                    Name                                     State   Container Name  \
Container State  Healthy    Start Time            Run Time  Host    Message  Reason  Termination Status
91b1b8e5-2ba8-11e7-bc23-0242ac11000d-2-1  91b1b8e5-2ba8-11e7-bc23-0242ac11000d-2   FAILED                  \
                                                  host-1
91b1b8e5-2ba8-11e7-bc23-0242ac11000d-10-1  91b1b8e5-2ba8-11e7-bc23-0242ac11000d-10  FAILED  c0              \
FAILED           UNHEALTHY  2026-11-20T10:00:00Z  01:02:05  host-1                   FAILED (exit code 3)
"""


def test_list_pods_has_a_row_for_each_container(run: Run, api: FakeApi) -> None:
    """Pods are sorted by instance; a pod without containers has a row as well."""
    stream = [svc.ListPodsResponse(pods=[pod_summary(10, 2)]), svc.ListPodsResponse(pods=[pod_summary(2, 0)])]
    api.answers["services.ListPods"] = [stream]
    result = run(f"job stateless list-pods {JOB}")
    rows = [line.split() for line in result.stdout.splitlines()]
    wanted = [line.split() for line in PODS.splitlines()]
    assert wanted == rows[:3]
    assert ["c0", "c1"] == [row[3] for row in rows[2:]]
    found = json.loads(run(f"job stateless list-pods {JOB} -r 2:11 --json").stdout)["pods"]
    assert [f"{JOB}-2", f"{JOB}-10"] == [pod["podName"]["value"] for pod in found]
    first, second = api.requests("services.ListPods")
    assert (False, 2, 11) == (first.HasField("range"), getattr(second.range, "from"), second.range.to)


def test_list_pods_of_no_job(run: Run, api: FakeApi) -> None:
    """The command says that an unknown job has no pods."""
    api.answers["services.ListPods"] = [[]]
    assert "No pods found\n" == run(f"job stateless list-pods {JOB}").stdout


def test_list_updates(run: Run, api: FakeApi) -> None:
    """Each update is YAML under its index, newest first; JSON has all of them."""
    response = svc.ListJobWorkflowsResponse()
    for state in ("ABORTED", "SUCCEEDED"):
        response.workflow_infos.add().status.CopyFrom(workflow_status(state))
    api.answers["services.ListJobWorkflows"] = [response, response, svc.ListJobWorkflowsResponse()]
    text = run(f"job stateless list-updates {JOB}").stdout
    assert ["Index 0:", "Index 1:"] == [line for line in text.splitlines() if line.startswith("Index")]
    assert 2 == len(json.loads(run(f"job stateless list-updates {JOB} --limit 2 -j").stdout)["workflowInfos"])
    assert "No update for job\n" == run(f"job stateless list-updates {JOB} --limit 0").stdout
    assert [10, 2, 0] == [request.updates_limit for request in api.requests("services.ListJobWorkflows")]


def test_list_updates_that_aurora_started(run: Run, api: FakeApi) -> None:
    """An update of an Aurora bridge has the id and message of its client."""
    response = svc.ListJobWorkflowsResponse()
    for data in ('{"update_id":"u-1","start_job_update_msg":"deploy 42"}', "note"):
        response.workflow_infos.add().opaque_data.data = data
    api.answers["services.ListJobWorkflows"] = [response]
    text = run(f"job stateless list-updates {JOB}").stdout
    expected = ["Index 0: # Aurora's update u-1 'deploy 42'", "Index 1:"]
    assert expected == [line for line in text.splitlines() if line.startswith("Index")]


EVENTS = """\
Workflow State   Workflow Type  Timestamp
SUCCEEDED        UPDATE         2026-11-20T10:00:01Z
ROLLING_FORWARD  UPDATE         2026-11-20T10:00:00Z
"""


def test_workflow_events(run: Run, api: FakeApi) -> None:
    """The events of one instance within the update are a table."""
    update = stateless_pb2.WORKFLOW_TYPE_UPDATE
    events = [
        stateless_pb2.WorkflowEvent(
            type=update, state=stateless_pb2.WORKFLOW_STATE_SUCCEEDED, timestamp="2026-11-20T10:00:01Z"
        ),
        stateless_pb2.WorkflowEvent(
            type=update, state=stateless_pb2.WORKFLOW_STATE_ROLLING_FORWARD, timestamp="2026-11-20T10:00:00Z"
        ),
    ]
    full = svc.GetWorkflowEventsResponse(events=events)
    away = (grpc.StatusCode.NOT_FOUND, "job runtime does not have workflow")
    api.answers["services.GetWorkflowEvents"] = [full, full, svc.GetWorkflowEventsResponse(), away]
    line = f"job stateless workflow events {JOB} 2"
    assert EVENTS == run(line).stdout
    assert 2 == len(json.loads(run(f"{line} --json").stdout)["events"])
    assert "No events found\n" == run(line).stdout
    assert "job runtime does not have workflow (NOT_FOUND)\n" == run(line).stderr
    request = api.requests("services.GetWorkflowEvents")[0]
    assert (peloton_pb2.JobID(value=JOB), 2) == (request.job_id, request.instance_id)
