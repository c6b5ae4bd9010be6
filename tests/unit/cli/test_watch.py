"""``peloton watch``: its output, its resumption and its end."""

import json
from collections.abc import Callable

import grpc
import pytest

from cli.settings import Settings
from cli.watch import Changes
from cli.watching import WatchPace
from peloton.api.v1alpha import peloton_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.pod import pod_pb2
from peloton.api.v1alpha.watch.svc import watch_svc_pb2 as svc
from peloton.client import NO_RETRIES, Client
from peloton.errors import Reason
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import Answer, FakeApi, because
from tests.unit.cli.service_answers import JOB, version, workflow_status

CANCELLED = (grpc.StatusCode.CANCELLED, "watch cancelled: task_1")
OVERFLOW = because(Reason.WATCH_OVERFLOW, grpc.StatusCode.ABORTED, "event overflow: task_1")
AWAY = (grpc.StatusCode.UNAVAILABLE, "api is not there")


def begin_answer(revision: int = 0) -> svc.WatchResponse:
    return svc.WatchResponse(watch_id="task_1", revision=revision)


def pod_change(revision: int, instance: int = 0, state: str = "RUNNING") -> svc.WatchResponse:
    pod = pod_pb2.PodSummary(pod_name=peloton_pb2.PodName(value=f"{JOB}-{instance}"))
    pod.status.state = pod_pb2.PodState.Value(f"POD_STATE_{state}")
    pod.status.pod_id.value = f"{JOB}-{instance}-2"
    pod.status.host, pod.status.message = "host-1", "Command\nexited"
    pod.status.version.CopyFrom(version("3-0-0"))
    pod.status.containers_status.add().healthy.state = pod_pb2.HEALTH_STATE_HEALTHY
    return svc.WatchResponse(revision=revision, pods=[pod])


def job_change(revision: int) -> svc.WatchResponse:
    job = stateless_pb2.JobSummary(job_id=peloton_pb2.JobID(value=JOB), name="web")
    job.status.state = stateless_pb2.JOB_STATE_RUNNING
    job.status.version.CopyFrom(version("2-1-2"))
    job.status.pod_stats.update({"POD_STATE_RUNNING": 2, "POD_STATE_PENDING": 1})
    job.status.workflow_status.CopyFrom(workflow_status("ROLLING_FORWARD", done=1, current=(1,)))
    return svc.WatchResponse(revision=revision, stateless_jobs=[job])


def test_changes_of_jobs(run: Run, api: FakeApi) -> None:
    """Each change of a job that passes the filter is a line; standard error has the id of the watch."""
    gone = svc.WatchResponse(revision=9, stateless_jobs_not_found=[peloton_pb2.JobID(value=JOB)])
    api.answers["watches.Watch"] = [[begin_answer(), job_change(7), gone, CANCELLED]]
    result = run(f"watch job {JOB} --labels stage:test --labels a=b")
    assert (
        f"7 job {JOB} web RUNNING 2-1-2; UPDATE ROLLING_FORWARD 1/3 done, 1 in flight; 1 PENDING, 2 RUNNING\n"
        f"9 job {JOB} is gone\n"
    ) == result.stdout
    assert (1, "watch task_1\nwatch cancelled: task_1 (CANCELLED)\n") == (result.exit_code, result.stderr)
    wanted = api.requests("watches.Watch")[0]
    assert ([JOB], [("stage", "test"), ("a", "b")], False) == (
        [job.value for job in wanted.stateless_job_filter.job_ids],
        [(label.key, label.value) for label in wanted.stateless_job_filter.labels], wanted.HasField("pod_filter"),
    )  # fmt: skip


def test_changes_of_pods(run: Run, api: FakeApi) -> None:
    """Each change of a pod is a line."""
    gone = svc.WatchResponse(revision=9, pods_not_found=[peloton_pb2.PodName(value=f"{JOB}-1")])
    api.answers["watches.Watch"] = [[begin_answer(), pod_change(7), gone, CANCELLED]]
    result = run(f"watch pod {JOB} {JOB}-0 {JOB}-1")
    assert (
        f"7 pod {JOB}-0 RUNNING HEALTHY run 2 version 3-0-0 on host-1: Command exited\n9 pod {JOB}-1 is gone\n"
    ) == result.stdout
    wanted = api.requests("watches.Watch")[0].pod_filter
    assert (JOB, [f"{JOB}-0", f"{JOB}-1"]) == (wanted.job_id.value, [name.value for name in wanted.pod_names])


@pytest.mark.parametrize(("what", "field"), [("job", "stateless_job_filter"), ("pod", "pod_filter")])
def test_all_may_be_watched(run: Run, api: FakeApi, what: str, field: str) -> None:
    """The filter is empty if no arguments are given; the stream has no deadline."""
    api.answers["watches.Watch"] = [[begin_answer(), CANCELLED]]
    run(f"--timeout 20s watch {what}")
    call = api.calls[0]
    assert (True, True) == (call.request.HasField(field), call.time_left_s is None or call.time_left_s > 10**6)


def test_json_lines(run: Run, api: FakeApi) -> None:
    """Each message is a line of JSON, and the first one has the id too."""
    api.answers["watches.Watch"] = [[begin_answer(5), pod_change(7), CANCELLED]]
    lines = [json.loads(line) for line in run("watch pod --json").stdout.splitlines()]
    assert [("task_1", "5"), ("", "7")] == [(line["watchId"], line["revision"]) for line in lines]


