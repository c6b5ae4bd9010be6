"""Every command takes a job by its id, its beginning, its name, or its pool and name; pods likewise."""

from __future__ import annotations

from collections.abc import Sequence

import click
import grpc
import pytest
from click.testing import CliRunner

from cli import reference
from cli.main import peloton
from cli.names import JobType, split_words
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.lookup import lookup_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha.pod.svc import pod_svc_pb2
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi

FIRST = "91b1b8e5-2ba8-11e7-bc23-0242ac11000d"
SECOND = "91b1c0de-2ba8-11e7-bc23-0242ac11000d"


def make_found_job(
    job_id: str, state: job_pb2.JobState.ValueType = job_pb2.RUNNING, name: str = "etl"
) -> lookup_pb2.FoundJob:
    return lookup_pb2.FoundJob(
        id=peloton_pb2.JobID(value=job_id),
        name=name,
        poolPath="/eng/maps",
        state=state,
        creationTime="2026-11-20T10:00:00.25Z",
    )


def answer(*jobs: lookup_pb2.FoundJob, more: bool = False) -> lookup_pb2.FindJobsResponse:
    return lookup_pb2.FindJobsResponse(jobs=jobs, hasMore=more)


def list_refreshed(api: FakeApi) -> list[str]:
    return [request.id.value for request in api.requests("jobs.Refresh")]


@pytest.fixture(autouse=True)
def _refreshable(api: FakeApi) -> None:
    api.answers["jobs.Refresh"] = [job_pb2.RefreshResponse()]


def test_an_id_is_sent_as_it_is(run: Run, api: FakeApi) -> None:
    """An id is sent without a lookup, so that any version of Peloton answers."""
    run(f"job refresh {FIRST.upper()}")

    assert ([FIRST.upper()], []) == (list_refreshed(api), api.requests("lookup.FindJobs"))


@pytest.mark.parametrize("word", ["etl", "/eng/maps/etl", "91b1b"])
def test_one_job_is_meant(run: Run, api: FakeApi, word: str) -> None:
    """The request has the id of the job that was found."""
    api.answers["lookup.FindJobs"] = [answer(make_found_job(FIRST))]
    result = run(f"job refresh {word}")

    assert (0, "", [FIRST]) == (result.exit_code, result.stderr, list_refreshed(api))
    assert [(word, False)] == [(request.text, request.begins) for request in api.requests("lookup.FindJobs")]


@pytest.mark.parametrize("word", ["etl", "/eng/maps/etl", "eng/maps/etl"])
def test_of_jobs_with_a_name_the_living_one_is_meant(run: Run, api: FakeApi, word: str) -> None:
    """The command takes the job that has not ended, and names it on standard error."""
    api.answers["lookup.FindJobs"] = [answer(make_found_job(SECOND), make_found_job(FIRST, job_pb2.SUCCEEDED))]
    result = run(f"job refresh {word}")

    assert [SECOND] == list_refreshed(api)
    assert f"'{word}' is job {SECOND}; the other one of that name ended before\n" == result.stderr


@pytest.mark.parametrize(
    ("word", "states"),
    [
        ("etl", (job_pb2.RUNNING, job_pb2.PENDING)),
        ("etl", (job_pb2.SUCCEEDED, job_pb2.FAILED)),
        ("91b1", (job_pb2.RUNNING, job_pb2.FAILED)),
    ],
)
def test_what_is_ambiguous_is_listed(
    run: Run, api: FakeApi, word: str, states: Sequence[job_pb2.JobState.ValueType]
) -> None:
    """The error lists each job on a line; the jobs beyond the bound are not counted."""
    api.answers["lookup.FindJobs"] = [
        answer(make_found_job(FIRST, states[0]), make_found_job(SECOND, states[1]), more=True)
    ]
    result = run(f"job refresh {word}")

    first, second = map(job_pb2.JobState.Name, states)
    assert (1, "", []) == (result.exit_code, result.stdout, list_refreshed(api))
    assert result.stderr.splitlines() == [
        f"'{word}' may be one of several jobs: name it by its id",
        f"  {FIRST}  /eng/maps/etl  {first}  created 2026-11-20T10:00:00Z",
        f"  {SECOND}  /eng/maps/etl  {second}  created 2026-11-20T10:00:00Z",
        "  and more",
    ]


