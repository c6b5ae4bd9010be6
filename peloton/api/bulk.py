"""Messages of BulkService.CreateJob, built to a bounded size from a stream of configurations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from peloton.api.v0.bulk import bulk_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2

PIECE_BYTES = 2**20
"""Maximum size of a message, unless a single configuration is larger."""


def create_messages(
    job_id: str, config: job_pb2.JobConfig, instances: Iterable[tuple[int, task_pb2.TaskConfig]]
) -> Iterator[bulk_pb2.CreateJobRequest]:
    """Yield the messages. ``config`` has no instances; ``instances`` are sorted by number."""
    start = bulk_pb2.CreateJobRequest()
    start.start.config.CopyFrom(config)
    if job_id:
        start.start.id.value = job_id
    yield start
    piece, size_bytes, count = bulk_pb2.CreateJobRequest(), 0, 0
    for instance, override in instances:
        follows = instance == piece.instances.first + len(piece.instances.configs)
        own_bytes = override.ByteSize() + 1
        if size_bytes and not (follows and size_bytes + own_bytes <= PIECE_BYTES):
            yield piece
            piece, size_bytes = bulk_pb2.CreateJobRequest(), 0
        if not size_bytes:
            piece.instances.first = instance
        piece.instances.configs.append(override)
        size_bytes += own_bytes
        count += 1
    if size_bytes:
        yield piece
    end = bulk_pb2.CreateJobRequest()
    end.commit.config_count = count
    yield end
