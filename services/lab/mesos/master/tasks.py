"""Tables of live tasks: how tasks are added, killed and removed."""

from __future__ import annotations

from services.lab.mesos.master.hooks import Hook
from services.lab.mesos.master.offers import Offers
from services.lab.mesos.master.status_updates import StatusUpdates
from services.lab.mesos.model import Framework, Task
from services.lab.mesos.resources import Json
from services.lab.shared.clock import Clock


class Tasks:
    def __init__(self, clock: Clock, offers: Offers, updates: StatusUpdates) -> None:
        self._clock = clock
        self._offers = offers
        self._updates = updates
        # Fired when its last update is acknowledged.
        self.completed: Hook[Task] = Hook()

    def add(self, task: Task) -> None:
        task.framework.tasks[task.id] = task
        agent = task.agent
        if agent.tasks is None:
            agent.tasks = {}
        agent.tasks[(task.framework.id, task.id)] = task

    def free(self, task: Task) -> None:
        """Free the resources of a task that has ended, acknowledged or not, or whose agent is lost."""
        if not task.released:
            task.released = True
            self._offers.recover(task.agent, task.framework.id, task.role, task.resources)

    def complete(self, task: Task) -> None:
        """Remove a task whose terminal update is acknowledged."""
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

    def kill(self, task: Task) -> None:
        if task.runner is not None and not task.released:
            task.runner.kill(None)

    def abandon(self, task: Task) -> None:
        """Kill the task of a removed framework on a returning agent, without an update."""
        runner = task.runner
        self._updates.forget(task)
        self._forget(task)
        if runner is not None:
            runner.kill(0.0)

    def lose(self, task: Task, reason: str, message: str, state: str) -> None:
        """Declare a task lost permanently."""
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

    def drop(self, framework: Framework) -> None:
        """Remove the tasks of a removed framework: their processes are shut down and they count as killed."""
        for task in list(framework.tasks.values()):
            runner = task.runner
            self._updates.forget(task)
            if not task.released:
                self.free(task)
                self._record_removal(framework, task)
            self._end(task)
            if runner is not None:
                runner.kill(None)
        for task in list(framework.unreachable.values()):
            self.abandon(task)
        framework.unreachable.clear()

    def _record_removal(self, framework: Framework, task: Task) -> None:
        """Record the last update of the task for the lists; no framework receives it."""
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
