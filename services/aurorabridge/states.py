"""Tables between the states of Peloton, as v1alpha numbers them, and those of Aurora."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.pod import pod_pb2
from services.aurorabridge.mapping.opaque import Opaque
from services.aurorabridge.method import Refusal
from services.aurorabridge.thrift import api

_Status, _Update, _Action = api.ScheduleStatus, api.JobUpdateStatus, api.JobUpdateAction
_Names = Mapping[str, int]
SCHEDULER = "peloton"
"""Name of the scheduler in events of tasks."""


def _number_pods(named: _Names) -> Mapping[int, int]:
    return {pod_pb2.PodState.Value(f"POD_STATE_{name}"): number for name, number in named.items()}


def _number_workflows(named: _Names) -> Mapping[int, int]:
    return {stateless_pb2.WorkflowState.Value(f"WORKFLOW_STATE_{name}"): number for name, number in named.items()}


# -- pods

_STATUSES = _number_pods(
    {
        "INVALID": _Status.INIT,
        "INITIALIZED": _Status.INIT,
        "PENDING": _Status.PENDING,
        "READY": _Status.PENDING,
        "PLACING": _Status.PENDING,
        "PLACED": _Status.ASSIGNED,
        "LAUNCHING": _Status.ASSIGNED,
        "LAUNCHED": _Status.ASSIGNED,
        "STARTING": _Status.STARTING,
        "RUNNING": _Status.RUNNING,
        "SUCCEEDED": _Status.FINISHED,
        "FAILED": _Status.FAILED,
        "LOST": _Status.LOST,
        "KILLING": _Status.KILLING,
        "KILLED": _Status.KILLED,
        "DELETED": _Status.KILLED,
        "PREEMPTING": _Status.PREEMPTING,
    }
)
_POD_STATES: Mapping[int, str] = {
    _Status.INIT: "INITIALIZED",
    _Status.PENDING: "PENDING",
    _Status.ASSIGNED: "LAUNCHED",
    _Status.STARTING: "STARTING",
    _Status.RESTARTING: "STARTING",
    _Status.RUNNING: "RUNNING",
    _Status.FINISHED: "SUCCEEDED",
    _Status.FAILED: "FAILED",
    _Status.THROTTLED: "FAILED",
    _Status.LOST: "LOST",
    _Status.PARTITIONED: "LOST",  # Aurora's command line asks for it in each query of active tasks
    _Status.KILLING: "KILLING",
    _Status.DRAINING: "KILLING",
    _Status.KILLED: "KILLED",
    _Status.PREEMPTING: "PREEMPTING",
}
_GROUPS: Mapping[str, str] = {
    **dict.fromkeys(("INITIALIZED", "PENDING", "READY", "PLACING"), "pendingTaskCount"),
    **dict.fromkeys(
        ("PLACED", "LAUNCHING", "LAUNCHED", "STARTING", "RUNNING", "KILLING", "PREEMPTING"), "activeTaskCount"
    ),
    **dict.fromkeys(("SUCCEEDED", "KILLED", "DELETED"), "finishedTaskCount"),
    **dict.fromkeys(("FAILED", "LOST"), "failedTaskCount"),
}


def schedule_status(pod_state: int) -> int:
    """Return the status of a pod's state. Raises Refusal for RESERVED and unknown numbers."""
    status = _STATUSES.get(pod_state)
    if status is None:
        raise Refusal(f"new schedule status: unknown pod state {pod_state}")
    return status


def pod_state(schedule_status: int) -> int:
    """Return the state of pods with a status. Raises Refusal."""
    name = _POD_STATES.get(schedule_status)
    if name is None:
        raise Refusal("new pod state: unknown schedule status")
    return pod_pb2.PodState.Value(f"POD_STATE_{name}")


def job_stats(counts: Iterable[tuple[int, int]]) -> Any:
    """Return the JobStats of pod states and their counts; states without a group count nowhere."""
    stats = dict.fromkeys(_GROUPS.values(), 0)
    for state, count in counts:
        group = _GROUPS.get(pod_pb2.PodState.Name(state).removeprefix("POD_STATE_"))  # type: ignore[arg-type]
        if group is not None:
            stats[group] += count
    return api.JobStats(**stats)


# -- updates

_ENDED: _Names = {
    "ROLLING_BACKWARD": _Update.ROLLING_BACK,
    "ROLLED_BACK": _Update.ROLLED_BACK,
    "ABORTED": _Update.ABORTED,
    "FAILED": _Update.FAILED,
}
_FORWARD = _number_workflows(
    {
        "INITIALIZED": _Update.ROLLING_FORWARD,
        "ROLLING_FORWARD": _Update.ROLLING_FORWARD,
        "PAUSED": _Update.ROLL_FORWARD_PAUSED,
        "SUCCEEDED": _Update.ROLLED_FORWARD,
        **_ENDED,
    }
)
_BACK = _number_workflows(
    {
        "INITIALIZED": _Update.ROLLING_BACK,
        "ROLLING_FORWARD": _Update.ROLLING_BACK,
        "PAUSED": _Update.ROLL_BACK_PAUSED,
        "SUCCEEDED": _Update.ROLLED_BACK,
        **_ENDED,
    }
)
_AWAITING: Mapping[int, int] = {
    _Update.ROLL_FORWARD_PAUSED: _Update.ROLL_FORWARD_AWAITING_PULSE,
    _Update.ROLL_BACK_PAUSED: _Update.ROLL_BACK_AWAITING_PULSE,
}
_ACTIONS = _number_workflows(
    {
        "INITIALIZED": _Action.INSTANCE_UPDATING,
        "ROLLING_FORWARD": _Action.INSTANCE_UPDATING,
        "PAUSED": _Action.INSTANCE_UPDATING,
        "SUCCEEDED": _Action.INSTANCE_UPDATED,
        "FAILED": _Action.INSTANCE_UPDATE_FAILED,
        "ABORTED": _Action.INSTANCE_UPDATE_FAILED,
        "ROLLING_BACKWARD": _Action.INSTANCE_ROLLING_BACK,
        "ROLLED_BACK": _Action.INSTANCE_ROLLED_BACK,
    }
)
_BACK_ACTIONS: Mapping[int, int] = {
    _Action.INSTANCE_UPDATING: _Action.INSTANCE_ROLLING_BACK,
    _Action.INSTANCE_UPDATED: _Action.INSTANCE_ROLLED_BACK,
    _Action.INSTANCE_UPDATE_FAILED: _Action.INSTANCE_ROLLBACK_FAILED,
}


def update_status(workflow_state: int, opaque: Opaque) -> int:
    """Return the status of an update with this opaque data. Raises Refusal for unknown numbers."""
    status = (_BACK if opaque.is_rollback else _FORWARD).get(workflow_state)
    if status is None:
        raise Refusal(f"new job update status: unknown workflow state {workflow_state}")
    return _AWAITING.get(status, status) if opaque.awaits_pulse else status


def update_action(workflow_state: int, opaque: Opaque) -> int:
    """Return the action of an instance's event. Raises Refusal for unknown numbers."""
    action = _ACTIONS.get(workflow_state)
    if action is None:
        raise Refusal(f"new job update action: unknown workflow state {workflow_state}")
    return _BACK_ACTIONS.get(action, action) if opaque.is_rollback else action
