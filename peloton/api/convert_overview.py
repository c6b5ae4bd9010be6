"""What overviews tell: problems, and amounts of hosts."""

from __future__ import annotations

from peloton.api.convert_time import rfc3339_seconds
from peloton.api.v0.host import host_pb2
from peloton.api.v0.overview import overview_pb2
from peloton.model.problem import Problem
from peloton.model.resources import Resources


def problem_to_wire(problem: Problem) -> overview_pb2.Problem:
    return overview_pb2.Problem(
        severity=problem.severity.value,  # type: ignore[arg-type]
        text=problem.text,
        subject_kind=problem.subject_kind.value,  # type: ignore[arg-type]
        subject_id=problem.subject_id,
        cluster=problem.cluster,
        since=rfc3339_seconds(problem.since_ns),
        command=problem.command,
    )


def host_amounts(resources: Resources) -> host_pb2.HostAmounts:
    return host_pb2.HostAmounts(
        cpu=resources.cpu_milli / 1000,
        memory_mib=resources.memory_mib,
        disk_mib=resources.disk_mib,
        gpu=resources.gpu_milli / 1000,
    )
