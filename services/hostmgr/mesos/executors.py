"""Executors of Aurora: the id, the data and the resources that each pod's executor has from its launch on.

Such an executor is CUSTOM with the id ``PLACEHOLDER``; any other one runs as its configuration says. Thermos reads an
AssignedTask of Aurora from the data of its task, in Thrift's binary form. The configuration has the task inside it in
that form already, and a struct inside another is its own bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import pack
from typing import Any

from peloton.api.mesos.v1 import mesos_pb2
from peloton.api.v0.task import task_pb2
from peloton.model.ids import PodId

Json = dict[str, Any]

NAME = "AuroraExecutor"
PLACEHOLDER = "PLACEHOLDER"
PREFIX = "thermos-"
"""Prefix of the pod's id in the executor's."""

_I32, _STRING, _STRUCT, _MAP, _STOP = 8, 11, 12, 13, b"\0"
"""Types of fields in Thrift's binary form."""


def is_of_aurora(config: task_pb2.TaskConfig) -> bool:
    executor = config.executor
    return executor.type == mesos_pb2.ExecutorInfo.CUSTOM and executor.executor_id.value == PLACEHOLDER


def assign_task(task: bytes, pod_id: PodId, agent_id: str, hostname: str, ports: Mapping[str, int]) -> bytes:
    """Return Aurora's AssignedTask: taskId, slaveId, slaveHost, task, assignedPorts and instanceId."""
    return b"".join(
        (
            _field(_STRING, 1) + _string(str(pod_id)),
            _field(_STRING, 2) + _string(agent_id),
            _field(_STRING, 3) + _string(hostname),
            _field(_STRUCT, 4) + task,
            _field(_MAP, 5) + pack(">bbi", _STRING, _I32, len(ports)),
            *(_string(name) + pack(">i", number) for name, number in ports.items()),
            _field(_I32, 6) + pack(">i", pod_id.instance_id),
            _STOP,
        )
    )


def _field(kind: int, number: int) -> bytes:
    return pack(">bh", kind, number)


def _string(text: str) -> bytes:
    encoded = text.encode()
    return pack(">i", len(encoded)) + encoded


def split(resources: Sequence[Json], executor: Sequence[Json]) -> tuple[list[Json], list[Json]]:
    """Divide the resources of a pod between its task and its executor, which Mesos adds up.

    Returns those of each. The executor gets what it asks for where it leaves the task some.
    """
    amounts = {entry["name"]: round(entry["scalar"]["value"] * 1000) for entry in executor}
    of_task, of_executor = [], []
    for entry in resources:
        held = round(entry["scalar"]["value"] * 1000) if "scalar" in entry else 0
        part = amounts.get(entry["name"], 0)
        if not 0 < part < held:
            of_task.append(entry)
            continue
        del amounts[entry["name"]]
        of_executor.append({**entry, "scalar": {"value": part / 1000}})
        of_task.append({**entry, "scalar": {"value": (held - part) / 1000}})
    return of_task, of_executor