def test_no_job_has_the_name(run: Run, api: FakeApi) -> None:
    """The error lists the accepted forms of a job's name."""
    api.answers["lookup.FindJobs"] = [answer()]
    result = run("job refresh etl")

    assert (1, []) == (result.exit_code, list_refreshed(api))
    assert result.stderr == (
        "unknown job 'etl': want its id, the first 4 characters of that or more, its name, or its pool and name "
        "(/pool/name)\n"
    )


@pytest.mark.parametrize("words", ["etl 7", "etl-7"])
def test_an_instance_is_named_in_one_word_or_two(run: Run, api: FakeApi, words: str) -> None:
    """Commands of tasks and of pods take both."""
    api.answers["lookup.FindJobs"] = [answer(make_found_job(FIRST))]
    api.answers["tasks.Get"] = [task_pb2.GetResponse(result=task_pb2.TaskInfo(instanceId=7))]
    api.answers["pods.StopPod"] = [pod_svc_pb2.StopPodResponse()]

    assert 0 == run(f"task get {words}").exit_code
    assert f"Pod {FIRST}-7 stopped\n" == run(f"pod stop {words}").stdout
    assert [("etl", False)] * 2 == [(request.text, request.begins) for request in api.requests("lookup.FindJobs")]
    (task,) = api.requests("tasks.Get")
    assert (FIRST, 7) == (task.jobId.value, task.instanceId)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["etl", "7"], (("etl", 7), [])),
        (["etl-7"], (("etl", 7), [])),
        ([f"{FIRST}-0"], ((FIRST, 0), [])),
        (["etl-2", "7"], (("etl-2", 7), [])),
        (["etl-7", "run"], (("etl", 7), ["run"])),
        (["etl", "7", "run"], (("etl", 7), ["run"])),
        (["etl"], (None, [])),
        (["7"], (None, [])),
        (["etl", "x"], (None, ["x"])),
        (["etl", "4294967296"], (None, ["4294967296"])),
    ],
)
def test_words_of_an_instance(words: list[str], expected: object) -> None:
    """A number is an instance; the words after it remain."""
    assert expected == split_words(words)


@pytest.mark.parametrize("words", ["etl", "etl x", "etl 1 2", "etl-1 2 3"])
def test_wrong_usage_resolves_nothing(run: Run, api: FakeApi, words: str) -> None:
    """An invalid instance is refused before any request."""
    result = run(f"task get {words}")

    assert (2, True, []) == (result.exit_code, f"expected JOB INSTANCE, got '{words}'" in result.stderr, api.calls)


def test_every_command_resolves_jobs() -> None:
    """Every argument that is documented as a job accepts names."""
    commands = reference.iterate_commands(peloton, reference.context(peloton, "peloton"))
    arguments = [
        (path, param.type)
        for path, command, ctx in commands
        for param in command.params
        if isinstance(param, click.Argument) and "JOB" in param.make_metavar(ctx)
    ]

    assert len(arguments) > 40
    assert [path for path, kind in arguments if not isinstance(kind, JobType)] == []


def completions(line: str, address: str) -> list[str]:
    environment = {"_PELOTON_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    result = CliRunner().invoke(peloton, [], prog_name="peloton", env={**environment, "PELOTON_ADDRESS": address})
    return [entry.partition(",")[2] for entry in result.stdout.split()]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("job get e", ["etl"]),
        ("task logs /eng/maps/", ["/eng/maps/etl"]),
        ("job stateless stop 91b", [FIRST, SECOND]),
        ("job get ", ["etl"]),
        ("watch job etl e", ["etl"]),
        ("pod get etl ", []),
    ],
)
def test_names_and_ids_are_completed(api: FakeApi, line: str, expected: list[str]) -> None:
    """The shell offers each matching word once; ids only for a word that begins as one."""
    api.answers["lookup.FindJobs"] = [answer(make_found_job(FIRST), make_found_job(SECOND))]

    assert expected == completions(f"peloton {line}", api.address)


def test_completion_prints_no_errors(api: FakeApi) -> None:
    """The completion is empty if the API refuses."""
    api.answers["lookup.FindJobs"] = [(grpc.StatusCode.UNAVAILABLE, "no")]

    assert [] == completions("peloton job get e", api.address)
