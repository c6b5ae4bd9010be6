"""The master: owner of frameworks, agents and tasks, and the place where the parts meet."""

from __future__ import annotations

import asyncio
import socket
import struct
import uuid
from collections.abc import Callable

from services.minicluster.accept import Accepts
from services.minicluster.agents import Agents
from services.minicluster.clock import Clock
from services.minicluster.frameworks import Frameworks
from services.minicluster.groups import Groups
from services.minicluster.images import Images
from services.minicluster.maintenance import Maintenance
from services.minicluster.model import Framework, Task
from services.minicluster.offers import Offers
from services.minicluster.operations import Operations
from services.minicluster.reconcile import Reconciler
from services.minicluster.resources import Json
from services.minicluster.settings import MiniclusterSettings
from services.minicluster.updates import Updates

VERSION = {
    "build_date": "2020-11-24 15:38:37",
    "build_time": 1606232317.0,
    "build_user": "ubuntu",
    "git_sha": "04bc7ee1984d86fbb0bd782ccc69ce44c13ae4b9",
    "git_tag": "1.11.0",
    "version": "1.11.0",
}


class Master:
    def __init__(self, settings: MiniclusterSettings, clock: Clock) -> None:
        self.settings = settings
        self.clock = clock
        self.id = str(uuid.uuid4())
        self.port = 0
        self.started_at = clock.wall()
        # Nobody leads: see failover.
        self.is_away = False
        self.live: dict[str, Framework] = {}
        self.images = Images(clock, self._download_s, settings.images_max)
        self.offers = Offers(settings, clock, self.live)
        self.updates = Updates(settings, clock)
        self.updates.on_terminal = self._release
        self.updates.on_done = self._done
        self.frameworks = Frameworks(self)
        self.agents = Agents(self)
        self.reconciler = Reconciler(self.updates, self.agents)
        self.operations = Operations(self)
        self.groups = Groups(self)
        self.accepts = Accepts(self)
        self.maintenance = Maintenance(self)
        self.offers.after_run = self.maintenance.offer_inverse
        self.on_task_added: Callable[[Task], None] | None = None

    def start(self, loop: asyncio.AbstractEventLoop, port: int) -> None:
        self.port = port
        self.offers.start(loop, self.id)

    def stop(self) -> None:
        self.offers.stop()
        for framework in self.live.values():
            framework.stream = None

    def info(self) -> Json:
        host = self.settings.host
        hostname = "localhost" if host.startswith("127.") else host
        return {
            "id": self.id,
            "ip": struct.unpack("<I", socket.inet_aton(host))[0],
            "port": self.port,
            "pid": f"master@{host}:{self.port}",
            "hostname": hostname,
            "version": VERSION["version"],
            "address": {"hostname": hostname, "ip": host, "port": self.port},
            # The empty entry is QUOTA_V2, which the v1 enum of this version cannot name.
            "capabilities": [{"type": "AGENT_UPDATE"}, {"type": "AGENT_DRAINING"}, {}],
        }

    def _download_s(self, host: str, image: str) -> float:
        usual_s = self.settings.image_download_s
        return self.settings.simulation.download_s(self.agents.by_name[host].spec, image, usual_s)

    # tasks

    def add_task(self, task: Task) -> None:
        task.framework.tasks[task.id] = task
        agent = task.agent
        if agent.tasks is None:
            agent.tasks = {}
        agent.tasks[(task.framework.id, task.id)] = task
        if self.on_task_added is not None:
            self.on_task_added(task)

    def _release(self, task: Task) -> None:
        """The latest state is terminal: the resources are free again, acknowledged or not."""
        task.released = True
        self.offers.recover(task.agent, task.framework.id, task.role, task.resources)
        if task.group is not None:
            # After the update that is on its way.
            self.clock.call_later(0.0, self.groups.task_ended, task)

    def _done(self, task: Task) -> None:
        """The terminal update is acknowledged: the task moves to the completed ones."""
        task.framework.completed.append(task)
        self.forget(task)
        self.agents.drained(task.agent)

    def forget(self, task: Task) -> None:
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

    def drop_tasks(self, framework: Framework) -> None:
        """The framework is gone: its processes are shut down and its tasks count as killed."""
        for task in list(framework.tasks.values()):
            runner = task.runner
            self.updates.forget(task)
            if not task.released:
                self._release(task)
                self._removed_with(framework, task)
            framework.completed.append(task)
            self.forget(task)
            if runner is not None:
                runner.kill(None)
        for task in list(framework.unreachable.values()):
            self.abandon(task)
        framework.unreachable.clear()
        self.groups.drop(framework)
        self.operations.drop(framework)

    def abandon(self, task: Task) -> None:
        """The task of a removed framework on an agent that was away: its process ends, nobody is told."""
        runner = task.runner
        self.updates.forget(task)
        self.forget(task)
        if runner is not None:
            runner.kill(0.0)

    def _removed_with(self, framework: Framework, task: Task) -> None:
        """Nobody is sent this update; it only shows in the lists and on the operator stream."""
        status: Json = {
            "task_id": {"value": task.id},
            "state": "TASK_KILLED",
            "message": f"Framework {framework.id} removed",
            "source": "SOURCE_MASTER",
            "reason": "REASON_FRAMEWORK_REMOVED",
            "agent_id": {"value": task.agent.id},
            "timestamp": self.clock.wall(),
        }
        task.state = "TASK_KILLED"
        task.statuses.append(status)
        if self.updates.on_change is not None:
            self.updates.on_change(task, status)

    def kill(self, framework: Framework, call: Json) -> None:
        task_id = call["task_id"]["value"]
        agent_id = call.get("agent_id", {}).get("value")
        task = framework.tasks.get(task_id)
        if task is None:
            self.reconciler.explicit(framework, task_id, agent_id)
            return
        if agent_id is not None and agent_id != task.agent.id:
            return
        if not task.agent.online:
            # Remembered: the agent hears of it when it registers again.
            self.agents.kill_later(task)
            return
        policy = call.get("kill_policy", {}).get("grace_period", {}).get("nanoseconds")
        # The command executor ignores the policy of a KILL; the default executor follows it.
        self.kill_task(task, None if policy is None or task.group is None else policy / 1e9)

    def kill_task(self, task: Task, grace_s: float | None = None) -> None:
        if task.runner is not None and not task.released:
            task.runner.kill(grace_s)

    def shutdown(self, call: Json) -> None:
        agent = self.agents.known.get(call["agent_id"]["value"])
        if agent is None or not agent.online:
            return
        executor_id = call["executor_id"]["value"]
        for task in list((agent.tasks or {}).values()):
            if task.id == executor_id or task.executor_id == executor_id:
                self.kill_task(task)
        self.groups.shutdown(agent, executor_id)
