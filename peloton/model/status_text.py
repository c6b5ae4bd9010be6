"""Last message and reason of a pod as one line for users.

The wire keeps the texts of the original API and of Mesos, which clients compare. Tables and pages show this line
instead.
"""

from __future__ import annotations

_RAW_MESSAGES = {
    "Add hostname and ports": "launched on its host",
    "REASON_TASK_HEALTH_CHECK_STATUS_UPDATED": "",
    "Killing the task": "being stopped",
    "Initialize task": "about to run again",
    "Regenerate placement": "about to run again",
    "Rescheduled after task terminated": "about to run again after it failed",
    "Task throttled due to failure": "waits before it runs again",
    "Task sent for placement": "",
}
_REASONS = {
    "REASON_TASK_HEALTH_CHECK_STATUS_UPDATED": "",
    "REASON_TASK_CHECK_STATUS_UPDATED": "",
    "REASON_RECONCILIATION": "",
    "REASON_UPDATE_OFFER": "",
    "REASON_COMMAND_EXECUTOR_FAILED": "",
    "REASON_CONTAINER_LIMITATION_MEMORY": "out of memory",
    "REASON_CONTAINER_LIMITATION_DISK": "out of disk space",
    "REASON_CONTAINER_LAUNCH_FAILED": "the container could not be launched",
    "REASON_EXECUTOR_TERMINATED": "its executor ended",
    "REASON_AGENT_REMOVED": "the host left the cluster",
    "REASON_MAX_COMPLETION_TIME_REACHED": "ran for longer than it may",
}
"""Words for reasons of the wire; empty if the reason adds nothing to the state that is shown with it."""
OUTPUT_MARK = "; stderr: "
"""Separator before the last lines of stderr of a failed program."""
_PREFIXES = ("REASON_", "EvictionReason_")


def status_text(message: str, reason: str) -> str:
    """Return the line: the message in words, the reason if it adds to it, and the last lines of stderr."""
    own, mark, output = message.partition(OUTPUT_MARK)
    said = _RAW_MESSAGES.get(own, own)
    because = _REASONS.get(reason, "")
    if not said:
        said = because if output else reason_words(reason)
    elif because and because not in said:
        said = f"{said} ({because})"
    if not output:
        return said
    return f"{said}{mark}{output}" if said else f"stderr: {output}"


def reason_words(reason: str) -> str:
    """Return a reason of the wire in words; text of a user or of the resource manager is unchanged."""
    if reason in _REASONS:
        return _REASONS[reason]
    if not _is_name(reason):
        return reason
    for prefix in _PREFIXES:
        reason = reason.removeprefix(prefix)
    return reason.lower().replace("_", " ")


def _is_name(reason: str) -> bool:
    return reason.startswith(_PREFIXES)
