"""Every state of pods and updates has the status that Aurora's clients expect, both ways."""

from __future__ import annotations

from typing import Any, cast

import pytest

from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.pod import pod_pb2
from peloton.model.aurora_update import PULSE, START_PULSED
from services.aurorabridge import states
from services.aurorabridge.mapping.opaque import ROLLBACK, Opaque
from services.aurorabridge.method import Refusal
from services.aurorabridge.thrift import api

STATUSES = {
    "INVALID": "INIT",
    "INITIALIZED": "INIT",
    "PENDING": "PENDING",
    "READY": "PENDING",
    "PLACING": "PENDING",
    "PLACED": "ASSIGNED",
    "LAUNCHING": "ASSIGNED",
    "LAUNCHED": "ASSIGNED",
    "STARTING": "STARTING",
    "RUNNING": "RUNNING",
    "SUCCEEDED": "FINISHED",
    "FAILED": "FAILED",
    "LOST": "LOST",
    "KILLING": "KILLING",
    "KILLED": "KILLED",
    "DELETED": "KILLED",
    "PREEMPTING": "PREEMPTING",
    "RESERVED": None,
}
POD_STATES = {
    "PENDING": "PENDING",
    "STARTING": "STARTING",
    "RUNNING": "RUNNING",
    "FINISHED": "SUCCEEDED",
    "FAILED": "FAILED",
    "KILLED": "KILLED",
    "KILLING": "KILLING",
    "LOST": "LOST",
    "ASSIGNED": "LAUNCHED",
    "INIT": "INITIALIZED",
    "RESTARTING": "STARTING",
    "PREEMPTING": "PREEMPTING",
    "THROTTLED": "FAILED",
    "DRAINING": "KILLING",
    "PARTITIONED": "LOST",
}
FORWARD, PULSED, AWAITING = Opaque(), Opaque(actions=(START_PULSED, PULSE)), Opaque(actions=(START_PULSED,))
BACK, BACK_AWAITING = Opaque(actions=(ROLLBACK,)), Opaque(actions=(START_PULSED, ROLLBACK))
UPDATES = {
    "INITIALIZED": ("ROLLING_FORWARD", "ROLLING_BACK"),
    "ROLLING_FORWARD": ("ROLLING_FORWARD", "ROLLING_BACK"),
    "PAUSED": ("ROLL_FORWARD_PAUSED", "ROLL_BACK_PAUSED"),
    "SUCCEEDED": ("ROLLED_FORWARD", "ROLLED_BACK"),
    "ABORTED": ("ABORTED", "ABORTED"),
    "FAILED": ("FAILED", "FAILED"),
    "ROLLING_BACKWARD": ("ROLLING_BACK", "ROLLING_BACK"),
    "ROLLED_BACK": ("ROLLED_BACK", "ROLLED_BACK"),
    "INVALID": None,
}
ACTIONS = {
    "INITIALIZED": ("INSTANCE_UPDATING", "INSTANCE_ROLLING_BACK"),
    "ROLLING_FORWARD": ("INSTANCE_UPDATING", "INSTANCE_ROLLING_BACK"),
    "PAUSED": ("INSTANCE_UPDATING", "INSTANCE_ROLLING_BACK"),
    "SUCCEEDED": ("INSTANCE_UPDATED", "INSTANCE_ROLLED_BACK"),
    "FAILED": ("INSTANCE_UPDATE_FAILED", "INSTANCE_ROLLBACK_FAILED"),
    "ABORTED": ("INSTANCE_UPDATE_FAILED", "INSTANCE_ROLLBACK_FAILED"),
    "ROLLING_BACKWARD": ("INSTANCE_ROLLING_BACK", "INSTANCE_ROLLING_BACK"),
    "ROLLED_BACK": ("INSTANCE_ROLLED_BACK", "INSTANCE_ROLLED_BACK"),
    "INVALID": None,
}
GROUPS = {
    "activeTaskCount": "PLACED LAUNCHING LAUNCHED STARTING RUNNING KILLING PREEMPTING",
    "pendingTaskCount": "INITIALIZED PENDING READY PLACING",
    "finishedTaskCount": "SUCCEEDED KILLED DELETED",
    "failedTaskCount": "FAILED LOST",
}


