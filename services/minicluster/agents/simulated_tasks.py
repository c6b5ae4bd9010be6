"""Agents without processes: a task is two status updates and one entry in the timer heap."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from signal import SIGTERM

from services.minicluster.agents.images import Images, image_of
from services.minicluster.agents.task_status import (
    EXECUTOR_TERMINATED,
    KILLED_BEFORE_START,
    Ending,
    by_itself,
    container_status,
    exit_message,
)
from services.minicluster.clock import Clock, Timer
from services.minicluster.hosts import HostSpec
from services.minicluster.master.status_updates import StatusUpdates
from services.minicluster.model import Task, Usage
from services.minicluster.resources import THOUSAND, Json, scalars
from services.minicluster.settings import TASK_VARIABLES, MiniclusterSettings
from services.minicluster.simulation.outcomes import Simulation

_SLEEP = re.compile(r"\bsleep\s+(\d+(?:\.\d+)?)")
_EXIT = re.compile(r"\bexit\s+(\d+)\s*;?\s*$")


@dataclass(slots=True)
class Behaviour:
    """What a simulated command does: run for `seconds` on this `share` of its cpu and memory, then exit with `code`, or
    by `signal` if that is not 0."""

    seconds: float
    code: int
    share: float = 1.0
    signal: int = 0


def behaviour(command: Json, variables: str = TASK_VARIABLES) -> Behaviour:
    """A command runs for NAME_SECONDS of its environment, NAME being ``variables``, else for the sum of all `sleep N`.
    It ends with the code of a final `exit N`, and uses the share NAME_SHARE of what it asks for, else all of it."""
    text = _text(command)
    seconds = _number(command, f"{variables}_SECONDS")
    if seconds is None:
        seconds = sum(float(found) for found in _SLEEP.findall(text))
    share = _number(command, f"{variables}_SHARE")
    found = _EXIT.search(text)
    return Behaviour(seconds, int(found.group(1)) & 255 if found else 0, 1.0 if share is None else share)


def simulated(
    simulation: Simulation, host: HostSpec, task_id: str, info: Json, variables: str = TASK_VARIABLES
) -> Behaviour:
    """What a task does on a host: what its command says, or what a rule of the simulation says instead."""
    command = info.get("command", {})
    plan = behaviour(command, variables)
    text, labels = "", {}
    if simulation.has_task_rules:
        text = _text(command)
        labels = {row["key"]: row.get("value", "") for row in info.get("labels", {}).get("labels", ())}
    plan.seconds = simulation.run_s(host, task_id, text, labels, plan.seconds)
    failure = simulation.failure(task_id, text, labels)
    if failure is not None:
        rule, share = failure
        plan.seconds, plan.code, plan.signal = plan.seconds * share, rule.code, rule.signal
    return plan


def _text(command: Json) -> str:
    words = [command.get("value", "")]
    if command.get("shell") is False:
        words.extend(command.get("arguments", ()))
    return " ".join(words)


def _number(command: Json, variable: str) -> float | None:
    """The last value of the variable if it is a number, at least 0."""
    for entry in reversed(command.get("environment", {}).get("variables", ())):
        if entry["name"] == variable:
            try:
                return max(0.0, float(entry.get("value", "")))
            except ValueError:
                return None
    return None


class SimulatedTask:
    """The runner of one task; `timer` is what comes next: its image, then its end."""

    __slots__ = ("_plan", "_runtime", "_started_s", "_task", "_timer")

    def __init__(self, runtime: SimulatedRuntime, task: Task) -> None:
        self._runtime = runtime
        self._task = task
        if task.agent.sick:
            self._plan = Behaviour(0.0, 1)
        else:
            self._plan = simulated(runtime.simulation, task.agent.spec, task.id, task.info, runtime.task_variables)
        self._timer: Timer | None = None
        self._started_s: float | None = None  # None: it waits for its image

    def start(self) -> None:
        waiting = self._runtime.images.use(self._task.agent.spec.name, image_of(self._task.info), self._begin)
        if waiting is not None:
            self._timer = waiting

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
        """Steady use of its share from the start."""
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
    """Shared by all simulated agents: everything it needs to know is in the task."""

    __slots__ = ("clock", "images", "report", "simulation", "task_variables")

    def __init__(self, settings: MiniclusterSettings, clock: Clock, images: Images, updates: StatusUpdates) -> None:
        self.clock = clock
        self.images = images
        self.simulation = settings.simulation
        self.task_variables = settings.task_variables
        self.report = updates.report

    def launch(self, task: Task) -> None:
        task.runner = runner = SimulatedTask(self, task)
        runner.start()

    def kill_all(self) -> None:
        """No process runs, and the master has lost the tasks already."""

    def crash(self, tasks: list[Task]) -> None:
        for task in tasks:
            if isinstance(task.runner, SimulatedTask):
                task.runner.cancel()
            self.report(task, *EXECUTOR_TERMINATED)

    async def close(self) -> None:
        """Nothing to wait for."""
