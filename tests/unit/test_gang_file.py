"""The program that keeps a file of the live members of a gang."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from peloton.api.service_names import GANG_SERVICE, add_under_all_names
from peloton.api.v0.gang import gang_pb2 as pb
from peloton.client import gang

JOB = "00000000-0000-4000-8000-000000000001"


def member(instance: int, address: str, port: int, is_live: bool = True, rank: int | None = None) -> pb.Member:
    rank = instance if rank is None else rank
    return pb.Member(instanceId=instance, address=address, port=port, isLive=is_live, rank=rank)


GANG = pb.GetGangResponse(
    generation=2,
    revision="a",
    members=[
        member(0, "10.0.0.1", 31_000),
        member(1, "10.0.0.2", 31_000),
        member(3, "10.0.0.9", 0, is_live=False),
        member(7, "10.0.0.1", 31_001, rank=2),
    ],
)


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("hosts", "10.0.0.1:31000\n10.0.0.2:31000\n10.0.0.1:31001\n"),
        ("horovod", "10.0.0.1:2\n10.0.0.2:1\n"),
    ],
)
def test_lists_of_hosts(form: str, expected: str) -> None:
    """Live members come by rank; a host has as many slots as live members."""
    assert expected == gang.FORMATS[form](GANG, 0)


def test_configurations() -> None:
    """A member that is not live has no task; the JSON is the answer of the API."""
    workers = ["10.0.0.1:31000", "10.0.0.2:31000", "10.0.0.1:31001"]
    config = json.loads(gang.FORMATS["tf_config"](GANG, 7))
    assert {"cluster": {"worker": workers}, "task": {"type": "worker", "index": 2}} == config
    assert {"cluster": {"worker": workers}} == json.loads(gang.FORMATS["tf_config"](GANG, 3))
    assert 2 == json.loads(gang.FORMATS["json"](GANG, 0))["generation"]
    assert "[::1]:5\n" == gang.FORMATS["hosts"](pb.GetGangResponse(members=[member(0, "::1", 5)]), 0)


class Gangs:
    """A GangService whose answers follow one another: a status code is raised."""

    def __init__(self, *answers: pb.GetGangResponse | grpc.StatusCode) -> None:
        self.answers = list(answers)
        self.requests: list[pb.GetGangRequest] = []

    def GetGang(self, request: pb.GetGangRequest, context: Any) -> pb.GetGangResponse:
        self.requests.append(request)
        answer = self.answers.pop(0) if self.answers else grpc.StatusCode.NOT_FOUND
        if isinstance(answer, grpc.StatusCode):
            context.abort(answer, "no answer")  # raises
        assert isinstance(answer, pb.GetGangResponse)
        return answer


def run(gangs: Gangs, *arguments: str) -> int:
    """Run the program against a server until it ends."""
    server = grpc.server(ThreadPoolExecutor(2))
    add_under_all_names(server, gangs, GANG_SERVICE)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        return gang.main(["--address", f"127.0.0.1:{port}", "--job", JOB, *arguments])
    finally:
        server.stop(0)


def test_the_file_follows_the_gang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call waits for another revision. A failed call is repeated, an equal text is not written again, and the
    program ends with the job."""
    monkeypatch.setattr(gang, "RETRY_S", 0.01)
    texts: list[str] = []
    monkeypatch.setattr(gang, "write", lambda path, text: texts.append(text))
    same, less = pb.GetGangResponse(), pb.GetGangResponse(revision="c", members=GANG.members[:1])
    same.CopyFrom(GANG)
    same.revision = "b"
    gangs = Gangs(GANG, grpc.StatusCode.UNAVAILABLE, same, less)

    assert 1 == run(gangs, "--file", str(tmp_path / "hosts"))

    assert [gang.hosts_text(GANG, 0), "10.0.0.1:31000\n"] == texts
    assert ["", "a", "a", "b", "c"] == [request.afterRevision for request in gangs.requests]


def test_a_file_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The program ends with a line that names the file."""
    assert 1 == run(Gangs(GANG), "--file", str(tmp_path / "none" / "hosts"))
    assert f"{tmp_path}/none/hosts: No such file or directory\n" == capsys.readouterr().err


def test_an_api_without_gangs_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """A call that can never succeed is not repeated."""
    gangs = Gangs(grpc.StatusCode.UNIMPLEMENTED)
    assert 1 == run(gangs, "--file", "-")
    assert (1, True) == (len(gangs.requests), "no answer" in capsys.readouterr().err)


def test_a_pod_without_credentials_is_refused_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    """A pod that has had an answer repeats its calls: its token is being replaced."""
    assert 1 == run(Gangs(grpc.StatusCode.UNAUTHENTICATED), "--file", "-")
    assert f"gang of job {JOB} at 127.0.0.1:" in capsys.readouterr().err


def test_the_file_is_replaced(tmp_path: Path) -> None:
    """The file has the new text alone, and nothing else stays."""
    file = tmp_path / "hosts"
    file.write_text("old and longer than the new text, which replaces it\n" * 9)

    assert 0 == run(Gangs(GANG), "--file", str(file), "--format", "horovod", "--once")

    assert "10.0.0.1:2\n10.0.0.2:1\n" == file.read_text()
    assert [file] == list(tmp_path.iterdir())


def test_a_discovery_script(capsys: pytest.CaptureFixture[str]) -> None:
    """The program prints hosts with slots; an error of the API is a line on stderr, and nothing is printed."""
    assert 0 == run(Gangs(GANG), "--file", "-", "--format", "horovod", "--once")
    assert 1 == run(Gangs(grpc.StatusCode.UNAVAILABLE), "--file", "-", "--once")

    out, err = capsys.readouterr()
    assert ("10.0.0.1:2\n10.0.0.2:1\n", True) == (out, "no answer" in err)


def test_the_job_is_that_of_the_pod(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The program outside a pod needs a job."""
    monkeypatch.delenv("PELOTON_JOB_ID", raising=False)
    with pytest.raises(SystemExit):
        gang.main(["--file", "-"])
    assert "no job: give --job, or set PELOTON_JOB_ID" in capsys.readouterr().err
