"""Secrets of jobs from files and from standard input."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.respool import respool_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi

POOL = respool_pb2.LookupResponse(id=peloton_pb2.ResourcePoolID(value="pool-1"))


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text("name: hello\n")
    return path


def secrets_in(request: Any) -> Mapping[str, bytes]:
    return {one.path: base64.b64decode(one.value.data) for one in request.secrets}


@pytest.mark.parametrize(
    ("command", "method", "answer"),
    [
        ("job create", "jobs.Create", job_pb2.CreateResponse(jobId=peloton_pb2.JobID(value="j"))),
        ("job stateless create", "services.CreateJob", stateless_svc_pb2.CreateJobResponse()),
    ],
)
def test_secrets_come_from_files(
    command: str, method: str, answer: Any, run: Run, api: FakeApi, config: Path, tmp_path: Path
) -> None:
    """The request has the bytes of each file, of standard input, and of a secret on the command line."""
    (tmp_path / "a=b").write_bytes(b"\x00\xff\n")
    api.answers["respools.LookupResourcePoolID"] = [POOL]
    api.answers[method] = [answer]
    files = ("--secret-file", f"/run/a={tmp_path / 'a=b'}", "--secret-file", "/run/b=-")
    own = ("--secret-path", "/run/c", "--secret-data", "s3")

    result = run(*command.split(), "/dev", config, *files, *own, text="typed")

    assert 0 == result.exit_code, result.stderr
    (request,) = api.requests(method)
    assert {"/run/a": b"\x00\xff\n", "/run/b": b"typed", "/run/c": b"s3"} == secrets_in(request)


BAD = {
    "no path": ("=x", "want PATH=FILE, not '=x'"),
    "no file": ("/run/a", "want PATH=FILE, not '/run/a'"),
    "not there": ("/run/a=nowhere", "'nowhere': No such file or directory"),
    "a folder": ("/run/a=.", "'.': Is a directory"),
    "empty": ("/run/a=empty", "'empty' is empty"),
    "large": ("/run/a=large", "secret large has more than 65,536 bytes, its limit"),
}


@pytest.mark.parametrize(("word", "text"), BAD.values(), ids=BAD.keys())
def test_a_secret_that_cannot_be_sent(
    word: str, text: str, run: Run, api: FakeApi, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A malformed secret is wrong usage, and sends no request."""
    (tmp_path / "empty").touch()
    (tmp_path / "large").write_bytes(b"x" * 65_537)
    monkeypatch.chdir(tmp_path)

    result = run("job", "create", "/dev", config, "--secret-file", word)

    assert (2, True, []) == (result.exit_code, text in result.stderr, api.calls), result.stderr
