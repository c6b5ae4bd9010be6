"""Tasks that share an executor: LAUNCH_GROUP with the default executor."""

from __future__ import annotations

import uuid

import orjson

from services.lab.mesos.identifiers import id_fault
from services.lab.mesos.master import scheduler_events
from services.lab.mesos.master.offers import Offers
from services.lab.mesos.master.status_updates import StatusUpdates
from services.lab.mesos.master.task_rules import (
    EXECUTOR_MIN_CPUS,
    EXECUTOR_MIN_MEM,
    Wanted,
    custom_executor_fault,
    resource_fault,
    task_fault,
)
from services.lab.mesos.master.tasks import Tasks
from services.lab.mesos.model import Acceptance, Agent, Executor, Framework, Task
from services.lab.mesos.resources import Json, Resources, parse, scalars, take_from, text
from services.lab.shared.clock import Clock

_LINGER_S = 0.1
"""Time in seconds for which a default executor stays after its last task."""


class TaskGroups:
    def __init__(self, clock: Clock, offers: Offers, updates: StatusUpdates, tasks: Tasks) -> None:
        self._clock = clock
        self._offers = offers
        self._updates = updates
        self._tasks = tasks

    # LAUNCH_GROUP

    def launch(self, acceptance: Acceptance, operation: Json) -> None:
        """Launch all tasks of a group or none: one invalid task rejects the whole group."""
        infos: list[Json] = operation["task_group"].get("tasks", [])
        info = operation["executor"]
        framework, agent, role = acceptance.framework, acceptance.agent, acceptance.role
        existing = framework.executors.get((agent.id, info["executor_id"]["value"]))
        fault = self._fault(acceptance, info, infos, existing)
        if fault is not None:
            self._updates.refuse(framework, infos, "TASK_ERROR", "REASON_TASK_GROUP_INVALID", fault)
            return
        executor = existing or self._add(framework, agent, info, role)
        if existing is None:
            take_from(acceptance.left, executor.resources)
        tasks: list[Task] = []
        for task_info in infos:
            resources = Wanted(role).add(task_info["resources"], role).resources
            take_from(acceptance.left, resources)
            task_id, info_json = task_info["task_id"]["value"], orjson.dumps(task_info)
            task = Task(task_id, framework, agent, info_json, resources, role, executor, tasks)
            executor.tasks[task.id] = task
            self._tasks.add(task)
            tasks.append(task)
        for task in tasks:
            agent.runtime.launch(task)

    def _add(self, framework: Framework, agent: Agent, info: Json, role: str) -> Executor:
        id_, resources = info["executor_id"]["value"], parse(info.get("resources", ()))
        executor = Executor(id_, framework, agent, info, resources, role, str(uuid.uuid4()))
        framework.executors[(agent.id, executor.id)] = executor
        if agent.executors is None:
            agent.executors = {}
        agent.executors[(framework.id, executor.id)] = executor
        return executor

    def _fault(self, acceptance: Acceptance, info: Json, infos: list[Json], existing: Executor | None) -> str | None:
        framework, agent = acceptance.framework, acceptance.agent
        fault = _executor_fault(framework, info, existing)
        if fault is not None:
            return fault
        for task_info in infos:
            fault = resource_fault(task_info.get("resources", ())) or task_fault(framework, agent, task_info)
            if fault is None and _differs(task_info, info):
                return (
                    f"The `ExecutorInfo` of task '{task_info['task_id']['value']}' is different from "
                    f"executor '{info['executor_id']['value']}'"
                )
            if fault is not None:
                return f"Task '{task_info['task_id']['value']}' is invalid: {fault}"
        wanted = Wanted(acceptance.role)
        for task_info in infos:
            wanted.add(task_info["resources"], acceptance.role)
        if existing is None:
            wanted.add(info.get("resources", ()), acceptance.role)
        if not wanted.fits(acceptance.left):
            return (
                f"Total resources {wanted.text()} required by task group and its executor are more than available "
                f"{text(acceptance.left, acceptance.role)}"
            )
        return None

    # ends

    def task_released(self, task: Task) -> None:
        if task.group is not None:
            # After the pending update.
            self._clock.call_later(0.0, self._end_task, task)

    def _end_task(self, task: Task) -> None:
        """Kill the group of a task that did not finish with 0, and terminate an executor without tasks."""
        executor = task.group
        if executor is None or executor.tasks.pop(task.id, None) is None:
            return
        if task.state != "TASK_FINISHED":
            for other in task.peers:
                if other is not task:
                    self._tasks.kill(other)
        if not executor.tasks:
            self._clock.call_later(_LINGER_S, self._end_idle, executor)

    def _end_idle(self, executor: Executor) -> None:
        if not executor.tasks:
            self._terminate(executor)

    def _terminate(self, executor: Executor) -> None:
        framework, agent = executor.framework, executor.agent
        if framework.executors.pop((agent.id, executor.id), None) is None:
            return
        if agent.executors is not None:
            agent.executors.pop((framework.id, executor.id), None)
            agent.executors = agent.executors or None
        if agent.registered:
            self._offers.recover(agent, framework.id, executor.role, executor.resources)
        framework.send(scheduler_events.failure(agent.id, executor.id))

    def shutdown(self, framework: Framework, agent: Agent, executor_id: str) -> None:
        executor = framework.executors.get((agent.id, executor_id))
        if executor is not None:
            self._end_idle(executor)

    def drop(self, framework: Framework) -> None:
        for executor in list(framework.executors.values()):
            self._terminate(executor)


def _executor_fault(framework: Framework, info: Json, existing: Executor | None) -> str | None:
    id_ = info["executor_id"]["value"]
    fault = id_fault(id_)
    if fault is not None:
        return fault
    if "type" not in info:
        return "'ExecutorInfo.type' must be set"
    if info["type"] == "DEFAULT" and "command" in info:
        return "'ExecutorInfo.command' must not be set for 'DEFAULT' executor"
    if info["type"] != "DEFAULT":
        return custom_executor_fault(info)
    if "framework_id" not in info:
        return "'ExecutorInfo.framework_id' must be set"
    if info["framework_id"]["value"] != framework.id:
        return (
            f"ExecutorInfo has an invalid FrameworkID (Actual: {info['framework_id']['value']} vs "
            f"Expected: {framework.id})"
        )
    if existing is not None:
        if existing.info != info:
            return "ExecutorInfo is not compatible with existing ExecutorInfo with same ExecutorID."
        return None
    return _size_fault(id_, parse(info.get("resources", ())))


def _size_fault(id_: str, resources: Resources) -> str | None:
    amounts = scalars(resources)
    cpus, mem = amounts.get("cpus"), amounts.get("mem")
    if cpus is None:
        return f"Executor '{id_}' uses no CPUs"
    if cpus < EXECUTOR_MIN_CPUS:
        return f"Executor '{id_}' uses less CPUs ({cpus / 1000:g}) than the minimum required (0.01)"
    if mem is None:
        return f"Executor '{id_}' uses no memory"
    if mem < EXECUTOR_MIN_MEM:
        return f"Executor '{id_}' uses less memory ({mem / 1000:g}MB) than the minimum required (32MB)"
    if "disk" not in amounts:
        return f"Executor '{id_}' uses no disk"
    return None


def _differs(task_info: Json, executor: Json) -> bool:
    return "executor" in task_info and task_info["executor"] != executor
