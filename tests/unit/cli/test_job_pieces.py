"""``peloton job create`` of a job above the message limit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from peloton.api.limits import RETRY_AFTER
from peloton.api.v0.bulk import bulk_pb2
from peloton.api.v0.job import job_pb2
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi
from tests.unit.cli.test_job import ID, JOB, pool_answer

CONFIG = """\
name: hello
instanceconfig:
  2: {name: two}
  0: {name: zero, command: &own {value: "true"}}
instancecount: 3
defaultconfig:
  command: *own
"""


class Sent:
    """Collects the pieces of a stream, and answers."""

    def __init__(self, api: FakeApi, answer: job_pb2.CreateResponse) -> None:
        api.answers["respools.LookupResourcePoolID"] = [pool_answer()]
        api.answers["bulk.CreateJob"] = [self.take]
        self.pieces: list[bulk_pb2.CreateJobRequest] = []
        self._answer = answer

    def take(self, pieces: Iterator[bulk_pb2.CreateJobRequest]) -> job_pb2.CreateResponse:
        self.pieces = list(pieces)
        return self._answer


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(CONFIG)
    return path


@pytest.mark.parametrize("why", ["the file is large", "the message is large"])
def test_create(run: Run, api: FakeApi, config: Path, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    """The stream has the job first, then the instances in rising order regardless of their order in the file, then
    the commit."""
    is_file = why == "the file is large"
    limit = "peloton.api.yaml_pieces.HEAVY_FILE_BYTES" if is_file else "cli.job.pieces.MESSAGE_BYTES_MAX"
    monkeypatch.setattr(limit, 10)
    sent = Sent(api, job_pb2.CreateResponse(jobId=ID))

    result = run("job", "create", "/dev", config, "-i", JOB)

    assert (0, f"Job {JOB} created\n") == (result.exit_code, result.stdout)
    start, *pieces, end = sent.pieces
    assert (JOB, "hello", "pool-1", 3) == (
        start.start.id.value,
        start.start.config.name,
        start.start.config.respoolID.value,
        start.start.config.instanceCount,
    )
    assert start.start.config.defaultConfig.command.value == "true"
    assert not start.start.config.instanceConfig
    assert [(0, ["zero"]), (2, ["two"])] == [
        (piece.instances.first, [config.name for config in piece.instances.configs]) for piece in pieces
    ]
    assert end.commit.config_count == 2


def test_refused(run: Run, api: FakeApi, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refusals of a stream are printed like the ones of a call."""
    monkeypatch.setattr("peloton.api.yaml_pieces.HEAVY_FILE_BYTES", 10)
    answer = job_pb2.CreateResponse()
    answer.error.invalidConfig.message = "Invalid config for instance 2, cpuLimit -1 is negative"
    Sent(api, answer)

    result = run("job", "create", "/dev", config)

    assert result.exit_code == 1
    assert result.stderr.endswith("Invalid job config: Invalid config for instance 2, cpuLimit -1 is negative\n")


@pytest.mark.parametrize("why", ["the file is large", "the message is large"])
def test_busy(run: Run, api: FakeApi, config: Path, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    """The client retries a busy server with all pieces from the first on, since reading the file may take minutes."""
    is_file = why == "the file is large"
    limit = "peloton.api.yaml_pieces.HEAVY_FILE_BYTES" if is_file else "cli.job.pieces.MESSAGE_BYTES_MAX"
    monkeypatch.setattr(limit, 10)
    sent = Sent(api, job_pb2.CreateResponse(jobId=ID))
    busy = (grpc.StatusCode.RESOURCE_EXHAUSTED, "4 jobs are being created: try again", ((RETRY_AFTER, "10"),))
    api.answers["bulk.CreateJob"] = [busy, busy, sent.take]

    result = run("job", "create", "/dev", config, "-i", JOB)

    assert (0, f"Job {JOB} created\n") == (result.exit_code, result.stdout)
    assert "Peloton is busy: 4 jobs are being created" in result.stderr
    assert ["start", "instances", "instances", "commit"] == [piece.WhichOneof("piece") for piece in sent.pieces]


def test_secrets(run: Run, api: FakeApi, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets are refused, since a stream cannot carry them."""
    monkeypatch.setattr("peloton.api.yaml_pieces.HEAVY_FILE_BYTES", 10)

    result = run("job", "create", "/dev", config, "--secret-path", "/etc/key", "--secret-data", "s3")

    assert (1, []) == (result.exit_code, api.calls)
    assert "sent in pieces, which carry no secrets" in result.stderr


@pytest.mark.parametrize(("command", "said"), [("watch", "3 SUCCEEDED"), ("status", "state: SUCCEEDED")])
def test_reads_a_heavy_job(run: Run, api: FakeApi, command: str, said: str) -> None:
    """The command reports the state from the short form, since the configuration exceeds an answer."""
    cache = job_pb2.GetCacheResponse()
    cache.config.instanceCount = 3
    cache.runtime.state = job_pb2.SUCCEEDED
    cache.runtime.taskStats["SUCCEEDED"] = 3
    api.answers["jobs.GetCache"] = [cache]
    api.answers["jobs.Get"] = [(grpc.StatusCode.RESOURCE_EXHAUSTED, "too large")]

    result = run("job", command, JOB)

    assert result.exit_code == 0
    assert said in result.stdout