def test_the_tables_name_every_state() -> None:
    """No state or status is missing from the tables of this test."""
    assert {f"POD_STATE_{name}" for name in STATUSES} == set(pod_pb2.PodState.keys())
    assert set(POD_STATES) == set(api.ScheduleStatus._NAMES_TO_VALUES)
    workflows = {f"WORKFLOW_STATE_{name}" for name in UPDATES}
    assert workflows == set(stateless_pb2.WorkflowState.keys()) == {f"WORKFLOW_STATE_{name}" for name in ACTIONS}


@pytest.mark.parametrize(("state", "status"), STATUSES.items())
def test_status_of_a_pod(state: str, status: str | None) -> None:
    """Every state has its status; a RESERVED pod, which no job has, is refused."""
    number = pod_pb2.PodState.Value(f"POD_STATE_{state}")
    if status is None:
        with pytest.raises(Refusal, match="unknown pod state 17"):
            states.schedule_status(number)
    else:
        assert getattr(api.ScheduleStatus, status) == states.schedule_status(number)


@pytest.mark.parametrize(("status", "state"), POD_STATES.items())
def test_state_of_pods_with_a_status(status: str, state: str) -> None:
    """Every status that a query names stands for a state of pods."""
    found = states.pod_state(getattr(api.ScheduleStatus, status))
    assert f"POD_STATE_{state}" == pod_pb2.PodState.Name(cast("Any", found))


def test_unknown_numbers_are_refused() -> None:
    """Numbers of later versions are refused with the original's words."""
    with pytest.raises(Refusal, match="new pod state: unknown schedule status"):
        states.pod_state(8)
    with pytest.raises(Refusal):
        states.schedule_status(18)


def _status(workflow: str, opaque: Opaque) -> str:
    number = states.update_status(stateless_pb2.WorkflowState.Value(f"WORKFLOW_STATE_{workflow}"), opaque)
    return str(api.JobUpdateStatus._VALUES_TO_NAMES[number])


@pytest.mark.parametrize(("workflow", "expected"), UPDATES.items())
def test_status_of_an_update(workflow: str, expected: tuple[str, str] | None) -> None:
    """An update waits for a pulse if it has started paused and has had none."""
    if expected is None:
        for opaque in (FORWARD, BACK):
            with pytest.raises(Refusal, match="unknown workflow state 0"):
                _status(workflow, opaque)
        return
    forward, back = expected
    assert (forward, forward, back) == (_status(workflow, FORWARD), _status(workflow, PULSED), _status(workflow, BACK))
    awaiting = {name: name.replace("_PAUSED", "_AWAITING_PULSE") for name in expected}
    assert (awaiting[forward], awaiting[back]) == (_status(workflow, AWAITING), _status(workflow, BACK_AWAITING))


@pytest.mark.parametrize(("workflow", "expected"), ACTIONS.items())
def test_action_of_an_instance(workflow: str, expected: tuple[str, str] | None) -> None:
    """A rollback has actions of its own, and a pulse that is awaited changes none."""
    number = stateless_pb2.WorkflowState.Value(f"WORKFLOW_STATE_{workflow}")
    if expected is None:
        with pytest.raises(Refusal, match="unknown workflow state 0"):
            states.update_action(number, FORWARD)
        return
    found = [states.update_action(number, opaque) for opaque in (AWAITING, BACK)]
    assert list(expected) == [api.JobUpdateAction._VALUES_TO_NAMES[action] for action in found]


def test_groups_of_a_job() -> None:
    """Each state counts in one group, INVALID and RESERVED in none."""
    for state in STATUSES:
        stats = states.job_stats([(pod_pb2.PodState.Value(f"POD_STATE_{state}"), 3)])
        expected = {group: 3 if state in names.split() else 0 for group, names in GROUPS.items()}
        assert expected == {group: getattr(stats, group) for group in GROUPS}
    both = states.job_stats([(pod_pb2.POD_STATE_RUNNING, 2), (pod_pb2.POD_STATE_KILLING, 1)])
    assert 3 == both.activeTaskCount
