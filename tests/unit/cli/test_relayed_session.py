"""``peloton task exec`` for pods whose input and output the api relays."""

from __future__ import annotations

import os
from itertools import count

import grpc
import pytest

from cli.settings import Settings
from cli.task.relayed_session import RelayedSession
from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha.pod.svc import pod_svc_pb2 as svc
from peloton.model.ids import JobId, PodName
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi

JOB = "91b1b8e5-2ba8-41e7-bc23-0242ac11000d"
EXCHANGE = "pods.ExchangeWithCommand"
Answer = svc.ExchangeWithCommandResponse


@pytest.fixture(autouse=True)
def pauses(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the pauses between exchanges; the pod is on Kubernetes."""
    monkeypatch.setattr("cli.task.relayed_session.PAUSE_MIN_S", 0.0)
    monkeypatch.setattr("cli.task.relayed_session.RETRY_PAUSE_S", 0.0)
    api.answers["tasks.BrowseSandbox"] = [task_pb2.BrowseSandboxResponse(paths=["stdout"])]


def exchanges(api: FakeApi) -> list[svc.ExchangeWithCommandRequest]:
    return list(api.requests(EXCHANGE))


def test_a_command_and_its_outputs(run: Run, api: FakeApi) -> None:
    """Each output is written to its own local stream, until the exit code arrives."""
    api.answers[EXCHANGE] = [
        Answer(stdout=b"o\xff", stderr=b"e"), Answer(wants_input=True), Answer(stdout=b"more", exit_code=3),
    ]  # fmt: skip
    result = run(f"task exec -c side {JOB} 0 ls -l")

    assert (3, b"o\xffmore", b"e") == (result.exit_code, result.stdout_bytes, result.stderr_bytes)
    first, *others = exchanges(api)
    assert svc.CommandStart(container="side", argv=["ls", "-l"]) == first.start
    assert [f"{JOB}-0"] * 3 == [request.pod_name.value for request in exchanges(api)]
    assert [0, 1, 2] == [request.number for request in exchanges(api)]
    assert {first.session} == {request.session for request in others}
    assert not any(request.HasField("start") or request.ends_input for request in others)


@pytest.mark.parametrize(
    ("words", "argv"),
    [
        (["task", "exec", JOB, "0", "--", "sh", "-c", "ls; pwd"], ["sh", "-c", "ls; pwd"]),
        (["task", "exec", "--", JOB, "0", "--", "ls", "--all"], ["ls", "--all"]),
        (["task", "exec", f"{JOB}-0", "--", "--", "-l"], ["--", "-l"]),
        (["task", "exec", JOB, "0", "git", "log", "--", "file"], ["git", "log", "--", "file"]),
        (["task", "exec", JOB, "0", "--"], ["/bin/sh"]),
        (["pod", "exec", f"{JOB}-0", "--", "ls", "-l"], ["ls", "-l"]),
        (["pod", "exec", JOB, "0", "--", "ls", "-l"], ["ls", "-l"]),
    ],
)
def test_a_first_double_dash_separates_the_command(run: Run, api: FakeApi, words: list[str], argv: list[str]) -> None:
    """The command is everything after the first double dash, including further ones."""
    api.answers[EXCHANGE] = [Answer(exit_code=0)]

    result = run(*words)

    assert (0, [argv]) == (result.exit_code, [list(each.start.argv) for each in exchanges(api)])


def test_input_is_passed_on(api: FakeApi) -> None:
    """The client sends all input, only while the command can take it, and then its end."""
    ours, theirs = os.pipe()
    os.write(theirs, b"typed")
    os.close(theirs)
    calls = count()
    got: list[bytes] = []

    def answer(request: svc.ExchangeWithCommandRequest) -> Answer:
        if request.data or request.ends_input:
            got.append(request.data)
        wants_input = next(calls) % 3 == 2
        return Answer(exit_code=0) if request.ends_input else Answer(wants_input=wants_input)

    api.answers[EXCHANGE] = [answer]
    settings = Settings(address=api.address)
    code = RelayedSession(settings, PodName(JobId(JOB), 0), "", ["sort"], with_input=True, source=ours).run()
    settings.close()
    os.close(ours)

    assert (0, [b"typed", b""]) == (code, got)
    numbers = [request.number for request in exchanges(api) if request.data or request.ends_input]
    assert [0, 0] == [number % 3 for number in numbers]


def test_an_exchange_is_repeated(run: Run, api: FakeApi) -> None:
    """An exchange is repeated with its number after an outage; the first exchange is not."""
    away = (grpc.StatusCode.UNAVAILABLE, "no leader")
    api.answers[EXCHANGE] = [Answer(stdout=b"a"), away, away, Answer(stdout=b"b", exit_code=0)]
    assert (0, "ab") == ((result := run(f"pod exec {JOB}-0 ls")).exit_code, result.stdout)
    assert [0, 1, 1, 1] == [request.number for request in exchanges(api)]

    api.answers[EXCHANGE] = [away]
    result = run(f"pod exec {JOB}-0 ls")
    assert (1, True) == (result.exit_code, result.stderr.startswith("no leader (UNAVAILABLE"))
    assert [0, 0] == [request.number for request in exchanges(api)[4:]]
    assert [False, True] == [request.is_last for request in exchanges(api)[4:]]


def test_a_session_that_breaks_off(run: Run, api: FakeApi) -> None:
    """The error is the text of the API."""
    api.answers[EXCHANGE] = [Answer(), (grpc.StatusCode.ABORTED, "the connection to the command broke off")]
    result = run(f"task exec {JOB} 0 ls")
    assert (1, "the connection to the command broke off (ABORTED)\n") == (result.exit_code, result.stderr)
