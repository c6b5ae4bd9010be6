"""Real tasks: one process group per task, from launch to the last update."""

from __future__ import annotations

import asyncio
import os
import pwd
import signal
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from services.lab.mesos.agents import isolation, sandboxes
from services.lab.mesos.agents.health_checks import run_health_check
from services.lab.mesos.agents.sandbox_collector import Collector
from services.lab.mesos.agents.sessions import Sessions
from services.lab.mesos.agents.task_info import argv_of, gpu_count, image_of, variables_of
from services.lab.mesos.agents.task_status import (
    EXECUTOR_TERMINATED,
    KILLED_BEFORE_START,
    Ending,
    by_agent,
    by_itself,
    container_status,
    exit_message,
)
from services.lab.mesos.agents.usage_monitor import UsageMonitor
from services.lab.mesos.master.status_updates import StatusUpdates
from services.lab.mesos.model import Task, Usage
from services.lab.mesos.nanoseconds import NANOS_PER_SECOND
from services.lab.mesos.resources import Json
from services.lab.mesos.settings import MiniclusterSettings
from services.lab.shared.clock import Clock, Timer
from services.lab.shared.gpus import Gpus
from services.lab.shared.images import Images
from services.lab.shared.processes import Command, Processes, kill_group

EXECUTOR = "minicluster-executor"
"""Name that ps shows for the process representing the executor of a task."""


class Container:
    """Runner of one task. Phases: waiting (no pid), running (pid), ended."""

    def __init__(self, runtime: ProcessRuntime, task: Task) -> None:
        self.runtime = runtime
        self.task = task
        self.id = str(uuid.uuid4())
        self.directory: Path | None = None
        self.secrets: list[Path] = []  # files with secrets of the task, deleted at its end
        self.pid: int | None = None
        self.executor_pid: int | None = None
        self.killing = False
        self.ended = False
        self.last_usage: Usage | None = None
        self._unhealthy = False
        # Set when something other than the framework or the command ends the task.
        self._verdict: Ending | None = None
        self._timers: list[Timer] = []
        self._check: asyncio.Task[None] | None = None
        clock = runtime.clock
        self._start_timer = clock.call_later(runtime.settings.executor_start_s, self._wait_for_image)

    # start

    def _wait_for_image(self) -> None:
        task = self.task
        waiting = self.runtime.images.use(task.agent.spec.name, image_of(task.info), self._start)
        self._start_timer = waiting or self._start_timer

    def _start(self) -> None:
        task = self.task
        command: Json = task.info.get("command", {})
        self.directory = sandboxes.create(self.runtime.settings.data_dir, task, self.id)
        for name in ("stdout", "stderr"):
            (self.directory / name).touch()
        try:
            sandboxes.link_volumes(self.runtime.settings.data_dir, task, self.directory)
        except FileNotFoundError as error:
            self._fail_launch(str(error))
            return
        if isolation.has(self.runtime.settings.isolation, isolation.SECRETS):
            self.secrets = sandboxes.write_secrets(task, self.directory)
        user = self._user(command)
        if user is not None:
            try:
                account = pwd.getpwnam(user)
            except KeyError:
                path = self.directory / "stdout"
                self._fail_launch(f"Failed to chown '{path}' to user '{user}' : No such user '{user}'")
                return
            for path in (self.directory, self.directory / "stdout", self.directory / "stderr", *self.secrets):
                os.chown(path, account.pw_uid, account.pw_gid)
        uris = command.get("uris")
        if uris:
            loop = asyncio.get_running_loop()
            future = loop.run_in_executor(None, sandboxes.fetch, uris, self.directory)
            future.add_done_callback(self._finish_fetch)
        else:
            self._run()

    def _finish_fetch(self, future: asyncio.Future[None]) -> None:
        error = future.exception()
        if self.ended or self.runtime.closed:
            return
        if error is None:
            self._run()
            return
        assert self.directory is not None
        (self.directory / "stderr").write_text(f"{error}\n", encoding="utf-8")
        self._fail_launch(f"Failed to fetch all URIs for container '{self.id}': exited with status 1")

    def _fail_launch(self, why: str) -> None:
        self._end(by_agent("REASON_CONTAINER_LAUNCH_FAILED", f"Failed to launch container: {why}"))

    def _user(self, command: Json) -> str | None:
        """Return the account to run as, None for the own one."""
        if not self.runtime.settings.switch_user:
            return None
        name: str = command.get("user") or self.task.framework.info.get("user", "")
        return None if not name or name == pwd.getpwuid(os.geteuid()).pw_name else name

    def _run(self) -> None:
        task, runtime, directory = self.task, self.runtime, self.directory
        assert directory is not None
        failed = False
        with (directory / "stdout").open("ab") as stdout, (directory / "stderr").open("ab") as stderr:
            try:
                if task.agent.is_degraded:
                    raise OSError("the host is degraded")
                self.executor_pid = runtime.processes.spawn_idle(EXECUTOR, task.id, self._handle_executor_exit)
                self.pid = runtime.processes.spawn(
                    self.command(task.info.get("command", {})),
                    stdout=stdout,
                    stderr=stderr,
                    on_exit=self._handle_exit,
                )
            except (OSError, ValueError) as error:
                # Same result as Mesos's launcher: the executor runs, its command exits with 1.
                stderr.write(f"Failed to execute command: {error}\n".encode())
                failed = True
        task.container = container_status(self.id, runtime.settings.host)
        task.container["executor_pid"] = self.executor_pid or self.pid or os.getpid()
        runtime.updates.report(task, "TASK_STARTING")
        runtime.updates.report(task, "TASK_RUNNING")
        if failed:
            self._end(by_itself(1 << 8))
            return
        runtime.monitor.watch(self)
        if "health_check" in task.info:
            self._check = asyncio.create_task(run_health_check(self, runtime.clock, runtime.processes))

    def command(self, command: Json) -> Command:
        """Convert a CommandInfo to a command in the sandbox with the environment of the task."""
        assert self.directory is not None
        settings = self.runtime.settings
        environment = sandboxes.environment(self.task, self.directory, settings.host, settings.pass_env)
        environment |= self.runtime.gpus.grant(self.task.agent.spec.name, self.id, gpu_count(self.task.info))
        argv, executable = argv_of(command)
        return Command(argv, executable, self.directory, environment | variables_of(command), self._user(command))

    def _call_later(self, seconds: float, function: Callable[..., None], *args: object) -> None:
        self._timers.append(self.runtime.clock.call_later(seconds, function, *args))

    def report_health(self, healthy: bool) -> None:
        reason = "REASON_TASK_HEALTH_CHECK_STATUS_UPDATED"
        self.runtime.updates.report(self.task, "TASK_RUNNING", reason=reason, healthy=healthy)

    def usage(self) -> Usage | None:
        return self.last_usage

    # end

    def kill(self, grace_s: float | None) -> None:
        """Send SIGTERM to the group, and SIGKILL after the task's grace period (the policy in a KILL call is
        ignored)."""
        if self.ended:
            return
        if self.pid is None:
            self._end(KILLED_BEFORE_START)
            return
        if self.killing:
            return
        self.killing = True
        if "TASK_KILLING_STATE" in self.task.framework.capabilities:
            self.runtime.updates.report(self.task, "TASK_KILLING")
        if grace_s is None:
            policy = self.task.info.get("kill_policy", {}).get("grace_period", {}).get("nanoseconds")
            grace_s = self.runtime.settings.kill_grace_s if policy is None else policy / NANOS_PER_SECOND
        kill_group(self.pid, signal.SIGTERM)
        self._call_later(grace_s, kill_group, self.pid, signal.SIGKILL)

    def unhealthy(self) -> None:
        """Kill the task, whose health check failed too often."""
        self._unhealthy = True
        self.kill(None)

    def limit_reached(self, reason: str, message: str) -> None:
        """Destroy the container, which uses too much memory or disk."""
        if not self.ended and self.pid is not None:
            self._verdict = by_agent(reason, message)
            kill_group(self.pid, signal.SIGKILL)

    def crash(self) -> None:
        """End the processes of a crashed executor at once; if the agent crashed too, it sends the update when it
        returns."""
        if self.ended:
            return
        self._verdict = EXECUTOR_TERMINATED
        if self.pid is None:
            self._handle_exit(0)
        else:
            kill_group(self.pid, signal.SIGKILL)

    def _handle_executor_exit(self, status: int) -> None:
        """Destroy the container of an executor that was killed from outside, like an agent."""
        self.crash()

    def abandon(self) -> None:
        """Stop sending updates: the minicluster stops, and `Processes` kills the process."""
        self.ended = True
        self._remove_secrets()
        self._stop_check()

    def _stop_check(self) -> None:
        if self._check is not None and self._check is not asyncio.current_task():
            self._check.cancel()

    def _remove_secrets(self) -> None:
        for path in self.secrets:
            path.unlink(missing_ok=True)

    def _handle_exit(self, status: int) -> None:
        if self.ended:
            return
        if self._verdict is not None:
            self._end(self._verdict)
        elif self.killing:
            self._end(Ending("TASK_KILLED", exit_message(status)), healthy=False if self._unhealthy else None)
        else:
            self._end(by_itself(status))

    def _end(self, ending: Ending, healthy: bool | None = None) -> None:
        self.ended = True
        self._remove_secrets()
        self._start_timer.cancel()
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._stop_check()
        self.runtime.gpus.give_back(self.task.agent.spec.name, self.id)
        self.runtime.on_end(self)
        if self.executor_pid is not None:
            kill_group(self.executor_pid, signal.SIGKILL)
        self.runtime.updates.report(self.task, *ending, healthy=healthy)


