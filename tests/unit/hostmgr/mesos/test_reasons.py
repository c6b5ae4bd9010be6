"""Causes for the reasons of Mesos."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from peloton.lifecycle.endings import RULES, RetryRule
from peloton.model.pod import Cause
from services.hostmgr.mesos.reasons import CAUSES, cause_of

RECORDINGS = Path(__file__).parents[3] / "conformance" / "minicluster" / "recordings"

NUMBERS = {
    "REASON_COMMAND_EXECUTOR_FAILED": 0,
    "REASON_EXECUTOR_TERMINATED": 1,
    "REASON_EXECUTOR_UNREGISTERED": 2,
    "REASON_FRAMEWORK_REMOVED": 3,
    "REASON_GC_ERROR": 4,
    "REASON_INVALID_FRAMEWORKID": 5,
    "REASON_INVALID_OFFERS": 6,
    "REASON_MASTER_DISCONNECTED": 7,
    "REASON_CONTAINER_LIMITATION_MEMORY": 8,
    "REASON_RECONCILIATION": 9,
    "REASON_AGENT_DISCONNECTED": 10,
    "REASON_AGENT_REMOVED": 11,
    "REASON_AGENT_RESTARTED": 12,
    "REASON_AGENT_UNKNOWN": 13,
    "REASON_TASK_INVALID": 14,
    "REASON_TASK_UNAUTHORIZED": 15,
    "REASON_TASK_UNKNOWN": 16,
    "REASON_CONTAINER_PREEMPTED": 17,
    "REASON_RESOURCES_UNKNOWN": 18,
    "REASON_CONTAINER_LIMITATION": 19,
    "REASON_CONTAINER_LIMITATION_DISK": 20,
    "REASON_CONTAINER_LAUNCH_FAILED": 21,
    "REASON_CONTAINER_UPDATE_FAILED": 22,
    "REASON_EXECUTOR_REGISTRATION_TIMEOUT": 23,
    "REASON_EXECUTOR_REREGISTRATION_TIMEOUT": 24,
    "REASON_TASK_GROUP_INVALID": 25,
    "REASON_TASK_GROUP_UNAUTHORIZED": 26,
    "REASON_IO_SWITCHBOARD_EXITED": 27,
    "REASON_TASK_CHECK_STATUS_UPDATED": 28,
    "REASON_TASK_HEALTH_CHECK_STATUS_UPDATED": 29,
    "REASON_TASK_KILLED_DURING_LAUNCH": 30,
    "REASON_AGENT_REMOVED_BY_OPERATOR": 31,
    "REASON_AGENT_REREGISTERED": 32,
    "REASON_MAX_COMPLETION_TIME_REACHED": 33,
    "REASON_AGENT_DRAINING": 34,
}
"""TaskStatus.Reason of Mesos 1.11."""


def test_every_reason_of_mesos_stands_for_a_cause() -> None:
    """The numbers have no gap, and no reason is left out or made up."""
    assert list(range(35)) == sorted(NUMBERS.values())
    assert NUMBERS.keys() == CAUSES.keys()


def test_every_reason_that_was_recorded_of_a_real_mesos_is_known() -> None:
    """Each reason in the recordings of a real Mesos has a cause, whatever the definitions of Mesos say."""
    texts = [gzip.decompress(path.read_bytes()).decode() for path in sorted(RECORDINGS.glob("*.jsonl.gz"))]
    recorded = {reason for text in texts for reason in re.findall(r'"reason": ?"(REASON_[A-Z_]+)"', text)}

    assert "REASON_AGENT_DRAINING" in recorded
    assert set() == recorded - CAUSES.keys()


@pytest.mark.parametrize(
    ("reason", "message", "cause"),
    [
        ("REASON_AGENT_DRAINING", "Command terminated with signal Terminated", Cause.HOST_DRAINED),
        ("REASON_COMMAND_EXECUTOR_FAILED", "Container terminated with signal Broken pipe", Cause.PIPE),
        ("REASON_COMMAND_EXECUTOR_FAILED", "exited", Cause.PROGRAM),
        ("REASON_AGENT_REMOVED", "health check timed out", Cause.HOST_LOST),
        ("REASON_AGENT_REMOVED", "Agent a removed: Operator initiated 'Machine DOWN'", Cause.HOST_GONE),
        ("REASON_AGENT_REMOVED", "Agent a removed: the agent unregistered", Cause.HOST_GONE),
        ("REASON_GC_ERROR", "Could not garbage collect", Cause.AGENT),
        ("REASON_GC_ERROR", "CPU limits can only be set on tasks launched in Mesos containers when", Cause.NOT_STARTED),
        ("REASON_OF_A_LATER_MESOS", "", Cause.PROGRAM),
        ("", "Command exited with status 1", Cause.PROGRAM),
    ],
)
def test_the_message_decides_where_the_reason_leaves_it_open(reason: str, message: str, cause: Cause) -> None:
    """A removed agent and an unreachable one have the same reason and differ in the message."""
    assert cause is cause_of({"reason": reason, "message": message})


BROKEN_PIPE = "Container terminated with signal Broken pipe"
PAID_FOR = {
    ("REASON_CONTAINER_LAUNCH_FAILED", ""),
    ("REASON_INVALID_OFFERS", ""),
    ("REASON_COMMAND_EXECUTOR_FAILED", BROKEN_PIPE),
}
"""Reasons and messages of FAILED for which the original tries a task without retries four times."""
NEVER_BEGUN = {"REASON_MASTER_DISCONNECTED", "REASON_RESOURCES_UNKNOWN"}
"""Reasons of launches that are LOST on their way, which are repeated without counting."""


def test_the_platform_pays_for_what_the_original_pays_for() -> None:
    """A pod without retries that fails for another reason stays FAILED; a killed executor counts for the job."""
    given = [(reason, message) for reason in NUMBERS.keys() - NEVER_BEGUN for message in ("", BROKEN_PIPE)]
    expected = {(reason, message) for reason, message in given if PAID_FOR & {(reason, message), (reason, "")}}
    causes = {one: cause_of({"reason": one[0], "message": one[1]}) for one in given}

    assert expected == {one for one, cause in causes.items() if RULES[cause].retry is RetryRule.BY_PLATFORM}
