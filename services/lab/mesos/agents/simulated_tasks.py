"""Agents without processes: a task is two status updates and one entry in the timer heap."""

from __future__ import annotations

import uuid
from signal import SIGTERM

from services.lab.mesos.agents import isolation
from services.lab.mesos.agents.task_info import image_of, labels_of, text_of, variables_of
from services.lab.mesos.agents.task_status import (
    EXECUTOR_TERMINATED,
    KILLED_BEFORE_START,
    Ending,
    by_itself,
    container_status,
    exit_message,
)
from services.lab.mesos.master.status_updates import StatusUpdates
from services.lab.mesos.model import Task, Usage
from services.lab.mesos.resources import THOUSAND, Json, scalars
from services.lab.mesos.settings import MiniclusterSettings
from services.lab.shared.clock import Clock, Timer
from services.lab.shared.images import Images
from services.lab.shared.simulation.behaviour import Behaviour, behaviour, simulate


class SimulatedTask:
    """Runner of one task; `timer` is the next event: the end of the image download, or of the task."""

    __slots__ = ("_plan", "_runtime", "_started_s", "_task", "_timer")

    def __init__(self, runtime: SimulatedRuntime, task: Task) -> None:
        self._runtime = runtime
        self._task = task
        self._plan = Behaviour(0.0, 1)  # on a degraded host
        self._timer: Timer | None = None
        self._started_s: float | None = None  # None: it waits for its image

    def start(self, info: Json) -> None:
        agent = self._task.agent
        if not agent.is_degraded:
            self._plan = self._runtime.behaviour(self._task, info)
        self._timer = self._runtime.images.use(agent.spec.name, image_of(info), self._begin) or self._timer

    def _begin(self) -> None:
        task, clock = self._task, self._runtime.clock
        self._started_s = clock.wall()
        task.container = container_status(str(uuid.uuid4()), "127.0.0.1")
        self._timer = clock.call_later(self._plan.seconds, self._end)
        self._runtime.report(task, "TASK_RUNNING")

    def _end(self) -> None:
        self._runtime.report(self._task, *by_itself(self._plan.signal or self._plan.code << 8))

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def usage(self) -> Usage | None:
        """Return a steady use of the task's share since its start."""
        if self._started_s is None:
            return None
        amounts, now_s, share = scalars(self._task.resources), self._runtime.clock.wall(), self._plan.share
        cpus, memory_mb = amounts.get("cpus", 0) / THOUSAND, amounts.get("mem", 0) / THOUSAND
        cpu_s = cpus * share * (now_s - self._started_s)
        return Usage(cpu_s, 0.0, int(memory_mb * share * 2**20), now_s)

    def kill(self, grace_s: float | None) -> None:
        self.cancel()
        task = self._task
        if self._started_s is None:
            self._runtime.report(task, *KILLED_BEFORE_START)
            return
        if "TASK_KILLING_STATE" in task.framework.capabilities:
            self._runtime.report(task, "TASK_KILLING")
        self._runtime.report(task, *Ending("TASK_KILLED", exit_message(SIGTERM)))


class SimulatedRuntime:
    """Runtime shared by all simulated agents: its whole input is in the task."""

    __slots__ = ("_isolation", "_simulation", "_task_variables", "_updates", "clock", "images", "report")

    def __init__(self, settings: MiniclusterSettings, clock: Clock, images: Images, updates: StatusUpdates) -> None:
        self.clock = clock
        self.images = images
        self._simulation = settings.simulation
        self._task_variables = settings.task_variables
        self._isolation = settings.isolation
        self._updates = updates
        self.report = updates.report

    def behaviour(self, task: Task, info: Json) -> Behaviour:
        command = info.get("command", {})
        text = text_of(command)
        requested = behaviour(text, variables_of(command), self._task_variables)
        labels = labels_of(info) if self._simulation.has_task_rules else {}
        return simulate(requested, self._simulation, task.agent.spec, task.id, text, labels)

    def launch(self, task: Task) -> None:
        info = task.info
        if isolation.refuse_limits(task, info, self._isolation, self._updates):
            return
        task.runner = runner = SimulatedTask(self, task)
        runner.start(info)

    def kill_all(self) -> None:
        """Do nothing: no process runs, and the master has lost the tasks already."""

    def crash(self, tasks: list[Task]) -> None:
        for task in tasks:
            if isinstance(task.runner, SimulatedTask):
                task.runner.cancel()
            self.report(task, *EXECUTOR_TERMINATED)

    async def close(self) -> None:
        """Do nothing: no process runs."""