@dataclass(eq=False)
class ProcessRuntime:
    """Containers of one agent, by id."""

    settings: MiniclusterSettings
    clock: Clock
    updates: StatusUpdates
    images: Images
    processes: Processes
    monitor: UsageMonitor
    collector: Collector
    sessions: Sessions
    gpus: Gpus = field(default_factory=Gpus)
    containers: dict[str, Container] = field(default_factory=dict)
    closed: bool = False

    def launch(self, task: Task) -> None:
        if isolation.refuse_limits(task, task.info, self.settings.isolation, self.updates):
            return
        container = Container(self, task)
        task.runner = container
        self.containers[container.id] = container

    def is_secret(self, path: Path) -> bool:
        """Return whether a file contains a secret of a task."""
        return any(path in container.secrets for container in self.containers.values())

    def on_end(self, container: Container) -> None:
        self.containers.pop(container.id, None)
        if container.directory is not None:
            self.collector.keep(container.directory)
        self.monitor.forget(container)
        self.sessions.parent_ended(container.id)

    def kill_all(self) -> None:
        for container in list(self.containers.values()):
            container.kill(0.0)

    def crash(self, tasks: list[Task]) -> None:
        for container in list(self.containers.values()):
            container.crash()

    async def close(self) -> None:
        self.closed = True
        for container in list(self.containers.values()):
            container.abandon()
        self.sessions.close()
