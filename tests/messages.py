"""Messages of the API whose constructors Python cannot call by name."""

from __future__ import annotations

from peloton.api.v0.task import task_pb2


def instance_range(begin: int, end: int) -> task_pb2.InstanceRange:
    """Return the range of the instances from begin to end, without end: its field has the name of a keyword."""
    return task_pb2.InstanceRange(**{"from": begin, "to": end})
