"""Events of pods: the JSON that Aurora posts about each change of a task's state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from thriftpy2.thrift import TType

from peloton.api.v1alpha.pod import pod_pb2
from peloton.model.times import NS_PER_S
from services.aurorabridge.states import SCHEDULER, schedule_status
from services.aurorabridge.thrift import api

_SILENT = frozenset(
    (pod_pb2.POD_STATE_INVALID, pod_pb2.POD_STATE_INITIALIZED, pod_pb2.POD_STATE_DELETED, pod_pb2.POD_STATE_RESERVED)
)
_LISTS = (TType.LIST, TType.SET)


def is_event(pod: pod_pb2.PodSummary) -> bool:
    """Return whether the pod's state is published: pods that do not exist yet, or any more, have no event."""
    return pod.status.state not in _SILENT


def encode_event(pod: pod_pb2.PodSummary, task: Any) -> bytes:
    """Return the event of a pod's state as JSON; ``task`` is its TaskConfig. Raises Refusal.

    Its old state repeats the new one, because a watch has only the new one.
    """
    scheduled = make_scheduled_task(pod, task)
    value = {"task": plain(scheduled), "oldState": api.ScheduleStatus._VALUES_TO_NAMES[scheduled.status]}
    return orjson.dumps(value)


def make_scheduled_task(pod: pod_pb2.PodSummary, task: Any) -> Any:
    status = pod.status
    state = schedule_status(status.state)
    second_ms = status.revision.updated_at // NS_PER_S * 1_000
    event = api.TaskEvent(
        timestamp=second_ms, status=state, message=status.message or status.reason or None, scheduler=SCHEDULER
    )
    assigned = api.AssignedTask(
        taskId=status.pod_id.value,
        slaveId=status.agent_id.value or None,
        slaveHost=status.host or None,
        task=task,
        assignedPorts={name: port for each in status.containers_status for name, port in each.ports.items()},
        instanceId=int(pod.pod_name.value.rpartition("-")[2]),
    )
    return api.ScheduledTask(
        assignedTask=assigned, status=state, taskEvents=[event], ancestorId=status.prev_pod_id.value or None
    )


def plain(struct: Any) -> dict[str, Any]:
    """Return a struct as a dictionary: enums by name, absent fields left out, and a container as its consumers know
    it, with the name of the member that is set.
    """
    fields = {}
    for kind, name, *rest in type(struct).thrift_spec.values():
        value = getattr(struct, name)
        if value is not None:
            fields[name] = _plain_value(kind, rest[0] if len(rest) > 1 else None, value)
    if isinstance(struct, api.Container) and fields:
        ((member, value),) = fields.items()
        return {"setField": member.upper(), "value": value}
    return fields


def _plain_value(kind: int, inner: Any, value: Any) -> Any:
    if kind == TType.STRUCT:
        return plain(value)
    if kind in _LISTS:
        member_kind, member_inner = inner if isinstance(inner, tuple) else (inner, None)
        return [_plain_value(member_kind, member_inner, each) for each in value]
    if kind == TType.I32 and inner is not None:
        names: Mapping[int, str] = inner._VALUES_TO_NAMES
        return names.get(value, value)
    return value
