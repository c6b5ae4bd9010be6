"""Status texts and values that agents report for tasks, as in Mesos."""

from __future__ import annotations

import os
import signal
from typing import NamedTuple

from services.lab.mesos.resources import Json


def container_status(container_id: str, address: str) -> Json:
    network = {"ip_addresses": [{"protocol": "IPv4", "ip_address": address}]}
    return {"container_id": {"value": container_id}, "network_infos": [network]}


class Ending(NamedTuple):
    """Arguments of `StatusUpdates.report` after the task."""

    state: str
    message: str
    source: str = "SOURCE_EXECUTOR"
    reason: str | None = None


KILLED_BEFORE_START = Ending(
    "TASK_KILLED", "Killed before delivery to the executor", "SOURCE_AGENT", "REASON_TASK_KILLED_DURING_LAUNCH"
)
EXECUTOR_TERMINATED = Ending("TASK_FAILED", "Executor terminated", "SOURCE_AGENT", "REASON_EXECUTOR_TERMINATED")


def by_agent(reason: str, message: str) -> Ending:
    """Return the ending of a task that the agent fails."""
    return Ending("TASK_FAILED", message, "SOURCE_AGENT", reason)


def by_itself(status: int) -> Ending:
    """Return the ending of a task whose command ended with this wait status."""
    return Ending("TASK_FINISHED" if status == 0 else "TASK_FAILED", exit_message(status))


def exit_message(status: int) -> str:
    if os.WIFEXITED(status):
        return f"Command exited with status {os.WEXITSTATUS(status)}"
    return f"Command terminated with signal {signal.strsignal(os.WTERMSIG(status))}"
