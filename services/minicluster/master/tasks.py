"""The tables of live tasks: how a task enters them, is killed, and leaves them."""

from __future__ import annotations

from services.emulation.clock import Clock
from services.minicluster.master.hooks import Hook
from services.minicluster.master.offers import Offers
from services.minicluster.master.status_updates import StatusUpdates
from services.minicluster.model import Framework, Task
from services.minicluster.resources import Json


class Tasks:
    def __init__(self, clock: Clock, offers: Offers, updates: StatusUpdates) -> None:
        self._clock = clock
        self._offers = offers
        self._updates = updates
        self.added: Hook[Task] = Hook()
        # Its resources are free again.
        self.released: Hook[Task] = Hook()
        # Its last update is acknowledged.
        self.completed: Hook[Task] = Hook()

    def add(self, task: Task) -> None:
        task.framework.tasks[task.id] = task
        agent = task.agent
        if agent.tasks is None:
            agent.tasks = {}
        agent.tasks[(task.framework.id, task.id)] = task
        self.added(task)

    def release(self, task: Task) -> None:
        """The latest state is terminal: the resources are free again, acknowledged or not."""
        self.free(task)
        self.released(task)

    def free(self, task: Task) -> None:
        """Ends the allocation of its resources."""
        if not task.released:
            task.released = True
            self._offers.recover(task.agent, task.framework.id, task.role, task.resources)

    def complete(self, task: Task) -> None:
        """The terminal update is acknowledged."""
        self._end(task)
        self.completed(task)

    def _end(self, task: Task) -> None:
        task.framework.completed.append(task)
        self._forget(task)

    def _forget(self, task: Task) -> None:
        """Remove the task from every table of live tasks."""
        task.dropped = True
        framework = task.framework
        if framework.tasks.get(task.id) is task:
            del framework.tasks[task.id]
        agent = task.agent
        if agent.tasks is not None:
            agent.tasks.pop((framework.id, task.id), None)
            if not agent.tasks:
                agent.tasks = None
        task.runner = None

    def kill(self, task: Task, grace_s: float | None = None) -> None:
        if task.runner is not None and not task.released:
            task.runner.kill(grace_s)

    def abandon(self, task: Task) -> None:
        """The task of a removed framework on an agent that was away: its process ends, and no update is sent."""
        runner = task.runner
        self._updates.forget(task)
        self._forget(task)
        if runner is not None:
            runner.kill(0.0)

    def lose(self, task: Task, reason: str, message: str, state: str) -> None:
        """The task is over for the master: it will not come back."""
        framework = task.framework
        if framework.tasks.get(task.id) is not task:
            return
        status = self._updates.from_master(framework, task.id, state, reason, message, task.agent.id)
        self._updates.forget(task)
        self.free(task)
        task.state = state
        task.statuses.append(status)
        runner = task.runner
        self._end(task)
        if runner is not None:
            runner.kill(0.0)
        self._updates.changed(task, status)

    def drop(self, framework: Framework) -> None:
        """The framework is removed: its processes are shut down and its tasks count as killed."""
        for task in list(framework.tasks.values()):
            runner = task.runner
            self._updates.forget(task)
            if not task.released:
                self.release(task)
                self._record_removal(framework, task)
            self._end(task)
            if runner is not None:
                runner.kill(None)
        for task in list(framework.unreachable.values()):
            self.abandon(task)
        framework.unreachable.clear()

    def _record_removal(self, framework: Framework, task: Task) -> None:
        """The update is sent to no framework; it shows in the lists and on the operator stream only."""
        status: Json = {
            "task_id": {"value": task.id},
            "state": "TASK_KILLED",
            "message": f"Framework {framework.id} removed",
            "source": "SOURCE_MASTER",
            "reason": "REASON_FRAMEWORK_REMOVED",
            "agent_id": {"value": task.agent.id},
            "timestamp": self._clock.wall(),
        }
        task.state = "TASK_KILLED"
        task.statuses.append(status)
        self._updates.changed(task, status)
