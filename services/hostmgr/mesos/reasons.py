"""The reasons that Mesos 1.11 gives for the end of a task, mapped to causes."""

from __future__ import annotations

from peloton.model.pod import Cause
from services.hostmgr.mesos.resources import Json

AGENT_DRAINING = "REASON_AGENT_DRAINING"
AGENT_REMOVED = "REASON_AGENT_REMOVED"
COMMAND_EXECUTOR_FAILED = "REASON_COMMAND_EXECUTOR_FAILED"
BROKEN_PIPE_MESSAGE = "Container terminated with signal Broken pipe"
CPU_LIMIT_REFUSED = "CPU limits can only be set on tasks"
MEMORY_LIMIT_REFUSED = "Memory limits can only be set on tasks"
"""Prefixes of the messages with REASON_GC_ERROR of an agent that lacks the isolator; the rest names it."""
GONE_MESSAGES = ("Operator initiated 'Machine DOWN'", "the agent unregistered")
"""Messages of the master about an agent that was removed, as opposed to one that stopped responding."""

CAUSES: dict[str, Cause] = {
    # The pod's program, and limits of its resources.
    COMMAND_EXECUTOR_FAILED: Cause.PROGRAM,  # except with one message
    "REASON_CONTAINER_LIMITATION": Cause.LIMIT,
    "REASON_CONTAINER_LIMITATION_DISK": Cause.DISK,
    "REASON_CONTAINER_LIMITATION_MEMORY": Cause.MEMORY,
    "REASON_MAX_COMPLETION_TIME_REACHED": Cause.TIME,
    # The executor: killed by a person, or together with its program for lack of memory.
    "REASON_EXECUTOR_TERMINATED": Cause.EXECUTOR,
    "REASON_EXECUTOR_UNREGISTERED": Cause.EXECUTOR,
    "REASON_IO_SWITCHBOARD_EXITED": Cause.EXECUTOR,
    # The host, and the agent on it.
    "REASON_CONTAINER_LAUNCH_FAILED": Cause.CONTAINER,
    "REASON_CONTAINER_UPDATE_FAILED": Cause.AGENT,
    "REASON_EXECUTOR_REGISTRATION_TIMEOUT": Cause.AGENT,
    "REASON_EXECUTOR_REREGISTRATION_TIMEOUT": Cause.AGENT,
    "REASON_GC_ERROR": Cause.AGENT,
    "REASON_AGENT_DISCONNECTED": Cause.HOST_LOST,
    AGENT_REMOVED: Cause.HOST_LOST,
    "REASON_AGENT_RESTARTED": Cause.HOST_LOST,
    "REASON_AGENT_UNKNOWN": Cause.HOST_LOST,
    # Acts of operators and of the cluster.
    AGENT_DRAINING: Cause.HOST_DRAINED,
    "REASON_AGENT_REMOVED_BY_OPERATOR": Cause.HOST_GONE,
    "REASON_CONTAINER_PREEMPTED": Cause.PREEMPTED,
    "REASON_FRAMEWORK_REMOVED": Cause.FRAMEWORK,
    "REASON_TASK_KILLED_DURING_LAUNCH": Cause.NOT_STARTED,
    # A launch that did not reach its host.
    "REASON_INVALID_OFFERS": Cause.RESOURCES_GONE,
    "REASON_MASTER_DISCONNECTED": Cause.RESOURCES_GONE,
    "REASON_RESOURCES_UNKNOWN": Cause.RESOURCES_GONE,
    # Invalid requests.
    "REASON_INVALID_FRAMEWORKID": Cause.INVALID,
    "REASON_TASK_GROUP_INVALID": Cause.INVALID,
    "REASON_TASK_GROUP_UNAUTHORIZED": Cause.INVALID,
    "REASON_TASK_INVALID": Cause.INVALID,
    "REASON_TASK_UNAUTHORIZED": Cause.INVALID,
    # Not an end: notifications and answers.
    "REASON_AGENT_REREGISTERED": Cause.NO_ENDING,
    "REASON_RECONCILIATION": Cause.NO_ENDING,
    "REASON_TASK_CHECK_STATUS_UPDATED": Cause.NO_ENDING,
    "REASON_TASK_HEALTH_CHECK_STATUS_UPDATED": Cause.NO_ENDING,
    "REASON_TASK_UNKNOWN": Cause.NO_ENDING,
}


def is_limit_refusal(status: Json) -> bool:
    """Return whether an agent rejected the limits of a task, and did not start it."""
    message = status.get("message", "")
    is_named = CPU_LIMIT_REFUSED in message or MEMORY_LIMIT_REFUSED in message
    return status.get("reason") == "REASON_GC_ERROR" and is_named


def cause_of(status: Json) -> Cause:
    """Return the cause in a TaskStatus. An unknown reason, as of a later Mesos, counts as no reason."""
    reason, message = status.get("reason", ""), status.get("message", "")
    if not reason:
        return Cause.PROGRAM
    if reason == AGENT_REMOVED and any(text in message for text in GONE_MESSAGES):
        return Cause.HOST_GONE
    if is_limit_refusal(status):
        return Cause.NOT_STARTED
    if reason == COMMAND_EXECUTOR_FAILED and BROKEN_PIPE_MESSAGE in message:
        return Cause.PIPE
    return CAUSES.get(reason, Cause.PROGRAM)