REFUSALS = {
    "refused": (grpc.StatusCode.RESOURCE_EXHAUSTED, "max client reached", "max client reached (RESOURCE_EXHAUSTED)"),
    "away": (*AWAY, "api is not there (UNAVAILABLE at {address}, try again)"),
}


@pytest.mark.parametrize(("code", "details", "expected"), REFUSALS.values(), ids=REFUSALS.keys())
def test_a_watch_that_does_not_begin(
    run: Run, api: FakeApi, code: grpc.StatusCode, details: str, expected: str
) -> None:
    """A watch whose first call fails is not resumed."""
    api.answers["watches.Watch"] = [(code, details)]
    result = run("watch job")
    assert (1, expected.format(address=api.address) + "\n", 1) == (result.exit_code, result.stderr, len(api.calls))


def run_watch(api: FakeApi) -> tuple[list[int], list[str], list[float]]:
    """Return the revisions, the messages and the pauses in seconds until an error ends the watch."""
    said: list[str] = []
    slept: list[float] = []
    pace = WatchPace(clock=lambda: sum(slept))
    client = Client(api.address, retry=NO_RETRIES, sleep=slept.append)
    settings = Settings(address=api.address, open_client=client)
    stream = Changes(settings, svc.WatchRequest(), pace, said.append)
    seen: list[svc.WatchResponse] = []
    try:
        seen.extend(stream.messages())
    except grpc.RpcError as error:
        said.append(error.details() or "")
    finally:
        settings.close()
    return [message.revision for message in seen], said, slept


@pytest.mark.parametrize("end", [OVERFLOW, AWAY])
def test_a_watch_that_was_cut_off_resumes(api: FakeApi, end: tuple[grpc.StatusCode, str]) -> None:
    """The watch resumes from the last revision after an overflow or an outage, says so, and loses no change."""
    streams: list[Answer] = [[begin_answer(5), pod_change(7), end], end, [begin_answer(7), pod_change(8), CANCELLED]]
    api.answers["watches.Watch"] = streams
    revisions, said, slept = run_watch(api)
    assert [5, 7, 7, 8] == revisions
    assert [0, 7, 7] == [request.start_revision for request in api.requests("watches.Watch")]
    cut = f"the watch was cut off: {end[1]} ({end[0].name}); resuming after revision 7"
    assert ["watch task_1", cut, "the watch resumes where it was", "watch task_1", CANCELLED[1]] == said
    assert [0.5, 1.0] == slept


def test_an_api_that_does_not_count_revisions(api: FakeApi) -> None:
    """The command says that changes may be missing if the API has no revisions."""
    streams: list[Answer] = [[begin_answer(), OVERFLOW], [begin_answer(), CANCELLED]]
    api.answers["watches.Watch"] = streams
    assert "the watch resumes; changes in between are not known" in run_watch(api)[1]


TOO_OLD = (grpc.StatusCode.OUT_OF_RANGE, "revision 7 is too old to resume from: changes from 100 on are kept")


@pytest.mark.parametrize("end", [TOO_OLD, (grpc.StatusCode.ABORTED, "something else"), CANCELLED])
def test_what_no_waiting_helps_against(api: FakeApi, end: tuple[grpc.StatusCode, str]) -> None:
    """Every other error is final, and the output is its text."""
    streams: list[Answer] = [[begin_answer(7), OVERFLOW], end]
    api.answers["watches.Watch"] = streams
    assert end[1] == run_watch(api)[1][-1]
    assert 2 == len(api.calls)


def test_an_endless_outage(api: FakeApi) -> None:
    """The watch ends after two minutes without an answer."""
    api.answers["watches.Watch"] = [[begin_answer(7), AWAY], AWAY]
    _, said, slept = run_watch(api)
    assert (AWAY[1], True) == (said[-1], 120 < sum(slept) < 130)


def test_ctrl_c_cancels_the_watch(run: Run, api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C cancels the watch at the API, and exits with the code of an interruption."""

    def interrupt(_: object) -> list[str]:
        raise KeyboardInterrupt

    monkeypatch.setattr("cli.watch.change_lines", interrupt)
    api.answers["watches.Watch"] = [[begin_answer(7), CANCELLED]]
    api.answers["watches.Cancel"] = [svc.CancelResponse()]
    assert 130 == run("watch job").exit_code
    assert ["task_1"] == [request.watch_id for request in api.requests("watches.Cancel")]


def test_ctrl_c_when_the_watch_is_gone_already(run: Run, api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C does not report an error if the API has no such watch."""
    interrupted: Callable[[object], list[str]] = lambda _: (_ for _ in ()).throw(KeyboardInterrupt)  # noqa: E731
    monkeypatch.setattr("cli.watch.change_lines", interrupted)
    api.answers["watches.Watch"] = [[begin_answer(7), CANCELLED]]
    api.answers["watches.Cancel"] = [(grpc.StatusCode.NOT_FOUND, "invalid watch id")]
    result = run("watch job")
    assert (130, "watch task_1\n\n") == (result.exit_code, result.stderr)


def test_cancel(run: Run, api: FakeApi) -> None:
    """The watch with the id is cancelled; the API names an unknown one."""
    unknown = (grpc.StatusCode.NOT_FOUND, "watch_id task_2 not exist for task watch client")
    api.answers["watches.Cancel"] = [svc.CancelResponse(), svc.CancelResponse(), unknown]
    assert "Watch task_1 cancelled\n" == run("watch cancel task_1").stdout
    assert "{}\n" == run("watch cancel task_1 --json").stdout
    result = run("watch cancel task_2")
    assert (1, f"{unknown[1]} (NOT_FOUND)\n") == (result.exit_code, result.stderr)
