"""Division of a job into the messages of a stream."""

from __future__ import annotations

import pytest

from peloton.api.bulk import create_messages
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2


def test_a_heavy_configuration_has_a_message_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A heavy configuration is alone in its message, since it may exceed the limit together with others."""
    monkeypatch.setattr("peloton.api.bulk.PIECE_BYTES", 100)
    configs = [task_pb2.TaskConfig(name="x" * size) for size in (40, 40, 90, 700, 40, 200, 30)]

    _, *pieces, _ = create_messages("", job_pb2.JobConfig(), enumerate(configs))

    assert [(0, 2), (2, 1), (3, 1), (4, 1), (5, 1), (6, 1)] == [
        (piece.instances.first, len(piece.instances.configs)) for piece in pieces
    ]
