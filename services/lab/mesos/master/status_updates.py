"""Reliable delivery of status updates: only the oldest unacknowledged one of each task is sent, repeatedly."""

from __future__ import annotations

import os
from binascii import b2a_base64
from collections.abc import Iterable

from services.lab.mesos.master import scheduler_events
from services.lab.mesos.master.hooks import Hook
from services.lab.mesos.model import TERMINAL, Framework, Task, Update
from services.lab.mesos.resources import Json
from services.lab.shared.clock import Clock

RETRY_MAX_S = 600.0
_KILLS = ("TASK_KILLING", "TASK_KILLED")


def fresh_uuid() -> str:
    """Return 16 random bytes as base64, the form of `uuid` in events."""
    return b2a_base64(os.urandom(16), newline=False).decode("ascii")


class StatusUpdates:
    """Status update managers of the agents, and the master's record of their updates."""

    def __init__(self, retry_s: float, clock: Clock) -> None:
        self._clock = clock
        self._retry_s = retry_s
        # Fired when the latest state is terminal, and the resources are not released yet.
        self.ended: Hook[Task] = Hook()
        # Fired when the terminal update is acknowledged.
        self.acknowledged: Hook[Task] = Hook()

    # from an executor or agent

    def report(
        self,
        task: Task,
        state: str,
        message: str | None = None,
        source: str = "SOURCE_EXECUTOR",
        reason: str | None = None,
        *,
        healthy: bool | None = None,
    ) -> None:
        """Report a new state of the task, which the framework must acknowledge."""
        pending = task.pending
        if task.dropped or (pending and pending[-1].state in TERMINAL):
            return
        drain = task.agent.drain
        if drain is not None and drain["state"] == "DRAINING" and state in _KILLS and source == "SOURCE_EXECUTOR":
            reason = "REASON_AGENT_DRAINING"
            if drain["config"].get("mark_gone"):
                # Only update of a task whose agent is marked gone after the drain.
                if state == "TASK_KILLING":
                    return
                state, message = "TASK_GONE_BY_OPERATOR", None
        status: Json = {"task_id": {"value": task.id}, "state": state}
        if message is not None:
            status["message"] = message
        status["source"] = source
        if reason is not None:
            status["reason"] = reason
        status["agent_id"] = {"value": task.agent.id}
        status["executor_id"] = {"value": task.id}
        status["timestamp"] = self._clock.wall()
        uuid = fresh_uuid()
        status["uuid"] = uuid
        if source == "SOURCE_EXECUTOR":
            if healthy is not None:
                status["healthy"] = healthy
            if task.container is not None:
                status["container_status"] = task.container
        task.reported = state
        pending.append(Update(state, uuid, status, scheduler_events.update(status)))
        if task.agent.online:
            self._sync(task)
            if len(pending) == 1:
                self._deliver(task, self._retry_s)

    def _sync(self, task: Task) -> None:
        """Update the master's state to the latest one; a terminal state frees the resources at once."""
        update = task.pending[-1]
        task.state = update.state
        if update.state in TERMINAL and not task.released:
            self.ended(task)

    def _deliver(self, task: Task, wait_s: float) -> None:
        update = task.pending[0]
        _record(task, update)
        task.framework.send(update.chunk)
        if task.retry is not None:
            task.retry.cancel()
        task.retry = self._clock.call_later(wait_s, self._retry_delivery, task, update, wait_s)

    def _retry_delivery(self, task: Task, update: Update, waited_s: float) -> None:
        if task.pending and task.pending[0] is update and task.agent.online:
            task.retry = None
            self._deliver(task, min(waited_s * 2, RETRY_MAX_S))

    # from the framework

    def acknowledge(self, task: Task, uuid: str) -> bool:
        """Acknowledge the update in flight; returns False, and changes nothing, for any other `uuid`."""
        pending = task.pending
        if not pending or pending[0].uuid != uuid:
            return False
        update = pending.popleft()
        self._stop_retry(task)
        if pending:
            self._deliver(task, self._retry_s)
        elif update.state in TERMINAL:
            self.acknowledged(task)
        return True

    # connections

    def resend(self, task: Task) -> None:
        """Send the oldest update now and restart the backoff, when the framework or agent has returned."""
        if task.pending and task.agent.online:
            self._sync(task)
            self._deliver(task, self._retry_s)

    def resend_all(self, framework: Framework) -> None:
        for task in list(framework.tasks.values()):
            self.resend(task)

    def forget(self, task: Task) -> None:
        """Drop the updates of a task that its agent has forgotten, too."""
        task.pending.clear()
        self._stop_retry(task)

    def _stop_retry(self, task: Task) -> None:
        if task.retry is not None:
            task.retry.cancel()
            task.retry = None

    # from the master itself: sent once, never acknowledged

    def from_master(
        self,
        framework: Framework,
        task_id: str,
        state: str,
        reason: str,
        message: str,
        agent_id: str | None = None,
        extra: Json | None = None,
    ) -> Json:
        status: Json = {
            "task_id": {"value": task_id},
            "state": state,
            "message": message,
            "source": "SOURCE_MASTER",
            "reason": reason,
        }
        if agent_id is not None:
            status["agent_id"] = {"value": agent_id}
        status["timestamp"] = self._clock.wall()
        if extra:
            status.update(extra)
        framework.send(scheduler_events.update(status))
        return status

    def refuse(self, framework: Framework, infos: Iterable[Json], state: str, reason: str, message: str) -> None:
        """Reject the launch of tasks."""
        for info in infos:
            task_id, agent_id = info["task_id"]["value"], info["agent_id"]["value"]
            self.from_master(framework, task_id, state, reason, message, agent_id)


def _record(task: Task, update: Update) -> None:
    """Record the delivered status, which replaces the last one of the same state."""
    task.status_state = update.state
    task.status_uuid = update.uuid
    statuses = task.statuses
    if statuses and statuses[-1]["state"] == update.state:
        statuses[-1] = update.status
    else:
        statuses.append(update.status)
