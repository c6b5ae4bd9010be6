"""``peloton job create`` of a job that is larger than one message may be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli.config_file import STANDARD_INPUT
from cli.errors import Failed
from cli.new_job import report_unknown_outcome
from cli.settings import Settings
from cli.terminal import echo
from cli.wire import v0
from peloton.api.limits import MESSAGE_BYTES_MAX


def is_heavy_file(path: Path) -> bool:
    from peloton.api.yaml_pieces import HEAVY_FILE_BYTES

    return path != STANDARD_INPUT and path.stat().st_size > HEAVY_FILE_BYTES


def create_from_heavy_file(settings: Settings, path: Path, respool_id: str, job_id: str) -> v0.job.CreateResponse:
    """Create a job from a file that is too large for memory."""
    from peloton.api.yaml_pieces import JobPieces

    echo(f"Reading {path}, which takes a few minutes for each gigabyte", err=True)
    with JobPieces(path) as pieces:
        pieces.config.respoolID.value = respool_id
        return create_in_pieces(settings, pieces.config, pieces.instances, job_id)


def create_heavy_request(settings: Settings, request: v0.job.CreateRequest) -> v0.job.CreateResponse | None:
    """Create a job in pieces; None for a request that is small enough for one message."""
    if request.ByteSize() <= MESSAGE_BYTES_MAX:
        return None
    refuse_secrets(bool(request.secrets))
    whole = request.config.instanceConfig
    instances = [(instance, whole[instance]) for instance in sorted(whole)]
    config = v0.job.JobConfig()
    config.CopyFrom(request.config)
    config.ClearField("instanceConfig")
    return create_in_pieces(settings, config, lambda: instances, request.id.value)


def refuse_secrets(has_secrets: bool) -> None:
    if has_secrets:
        raise Failed("the job is larger than a message may be and is sent in pieces, which carry no secrets")


@dataclass(frozen=True)
class Messages:
    """The messages of one job. They can be iterated again, because a busy Peloton may refuse the first attempts."""

    config: v0.job.JobConfig
    instances: Callable[[], Iterable[tuple[int, v0.task.TaskConfig]]]
    job_id: str

    def __iter__(self) -> Iterator[v0.bulk.CreateJobRequest]:
        from peloton.api.bulk import create_messages

        return create_messages(self.job_id, self.config, self.instances())


def create_in_pieces(
    settings: Settings,
    config: v0.job.JobConfig,
    instances: Callable[[], Iterable[tuple[int, v0.task.TaskConfig]]],
    job_id: str,
) -> v0.job.CreateResponse:
    messages: Any = Messages(config, instances, job_id)  # gRPC requires an iterator; the client iterates again
    with report_unknown_outcome(job_id, "peloton job"):
        return settings.client.bulk.CreateJob(messages)
